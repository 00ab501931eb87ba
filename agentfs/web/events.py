"""What wakes a page: changes of folders, and lines added to a log, as server-sent events. Reads only.

An event says that there is something to look at, and never what: a page that missed one looks again all the same.
"""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.storage.safe_open import reading
from agentfs.storage.timing import TIMING
from agentfs.storage.watcher import FolderWatch
from agentfs.web.log_lines import log_els

MOST_AT_ONCE = 256 * 1024  # bytes of a log per message
PARTS = (".", paths.STEPS, paths.PLANNING, paths.REVISIONS)


def run_folders(folder: Path) -> list[Path]:
    """Return the folders whose changes are changes of a run."""
    return [path for part in PARTS if (path := folder / part).is_dir()]


Marks = tuple[tuple[int, int, int], ...]


def marks_of(folders: Iterable[Path]) -> Marks:
    """Return what changes when a file comes, goes or is replaced in one of these folders."""
    found = []
    for folder in folders:
        try:
            about = os.stat(folder)
        except OSError:
            continue
        found.append((about.st_dev, about.st_ino, about.st_mtime_ns))
    return tuple(found)


@dataclass(slots=True)
class _Watched:
    watch: FolderWatch
    readers: set[Callable[[], None]] = field(default_factory=set)


@dataclass(slots=True)
class Lookout:
    """One watch per set of folders, however many pages look at it."""

    _watched: dict[tuple[Path, ...], _Watched] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def watching(self, folders: list[Path], wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake`, from another thread, whenever something happens in the folders."""
        key = tuple(folders)
        with self._lock:
            if key not in self._watched:
                self._watched[key] = self._begin(key)
            self._watched[key].readers.add(wake)
        try:
            yield
        finally:
            with self._lock:
                watched = self._watched[key]
                watched.readers.discard(wake)
                last = not watched.readers
                if last:
                    del self._watched[key]
            if last:
                watched.watch.__exit__(None, None, None)

    def _begin(self, key: tuple[Path, ...]) -> _Watched:
        def wake() -> None:
            for reader in tuple(watched.readers):
                reader()

        watched = _Watched(FolderWatch(list(key), wake))
        watched.watch.__enter__()
        return watched


async def changes(lookout: Lookout, folders: Callable[[], list[Path]]) -> AsyncIterator[bytes]:
    """Yield an event whenever something has changed, the first at once: a page may have been made before."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    yield b"retry: 1000\n\n"
    quiet, listed = 0.0, await asyncio.to_thread(folders)
    before = marks_of(listed)
    with lookout.watching(listed, wake):
        while True:
            try:
                await asyncio.wait_for(woken.wait(), TIMING.web_rescan)
                await asyncio.sleep(TIMING.web_calm)
                woken.clear()
            except TimeoutError:
                quiet += TIMING.web_rescan
            now = marks_of(listed)
            if now != before:
                before, quiet = now, 0.0
                yield b"event: changed\ndata: {}\n\n"
                if await asyncio.to_thread(folders) != listed:
                    return  # there are others to watch: the page asks again
            elif quiet >= TIMING.web_beat:
                quiet = 0.0
                yield b": still here\n\n"


async def log_lines(path: Path, offset: int, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the lines that are added to a log from an offset on, until the attempt has ended."""
    quiet = 0.0
    while True:
        over = await asyncio.to_thread(ended)
        source = await asyncio.to_thread(read_from, path, offset)
        if whole := source[: source.rfind(b"\n") + 1]:
            offset, quiet = offset + len(whole), 0.0
            yield _event("lines", {"html": "".join(log_els(whole)), "offset": offset}, offset)
            continue
        if over:
            yield _event("ended", {}, offset)
            return
        await asyncio.sleep(TIMING.web_log)
        quiet += TIMING.web_log
        if quiet >= TIMING.web_beat:
            quiet = 0.0
            yield b": still here\n\n"


def read_from(path: Path, offset: int) -> bytes:
    """Return what a log has from an offset on, so much at once."""
    try:
        with reading(path) as file:
            file.seek(offset)
            return file.read(MOST_AT_ONCE)
    except OSError:
        return b""


def _event(name: str, value: object, number: int) -> bytes:
    return f"id: {number}\nevent: {name}\ndata: {json.dumps(value)}\n\n".encode()
