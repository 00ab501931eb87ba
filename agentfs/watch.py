"""Watchdog events as a stream of names: they wake whoever waits, and never inform."""

import logging
import os
import queue
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from watchdog.events import (
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
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


def an_observer() -> InotifyObserver:
    """Return an observer that keeps its remarks to itself: what watchdog says as it ends is no business of people."""
    remarks = logging.getLogger("watchdog")
    if not remarks.handlers:
        remarks.addHandler(logging.NullHandler())
        remarks.propagate = False
    return InotifyObserver(generate_full_events=True)  # else a file moved here counts as created


class FolderWatch:
    """Watches some folders, not the folders in them, for as long as the block runs.

    Of those in `written`, a file is reported when whoever wrote it closes it or moves it there, not when it gets its
    name: every event costs three wake-ups, and a driver that links a file into its own folder needs none of them.
    """

    def __init__(self, folders: list[Path], wake: Callable[[], None], written: list[Path] | None = None) -> None:
        self._names: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._observer = an_observer()
        enqueue = Enqueue(self._names, wake)
        for kinds, watched in ((EVERYTHING, folders), (WRITTEN, written or [])):
            for folder in watched:
                self._observer.schedule(enqueue, str(folder), recursive=False, event_filter=list(kinds))

    def __enter__(self) -> Self:
        self._observer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._observer.stop()
        self._observer.join()

    def seen(self) -> list[str]:
        """Return the paths reported since the last call."""
        found = []
        while not self._names.empty():
            found.append(self._names.get())
        return found
