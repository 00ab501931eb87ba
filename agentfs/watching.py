"""One watchdog observer for folders that come and go. It only tells names, and says when it cannot be relied upon.

Every watched folder costs a thread, so that only folders of runs that can still change are watched, and not too many:
where there are no watches left, or events do not come, `glance` tells cheaply whether to look at a run again.
"""

import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog.events import FileSystemEvent
from watchdog.utils import BaseThread

from agentfs.core import paths
from agentfs.disk import write_new
from agentfs.stillness import Signature, signature
from agentfs.watch import (
    ARRIVED,
    EVERYTHING,
    WRITTEN,
    Enqueue,
    EnqueueArrivals,
    Unwatched,
    an_observer,
    unheard_on,
    why_deaf,
)

if TYPE_CHECKING:
    from watchdog.observers.api import ObservedWatch

MOST_FOLDERS = 200
CANARY_SECONDS = 2.0
CANARY = ".agentfs-canary-{}.tmp"  # the process, then what nobody can guess
_LOG = logging.getLogger("watchdog")  # the only one who tells of an overflow; says nothing else worth a line
Glance = tuple[int | Signature | None, ...]
Kinds = tuple[type[FileSystemEvent], ...]


class _Overflow(logging.Handler):
    """Hears that the kernel dropped events, and keeps what watchdog says off the terminal."""

    def __init__(self, happened: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._happened = happened

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.msg:
            self._happened()


class ManyFolders:
    """Watches folders, not the folders in them, until closed. Raises Unwatched where there can be no observer."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.lost = False  # events were dropped: look at everything again, then set this back
        self.failed = ""  # how a thread of watchdog's came to its end
        self._wake = wake
        self._seen: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._watches: dict[Path, ObservedWatch] = {}
        self._heard: dict[int, bool] = {}  # whether events come from a device: a canary was heard there
        try:
            self._observer = an_observer()
        except OSError as error:
            raise Unwatched(why_deaf(error)) from None
        self._overflow = _Overflow(self._lose)
        _LOG.addHandler(self._overflow)
        self._unhooked, threading.excepthook = threading.excepthook, self._fail
        self._observer.start()

    def _lose(self) -> None:
        self.lost = True
        self._wake()

    def _fail(self, died: threading.ExceptHookArgs) -> None:
        """A thread has ended by an exception. If it is one of watchdog's, nothing more is heard of some folder."""
        if isinstance(died.thread, BaseThread):
            self.failed = f"{died.exc_type.__name__}: {died.exc_value}"
            self._wake()
        else:
            self._unhooked(died)

    def close(self) -> None:
        threading.excepthook = self._unhooked
        self._observer.stop()
        self._observer.join()
        self._watches.clear()
        _LOG.removeHandler(self._overflow)

    def add(self, folder: Path, kinds: Kinds = EVERYTHING) -> None:
        """Watch a folder for some kinds of events; raises Unwatched where nothing would be heard."""
        if len(self._watches) >= MOST_FOLDERS:
            raise Unwatched("there are more open runs than are watched at once")
        if words := unheard_on(folder):
            raise Unwatched(words)
        enqueue = (EnqueueArrivals if kinds is ARRIVED else Enqueue)(self._seen, self._wake)
        try:
            device = os.stat(folder).st_dev
            self._watches[folder] = self._observer.schedule(enqueue, str(folder), event_filter=list(kinds))
        except OSError as error:
            raise Unwatched(why_deaf(error)) from None
        except RuntimeError as error:
            raise Unwatched(f"no thread is left for it ({error})") from None
        if device not in self._heard:
            self._heard[device] = self.lives(folder)
        if not self._heard[device]:
            self.remove(folder)
            raise Unwatched("no events come from this file system")

    def remove(self, folder: Path) -> None:
        if watch := self._watches.pop(folder, None):
            self._observer.unschedule(watch)

    def add_run(self, run: Path) -> None:
        """Watch the folders of a run in which people write; all of them, or none."""
        try:
            for folder, kinds in folders_of(run).items():
                self.add(folder, kinds)
        except Unwatched:
            self.remove_run(run)
            raise

    def remove_run(self, run: Path) -> None:
        for folder in folders_of(run):
            self.remove(folder)

    def seen(self) -> list[str]:
        """Return the paths reported since the last call."""
        found = []
        while not self._seen.empty():
            found.append(self._seen.get())
        return found

    def lives(self, folder: Path, seconds: float = CANARY_SECONDS) -> bool:
        """Whether what happens in a watched folder is reported: drop a hidden file there and wait to hear of it."""
        canary = folder / CANARY.format(f"{os.getpid()}-{uuid.uuid4().hex}")
        end, others = time.monotonic() + seconds, []
        try:
            _remove_left_canaries(folder)
            write_new(canary, b"", durable=False)
            while (left := end - time.monotonic()) > 0:
                if (path := self._seen.get(timeout=left)) == str(canary):
                    return True
                others.append(path)
        except queue.Empty:
            return False
        except OSError:
            return True  # nothing can be dropped there: that proves nothing, and the rescan finds what is missed
        finally:
            for path in others:
                self._seen.put(path)
            canary.unlink(missing_ok=True)
        return False


def _remove_left_canaries(folder: Path) -> None:
    """Remove what processes that were killed meanwhile have dropped."""
    for left in folder.glob(CANARY.format("*")):
        pid = left.name.removeprefix(CANARY.partition("{")[0]).removesuffix(".tmp").partition("-")[0]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            left.unlink(missing_ok=True)


def folders_of(run: Path) -> dict[Path, Kinds]:
    """Return the folders of a run in which people write, and what counts there."""
    return {run: EVERYTHING, run / paths.PLANNING: EVERYTHING, run / paths.STEPS: WRITTEN}


def glance(run: Path) -> Glance:
    """Return what changes when somebody puts a file into a run, takes one away, or edits its plan or goal."""
    top = str(run)  # of thousands of runs, every second: a Path takes longer than asking
    folders = (_changed(top), _changed(f"{top}/{paths.PLANNING}"), _changed(f"{top}/{paths.STEPS}"))
    return (*folders, *(signature(f"{top}/{name}") for name in _EDITED))


_EDITED = (paths.RUN, paths.PLAN, *(f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES))


def _changed(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None
