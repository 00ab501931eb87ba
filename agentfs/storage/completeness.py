"""Has a writer finished? Looks at files, changes nothing.

A file is complete when it has not changed for a while and no process has it open for writing. The kernel knows only
the writers on this machine: on a network or FUSE mount others write too, of whom there is no event and no lease.
"""

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.storage.files import Signature, signature
from agentfs.storage.safe_open import hold_named, open_regular
from agentfs.storage.system import libc_call
from agentfs.storage.timing import TIMING

_ROOM = 256  # bytes; struct statfs takes 120 at most, and begins with the number of the kind
_WRITTEN_BEHIND = {
    0x65735546: "FUSE",
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "SMB",
    0xFE534D42: "SMB",
    0x01021997: "9P",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x786F4256: "VirtualBox",
    0xBACBACBC: "VMware",
}


def is_being_written(path: Path) -> bool | None:
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
        return True  # another process holds a lease on it: only a writer has use for one
    except OSError:
        return None
    try:
        if shared_filesystem(descriptor):
            return None  # a lease would tell of writers on this side only
        fcntl(descriptor, F_SETLEASE, F_RDLCK)
        fcntl(descriptor, F_SETLEASE, F_UNLCK)  # at once: an opening writer waits for it
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(descriptor)
    return False


def ignore_lease_signal() -> None:
    """Ignore SIGIO, which a broken lease raises, and which ends a process by default."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGIO) is signal.SIG_DFL:
        signal.signal(signal.SIGIO, signal.SIG_IGN)


@dataclass(slots=True)
class Completeness:
    """Remembers since when each file has not changed."""

    clock: Callable[[], float] = time.monotonic
    seen: dict[Path, tuple[Signature, float]] = field(default_factory=dict)

    def is_complete(self, path: Path) -> bool:
        """Return whether the file has not changed for long enough and no writer has it open."""
        now, found = self.clock(), signature(path)
        if found is None:
            self.seen.pop(path, None)
            return False
        known = self.seen.get(path)
        if known is None or known[0] != found:
            self.seen[path] = (found, now)
            return False
        quiet = now - known[1]
        if quiet < TIMING.complete:
            return False
        writing = is_being_written(path)
        if writing is None:
            return quiet >= TIMING.complete_without_lease
        return not writing

    def forget(self, path: Path) -> None:
        self.seen.pop(path, None)


def shared_filesystem(path: "int | str | os.PathLike[str]") -> str | None:
    """Return the kind of a file system that other machines or processes may write to unseen; None for any other.

    A file that is open is given by its descriptor.
    """
    call = libc_call("fstatfs" if isinstance(path, int) else "statfs")
    if sys.platform != "linux" or call is None:
        return None  # elsewhere the record is another one, and larger
    import ctypes

    room = ctypes.create_string_buffer(_ROOM)
    if call(path if isinstance(path, int) else os.fsencode(path), room):
        return None
    return _WRITTEN_BEHIND.get(ctypes.c_long.from_buffer(room).value & 0xFFFFFFFF)
