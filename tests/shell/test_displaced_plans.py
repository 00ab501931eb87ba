"""A save into a plan that was exchanged out of its place: put back, or kept beside; never lost."""

import os
from pathlib import Path

import pytest

from agentfs.engine.world import sweep
from agentfs.storage.completeness import Completeness
from agentfs.storage.plan_files import DisplacedFile, install, look_after
from agentfs.storage.timing import TIMING


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose plan is its first revision."""
    (tmp_path / "revisions").mkdir()
    for part in ("steps", "planning"):
        (tmp_path / part).mkdir()
    (tmp_path / "revisions" / "1.plan.json").write_bytes(b"old")
    (tmp_path / "plan.json").write_bytes(b"old")
    return tmp_path


def _installed(folder: Path, content: bytes = b"new") -> DisplacedFile:
    """Install the next revision, and return what came out."""
    placed, leftover = install(folder / "plan.json", content, b"old")
    assert placed
    assert leftover is not None
    (folder / "revisions" / "2.plan.json").write_bytes(content)
    return leftover


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_one_that_nobody_wrote_to_goes_away(folder: Path) -> None:
    assert look_after(folder, [_installed(folder)], Completeness()) == []
    assert _names(folder) == ["plan.json"]


def test_one_that_is_open_is_kept_until_it_is_closed(folder: Path) -> None:
    with (folder / "plan.json").open("r+b") as editor:
        leftover = _installed(folder)
        assert look_after(folder, [leftover], Completeness()) == [leftover]
        editor.write(b"an edit")
        editor.flush()
        assert look_after(folder, [leftover], Completeness()) == [leftover]
    (another,) = look_after(folder, [leftover], Completeness())
    assert (folder / "plan.json").read_bytes() == b"an edit"
    assert look_after(folder, [another], Completeness()) == []
    assert _names(folder) == ["plan.json"]


def test_a_save_that_another_one_overtook_is_kept_beside(folder: Path) -> None:
    leftover = _installed(folder)
    leftover.path.write_bytes(b"an edit")
    (folder / "plan.json").write_bytes(b"another edit")
    assert look_after(folder, [leftover], Completeness()) == []
    assert (folder / "plan.json").read_bytes() == b"another edit"
    assert (folder / "plan.saved-1.json").read_bytes() == b"an edit"


def test_where_nobody_can_tell_who_writes_it_has_to_hold_still(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfs.storage.plan_files.is_being_written", lambda _path: None)
    monkeypatch.setattr("agentfs.storage.completeness.is_being_written", lambda _path: None)
    now = [0.0]
    still, leftover = Completeness(clock=lambda: now[0]), _installed(folder)
    for part, waits in ((0.0, True), (0.9, True), (1.1, False)):
        now[0] = part * TIMING.complete_without_lease
        assert bool(look_after(folder, [leftover], still)) is waits


def test_what_a_dead_driver_left_is_swept_but_not_a_save(folder: Path) -> None:
    from agentfs.core.hashing import sha256_bytes

    (folder / ".plan.99999999.2.3.tmp").write_bytes(b"ours")
    (folder / ".plan.99999999.2.4.tmp").write_bytes(b"a person's")
    (folder / ".plan.99999999.2.5.tmp").write_bytes(b"")
    (folder / "steps" / ".new.99999999.2.6.tmp").write_bytes(b"half a re")
    sweep(folder, {sha256_bytes(b"ours")})
    assert _names(folder) == ["plan.json", "plan.saved-1.json"]
    assert (folder / "plan.saved-1.json").read_bytes() == b"a person's"
    assert os.listdir(folder / "steps") == []
