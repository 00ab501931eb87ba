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

NAMES: tuple[type[FileSystemEvent], ...] = (FileCreatedEvent, FileMovedEvent, FileDeletedEvent)
CONTENTS = (*NAMES, FileClosedEvent)


class _Enqueue(FileSystemEventHandler):
    """Notes the names and wakes; an exception here would end the observer's thread, so nothing here can raise."""

    def __init__(self, names: "queue.SimpleQueue[str]", wake: Callable[[], None]) -> None:
        self._names, self._wake = names, wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        for path in (event.src_path, event.dest_path):
            name = os.fsdecode(path)
            if name and not os.path.basename(name).startswith((".", "#")):  # '#17' has no name yet
                self._names.put(name)
                self._wake()


class FolderWatch:
    """Watches some folders, not the folders in them, for as long as the block runs.

    Of `names_only`, what is written into a file that is there already goes unreported. Every event costs the process
    three wake-ups, so that a folder with many files of our own should not be asked for more than is needed.
    """

    def __init__(self, folders: list[Path], wake: Callable[[], None], names_only: list[Path] | None = None) -> None:
        self._names: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._observer = Observer()
        enqueue = _Enqueue(self._names, wake)
        for kinds, watched in ((CONTENTS, folders), (NAMES, names_only or [])):
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
