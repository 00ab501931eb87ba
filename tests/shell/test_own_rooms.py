"""The sandbox of own tools: the same one for as long as nothing it was made from has changed, however that is seen."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs.tools.base import Confinement
from agentfs.tools.listings import SETTLED_NS
from agentfs.tools.own_rooms import Rooms
from agentfs.tools.own_source import Source, sources
from tests.benches import a_workspace
from tests.workspaces import wait_for


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a workspace with a tool in it, and a folder to work in that holds another and half a repository."""
    made = a_workspace(tmp_path)
    (made / "tools").mkdir(exist_ok=True)
    (made / "tools" / "shop.py").write_text("from agentfs import tool\n")
    (made / "work" / "part").mkdir(parents=True)
    (made / "work" / "half" / ".git").mkdir(parents=True)
    return made


def a_confinement(workspace: Path, workdir: str) -> Confinement:
    return Confinement(workspace / "work" / workdir, workspace, workspace / "runs" / "files", sandbox="bubblewrap")


def settle() -> None:
    """Wait until what was done is older than a tick of the file system's clock."""
    began = time.monotonic_ns()
    wait_for(lambda: time.monotonic_ns() - began > 2 * SETTLED_NS, "a moment to pass")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a tool is edited": lambda root: (root / "tools" / "shop.py").write_text("from agentfs import tool  # more\n"),
    "a tool comes": lambda root: (root / "tools" / "more.py").write_text("from agentfs import tool\n"),
    "a repository comes": lambda root: _repository(root / "work" / "part" / ".git"),
    "a repository comes deeper": lambda root: _repository(root / "work" / "part" / "new" / ".git"),
    "another folder is there": lambda root: _another(root / "work" / "part"),
}


def _another(folder: Path) -> None:
    beside = folder.with_name("other")
    beside.mkdir()
    shutil.rmtree(folder)
    beside.rename(folder)


def _repository(folder: Path) -> None:
    for part in ("objects", "refs", "hooks"):
        (folder / part).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text("[core]\n")


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_the_same_until_something_changes(workspace: Path, change: str) -> None:
    """That it can fail was tried: without the times of what was looked through, only another folder is noticed."""
    rooms, (source,) = Rooms(), sources(workspace, installed=False)
    confinement = a_confinement(workspace, "part")
    settle()
    first = rooms.room(confinement, source)
    assert all(rooms.room(confinement, source) is first for _ in range(3))
    (workspace / "notes.md").write_text("beside it")
    assert rooms.room(confinement, source) is first
    CHANGES[change](workspace)
    second = rooms.room(confinement, source)
    assert second is not first
    settle()
    assert all(rooms.room(confinement, source) is second for _ in range(3))


def test_half_a_repository_that_becomes_one_is_fenced(workspace: Path) -> None:
    """No folder that was looked through changes with it. Kept at a glance, it would not be noticed: that was tried."""
    rooms, (source,) = Rooms(), sources(workspace, installed=False)
    confinement = a_confinement(workspace, "half")
    settle()
    first = rooms.room(confinement, source)
    assert rooms.room(confinement, source) is first
    _repository(workspace / "work" / "half" / ".git")
    second = rooms.room(confinement, source)
    assert second is not first
    assert second.layout.view.repositories == (str(workspace / "work" / "half" / ".git"),)


def test_a_glance_is_a_few_calls(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms, (source,) = Rooms(), sources(workspace, installed=False)
    confinement = a_confinement(workspace, "part")
    settle()
    rooms.room(confinement, source)
    calls: list[str] = []
    stat = os.stat

    def counted(path: str) -> os.stat_result:
        calls.append(path)
        return stat(path)

    monkeypatch.setattr(os, "stat", counted)
    rooms.room(confinement, source)
    assert len(calls) == len(set(calls)) <= 5


def test_a_source_without_a_file_has_no_stamp(workspace: Path) -> None:
    rooms, confinement = Rooms(), a_confinement(workspace, "part")
    entry = Source("the entry point shop", None, "shop:tool")
    settle()
    assert rooms.room(confinement, entry) is rooms.room(confinement, entry)
