"""What folders hold, read anew only where one has changed: to look whether it has is one call instead of five."""

import os
import time
from typing import NamedTuple

SETTLED_NS = 50_000_000  # a file system's clock ticks: what changes within a tick of a look may bear the same time
MOST_KEPT = 50_000


class Listed(NamedTuple):
    """An entry of a folder; links are not followed."""

    name: str
    path: str
    is_folder: bool
    is_file: bool


def read(folder: str) -> tuple[Listed, ...]:
    """Return what a folder holds; nothing if it is gone, or not ours to read."""
    try:
        with os.scandir(folder) as entries:
            return tuple(
                Listed(one.name, one.path, one.is_dir(follow_symlinks=False), one.is_file(follow_symlinks=False))
                for one in entries
            )
    except OSError:
        return ()


class Listings:
    """Keeps what it has read. Any thread may ask."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, tuple[Listed, ...]]] = {}

    def of(self, folder: str) -> tuple[Listed, ...]:
        try:
            now = os.stat(folder)
        except OSError:
            return ()
        state, kept = (now.st_dev, now.st_ino, now.st_ctime_ns), self._kept.get(folder)
        if kept is not None and kept[0] == state:
            return kept[1]
        looked, found = time.time_ns(), read(folder)
        if looked - now.st_ctime_ns > SETTLED_NS:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[folder] = state, found
        return found
