"""goals/: which files there are goals, when one is complete, and what becomes of those that cannot be taken.

A goal leaves this folder in one of two ways: into its run, by rename, or into `rejected/`, with its reason beside it.
Whoever may write here is trusted less than who runs the daemon: nothing is followed, waited for, or read twice.
What is no goal by its name is left alone, and said once.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.goal_file import MAX_BYTES
from agentfs.core.problems import Problem
from agentfs.core.tool_spec import Catalogue
from agentfs.disk import appear, move_to_new_name
from agentfs.errors import AgentfsError, BadFile
from agentfs.intake import GoalSource, judge_goal, taking
from agentfs.moving import Spot, StillChanging, bring_back, finish_intakes, free_names
from agentfs.regular import NotRegular, read_regular
from agentfs.stillness import Stillness
from agentfs.tools.safe_open import hold_inside, hold_named
from agentfs.ui.text import in_markdown, inert
from agentfs.workspace import Workspace

REJECTED = "rejected"
AGAIN_SECONDS = 10.0  # until something that failed for want of room or rights is tried again
_JUNK = re.compile(
    r"""
    \..* | ~.* | .*~ | \#.*\# | 4913 | sed[A-Za-z0-9]{6}          # hidden, Office, backups, Emacs, vim, sed -i
    | .*\.(tmp|temp|part|partial|filepart|swp|swo|swx|bak|orig|rej|old|crdownload|download|opdownload|lock)
    | .*\.save(\.[0-9]+)?                                         # nano, when it is cut off
    | .*___jb_(tmp|old|bak)___                                    # JetBrains
    | thumbs\.db | desktop\.ini | .*:zone\.identifier | icon\r    # what a file manager leaves
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_KINDS: tuple[tuple[Callable[[int], bool], str, str], ...] = (
    (stat.S_ISLNK, "a symbolic link", "drop the file itself: cp -L"),
    (stat.S_ISFIFO, "a named pipe", "write the goal into a file, then move it into goals/"),
    (stat.S_ISSOCK, "a socket", "write the goal into a file, then move it into goals/"),
)


def is_junk(name: str) -> bool:
    """Whether an editor, a shell or a program that copies files makes names like this on its way."""
    return _JUNK.fullmatch(name) is not None


def is_goal_name(name: str) -> bool:
    """Whether a file of this name in goals/ is a goal."""
    return not is_junk(name) and name.lower().endswith(paths.GOAL_SUFFIXES)


@dataclass(frozen=True, slots=True)
class Refused:
    """A goal that was not taken: why, and where it is now; None if it could not be moved."""

    name: str
    words: str
    error: Path | None


@dataclass(slots=True)
class Found:
    """What one look at the folder found."""

    complete: list[Path] = field(default_factory=list)  # oldest first
    wrong: list[tuple[Path, Problem]] = field(default_factory=list)  # can never be a goal
    left: list[tuple[str, str]] = field(default_factory=list)  # names left alone, told once, with why
    restless: bool = False  # something is being written: look again soon
    there: set[str] = field(default_factory=set)  # the names of all that may be goals


