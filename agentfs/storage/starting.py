"""Start threads and processes patiently: where there is no room for one, wait and say so."""

import errno
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 0.2
PATIENCE_S = 60.0  # of what has no deadline of its own
NONE_LEFT = "no process can be started now; what needs one waits until there is room (TasksMax=, ulimit -u)"
ROOM_AGAIN = "processes can be started again"


def is_shortage(error: BaseException) -> bool:
    """Whether a process or a thread could not be started for want of room."""
    if isinstance(error, OSError):
        return error.errno in (errno.EAGAIN, errno.ENOMEM)
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


@dataclass(slots=True)
class Starter:
    """Starts what it is given, patiently, and says when that begins to take time and when it no longer does."""

    say: Callable[[str], None] = lambda _words: None
    _waiting: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, begin: Callable[[], T], may_wait: Callable[[], bool] | None = None) -> T:
        """Return what `begin` gives; for as long as `may_wait`, it is tried again when there is no room."""
        may_wait = may_wait or for_a_while()
        waits = False
        try:
            while True:
                try:
                    return begin()
                except (OSError, RuntimeError) as error:
                    if not is_shortage(error) or not may_wait():
                        raise
                waits = waits or self._wait(+1)
                time.sleep(PAUSE_S)
        finally:
            if waits:
                self._wait(-1)

    def _wait(self, more: int) -> bool:
        with self._lock:
            before, self._waiting = self._waiting, self._waiting + more
            after = self._waiting
        if before == 0 or after == 0:
            self.say(NONE_LEFT if after else ROOM_AGAIN)
        return True


def for_a_while(seconds: float = PATIENCE_S) -> Callable[[], bool]:
    """Return what says yes for that long."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


class Pool(ThreadPoolExecutor):
    """Threads that are all there from the beginning: none has to be started when there may be no room for it."""

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, thread_name_prefix=name)
        all_there = threading.Event()
        for _ in range(most):
            Starter().start(lambda: self.submit(all_there.wait))
        all_there.set()
