"""The repository in runs/: whole, on its branch, without locks that nobody holds any more."""

import os
from collections.abc import Iterator
from pathlib import Path

from agentfs.core.problems import Finding, fine, remark, wrong
from agentfs.core.text import inert
from agentfs.ledger import Ledger
from agentfs.ledger.claims import TURN, start_time
from agentfs.ledger.git import BRANCH, LedgerError, find_damage, find_substitutes
from agentfs.ledger.index import UNDERWAY
from agentfs.ledger.maintenance import Maintenance
from agentfs.storage.safe_open import read_text
from agentfs.storage.workspace import Workspace

FSCK_SECONDS = 60.0
ABOUT = "ledger"
_COPY = "take runs/.git from a copy, or move it away and run `agentfs init`: the runs' files are not touched"


def examine(workspace: Workspace) -> Iterator[Finding]:
    """Yield what is found in runs/.git."""
    ledger = Ledger(workspace.runs)
    if words := ledger.trouble():
        yield wrong(ABOUT, inert(words), _COPY)
        return
    yield from _sound(workspace.runs)
    yield from _standing(workspace.runs / ".git")
    yield from _claims(workspace.runs / ".git" / "agentfs")
    yield from _branch(workspace.runs / ".git")
    if Maintenance(workspace.runs).due():
        words = "many loose objects or packs: `git log` is slower than it could be"
        yield remark(ABOUT, words, "`agentfs watch` packs them when it is idle, or: git -C runs gc")


def _sound(runs: Path) -> Iterator[Finding]:
    for path, does in find_substitutes(runs):
        yield wrong(ABOUT, f"{path} {does}", "delete it, unless you put it there and know why")
    try:
        lines = find_damage(runs, FSCK_SECONDS)
    except LedgerError as why:
        yield remark(ABOUT, f"not looked through: {why}", "`agentfs verify` takes the time it needs; it wants git")
        return
    for line in lines:
        yield wrong(ABOUT, f"git fsck: {inert(line)}", _COPY)
    if not lines:
        yield fine(ABOUT, "git fsck finds it whole")


def _standing(git: Path) -> Iterator[Finding]:
    """Say what of a person's is under way: agentfs waits for it, and never removes it."""
    locks = {name for name in os.listdir(git) if name.endswith(".lock")} | {f"{BRANCH}.lock"}
    for name in sorted(locks | set(UNDERWAY)):
        if os.path.lexists(git / name):
            words = f"{git / name} stands: commits to the branch, or the index, wait for it"
            yield remark(ABOUT, words, "finish what you have begun in runs/; if no git command is running, delete it")


def _claims(folder: Path) -> Iterator[Finding]:
    try:
        names = [name for name in os.listdir(folder) if name != TURN]
    except OSError:
        return
    dead = [name for name in names if not _lives(name)]
    if dead:
        yield remark(ABOUT, f"{len(dead)} claims of processes that are gone", "the next commit clears them away")


def _lives(claim: str) -> bool:
    pid, start, *_ = [*claim.split("."), "", ""]
    return pid.isdigit() and start_time(int(pid)) == start


def _branch(git: Path) -> Iterator[Finding]:
    head = read_text(git / "HEAD").strip()
    if head != f"ref: {BRANCH}":
        words = f"HEAD is not on main ({inert(head)[:60]}): commits go to main all the same"
        yield remark(ABOUT, words, "git -C runs checkout main shows them in runs/'s index again")
