"""A run's worktree, by itself: what git could miss."""

import subprocess
import time
from pathlib import Path

from agentfs.ledger.worktrees import Repository, Worktree
from tests.workspaces import wait_for


def a_worktree(folder: Path) -> Worktree:
    top = folder / "repo"
    top.mkdir()
    (top / "a.txt").write_text("one\n")
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=P", "-c", "user.email=p@x", "commit", "-qm", "1")):
        subprocess.run(["git", "-C", str(top), *words], check=True)
    repository = Repository.around(top)
    assert repository is not None
    worktree = Worktree(repository, folder / "files", "agentfs/day/run")
    worktree.make(repository.head())
    return worktree


def test_a_change_within_the_second_of_the_checkout_that_keeps_the_size_is_seen(tmp_path: Path) -> None:
    """Git tells a change by size and time, and looks closer at files as young as its index: a copy must be no younger."""
    worktree = a_worktree(tmp_path)
    base = worktree.repository.head()
    wait_for(lambda: time.time() % 1 < 0.3, "the beginning of a second")
    worktree.restore(base)
    (worktree.folder / "a.txt").write_text("two\n")
    changed = int(time.time())
    wait_for(lambda: int(time.time()) > changed, "the next second")
    assert worktree.snapshot() != worktree.tree_of(base)
    worktree.restore(base)
    assert (worktree.folder / "a.txt").read_text() == "one\n"
