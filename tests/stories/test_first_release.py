"""A workspace of the first release: its runs are read, verified and replayed, and one that waits goes on.

`tests/recordings/first-release.tar.xz` was written by that release: a runbook that ended (`report`), one that waits at
a gate (`send`), and a goal that a model planned, with a hand edit (`shop`).
"""

import json
import tarfile
from pathlib import Path

import pytest

from tests.workspaces import Place

WORKSPACE = Path(__file__).parent.parent / "recordings" / "first-release.tar.xz"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    with tarfile.open(WORKSPACE) as archive:
        archive.extractall(place.root, filter="data")
    place.agentfs("trust", ".")
    return place


def test_its_runs_are_shown(place: Place) -> None:
    states = {
        one["run"].partition("/")[2]: one["state"] for one in json.loads(place.agentfs("status", "--json").stdout)
    }
    assert states == {"report": "done", "send": "waiting", "shop": "done"}
    shown = json.loads(place.agentfs("show", "report", "--json").stdout)
    assert {step["id"]: (step["state"], step["output"]) for step in shown["steps"]} == {
        "count": ("done", "12"),
        "publish-plainly": ("done", "12 rows"),
    }
    assert "painted it blue" in place.agentfs("show", "shop", "send").stdout


def test_they_agree_with_their_ledger(place: Place) -> None:
    assert "files and ledger agree" in place.agentfs("verify").stderr


def test_they_are_replayed(place: Place) -> None:
    assert (
        place.agentfs("replay", "report").stdout
        == "replayed: the same 2 calls, 4 attempts, 2 revisions, outcome done\n"
    )
    assert place.agentfs("replay", "send").stdout.endswith("as far as it has come\n")
    lenient = place.agentfs("replay", "shop", "--lenient")  # the prompts have changed since
    assert lenient.stdout == "replayed: the same 3 calls, 5 attempts, 3 revisions, outcome done\n"


def test_one_that_waits_goes_on(place: Place) -> None:
    place.agentfs("approve", "send")
    assert place.agentfs("run", "--resume", "send").stdout == "dear all\n"
    assert place.agentfs("replay", "send").stdout.endswith("3 attempts, 1 revision, outcome done\n")
    assert "files and ledger agree" in place.agentfs("verify").stderr
