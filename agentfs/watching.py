"""One watchdog observer for folders that come and go. It only tells names, and says when it cannot be relied upon.

Every watched folder costs a thread, so that only folders of runs that can still change are watched, and not too many:
where there are no watches left, or events do not come, `glance` tells cheaply whether to look at a run again.
"""

import logging
import os
import queue
import time
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileCreatedEvent, FileSystemEvent
from watchdog.observers.api import ObservedWatch

from agentfs.core import names
from agentfs.stillness import Signature, signature
from agentfs.watch import WRITTEN, Enqueue, an_observer

MOST_FOLDERS = 200
CANARY_SECONDS = 2.0
CANARY = ".agentfs-canary-{}.tmp"
_LOG = logging.getLogger("watchdog")  # the only one who tells of an overflow; says nothing else worth a line
Glance = tuple[int | Signature | None, ...]


class _Overflow(logging.Handler):
    """Hears that the kernel dropped events, and keeps what watchdog says off the terminal."""

    def __init__(self, happened: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._happened = happened

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.msg:
            self._happened()


class ManyFolders:
    """Watches folders, not the folders in them, until closed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.lost = False  # events were dropped: look at everything again, then set this back
        self._wake = wake
        self._seen: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._enqueue = Enqueue(self._seen, wake)
        self._watches: dict[Path, ObservedWatch] = {}
        self._observer = an_observer()
        self._overflow = _Overflow(self._lose)
        _LOG.addHandler(self._overflow)
        self._observer.start()

    def _lose(self) -> None:
        self.lost = True
        self._wake()

    def close(self) -> None:
        self._observer.stop()
        self._observer.join()
        _LOG.removeHandler(self._overflow)

    def add(self, folder: Path, *, written: bool = False) -> bool:
        """Watch a folder; `written`: only what is written into files. False: there are no watches left."""
        if len(self._watches) >= MOST_FOLDERS:
            return False
        kinds: list[type[FileSystemEvent]] = [*WRITTEN] if written else [FileCreatedEvent, *WRITTEN]
        try:
            watch = self._observer.schedule(self._enqueue, str(folder), recursive=False, event_filter=kinds)
        except (OSError, RuntimeError):  # no watches, no threads, or no folder
            return False
        self._watches[folder] = watch
        return True

    def remove(self, folder: Path) -> None:
        if watch := self._watches.pop(folder, None):
            self._observer.unschedule(watch)

    def add_run(self, run: Path) -> bool:
        """Watch the folders of a run in which people write; all of them, or none."""
        if all(self.add(folder, written=written) for folder, written in folders_of(run).items()):
            return True
        self.remove_run(run)
        return False

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
        canary = folder / CANARY.format(os.getpid())
        end = time.monotonic() + seconds
        try:
            canary.write_bytes(b"")
            while (left := end - time.monotonic()) > 0:
                if self._seen.get(timeout=left) == str(canary):
                    return True
        except (OSError, queue.Empty):
            return False
        finally:
            canary.unlink(missing_ok=True)
        return False


def folders_of(run: Path) -> dict[Path, bool]:
    """Return the folders of a run in which people write, and whether only what is written into files counts."""
    return {run: False, run / names.PLANNING: False, run / names.STEPS: True}


def glance(run: Path) -> Glance:
    """Return what changes when somebody puts a file into a run, takes one away, or edits its plan or goal."""
    folders = tuple(_changed(folder) for folder in folders_of(run))
    edited = (names.RUN, names.PLAN, *(f"goal{suffix}" for suffix in names.GOAL_SUFFIXES))
    return (*folders, *(signature(run / name) for name in edited))


def _changed(folder: Path) -> int | None:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
