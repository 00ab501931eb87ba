"""A disk that is full or read-only: a clear word, the right exit code, and nothing lost."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounts import mounted
from tests.workspaces import Place

BOOK = "### a\n```sh\necho one > words; echo a\n```\n### b\n```sh\necho b\n```\nrepeatable\n"


@pytest.fixture
def small(place: Place) -> Iterator[Place]:
    """A workspace on a disk of two megabytes."""
    with mounted("tmpfs", "size=2m", place.root):
        yield place


def fill(place: Place) -> Path:
    """Leave no room at all, and return the file that takes it."""
    filler = place.root / "filler"
    with filler.open("wb", buffering=0) as file:
        size = 65536
        while size >= 1:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
    return filler


def test_a_full_disk_stops_the_run_in_words_and_it_goes_on_when_there_is_room(small: Place) -> None:
    small.agentfs("plan", small.runbook(BOOK))
    plan = small.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace('"draft"', '"approved"'))
    filler = fill(small)
    full = small.agentfs("run", "--resume", "job", code=2)
    assert "No space left on device" in full.stderr
    filler.unlink()
    assert small.agentfs("run", "--resume", "job").stdout == "b\n"
    assert small.read("outcome.json")["status"] == "done"
    small.ledger_is_sound()


def test_a_full_disk_at_intake_leaves_no_half_run(small: Place) -> None:
    small.agentfs("init")
    name = small.runbook(BOOK)
    filler = fill(small)
    assert "No space left on device" in small.agentfs("run", name, code=2).stderr
    filler.unlink()
    assert small.agentfs("run", name).stdout == "b\n"
    assert [path.name for path in small.run_folder().parent.iterdir()] == ["job"]


def test_a_read_only_disk(small: Place) -> None:
    small.agentfs("init")
    name = small.runbook(BOOK)
    subprocess.run(["mount", "-o", "remount,ro", str(small.root)], check=True)
    try:
        assert "cannot be written" in small.agentfs("run", name, code=2).stderr
        assert small.agentfs("status").returncode == 0
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small.root)], check=True)
    assert os.listdir(small.root / "goals") == []
