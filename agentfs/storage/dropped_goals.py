"""How a dropped goal gets into its run: by names in held folders, through no link, and never over another file.

A goal leaves `goals/` by one rename, into its run as `.dropped`, which is the commit point. What the run works from
is a file of its own, written from the bytes that were judged: a writer that has the dropped one open changes nothing.
"""

import contextlib
import errno
import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.goal_file import MAX_BYTES
from agentfs.core.hashing import sha256_bytes
from agentfs.core.records import Run
from agentfs.storage.files import move_to_new_name, publish_inside, sync_folder
from agentfs.storage.locks import locked
from agentfs.storage.safe_open import hold_inside, hold_named, open_regular, read_open, read_regular
from agentfs.storage.workspace import all_folders, has_goal

ON_ITS_WAY = ".on-its-way"  # in goals/, where runs/ is on another file system: DAY/RUN/FILE
LONGEST = 200  # bytes of a name; the name of its error file has to fit too
COUNTED = 100  # names that are numbered; a folder with more of one name costs no more than that to look through


class StillChanging(Exception):
    """A file has changed since it was read, or is about to be changed: look at it again."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A name in a folder that is held."""

    folder: int
    name: str


Reject = Callable[[Spot, str, str], None]  # what, what it was called, and why


def move_in(dropped: Path, run: int, run_id: str, files: Mapping[str, bytes]) -> None:
    """Move a dropped goal into its run's folder, which is held; one that is not what was judged goes back.

    `files`: what is made of the judged bytes, the goal last. Where a request comes first, that is what was dropped;
    the goal that it uses is laid beside it before the commit, so that an intake that was cut off can be finished.
    """
    content, goal = next(iter(files.values())), list(files)[-1]
    if len(files) > 1:
        publish_inside(run, paths.USED, files[goal])
    with hold_named(dropped.parent) as goals, ExitStack() as held:
        file = _open_to_move(Spot(goals, dropped.name), held)
        os.fsync(file)  # what the rename makes durable is whole
        moved = _take_out(Spot(goals, dropped.name), run, run_id, held)
        try:
            if not _holds(file, moved, content):
                raise StillChanging(dropped.name)
            for name, made in files.items():
                publish_inside(run, name, made)
        except BaseException:
            if goal not in os.listdir(run):
                move_to_free_name(moved, goals, dropped.name)
            raise
        os.unlink(moved.name, dir_fd=moved.folder)
        _remove_used(run)
        sync_folder(goals)
        _remove_empty(goals, run_id)


def _remove_used(run: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(paths.USED, dir_fd=run)


def _open_to_move(spot: Spot, held: ExitStack) -> int:
    try:
        descriptor = open_regular(spot.name, folder=spot.folder)
    except OSError:
        raise StillChanging(spot.name) from None
    held.callback(os.close, descriptor)
    return descriptor


def _take_out(spot: Spot, run: int, run_id: str, held: ExitStack) -> Spot:
    """Rename a goal out of goals/; return where it is now.

    The commit point. Where `runs/` is on another file system it is first moved out of the way, under the run's name,
    and the run's own copy commits: so the next daemon that finds it there knows whether the run has it.
    """
    try:
        os.rename(spot.name, paths.DROPPED, src_dir_fd=spot.folder, dst_dir_fd=run)
        return Spot(run, paths.DROPPED)
    except FileNotFoundError:
        raise StillChanging(spot.name) from None
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    way = spot.folder
    for part in (ON_ITS_WAY, *run_id.split("/")):
        way = held.enter_context(hold_inside(part, way, make=True))
    os.rename(spot.name, spot.name, src_dir_fd=spot.folder, dst_dir_fd=way)
    sync_folder(way)
    return Spot(way, spot.name)


def _holds(file: int, moved: Spot, content: bytes) -> bool:
    """Whether what was moved is the file that is open, and it holds this content."""
    found = os.stat(moved.name, dir_fd=moved.folder, follow_symlinks=False)
    try:
        return os.path.samestat(found, os.fstat(file)) and read_open(file, len(content)) == content
    except OSError:  # it has grown
        return False


def _remove_empty(goals: int, run_id: str) -> None:
    """Remove the folders that held a goal on its way."""
    day, run = run_id.split("/")
    with contextlib.suppress(OSError), hold_inside(ON_ITS_WAY, goals) as way:  # there is none, or others are in it
        with hold_inside(day, way) as inner:
            os.rmdir(run, dir_fd=inner)
        os.rmdir(day, dir_fd=way)
        os.rmdir(ON_ITS_WAY, dir_fd=goals)


# ── what an intake that was cut off left ──────────────────────────────────────────────────────────────────


def bring_back(goals: int, runs: Path) -> None:
    """Finish interrupted moves: a goal that its run has is removed, any other goes back."""
    with contextlib.suppress(FileNotFoundError), hold_inside(ON_ITS_WAY, goals) as way:
        for day, days in _folders_in(way):
            for run, inner in _folders_in(days):
                for name in sorted(os.listdir(inner)):
                    if paths.is_run_id(f"{day}/{run}") and has_goal(runs / day / run):
                        with contextlib.suppress(IsADirectoryError):
                            os.unlink(name, dir_fd=inner)
                    else:
                        move_to_free_name(Spot(inner, name), goals, name)
        with contextlib.suppress(OSError):
            os.rmdir(ON_ITS_WAY, dir_fd=goals)


def _folders_in(parent: int) -> Iterator[tuple[str, int]]:
    """Yield the folders in a held one, held; links are passed over, and those that are empty then are removed."""
    for name in sorted(os.listdir(parent)):
        with contextlib.suppress(OSError), hold_inside(name, parent) as held:
            yield name, held
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=parent)


