"""The index in step with the branch, without touching what a person staged.

Git does the work on a copy, with every setting that could run a program switched off; the copy takes the
index's place under git's own lock, if the index did not change meanwhile. No filter runs: objects are given by name.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from agentfs.ledger.claims import Claims
from agentfs.ledger.files import sync
from agentfs.ledger.trees import FILE, is_own

_QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.splitIndex=false", "protocol.allow=never")
_UNDERWAY = (
    "rebase-merge",
    "rebase-apply",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "index.lock",
)
_GONE = "0" * 40
_TIMEOUT_S = 60
Stamp = tuple[int, int, int, int] | None
Entries = list[tuple[str, str, str, str]]  # path, mode, blob, stage


class Index:
    """The index of one repository."""

    def __init__(self, root: Path, claims: Claims) -> None:
        self.root = root
        self.git = root / ".git"
        self.path = self.git / "index"
        self.lock = self.git / "index.lock"
        self.claims = claims

    def free(self) -> bool:
        """Return whether nothing of a person's is under way that the index belongs to."""
        return not any(os.path.lexists(self.git / name) for name in _UNDERWAY)

    def update(self, run: str, wanted: Mapping[str, str]) -> bool:
        """Bring one run's own entries in step with `wanted` (path in the run's folder -> blob); False: later.

        Only in a turn.
        """
        return self._change(lambda listed: _in_step(run, wanted, listed), f":(top,literal){run}/")

    def remove(self, runs: frozenset[str]) -> bool:
        """Drop every entry of these runs, a person's too: their folders are gone. False: later. Only in a turn."""
        return self._change(lambda listed: _without(runs, listed), ":(top)")

    def _change(self, lines: Callable[[Entries], list[str] | None], where: str) -> bool:
        """Tell the index what `lines` makes of its entries below `where`; False: later."""
        program = shutil.which("git")
        copy = self.claims.path()
        try:
            stamp = _stamp(self.path)
            if program is None or not _copied(self.path, copy):
                return False
            listed = self._git(program, copy, "ls-files", "--stage", "-z", "--", where)
            changes = None if listed is None else lines(_entries(listed))
            if not changes:
                return changes is not None
            given = os.fsencode("".join(changes))
            if self._git(program, copy, "update-index", "-z", "--index-info", given=given) is None:
                return False
            return self._put(copy, stamp)
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

    def _git(self, program: str, index: Path, *words: str, given: bytes = b"") -> bytes | None:
        """Run git on an index of ours; None if it fails. The folders are named: nothing is searched for."""
        command = [program, *(part for setting in _QUIET for part in ("-c", setting)), *words]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_DIR": str(self.git.absolute()),
            "GIT_WORK_TREE": str(self.root.absolute()),
            "GIT_INDEX_FILE": str(index.absolute()),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
        }
        try:
            done = subprocess.run(
                command,
                input=given,
                capture_output=True,
                env=environment,
                cwd=self.root,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None


def _entries(listed: bytes) -> Entries:
    """Return what `ls-files --stage -z` tells."""
    found = (line.partition("\t") for line in filter(None, os.fsdecode(listed).split("\0")))
    return [(path, *_three(about)) for about, _, path in found]


def _three(about: str) -> tuple[str, str, str]:
    mode, sha, stage = about.split(" ")
    return mode, sha, stage


def _in_step(run: str, wanted: Mapping[str, str], listed: Entries) -> list[str] | None:
    """Return what `update-index --index-info` has to be told; None: a conflict a person has yet to settle."""
    if any(stage != "0" for *_, stage in listed):
        return None
    present = {path.removeprefix(f"{run}/"): (mode, sha) for path, mode, sha, _ in listed}
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
