"""Recorded runs are played again: a change of behaviour that is felt in one of them shows here, with its first file."""

from pathlib import Path

import pytest

from agentfs.testing import replay

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = sorted(path.parent.name for path in RECORDINGS.glob("*/run.json"))


def test_there_are_recordings() -> None:
    assert NAMES == ["loop", "shop"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_goes_as_it_went(name: str) -> None:
    replayed = replay(RECORDINGS / name, environment={})
    decided = [departure for departure in replayed.departures if not departure.request]
    assert decided == [], "if that is meant: python -m tests.recordings.record (a prompt may change freely)"
    assert replayed.outcome == "done"
