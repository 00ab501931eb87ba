"""Tell when a file that somebody else writes is complete. Looks at files, changes nothing."""

import errno
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.mounts import written_behind
from agentfs.storage.safe_open import hold_named, open_regular

QUIET = 0.3  # seconds without a change, by the monotonic clock
QUIET_WITHOUT_LEASE = 2.0  # where the file system cannot tell whether a writer has it open
Signature = tuple[int, int, int, int]


def signature(path: Path | str) -> Signature | None:
    """Return what changes when a file changes; None if it is no regular file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def being_written(path: Path) -> bool | None:
    """Return whether a writer has the file open; None where that cannot be known."""
    try:
        from fcntl import F_RDLCK, F_SETLEASE, F_UNLCK, fcntl
    except ImportError:
        return None  # this system has no leases
    ignore_lease_signal()
    try:
        with hold_named(path.parent) as folder:  # goals/ may be a person's own link
            descriptor = open_regular(path.name, folder=folder)
    except BlockingIOError:
        return True  # somebody holds a lease on it: only a writer has use for one
    except OSError:
        return None
    try:
        if written_behind(descriptor):
            return None  # a lease would tell of writers on this side only
        fcntl(descriptor, F_SETLEASE, F_RDLCK)
        fcntl(descriptor, F_SETLEASE, F_UNLCK)  # at once: an opening writer waits for it
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(descriptor)
    return False


def ignore_lease_signal() -> None:
    """A broken lease raises SIGIO, which by default ends the process."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGIO) is signal.SIG_DFL:
        signal.signal(signal.SIGIO, signal.SIG_IGN)


@dataclass(slots=True)
class Stillness:
    """Remembers since when each file has held still."""

    clock: Callable[[], float] = time.monotonic
    seen: dict[Path, tuple[Signature, float]] = field(default_factory=dict)

    def is_complete(self, path: Path) -> bool:
        """Return whether the file has held still long enough and no writer has it open."""
        now, found = self.clock(), signature(path)
        if found is None:
            self.seen.pop(path, None)
            return False
        known = self.seen.get(path)
        if known is None or known[0] != found:
            self.seen[path] = (found, now)
            return False
        quiet = now - known[1]
        if quiet < QUIET:
            return False
        writing = being_written(path)
        if writing is None:
            return quiet >= QUIET_WITHOUT_LEASE
        return not writing

    def forget(self, path: Path) -> None:
        self.seen.pop(path, None)
