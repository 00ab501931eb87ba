"""The branch `main`, locks that name their process, and taking turns between agentfs processes.

Owns `.git/agentfs/`: `turn` (flocked by the one process that writes), `behind` (what the index still lacks) and
claims, files and folders named `PID.START.N` after their process. A claim becomes one of git's locks by a hard
link, so a lock that is the same file as a claim is agentfs's own; where its process is gone it may be removed. No
other lock is ever touched. That is why git does not move the branch: a killed git leaves a lock that nobody can tell
from a person's.
"""

import contextlib
import itertools
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from agentfs.ledger.git import BRANCH, LedgerBroken, LedgerBusy
from agentfs.storage.files import sync_folder, write_new
from agentfs.storage.safe_open import MOST_RECORD, read_text
from agentfs.storage.timing import TIMING

TURN, BEHIND = "turn", "behind"
LOCKS = (f"{BRANCH}.lock", "index.lock")

_SHA = re.compile(r"[0-9a-f]{40}")
_numbers = itertools.count(1)


class Claims:
    """The claims of one repository."""

    def __init__(self, git: Path) -> None:
        self.git = git
        self.folder = git / "agentfs"

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Write alone among agentfs processes, after clearing away what dead ones left. The kernel ends a turn."""
        self.folder.mkdir(exist_ok=True)
        descriptor = os.open(self.folder / TURN, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _wait_for_lock(descriptor)
            self._clear()
            yield
        finally:
            os.close(descriptor)

    def path(self) -> Path:
        """Return a new name for a claim of this process."""
        return self.folder / f"{os.getpid()}.{start_time(os.getpid())}.{next(_numbers)}"

    @contextlib.contextmanager
    def locked(self, claim: Path, lock: Path) -> Iterator[None]:
        """Hold one of git's locks with a claim; LedgerBusy if another program does. Renaming the lock ends it too."""
        try:
            os.link(claim, lock)
        except FileExistsError:
            raise LedgerBusy(
                f"{lock} is held by another program: the ledger follows when it ends. "
                "If no git command is running, delete that file"
            ) from None
        try:
            yield
        finally:
            if _is_same(claim, lock):
                os.unlink(lock)

    def dead(self) -> list[Path]:
        """Return the claims of processes that are gone."""
        return [claim for claim in self._claims() if not _is_running(claim.name)]

    def holds(self, lock: Path) -> bool:
        """Return whether one of git's locks is a running agentfs's own."""
        return any(_is_same(claim, lock) for claim in self._claims() if _is_running(claim.name))

    def _claims(self) -> list[Path]:
        try:
            return [path for path in self.folder.iterdir() if path.name not in (TURN, BEHIND)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _clear(self) -> None:
        """Remove the locks and claims of processes that are gone. Only in a turn: a live claim has it."""
        for claim in self._claims():
            if _is_running(claim.name) and not _is_own(claim.name):
                continue
            for lock in LOCKS:
                if _is_same(claim, self.git / lock):
                    os.unlink(self.git / lock)
            if claim.is_dir() and not claim.is_symlink():
                shutil.rmtree(claim, ignore_errors=True)
            else:
                claim.unlink(missing_ok=True)


class Branch:
    """The branch agentfs commits to, checked out or not."""

    def __init__(self, git: Path, claims: Claims) -> None:
        self.git, self.claims = git, claims
        self.path, self.lock = git / BRANCH, git / f"{BRANCH}.lock"

    def tip(self) -> str | None:
        """Return the commit the branch is at; None where it has none yet."""
        try:
            text = read_text(self.path).strip()
        except (FileNotFoundError, IsADirectoryError):
            return self._find_packed()  # after `git gc` the branch may live there only
        if not _SHA.fullmatch(text):
            raise LedgerBroken(
                f"{self.path} does not name a commit: put the sha of the last good one in it "
                "(`git -C runs log --all`, `git -C runs fsck --lost-found`)"
            )
        return text

    def is_checked_out(self) -> bool:
        try:
            return read_text(self.git / "HEAD").strip() == f"ref: {BRANCH}"
        except (FileNotFoundError, UnicodeDecodeError):
            return False

    def move(self, old: str | None, new: str) -> bool:
        """Move the branch from `old` to `new`; False if it is not at `old`. Only in a turn."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        claim = self.claims.path()
        try:
            write_new(claim, f"{new}\n".encode(), durable=True)
            with self.claims.locked(claim, self.lock):
                if self.tip() != old:
                    return False
                os.rename(self.lock, self.path)  # the commit point
            sync_folder(self.path.parent)
        finally:
            claim.unlink(missing_ok=True)
        return True

    def _find_packed(self) -> str | None:
        try:
            lines = read_text(self.git / "packed-refs", MOST_RECORD).splitlines()
        except FileNotFoundError:
            return None
        return next((line[:40] for line in lines if line[41:] == BRANCH and _SHA.fullmatch(line[:40])), None)


def start_time(pid: int) -> str | None:
    """Return when a process began, in the kernel's ticks; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()[19]


def _is_running(name: str) -> bool:
    """Return whether the process of a claim still runs."""
    pid, start, *_ = [*name.split("."), "", ""]
    return pid.isdigit() and start_time(int(pid)) == start


def _is_own(name: str) -> bool:
    """Return whether a claim is of this process: one found in its own turn was cut off."""
    return name.startswith(f"{os.getpid()}.")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except FileNotFoundError:
        return False


def _wait_for_lock(descriptor: int) -> None:
    import fcntl

    deadline = time.monotonic() + TIMING.ledger_lock
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerBusy("another agentfs has been writing to the ledger for a while") from None
            time.sleep(TIMING.poll_lock)  # flock has no deadline of its own
        else:
            return
