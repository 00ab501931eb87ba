"""The sandbox that a worker of a person's own tools needs, and when it is still the same one. Starts nothing.

Laying out a sandbox takes longer than calling a small tool in it, so the layout is kept for as long as nothing has
changed that it was made from: the folders, the repositories that must be fenced, the person's files.
"""

import os
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentfs.tools.base import Confinement
from agentfs.tools.listings import SETTLED_NS, Listed, Listings
from agentfs.tools.own_source import FOLDER, Source
from agentfs.tools.protected import Fences, workspace_fences
from agentfs.tools.repositories import git_fences, survey
from agentfs.tools.sandbox import environment, lay_out, unavailable_because

PROGRAM = Path(__file__).with_name("own_worker.py")
PACKAGE = Path(__file__).parent.parent
MOST_KEPT = 64
MOST_MARKS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """One sandbox, laid out: it is the same only as itself."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    repositories: tuple[str, ...] = ()  # that a tool could write to


Mark = tuple[int, ...]  # which file or folder a path leads to, and perhaps when that last changed


@dataclass(slots=True)
class _Seen:
    """What a look at everything has gone through."""

    paths: list[str] = field(default_factory=list)
    git: bool = False  # there is something to be fenced, or a folder that could become a repository


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


class NoFolder(Exception):
    """There is nothing to work in: where."""


class Rooms:
    """Keeps layouts for as long as they hold. Any thread may ask; the same sandbox is laid out once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listings = Listings()
        self._kept: dict[object, _Kept] = {}
        self._real: dict[str, tuple[object, str]] = {}  # path -> which folder it led to, and that folder's real path

    def room(self, confinement: Confinement, source: Source) -> Room:
        """Return the sandbox for these tools in this confinement. Raises Unfenceable, NoFolder or NoSandbox."""
        place = (
            confinement.workdir,
            confinement.workspace,
            confinement.run_files,
            confinement.readable,
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
                self._real.clear()
            self._kept[place] = _Kept(state, room, self._marks(confinement, source, state, seen))
            return room

    def _marks(
        self, confinement: Confinement, source: Source, state: object, seen: _Seen
    ) -> tuple[tuple[str, bool, Mark | None], ...]:
        """Return what tells that this is still the state; none where git is in it, or something is just changing."""
        if seen.git or len(seen.paths) > MOST_MARKS:
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
            seen.git = seen.git or any(one.name == ".git" for one in found)
            return found

        folders = (confinement.workdir, confinement.workspace, confinement.run_files)
        places = {path: _identity(path) for path in {*map(str, folders), *map(str, confinement.readable)}}
        workdir_now = places[str(confinement.workdir)]
        if workdir_now is None or not stat.S_ISDIR(workdir_now[2]):
            raise NoFolder(f"the working folder {confinement.workdir} is not there")
        fences: tuple[Fences, ...] = ()
        if confinement.sandbox != "none":
            workdir, workspace, run_files = (self._real_path(str(path), places[str(path)]) for path in folders)
            own = workspace_fences(workdir, workspace, run_files)
            fences = (own, git_fences(survey(workdir, own.locks, entries)))
            seen.git = seen.git or own != Fences()
        locks = [path for fence in fences for path in fence.locks]
        return fences, places, tuple(_identity(path, made=True) for path in locks), self._stamp(source, seen)

    def _real_path(self, path: str, identity: object) -> str:
        """Return where a path leads; kept while it leads to the same, since every folder on the way is looked at."""
        known = self._real.get(path)
        if known is None or known[0] != identity:
            known = self._real[path] = identity, os.path.realpath(path)
        return known[1]

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
    layout = lay_out(program("serve"), inner)
    return Room(layout.argv, environment(inner), Path(confinement.workdir), layout.repositories)


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
