"""Watchdog events as a stream of names. They only wake the loop that waits; what happened is read from the files."""

import errno
import logging
import os
import queue
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from watchdog.events import (
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)

from agentfs.storage.completeness import shared_filesystem
from agentfs.storage.system import libc_call

if TYPE_CHECKING:
    from watchdog.observers.inotify import InotifyObserver

_EVENTS: list[type[FileSystemEvent]] = [FileCreatedEvent, FileClosedEvent, FileMovedEvent, FileDeletedEvent]
_NONE_LEFT = {
    errno.ENOSPC: "no watches are left (more: sudo sysctl fs.inotify.max_user_watches=524288)",
    errno.EMFILE: "no inotify instances are left (more: sudo sysctl fs.inotify.max_user_instances=512)",
}
_LOG = logging.getLogger("watchdog")  # reports an overflow, and nothing else worth a line


class Enqueue(FileSystemEventHandler):
    """Queues names and wakes the loop. It must not raise: that would end the observer's thread."""

    def __init__(self, names: "queue.SimpleQueue[str]", wake: Callable[[], None]) -> None:
        self._names, self._wake = names, wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        for path in paths:
            self._names.put(path)
        if paths:
            self._wake()


class _Overflow(logging.Handler):
    """Notices that the kernel dropped events, and keeps watchdog's messages off the terminal."""

    def __init__(self, happened: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._happened = happened

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.msg:
            self._happened()


class FolderWatch:
    """Watches some folders, not the folders in them, for as long as the block runs.

    `no_events`: why events may be missing, so that the folders have to be looked at as well; None if all come.
    `overflowed`: the kernel dropped events; set it back after looking.
    """

    def __init__(self, folders: list[Path], wake: Callable[[], None]) -> None:
        self._names: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wake = wake
        self._observer: InotifyObserver | None = None
        self._folders = folders
        self._log = _Overflow(self._overflow)
        self.overflowed = False
        kind = next(filter(None, map(shared_filesystem, folders)), None)
        self.no_events = kind and f"events may be missing on a {kind} file system"

    def __enter__(self) -> Self:
        if not _LOG.handlers:
            _LOG.addHandler(logging.NullHandler())  # stays: nobody reads what watchdog logs as it ends
            _LOG.propagate = False
        _LOG.addHandler(self._log)
        try:
            self._start(_open_observer())
        except OSError as error:
            self.no_events = _NONE_LEFT.get(error.errno or 0) or f"{error.strerror}"
        except RuntimeError as error:
            self.no_events = f"no thread is left for it ({error})"
        return self

    def _start(self, observer: "InotifyObserver") -> None:
        enqueue = Enqueue(self._names, self._wake)
        try:
            for folder in self._folders:
                observer.schedule(enqueue, str(folder), recursive=False, event_filter=_EVENTS)
            observer.start()
        except (OSError, RuntimeError):
            observer.unschedule_all()
            raise
        self._observer = observer

    def _overflow(self) -> None:
        self.overflowed = True
        self._wake()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
        _LOG.removeHandler(self._log)

    def seen(self) -> list[str]:
        """Return the paths reported since the last call."""
        found = []
        while not self._names.empty():
            found.append(self._names.get())
        return found


def _open_observer() -> "InotifyObserver":
    """Return an observer; OSError where there is none."""
    if libc_call("inotify_init") is None:
        raise OSError(errno.ENOSYS, "this system has no inotify")
    from watchdog.observers.inotify import InotifyObserver

    return InotifyObserver(generate_full_events=True)  # else a file moved here counts as created
