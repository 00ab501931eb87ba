"""The index in step with the branch, without touching what a person staged.

Git does the work on a copy; the copy takes the index's place under git's own lock, if the index did not change
meanwhile. No filter runs: objects are given by name.
"""

import os
from collections.abc import Collection
from pathlib import Path

from agentfs.core import paths
from agentfs.ledger.claims import BEHIND, Claims
from agentfs.ledger.git import BRANCH, Git, LedgerError
from agentfs.storage.safe_open import copy_regular, read_text

UNDERWAY = (
    "rebase-merge",
    "rebase-apply",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "index.lock",
)
_FEW = 8
_OWN_FOLDERS = (paths.STEPS, paths.PLANNING, paths.REVISIONS, paths.FILES)
_OWN_FILES = (
    *(paths.RUN, paths.REQUEST, paths.PLAN, paths.PLAN_ERROR, paths.GOAL_ERROR),
    *(paths.OUTCOME, paths.STATUS, paths.REPLAN),
)
Stamp = tuple[int, int, int, int] | None


def is_own(path: str) -> bool:
    """Return whether a path in a run's folder is agentfs's; the rest is a person's and stays as they committed it."""
    first, _, below = path.partition("/")
    if below:
        return first in _OWN_FOLDERS
    return path in _OWN_FILES or path.startswith("goal.")


class Behind:
    """The runs with commits that the index may not be in step with yet, noted before the branch moves.

    Only in a turn. It is never synced: after a power cut the index may stay behind, which loses nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def runs(self) -> frozenset[str]:
        try:
            lines = read_text(self._path).splitlines()
        except FileNotFoundError:
            return frozenset()
        return frozenset(filter(paths.is_run_id, lines))  # the last line may be torn

    def add(self, runs: Collection[str]) -> None:
        if runs:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{run}\n" for run in {*runs}))

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


class Index:
    """The index of one repository."""

    def __init__(self, git: Git, claims: Claims) -> None:
        self._git, self._claims = git, claims
        self.path, self.lock = git.folder / "index", git.folder / "index.lock"
        self.behind = Behind(claims.folder / BEHIND)

    def is_free(self) -> bool:
        """Return whether nothing of a person's is under way that the index belongs to."""
        return not any(os.path.lexists(self._git.folder / name) for name in UNDERWAY)

    def update(self, runs: Collection[str], *, own: bool = True) -> bool:
        """Bring the entries of some runs in step with `main`; False: later. Only in a turn.

        `own`: only agentfs's files; else a person's too, for the folders are gone.
        """
        # Each entry is held against each place, so that of many runs everything is compared.
        places = [f":(top,literal){run}/" for run in runs] if len(runs) <= _FEW else [":(top)"]
        copy = self._claims.path()
        try:
            stamp = _stamp(self.path)
            if stamp is not None:  # else git makes a new one
                copy_regular(self.path, copy)
            compared = self._run(copy, "diff-index", "--cached", "--raw", "-z", "--no-abbrev", BRANCH, "--", *places)
            if compared is None:
                return False
            lines, whole = _changes(compared, frozenset(runs), own=own)
            if not lines:
                return whole
            if self._run(copy, "update-index", "-z", "--index-info", given=os.fsencode("".join(lines))) is None:
                return False
            return self._put_index(copy, stamp) and whole
        except FileNotFoundError:
            return False  # the index went while it was copied
        finally:
            copy.unlink(missing_ok=True)

    def _put_index(self, copy: Path, stamp: Stamp) -> bool:
        """Let the copy take the index's place, unless a person changed the index since it was read."""
        with self._claims.locked(copy, self.lock):
            if _stamp(self.path) != stamp:
                return False
            os.rename(self.lock, self.path)
        return True

    def _run(self, index: Path, *words: str, given: bytes = b"") -> bytes | None:
        """Run git on an index of ours; None if it fails."""
        try:
            own = {"GIT_INDEX_FILE": str(index.absolute())}
            done = self._git.run(*words, given=given, settings=("core.fsync=index",), variables=own)
        except LedgerError:
            return None
        return done.out if done.code == 0 else None


def _changes(compared: bytes, runs: frozenset[str], *, own: bool) -> tuple[list[str], bool]:
    """Return what `update-index --index-info` has to be given, and whether no run has a conflict: those wait.

    `compared`: what `diff-index --cached --raw -z` prints: `:MODE MODE OBJECT OBJECT LETTER`, main's first; a path.
    """
    lines: dict[str, list[str]] = {}
    conflicts: set[str] = set()
    words = iter(os.fsdecode(compared).split("\0"))
    for about, path in zip(words, words, strict=False):
        mode, _, sha, _, letter = about.removeprefix(":").split(" ")
        day, name, below = [*path.split("/", 2), "", ""][:3]
        run = f"{day}/{name}"
        if run in runs and letter == "U":
            conflicts.add(run)
        if run in runs and (is_own(below) or not own):
            lines.setdefault(run, []).append(f"{mode} {sha}\t{path}\0")  # mode 000000: it goes
    return [line for run, some in lines.items() if run not in conflicts for line in some], not conflicts


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
