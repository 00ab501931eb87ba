"""Start threads and processes; where the system has no room for one, wait and say so.

`TasksMax=` of a service, `ulimit -u` and the kernel bound how many there may be. A shortage passes when others end,
and is no fault of a step: so whatever wants to start one waits, for as long as it may.
"""

import errno
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from agentfs.storage.timing import TIMING

T = TypeVar("T")
NONE_LEFT = "no process can be started now; what needs one waits until there is room (TasksMax=, ulimit -u)"
ROOM_AGAIN = "processes can be started again"


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


class Pool(ThreadPoolExecutor):
    """A pool whose threads are all started at once: later there may be no room for one."""

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, thread_name_prefix=name)
        all_there = threading.Event()
        for _ in range(most):
            Starter().start(lambda: self.submit(all_there.wait))
        all_there.set()
