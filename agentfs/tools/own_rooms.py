"""The sandbox that a worker of a person's own tools needs, and when it is still the same one. Starts nothing.

Laying out a sandbox takes longer than calling a small tool in it, so the layout is kept for as long as nothing has
changed that it was made from: the folders, the repositories that must be fenced, the person's files.
"""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentfs.installation import SETTINGS
from agentfs.storage.safe_open import hold_folder
from agentfs.tools.base import Confinement
from agentfs.tools.listings import SETTLED_NS, Listed, Listings
from agentfs.tools.own_source import FOLDER, Source
from agentfs.tools.sandbox import Layout, environment, lay_out, unavailable_because, view_for

PROGRAM = Path(__file__).with_name("own_worker.py")
PACKAGE = Path(__file__).parent.parent
MOST_KEPT = 64
MOST_MARKS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """One sandbox, laid out: it is the same only as itself."""

    layout: Layout
    env: Mapping[str, str]


Mark = tuple[int, ...]  # which file or folder a path leads to, and perhaps when that last changed


@dataclass(slots=True)
class _Seen:
    """What a look at everything has gone through."""

    paths: list[str] = field(default_factory=list)
    fenced: bool = False  # there is something to be fenced, or a folder that could become a repository or a workspace


@dataclass(frozen=True, slots=True)
class _Kept:
    """A layout, what it was made from, and what tells at a glance that nothing of that has changed."""

    state: object
    room: Room
    marks: tuple[tuple[str, bool, Mark | None], ...] = ()  # none: only a look at everything tells

    def surely_holds(self) -> bool:
        return bool(self.marks) and all(_identity(path, made=made) == mark for path, made, mark in self.marks)


class NoSandbox(Exception):
    """Programs cannot be confined here: why."""


class Rooms:
    """Keeps layouts for as long as they hold. Any thread may ask; the same sandbox is laid out once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listings = Listings()
        self._kept: dict[object, _Kept] = {}

    def room(self, confinement: Confinement, source: Source) -> Room:
        """Return the sandbox for these tools in this confinement. Raises Unfenceable, Refused or NoSandbox."""
        place = (
            confinement.workdir,
            confinement.workspace,
            confinement.run_files,
            confinement.readable,
            confinement.protected,
            confinement.writable,
            confinement.network,
            confinement.sandbox,
            tuple(sorted(confinement.env.items())),
            source,
        )
        if (known := self._kept.get(place)) is not None and known.surely_holds():
            return known.room
        seen = _Seen()
        state = self._state(confinement, source, seen)
        with self._lock:
            kept = self._kept.get(place)
            room = kept.room if kept is not None and kept.state == state else _laid_out(confinement, source)
            if kept is None and len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[place] = _Kept(state, room, self._marks(confinement, source, state, seen))
            return room

    def _marks(
        self, confinement: Confinement, source: Source, state: object, seen: _Seen
    ) -> tuple[tuple[str, bool, Mark | None], ...]:
        """Return what tells that this is still the state; none where something is fenced, or is just changing."""
        if seen.fenced or len(seen.paths) > MOST_MARKS:
            return ()
        folders = (confinement.workdir, confinement.workspace, confinement.run_files, *confinement.readable)
        others = {str(path) for path in folders}.difference(seen.paths)
        paths = [(path, path not in others) for path in (*others, *seen.paths)]
        marks = tuple((path, made, _identity(path, made=made)) for path, made in paths)
        settled = time.time_ns() - SETTLED_NS
        if any(mark is not None and mark[3] > settled for _, _, mark in marks):
            return ()
        return marks if self._state(confinement, source, _Seen()) == state else ()  # it was so before and after

    def _state(self, confinement: Confinement, source: Source, seen: _Seen) -> object:
        """Return all that a layout was made from and that may change under it."""

        def entries(folder: str) -> tuple[Listed, ...]:
            seen.paths.append(folder)
            found = self._listings.of(folder)
            seen.fenced = seen.fenced or any(one.name in (".git", SETTINGS) for one in found)
            return found

        folders = (confinement.workdir, confinement.workspace, confinement.run_files, *confinement.readable)
        places = {path: _identity(path) for path in map(str, folders)}
        with hold_folder(str(confinement.workdir)):
            pass
        view = view_for(confinement, entries) if confinement.sandbox != "none" else None
        mounts = view.mounts if view else ()
        plain = {
            str(confinement.workdir),
            *map(str, confinement.readable),
            *map(os.path.realpath, (sys.prefix, sys.base_prefix)),
        }
        seen.fenced = seen.fenced or any(path not in plain for path, _, _ in mounts)
        locks = tuple(_identity(path, made=True) for path, kind, _ in mounts if kind == "shown" and path not in plain)
        return view, places, locks, self._stamp(source, seen)

    def _stamp(self, source: Source, seen: _Seen) -> object:
        """Return what changes when a person edits their tools: names, sizes and times of the files in that folder."""
        if source.path is None or source.entry is not None:
            return None
        folder = os.path.dirname(source.path)
        python = [one.path for one in self._listings.of(folder) if one.name.endswith(".py")]
        seen.paths += (folder, *python)
        with suppress(OSError):
            found = [(path, os.stat(path)) for path in sorted(python)]
            return tuple((path, one.st_ino, one.st_size, one.st_mtime_ns) for path, one in found)
        return None


def _laid_out(confinement: Confinement, source: Source) -> Room:
    if confinement.sandbox == "bubblewrap" and (why := unavailable_because()):
        raise NoSandbox(why)
    readable = (*confinement.readable, *readable_for([source], confinement.workspace))
    inner = replace(confinement, readable=readable)
    return Room(lay_out(program("serve"), inner), environment(inner))


def _identity(path: str, *, made: bool = False) -> Mark | None:
    """Return which file or folder this is; `made`: also when it last changed, since numbers are given out again."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mode, found.st_ctime_ns if made else 0


def program(*words: str) -> list[str]:
    """Return the command that runs our worker program."""
    return [sys.executable, "-I", "-B", str(PROGRAM), *words]


def readable_for(found: Sequence[Source], root: Path) -> tuple[Path, ...]:
    """Return what a worker must see: tools/, agentfs itself, and where entry points are installed."""
    paths = [root / FOLDER, PACKAGE, *(Path(one.path).parent for one in found if one.path)]
    return tuple(dict.fromkeys(Path(os.path.realpath(path)) for path in paths if path.is_dir()))


def folders_of(found: Sequence[Source]) -> list[str]:
    """Return the folders in which the packages of entry points lie."""
    return list(dict.fromkeys(one.folder for one in found if one.folder))
