"""Locks that name their process, and taking turns between agentfs processes.

Owns `.git/agentfs/`: `turn` (flocked by the one process that writes), `behind` (what the index still lacks) and
claims, files named `PID.START.N` after their process. A claim becomes one of git's locks by a hard link, so a lock
that is the same file as a claim is agentfs's own; where its process is gone it may be removed. No other lock is ever
touched.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

from agentfs.ledger.errors import LedgerBusy

TURN, BEHIND = "turn", "behind"
PATIENCE_S = 10.0  # a turn lasts milliseconds; whoever holds it longer is stuck
LOCKS = ("refs/heads/main.lock", "index.lock")

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
            _wait(descriptor)
            self._clear()
            yield
        finally:
            os.close(descriptor)

    def path(self) -> Path:
        """Return a new name for a claim of this process."""
        return self.folder / f"{os.getpid()}.{start_time(os.getpid())}.{next(_numbers)}"

    @contextlib.contextmanager
    def locked(self, claim: Path, lock: Path) -> Iterator[None]:
        """Hold one of git's locks with a claim; LedgerBusy if somebody else does. Renaming the lock ends it too."""
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
            if _same(claim, lock):
                os.unlink(lock)

    def _clear(self) -> None:
        """Remove the locks and claims of processes that are gone. Only in a turn: a live claim has it."""
        for claim in self.folder.iterdir():
            if claim.name in (TURN, BEHIND) or _alive(claim.name):
                continue
            for lock in LOCKS:
                if _same(claim, self.git / lock):
                    os.unlink(self.git / lock)
            claim.unlink(missing_ok=True)


def start_time(pid: int) -> str | None:
    """Return when a process began, in the kernel's ticks; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()[19]


def _alive(name: str) -> bool:
    """Return whether the process of a claim still runs; our own earlier ones were cut off, for we have the turn."""
    pid, start, *_ = [*name.split("."), "", ""]
    if not pid.isdigit() or int(pid) == os.getpid():
        return False
    return start_time(int(pid)) == start


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except FileNotFoundError:
        return False


def _wait(descriptor: int) -> None:
    import fcntl

    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerBusy("another agentfs has been writing to the ledger for a while") from None
            time.sleep(0.002)  # flock has no deadline of its own
        else:
            return
