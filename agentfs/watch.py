"""Watchdog events as a stream of names: they wake whoever waits, and never inform."""

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

from agentfs.mounts import written_behind
from agentfs.system import libc_call

if TYPE_CHECKING:
    from watchdog.observers.inotify import InotifyObserver

WRITTEN: tuple[type[FileSystemEvent], ...] = (FileClosedEvent, FileMovedEvent, FileDeletedEvent)
EVERYTHING: tuple[type[FileSystemEvent], ...] = (FileCreatedEvent, *WRITTEN)
ARRIVED: tuple[type[FileSystemEvent], ...] = (FileCreatedEvent, FileClosedEvent, FileMovedEvent)


class Enqueue(FileSystemEventHandler):
    """Notes the names and wakes; an exception here would end the observer's thread, so nothing here can raise."""

    def __init__(self, names: "queue.SimpleQueue[str]", wake: Callable[[], None]) -> None:
        self._names, self._wake = names, wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        for path in paths:
            self._names.put(path)
        if paths:
            self._wake()


class EnqueueArrivals(Enqueue):
    """The same, but of what leaves a folder it says nothing."""

    def on_any_event(self, event: FileSystemEvent) -> None:
        if isinstance(event, FileMovedEvent):
            event = FileCreatedEvent(event.dest_path)
        super().on_any_event(event)


def an_observer() -> "InotifyObserver":
    """Return an observer that keeps its remarks to itself: what watchdog says as it ends is no business of people.

    OSError where there is none.
    """
    if libc_call("inotify_init") is None:
        raise OSError(errno.ENOSYS, "this system has no inotify")
    from watchdog.observers.inotify import InotifyObserver

    remarks = logging.getLogger("watchdog")
    if not remarks.handlers:
        remarks.addHandler(logging.NullHandler())
        remarks.propagate = False
    return InotifyObserver(generate_full_events=True)  # else a file moved here counts as created


class Unwatched(Exception):
    """A folder is not watched: why, in words."""


_NONE_LEFT = {
    errno.ENOSPC: "no watches are left (more: sudo sysctl fs.inotify.max_user_watches=524288)",
    errno.EMFILE: "no inotify instances are left (more: sudo sysctl fs.inotify.max_user_instances=512)",
}


def why_deaf(error: OSError) -> str:
    """Return why something could not be watched."""
    return _NONE_LEFT.get(error.errno or 0) or f"{error.strerror}"


def unheard_on(folder: Path) -> str | None:
    """Return why not everything is heard that happens in a folder, if that is so."""
    kind = written_behind(folder)
    return kind and f"on a {kind} file system others may write unheard"


class FolderWatch:
    """Watches some folders, not the folders in them, for as long as the block runs.

    `deaf`: why not all is heard, so that they have to be looked at as well; None if all is.

    Of those in `written`, a file is reported when whoever wrote it closes it or moves it there, not when it gets its
    name: every event costs three wake-ups, and a driver that links a file into its own folder needs none of them.
    """

    def __init__(self, folders: list[Path], wake: Callable[[], None], written: list[Path] | None = None) -> None:
        self._names: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wake = wake
        self._observer: InotifyObserver | None = None
        self._folders = {**dict.fromkeys(folders, EVERYTHING), **dict.fromkeys(written or [], WRITTEN)}
        self.deaf = next(filter(None, map(unheard_on, folders)), None)

    def __enter__(self) -> Self:
        try:
            self._start(an_observer())
        except OSError as error:
            self.deaf = why_deaf(error)
        except RuntimeError as error:
            self.deaf = f"no thread is left for it ({error})"
        return self

    def _start(self, observer: "InotifyObserver") -> None:
        enqueue = Enqueue(self._names, self._wake)
        for folder, kinds in self._folders.items():
            observer.schedule(enqueue, str(folder), recursive=False, event_filter=list(kinds))
        try:
            observer.start()
        except (OSError, RuntimeError):
            observer.unschedule_all()
            raise
        self._observer = observer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()

    def seen(self) -> list[str]:
        """Return the paths reported since the last call."""
        found = []
        while not self._names.empty():
            found.append(self._names.get())
        return found
