"""Watchdog events as a stream of names: they wake whoever waits, and never inform."""

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
from watchdog.observers import Observer

_FILTER: list[type[FileSystemEvent]] = [FileCreatedEvent, FileClosedEvent, FileMovedEvent, FileDeletedEvent]


class _Enqueue(FileSystemEventHandler):
    """Notes the names and wakes; an exception here would end the observer's thread, so nothing here can raise."""

    def __init__(self, names: "queue.SimpleQueue[str]", wake: Callable[[], None]) -> None:
        self._names, self._wake = names, wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        for path in (event.src_path, event.dest_path):
            name = os.fsdecode(path)
            if name and not os.path.basename(name).startswith("."):
                self._names.put(name)
                self._wake()


class FolderWatch:
    """Watches some folders, not what lies in them, for as long as the block runs."""

    def __init__(self, folders: list[Path], wake: Callable[[], None]) -> None:
        self._names: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._observer = Observer()
        enqueue = _Enqueue(self._names, wake)
        for folder in folders:
            self._observer.schedule(enqueue, str(folder), recursive=False, event_filter=_FILTER)

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