def finish_intakes(runs: Path, reject: Reject) -> bool:
    """Finish what was renamed into its run and no further; return whether all of it could be.

    What still is what was judged becomes the run's goal; anything else is rejected, and the folder is free again.
    """
    folders = list(all_folders(runs))
    cut_off = [one for one in folders if os.path.lexists(f"{one}/{paths.DROPPED}")]
    finished = [_finish(folder, reject) for folder in cut_off]
    for folder in folders:
        if os.path.lexists(f"{folder}/{paths.USED}") and has_goal(folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/{paths.USED}")  # the run has its goal, and needs no other
    return all(finished)


def _finish(folder: str, reject: Reject) -> bool:
    """Finish the intake of one run; return False if that has to wait."""
    parent, name = os.path.split(folder)
    with hold_named(parent) as day, hold_inside(name, day) as run, locked(Path(folder)) as mine:
        if not mine:
            return False
        record = _record_in(run)
        called = os.path.basename(record.source) if record else "goal.md"
        try:
            content = read_regular(paths.DROPPED, MAX_BYTES, folder=run)
        except BlockingIOError:
            return False
        except OSError:
            content = None
        files = _judged_files(run, record, called, content) if content is not None and record else None
        if files is None:
            reject(Spot(run, paths.DROPPED), called, "it was changed while it was being taken")
            return True
        for name, made in files.items():
            if not _is_there(run, name):
                publish_inside(run, name, made)
        os.unlink(paths.DROPPED, dir_fd=run)
        _remove_used(run)
        return True


def _judged_files(run: int, record: Run, called: str, dropped: bytes) -> dict[str, bytes] | None:
    """Return what is made of a dropped file, the goal last; None if that is no longer what was judged."""
    if record.request_sha256 is None or record.uses is None:
        return {paths.goal_file(called): dropped} if sha256_bytes(dropped) == record.goal_sha256 else None
    try:
        used = read_regular(paths.USED, MAX_BYTES, folder=run)
    except OSError:
        return None
    if (sha256_bytes(dropped), sha256_bytes(used)) != (record.request_sha256, record.goal_sha256):
        return None
    return {paths.REQUEST: dropped, paths.goal_file(record.uses): used}


def _record_in(run: int) -> Run | None:
    try:
        return Run.model_validate_json(read_regular(paths.RUN, MAX_BYTES, folder=run))
    except (OSError, ValidationError):
        return None


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────


def move_to_free_name(spot: Spot, folder: int, name: str) -> str:
    """Move a file into a held folder under its name, or the first free one of name-2, name-3 …; return which."""
    for place in free_names(folder, name):
        with contextlib.suppress(FileExistsError):
            move_to_new_name(spot.name, spot.folder, place, folder)
            return place
    raise AssertionError("numbers do not end")


def free_names(folder: int, name: str, beside: str = "") -> Iterator[str]:
    """Yield those of name, name-2 … that are free, with what is `beside` them; one that is too long is cut."""
    stem, suffix = os.path.splitext(name)
    stem = os.fsdecode(os.fsencode(stem)[: LONGEST - len(os.fsencode(suffix))])
    for number in itertools.count(1):
        marked = f"-{number if number <= COUNTED else uuid.uuid4().hex[:12]}" if number > 1 else ""
        place = f"{stem}{marked}{suffix}"
        if not any(_is_there(folder, one) for one in {place, f"{place}{beside}"}):
            yield place


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
