"""Whether git finds the repository whole: `git fsck`, and what makes git show another history than there is."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from agentfs.installation import find_program, why_missing
from agentfs.ledger.program import command, environment
from agentfs.storage.safe_open import MOST_RECORD, read_text

FSCK = ("fsck", "--full", "--strict", "--no-dangling", "--no-progress")
TOLD = 50  # lines of one fsck
AS_IT_IS = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null/none"}  # no object stands in for another
_HARMLESS = ("notice: ", "hint: ", "dangling ", "Checking ", "Verifying ")


class NoGit(Exception):
    """There is no git to ask, or it takes too long."""


def unsound(root: Path, seconds: float | None = None) -> list[str]:
    """Return what `git fsck` finds, a line each; raises NoGit. A person's own list of exceptions is not asked."""
    program = find_program("git")
    if program is None:
        raise NoGit(why_missing("git"))
    line = command(program, *FSCK, settings=("fsck.skipList=/dev/null", "core.commitGraph=false"))
    try:
        done = subprocess.run(
            line,
            env=environment(root, **AS_IT_IS),
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoGit(f"`git fsck` takes longer than {seconds:g} s") from None
    except OSError as error:
        raise NoGit(f"git cannot be started: {error.strerror}") from None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    told = [one for one in lines if one.strip() and not one.startswith(_HARMLESS)]
    return told[:TOLD] or ([f"`git fsck` ended with {done.returncode}"] if done.returncode else [])


def pretended(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files by which git shows another history than its objects hold, and what each does."""
    git = root / ".git"
    for path in sorted((git / "refs" / "replace").glob("*")):
        yield path, "makes git show another object in the place of one"
    for name, does in (("info/grafts", "gives commits other parents"), ("shallow", "cuts the history off")):
        if os.path.lexists(git / name):
            yield git / name, does
    try:
        packed = read_text(git / "packed-refs", MOST_RECORD)
    except OSError:
        return
    if "refs/replace/" in packed:
        yield git / "packed-refs", "has refs/replace/, which make git show other objects in the place of some"
