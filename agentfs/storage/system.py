"""What this operating system offers, found by looking, never by its name; and room for threads and processes.

Reading commands use what is there and do without the rest. Driving a run needs all of `missing()`'s list: locks that
end with their process, and the means to find and end every process that a step has started.

`TasksMax=` of a service, `ulimit -u` and the kernel bound how many threads and processes there may be. A shortage
passes when others end, and is no fault of a step: so whatever wants to start one waits, for as long as it may.
"""

import errno
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from agentfs.errors import UserError
from agentfs.storage.timing import TIMING

T = TypeVar("T")
NONE_LEFT = "no process can be started now; what needs one waits until there is room (TasksMax=, ulimit -u)"
ROOM_AGAIN = "processes can be started again"

CONTAINER = "the container (Dockerfile; docs/containers.md)"


def flags(*names: str) -> int:
    """Return flags of os.open, without those that this system does not know."""
    value = 0
    for name in names:
        value |= getattr(os, name, 0)
    return value


@functools.cache
def libc_call(name: str) -> Callable[..., int] | None:
    """Return a function of the C library, which keeps its errno; None where there is none of that name."""
    import ctypes

    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError, TypeError):  # TypeError: Windows loads no library without a name
        return None
    return found


def missing() -> tuple[str, ...]:
    """Return what driving a run needs and this system lacks; nothing on Linux."""
    wanted = {
        "/proc": os.path.exists("/proc/self/stat"),
        "flock": _has_flock(),
        "waitid": hasattr(os, "waitid"),
        "process groups": hasattr(os, "killpg"),
        "openat": os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW"),
    }
    return tuple(name for name, there in wanted.items() if not there)


def _has_flock() -> bool:
    try:
        import fcntl
    except ImportError:
        return False
    return hasattr(fcntl, "flock")


def name() -> str:
    """Return what people call this system."""
    import platform

    return {"Darwin": "macOS"}.get(platform.system(), platform.system()) or "this system"


def require_linux(command: str) -> None:
    """Raise, in one line, where a command that drives runs or writes the ledger cannot work."""
    if lacks := missing():
        raise UserError(
            f"`{command}` needs Linux; {name()} lacks {', '.join(lacks)}. Use {CONTAINER}. "
            "Commands that only read, such as status, show, log and diff, work here"
        )


# ── starting threads and processes ───────────────────────────────────────────────────────────────────────


def is_shortage(error: BaseException) -> bool:
    """Whether a process or a thread could not be started for want of room."""
    if isinstance(error, OSError):
        return error.errno in (errno.EAGAIN, errno.ENOMEM)
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


@dataclass(slots=True)
class Starter:
    """Starts threads and processes, tries again while there is no room, and says when that begins and ends."""

    say: Callable[[str], None] = lambda _words: None
    _waiting: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, begin: Callable[[], T], may_wait: Callable[[], bool] | None = None) -> T:
        """Return what `begin` returns; call it again while there is no room, for as long as `may_wait`."""
        for one_try in self.tries(may_wait):
            with one_try:
                return begin()
        raise AssertionError("the last try raises")

    def tries(self, may_wait: Callable[[], bool] | None = None) -> Iterator[AbstractContextManager[None]]:
        """Yield a guard for each try; it catches that there is no room, and waits before the next."""
        guard = _Guard(self, may_wait or for_a_while())
        try:
            while True:
                yield guard
        finally:
            if guard.waits:
                self.wait(-1)

    def wait(self, more: int) -> None:
        """Count the threads that wait for room; say when the first begins and the last ends."""
        with self._lock:
            before, self._waiting = self._waiting, self._waiting + more
            after = self._waiting
        if before == 0 or after == 0:
            self.say(NONE_LEFT if after else ROOM_AGAIN)


@dataclass(slots=True)
class _Guard:
    starter: Starter
    may_wait: Callable[[], bool]
    waits: bool = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is None or not is_shortage(error) or not self.may_wait():
            return False
        if not self.waits:
            self.waits = True
            self.starter.wait(+1)
        time.sleep(TIMING.start_again)
        return True


def for_a_while(seconds: float = TIMING.start_patience) -> Callable[[], bool]:
    """Return a function that is true for that long."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end
