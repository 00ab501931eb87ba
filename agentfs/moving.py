"""Move files that people have dropped: never over another one, and into a run only as they were read."""

import errno
import itertools
import os
from pathlib import Path

from agentfs.disk import publish, sync_folder

LONGEST = 200  # bytes of a name; the name of its error file has to fit too


class StillChanging(Exception):
    """A file has changed since it was read: look at it again."""


def move_in(dropped: Path, goal: Path, content: bytes) -> None:
    """Rename a dropped goal into its run, which is the commit point; one that has changed meanwhile goes back."""
    _make_durable(dropped)
    try:
        os.rename(dropped, goal)
    except FileNotFoundError:
        raise StillChanging(dropped.name) from None
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        publish(goal, content, durable=True)  # another file system: here the copy is the commit point
        os.unlink(dropped)
        return
    if goal.read_bytes() != content:
        move_aside(goal, dropped.parent, dropped.name)
        raise StillChanging(dropped.name)
    sync_folder(goal.parent)
    sync_folder(dropped.parent)


def _make_durable(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise StillChanging(path.name) from None
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move_aside(path: Path, folder: Path, name: str) -> Path:
    """Move a file into a folder under its name, or the first free one of name-2, name-3 …; return where it is."""
    place = free_place(folder, name)
    os.rename(path, place)
    return place


def free_place(folder: Path, name: str) -> Path:
    """Return the first of name, name-2 … that is free; one that is too long is cut."""
    stem, suffix = os.path.splitext(name)
    stem = os.fsdecode(os.fsencode(stem)[: LONGEST - len(os.fsencode(suffix))])
    for number in itertools.count(1):
        place = folder / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        if not os.path.lexists(place):
            return place
    raise AssertionError("numbers do not end")