@dataclass(slots=True)
class Inbox:
    """Looks at goals/ again and again."""

    workspace: Workspace
    settings: Settings
    catalogue: Catalogue
    planner: bool  # there is a model to plan with
    still: Stillness = field(default_factory=Stillness)
    clock: Callable[[], float] = time.monotonic
    _told: set[str] = field(default_factory=set)
    _later: dict[str, float] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.workspace.root / "goals"

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> Found:
        """Return what is there now."""
        found, ages = Found(), {}
        listed = {entry.name: entry for entry in _entries(self.folder)}
        self._forget_all_but(listed)
        found.there = {
            name for name, one in listed.items() if is_goal_name(name) and not one.is_dir(follow_symlinks=False)
        }
        for name, entry in listed.items():
            if is_junk(name) or self._later.get(name, 0.0) > self.clock():
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if (words := _no_goal(name, status.st_mode)) is not None:
                self._leave(name, words, found)
            elif not stat.S_ISREG(status.st_mode):
                found.wrong.append((self.folder / name, _wrong_kind(status.st_mode)))
            elif self.still.is_complete(self.folder / name):
                found.complete.append(self.folder / name)
                ages[self.folder / name] = status.st_mtime_ns
            else:
                found.restless = True
        found.complete.sort(key=lambda path: (ages[path], path.name))
        return found

    def _leave(self, name: str, words: str, found: Found) -> None:
        if words and name not in self._told:
            found.left.append((name, words))
        self._told.add(name)

    def _forget_all_but(self, listed: "dict[str, os.DirEntry[str]]") -> None:
        self._told &= listed.keys()
        for name in self._later.keys() - listed.keys():
            del self._later[name]
        for path in [path for path in self.still.seen if path.name not in listed]:
            self.still.forget(path)

    def later(self, name: str) -> None:
        """Leave a file alone for a while."""
        self._later[name] = self.clock() + AGAIN_SECONDS

    def bring_back(self) -> None:
        """Settle what an intake that was cut off left on its way to another file system."""
        with hold_named(self.folder) as goals:
            bring_back(goals, self.workspace.runs)

    def finish_intakes(self) -> tuple[list[Refused], bool]:
        """Finish what was cut off; return what was rejected, and whether nothing is left to finish."""
        refused: list[Refused] = []
        with hold_named(self.folder) as goals:

            def reject(spot: Spot, called: str, why: str) -> None:
                refused.append(self._turn_away(goals, spot, called, BadFile(called, [Problem(why, _DROP_AGAIN)])))

            finished = finish_intakes(self.workspace.runs, reject)
        return refused, finished and all(one.error for one in refused)

    # ── taking ────────────────────────────────────────────────────────────────────────────────────────────

    def taking(self, path: Path) -> AbstractContextManager[Path]:
        """Make a goal a run; the block has the run's folder, locked. Raises AgentfsError if it is no good."""
        self.still.forget(path)
        source = dropped_goal(path, path.name)
        goal = judge_goal(source, self.workspace.root, self.settings, self.catalogue, planner=self.planner)
        return taking(goal, self.workspace)

    def reject(self, path: Path, error: AgentfsError) -> Refused:
        """Move a goal to rejected/ and say beside it what is wrong and how to mend it."""
        with hold_named(self.folder) as goals:
            return self._turn_away(goals, Spot(goals, path.name), path.name, error)

    def _turn_away(self, goals: int, spot: Spot, called: str, error: AgentfsError) -> Refused:
        """Move what stands in a spot to rejected/. Nothing is written through a link, or over another file."""
        try:
            with hold_inside(REJECTED, goals, make=True) as rejected:
                place = next(free_names(rejected, called, beside=_ERROR))
                beside = f"{place}{_ERROR}"
                reason = _reason(place, error).encode("utf-8", "replace")
                appear(beside, reason, durable=False, made_in=".", inside=rejected)
                try:
                    move_to_new_name(spot.name, spot.folder, place, rejected)
                except OSError:
                    os.unlink(beside, dir_fd=rejected)
                    raise
        except OSError as trouble:
            self.later(called)
            first, *more = str(error).splitlines()
            first += f"; and it cannot be moved to {REJECTED}/: {trouble.strerror}"
            return Refused(called, "\n".join((first, *more)), None)
        return Refused(called, str(error), self.folder / REJECTED / beside)


def dropped_goal(path: Path, shown: str) -> GoalSource:
    """Return the goal in a file of goals/; raise BadFile if that can be none, StillChanging if it is not complete."""
    try:
        with hold_named(path.parent) as goals:
            content = read_regular(path.name, MAX_BYTES, folder=goals)
    except (BlockingIOError, FileNotFoundError):
        raise StillChanging(path.name) from None
    except IsADirectoryError:
        raise BadFile(shown, [_wrong_kind(stat.S_IFDIR)]) from None
    except NotRegular as error:
        raise BadFile(shown, [_TOO_LARGE if error.errno == errno.EFBIG else _wrong_kind(error.mode)]) from None
    except OSError as error:
        problem = Problem(f"cannot be read: {error.strerror}", "give the user that runs agentfs the right to")
        raise BadFile(shown, [problem]) from None
    if not content.strip():
        raise BadFile(shown, [_EMPTY])
    origin = os.fsencode(path).decode("utf-8", "replace")
    return GoalSource(content, path.name, shown, origin, path.stem, dropped=path)


_ERROR = ".error.md"
_DROP_AGAIN = "look at it, then move it back into goals/"
_EMPTY = Problem("the goal is empty", "write down what is to be done")
_TOO_LARGE = Problem("the goal is larger than 1 MiB", "keep large texts in files and name their paths")


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:  # whoever holds it makes it anew
        return []


def _no_goal(name: str, mode: int) -> str | None:
    """Return why something is left alone; nothing to say of our own folder; None if it is meant as a goal."""
    if stat.S_ISDIR(mode):
        return "" if name == REJECTED else "it is a folder; goals are files"
    if name == REJECTED:
        return "it is no folder, so that nothing can be moved there that is rejected; remove it"
    if not is_goal_name(name):
        return f"a goal ends in {', '.join(paths.GOAL_SUFFIXES)}"
    return None


def _wrong_kind(mode: int) -> Problem:
    for is_kind, words, fix in _KINDS:
        if is_kind(mode):
            return Problem(f"it is {words}, not a file", fix)
    return Problem("it is a device, not a file", "write the goal into a file, then move it into goals/")


def _reason(name: str, error: AgentfsError) -> str:
    """Return what stands in NAME.error.md."""
    lines = [f"    {inert(line)}" for line in str(error).splitlines()]
    return "\n".join(
        [
            f"# {in_markdown(inert(name))} was not taken",
            "",
            *lines,
            "",
            "Fix it, then move it back into goals/ (`agentfs check FILE` says whether it is valid).",
            "",
        ]
    )
