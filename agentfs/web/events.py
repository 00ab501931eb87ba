"""What wakes a page: changes of folders, and lines added to a log, as server-sent events. Reads only.

An event says that there is something to look at, and never what: a page that missed one looks again all the same.
Folders are looked at, as the runs that are driven are: no event of the system is needed.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from agentfs.core import paths
from agentfs.storage.timing import TIMING
from agentfs.ui.reading import whole_lines
from agentfs.web.log_lines import log_els

MOST_AT_ONCE = 256 * 1024  # bytes of a log per message
STILL_HERE = b": still here\n\n"
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
        is_racy = abs(time.time_ns() - about.st_mtime_ns) < TIMING.racy * 1e9  # a second file may have that time, too
        found.append((about.st_dev, about.st_ino, 0 if is_racy else about.st_mtime_ns))
    return tuple(found)


async def changes(folders: Callable[[], list[Path]]) -> AsyncIterator[bytes]:
    """Yield an event whenever something in these folders has changed, until there are others to look at."""
    yield b"retry: 1000\n\n"
    listed = await asyncio.to_thread(folders)
    before, quiet = await asyncio.to_thread(marks_of, listed), 0.0
    while True:
        await asyncio.sleep(TIMING.web_look)
        now, quiet = await asyncio.to_thread(marks_of, listed), quiet + TIMING.web_look
        if now != before:
            before, quiet = now, 0.0
            yield b"event: changed\ndata: {}\n\n"
            if await asyncio.to_thread(folders) != listed:
                return  # the page asks again
        elif quiet >= TIMING.web_beat:
            quiet = 0.0
            yield STILL_HERE


async def log_lines(path: Path, offset: int, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the lines that are added to a log from an offset on, until the attempt has ended."""
    quiet = 0.0
    while True:
        over = await asyncio.to_thread(ended)
        whole = await asyncio.to_thread(whole_lines, path, offset, MOST_AT_ONCE)
        if whole:
            offset, quiet = offset + len(whole), 0.0
            yield _event("lines", {"html": "".join(log_els(whole)), "offset": offset}, offset)
            continue
        if over:
            yield _event("ended", {}, offset)
            return
        await asyncio.sleep(TIMING.web_look)
        quiet += TIMING.web_look
        if quiet >= TIMING.web_beat:
            quiet = 0.0
            yield STILL_HERE


def _event(name: str, value: object, number: int) -> bytes:
    return f"id: {number}\nevent: {name}\ndata: {json.dumps(value)}\n\n".encode()
