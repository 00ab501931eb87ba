"""The sandbox of a person's tools: the same one for as long as nothing it was made from has changed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs.tools.base import Confinement
from agentfs.tools.registry import sources
from agentfs.tools.user_tool_calls import find_place
from agentfs.tools.user_tools import Source
from tests.contexts import a_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a workspace with a tool in it, and a folder to work in that holds half a repository."""
    made = a_workspace(tmp_path)
    (made / "tools").mkdir(exist_ok=True)
    (made / "tools" / "shop.py").write_text("from agentfs import tool\n")
    (made / "work" / "part" / "half" / ".git").mkdir(parents=True)
    return made


def a_confinement(workspace: Path) -> Confinement:
    return Confinement(workspace / "work" / "part", workspace, workspace / "runs" / "files", sandbox="bubblewrap")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a tool is edited": lambda root: (root / "tools" / "shop.py").write_text("from agentfs import tool  # more\n"),
    "a tool comes": lambda root: (root / "tools" / "more.py").write_text("from agentfs import tool\n"),
    "a repository comes": lambda root: _repository(root / "work" / "part" / ".git"),
    "a repository comes deeper": lambda root: _repository(root / "work" / "part" / "new" / ".git"),
    "half a repository becomes one": lambda root: _repository(root / "work" / "part" / "half" / ".git"),
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
    (source,) = sources(workspace, installed=False)
    confinement = a_confinement(workspace)
    first = find_place(confinement, source)
    (workspace / "notes.md").write_text("beside it")
    (workspace / "work" / "part" / "made").touch()
    assert find_place(confinement, source) == first
    CHANGES[change](workspace)
    second = find_place(confinement, source)
    assert second != first
    assert find_place(confinement, source) == second


def test_a_locked_file_that_is_made_again_is_another_place(workspace: Path) -> None:
    """It may get the same number; a worker's mount of the old one has gone with it."""
    (source,) = sources(workspace, installed=False)
    git = workspace / "work" / "part" / ".git"
    _repository(git)
    first = find_place(a_confinement(workspace), source)
    (git / "config").unlink()
    (git / "config").write_text("[core]\n")
    assert find_place(a_confinement(workspace), source) != first


def test_a_source_without_a_file(workspace: Path) -> None:
    entry = Source("the entry point shop", None, "shop:tool")
    assert find_place(a_confinement(workspace), entry) == find_place(a_confinement(workspace), entry)
