"""The index in step with the branch, without touching what a person staged.

Git does the work on a copy, with every setting that could run a program switched off; the copy takes the
index's place under git's own lock, if the index did not change meanwhile. No filter runs: objects are given by name.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from agentfs.core.paths import is_run_id
from agentfs.ledger.claims import BEHIND, Claims
from agentfs.ledger.files import sync
from agentfs.ledger.program import output
from agentfs.ledger.trees import FILE, is_own
from agentfs.regular import read_text

UNDERWAY = (
    "rebase-merge",
    "rebase-apply",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "index.lock",
)
_GONE = "0" * 40
_FEW = 8
Stamp = tuple[int, int, int, int] | None
Entries = list[tuple[str, str, str, str]]  # path, mode, blob, stage
Wanted = Mapping[str, Mapping[str, str]]  # of each run: path in its folder -> blob


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
        return frozenset(filter(is_run_id, lines))  # the last line may be torn

    def add(self, runs: Collection[str]) -> None:
        if runs:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{run}\n" for run in {*runs}))

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


class Index:
    """The index of one repository."""

    def __init__(self, root: Path, claims: Claims) -> None:
        self.root = root
        self.git = root / ".git"
        self.path = self.git / "index"
        self.lock = self.git / "index.lock"
        self.claims = claims
        self.behind = Behind(claims.folder / BEHIND)

    def free(self) -> bool:
        """Return whether nothing of a person's is under way that the index belongs to."""
        return not any(os.path.lexists(self.git / name) for name in UNDERWAY)

    def update(self, wanted: Wanted) -> bool:
        """Bring the own entries of some runs in step with what is wanted of each; False: later. Only in a turn."""
        # Each entry is held against each place, so that of many runs everything is listed.
        places = [f":(top,literal){run}/" for run in wanted] if len(wanted) <= _FEW else [":(top)"]
        return self._change(lambda listed: _in_step(wanted, listed), *places)

    def remove(self, runs: frozenset[str]) -> bool:
        """Drop every entry of these runs, a person's too: their folders are gone. False: later. Only in a turn."""
        return self._change(lambda listed: (_without(runs, listed), True), ":(top)")

    def _change(self, lines: Callable[[Entries], tuple[list[str], bool]], *places: str) -> bool:
        """Tell the index what `lines` makes of its entries in these places, and whether that is all; False: later."""
        copy = self.claims.path()
        try:
            stamp = _stamp(self.path)
            if not _copied(self.path, copy):
                return False
            listed = self._git(copy, "ls-files", "--stage", "-z", "--", *places)
            if listed is None:
                return False
            changes, whole = lines(_entries(listed))
            if not changes:
                return whole
            given = os.fsencode("".join(changes))
            if self._git(copy, "update-index", "-z", "--index-info", given=given) is None:
                return False
            return self._put(copy, stamp) and whole
        finally:
            copy.unlink(missing_ok=True)

    def _put(self, copy: Path, stamp: Stamp) -> bool:
        """Let the copy take the index's place, unless a person changed the index since it was read."""
        sync(copy)
        with self.claims.locked(copy, self.lock):
            if _stamp(self.path) != stamp:
                return False
            os.rename(self.lock, self.path)
        return True

    def _git(self, index: Path, *words: str, given: bytes = b"") -> bytes | None:
        """Run git on an index of ours; None if it fails."""
        return output(self.root, *words, given=given, GIT_INDEX_FILE=str(index.absolute()))


def _entries(listed: bytes) -> Entries:
    """Return what `ls-files --stage -z` tells."""
    found = (line.partition("\t") for line in filter(None, os.fsdecode(listed).split("\0")))
    return [(path, *_three(about)) for about, _, path in found]


def _three(about: str) -> tuple[str, str, str]:
    mode, sha, stage = about.split(" ")
    return mode, sha, stage


def _in_step(wanted: Wanted, listed: Entries) -> tuple[list[str], bool]:
    """Return what `update-index --index-info` has to be told, and whether no run has a conflict: those wait."""
    present: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    conflicts: set[str] = set()
    for path, mode, sha, stage in listed:
        day, name, below = [*path.split("/", 2), "", ""][:3]
        present[f"{day}/{name}"][below] = (mode, sha)
        if stage != "0":
            conflicts.add(f"{day}/{name}")
    free = [run for run in wanted if run not in conflicts]
    return [line for run in free for line in _changes(run, wanted[run], present[run])], len(free) == len(wanted)


def _changes(run: str, wanted: Mapping[str, str], present: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return the same for one run."""
    left = [path for path in present if is_own(path) and path not in wanted]
    new = [(path, sha) for path, sha in wanted.items() if present.get(path) != (FILE.decode(), sha)]
    lines = [f"0 {_GONE}\t{run}/{path}\0" for path in left]
    return lines + [f"{FILE.decode()} {sha}\t{run}/{path}\0" for path, sha in new]


def _without(runs: frozenset[str], listed: Entries) -> list[str]:
    """Return the same for entries that go."""
    paths = (path for path, *_ in listed if "/".join(path.split("/", 2)[:2]) in runs)
    return [f"0 {_GONE}\t{path}\0" for path in dict.fromkeys(paths)]


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _copied(index: Path, copy: Path) -> bool:
    """Copy the index, if there is one; git makes a new one otherwise."""
    try:
        shutil.copyfile(index, copy)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
