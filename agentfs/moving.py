"""Move files that people have dropped: never over another one, and into a run only as they were read."""

import contextlib
import errno
import itertools
import os
from pathlib import Path

from agentfs.core import names
from agentfs.disk import publish, read_whole, sync_folder

ON_ITS_WAY = ".on-its-way"  # in goals/, where runs/ is on another file system: DAY/RUN/FILE
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
        _copy_in(dropped, goal, content)
        return
    if read_whole(goal) != content:
        move_aside(goal, dropped.parent, dropped.name)
        raise StillChanging(dropped.name)
    sync_folder(goal.parent)
    sync_folder(dropped.parent)


def _copy_in(dropped: Path, goal: Path, content: bytes) -> None:
    """The same across file systems: out of the way first, under the run's name, then copied; the copy commits.

    So whoever finds it there knows whether the run has it: a goal is in goals/, or on its way, or in its run.
    """
    on_its_way = dropped.parent / ON_ITS_WAY / goal.parent.parent.name / goal.parent.name / dropped.name
    on_its_way.parent.mkdir(parents=True, exist_ok=True)
    os.rename(dropped, on_its_way)
    if on_its_way.read_bytes() != content:
        move_aside(on_its_way, dropped.parent, dropped.name)
        raise StillChanging(dropped.name)
    sync_folder(on_its_way.parent)
    publish(goal, content, durable=True)
    os.unlink(on_its_way)
    _remove_empty(on_its_way.parent, dropped.parent)


def bring_back(goals: Path, runs: Path) -> None:
    """Settle what a dead intake left on its way: a goal that its run has is removed, any other goes back."""
    for path in sorted((goals / ON_ITS_WAY).glob("*/*/*")):
        run = runs / path.parent.parent.name / path.parent.name
        if any(os.path.lexists(run / f"goal{suffix}") for suffix in names.GOAL_SUFFIXES):
            os.unlink(path)
        else:
            move_aside(path, goals, path.name)
        _remove_empty(path.parent, goals)


def _remove_empty(folder: Path, goals: Path) -> None:
    """Remove folders that held a goal on its way, up to goals/."""
    with contextlib.suppress(OSError):  # there are others in it
        while folder != goals:
            folder.rmdir()
            folder = folder.parent


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
