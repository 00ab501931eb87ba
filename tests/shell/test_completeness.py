"""When a file that another process writes is complete."""

import os
import time
from pathlib import Path

import pytest

from agentfs.storage.completeness import Completeness, is_being_written, shared_filesystem
from agentfs.storage.files import signature
from agentfs.storage.timing import TIMING
from tests.mounts import mirrored


def _clocked() -> tuple[Completeness, list[float]]:
    now = [0.0]
    return Completeness(clock=lambda: now[0]), now


def test_it_has_to_hold_still_by_the_monotonic_clock(tmp_path: Path) -> None:
    still, now = _clocked()
    path = tmp_path / "goal.md"
    path.write_text("half")
    assert not still.is_complete(path)
    now[0] = 0.9 * TIMING.complete
    assert not still.is_complete(path)
    path.write_text("whole now")
    now[0] = 1.1 * TIMING.complete
    assert not still.is_complete(path)
    now[0] = 2.2 * TIMING.complete
    assert still.is_complete(path)


def test_a_writer_that_has_it_open_keeps_it_from_being_complete(tmp_path: Path) -> None:
    still, now = _clocked()
    path = tmp_path / "goal.md"
    with path.open("w") as writer:
        writer.write("slow")
        writer.flush()
        still.is_complete(path)
        now[0] = 100.0
        assert is_being_written(path) is True
        assert not still.is_complete(path)
    assert is_being_written(path) is False
    now[0] = 200.0
    assert still.is_complete(path)


def test_a_reader_is_not_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "goal.md"
    path.write_text("x")
    with path.open():
        assert is_being_written(path) is False


def test_asking_does_not_hold_a_writer_up(tmp_path: Path) -> None:
    path = tmp_path / "goal.md"
    path.write_text("x")
    began = time.monotonic()
    for _ in range(50):
        is_being_written(path)
        path.write_text("y")
    assert time.monotonic() - began < 20  # a lease left behind would cost 45 s each


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "symlink"])
def test_what_is_no_regular_file_is_never_complete(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "goal.md"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "symlink":
        (tmp_path / "real").write_text("x")
        path.symlink_to("real")
    still, now = _clocked()
    for moment in (0.0, 10.0):
        now[0] = moment
        assert not still.is_complete(path)
    assert signature(path) is None


def test_where_leases_are_not_to_be_had_it_takes_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfs.storage.completeness.is_being_written", lambda _path: None)
    still, now = _clocked()
    path = tmp_path / "goal.md"
    path.write_text("x")
    for part, complete in ((0.0, False), (0.9, False), (1.0, True)):
        now[0] = part * TIMING.complete_without_lease
        assert still.is_complete(path) is complete


def test_a_file_system_that_others_write_to_is_known(tmp_path: Path) -> None:
    assert shared_filesystem(tmp_path) is None
    assert shared_filesystem(tmp_path / "nowhere") is None
    (tmp_path / "back").mkdir()
    (tmp_path / "front").mkdir()
    with mirrored(tmp_path / "back", tmp_path / "front") as front:
        assert shared_filesystem(front) == "FUSE"
        (front / "goal.md").write_text("x")
        assert is_being_written(front / "goal.md") is None
        assert is_being_written(tmp_path / "back" / "goal.md") is False
