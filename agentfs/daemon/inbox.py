"""goals/: which files there are goals, when one is complete, and what becomes of those that cannot be taken.

A goal leaves this folder in one of two ways: into its run, by rename, or into `rejected/`, with its reason beside it.
Who may write here is trusted less than the person who runs the daemon: nothing is followed, waited for, or read
twice. What is no goal by its name is left alone, and reported once.
"""

import errno
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.goal_file import MAX_BYTES
from agentfs.core.paths import run_name
from agentfs.core.problems import Problem
from agentfs.core.text import in_markdown, inert
from agentfs.core.tool_spec import Catalogue
from agentfs.daemon.reporter import Reporter
from agentfs.daemon.runs import FULL, describe
from agentfs.engine.driver import BegunRun
from agentfs.engine.goal_source import GoalSource, Hide
from agentfs.engine.intake import judge_goal, taking
from agentfs.errors import AgentfsError, BadFile, UserError
from agentfs.storage.completeness import Completeness
from agentfs.storage.dropped_goals import (
    ON_ITS_WAY,
    Spot,
    StillChanging,
    bring_back,
    finish_intakes,
    free_names,
)
from agentfs.storage.files import appear, move_to_new_name
from agentfs.storage.safe_open import NotRegular, hold_inside, hold_named, read_regular
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace

REJECTED = "rejected"
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
    left: list[tuple[str, str]] = field(default_factory=list)  # names left alone, reported once, with why
    restless: bool = False  # something is being written: look again soon


@dataclass(slots=True)
class Inbox:
    """Looks at goals/ again and again."""

    workspace: Workspace
    settings: Settings
    catalogue: Catalogue
    planner: bool  # there is a model to plan with
    completeness: Completeness = field(default_factory=Completeness)
    clock: Callable[[], float] = time.monotonic
    hide: Hide = lambda text: text  # takes secrets out of a text
    _reported: set[str] = field(default_factory=set)
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
            elif self.completeness.is_complete(self.folder / name):
                found.complete.append(self.folder / name)
                ages[self.folder / name] = status.st_mtime_ns
            else:
                found.restless = True
        found.complete.sort(key=lambda path: (ages[path], path.name))
        return found

    def _leave(self, name: str, words: str, found: Found) -> None:
        if words and name not in self._reported:
            found.left.append((name, words))
        self._reported.add(name)

    def _forget_all_but(self, listed: "dict[str, os.DirEntry[str]]") -> None:
        self._reported &= listed.keys()
        for name in self._later.keys() - listed.keys():
            del self._later[name]
        for path in [path for path in self.completeness.seen if path.name not in listed]:
            self.completeness.forget(path)

    def later(self, name: str) -> None:
        """Leave a file alone for a while."""
        self._later[name] = self.clock() + TIMING.inbox_again

    def bring_back(self) -> None:
        """Finish what an intake that was cut off left on its way to another file system."""
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
        """Make a goal a run; the block has the run's folder, locked. Raises AgentfsError if it is invalid."""
        self.completeness.forget(path)
        source = dropped_goal(path, path.name)
        root, settings, catalogue = self.workspace.root, self.settings, self.catalogue
        goal = judge_goal(source, root, settings, catalogue, planner=self.planner, hide=self.hide)
        return taking(goal, self.workspace)

    def reject(self, path: Path, error: AgentfsError) -> Refused:
        """Move a goal to rejected/ and write beside it what is wrong and how to fix it."""
        with hold_named(self.folder) as goals:
            return self._turn_away(goals, Spot(goals, path.name), path.name, error)

    def _turn_away(self, goals: int, spot: Spot, called: str, error: AgentfsError) -> Refused:
        """Move what is in a spot to rejected/. Nothing is written through a link, or over another file."""
        try:
            with hold_inside(REJECTED, goals, make=True) as rejected:
                place = next(free_names(rejected, called, beside=_ERROR))
                beside = f"{place}{_ERROR}"
                reason = _reason(place, error).encode("utf-8", "replace")
                appear(beside, reason, durable=False, inside=rejected)
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
    except FileNotFoundError:  # the daemon makes it again
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
    """Return the text of NAME.error.md."""
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


# ── letting in ────────────────────────────────────────────────────────────────────────────────────────────

AtOnce = Callable[[Callable[[Path], BegunRun | Exception], list[Path]], list[BegunRun | Exception]]


class Intake:
    """Takes goals from an inbox, a few at a time, and reports what became of each. `due`: when to look again."""

    def __init__(self, inbox: Inbox, reporter: Reporter) -> None:
        self.inbox, self._reporter = inbox, reporter
        self.due = 0.0
        self._late_until = 0.0  # until when events may be late
        self._waiting: deque[Path] = deque()  # goals that were complete when they were looked at
        self._finish_at: float | None = None  # when to finish an intake that was, or may have been, cut off
        self._trouble: dict[str, str] = {}  # goals that could not be taken, and what was reported; "" is goals/

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def begin(self) -> None:
        """Begin with a folder that is held now."""
        self._finish_intakes()  # before a run is driven: its lock is needed
        try:
            self.inbox.bring_back()
        except OSError as error:
            self._report_trouble(ON_ITS_WAY, f"goals/{ON_ITS_WAY}: {_NOT_FINISHED}: {describe(error)}")
        self.due = 0.0

    def _finish_intakes(self) -> None:
        """Finish what was being taken when an intake was cut off; again later, as far as that cannot be now."""
        try:
            refused, is_finished = self.inbox.finish_intakes()
        except OSError as error:
            refused, is_finished = [], False
            self._report_trouble("", f"{_NOT_FINISHED}: {describe(error)}")
        self._finish_at = None if is_finished else time.monotonic() + TIMING.inbox_again
        for one in refused:
            self._report_refused(one)

    def take(self, most: int, at_once: AtOnce) -> list[BegunRun]:
        """Return the folders of new runs, each with its lock held."""
        now = time.monotonic()
        if not self._waiting and now >= self.due:
            self._look(now)
        paths = [path for path in self._next(most) if self._is_complete(path, now)]
        if paths:
            self._look_often()
        taken = zip(paths, at_once(self._take_one, paths), strict=True)
        return [begun for path, result in taken if (begun := self._report_taken(path, result))]

    def _next(self, most: int) -> list[Path]:
        """Return the goals to take now: a few, no two of which would have the same name as runs."""
        found: dict[str, Path] = {}
        while self._waiting and len(found) < most and (name := run_name(self._waiting[0].stem)) not in found:
            found[name] = self._waiting.popleft()
        return list(found.values())

    def _is_complete(self, path: Path, now: float) -> bool:
        if self.inbox.completeness.is_complete(path):
            return True
        self.due = now + TIMING.inbox_restless
        return False

    def _look(self, now: float) -> None:
        self.due = now + TIMING.inbox
        if self._finish_at is not None and now >= self._finish_at:
            self._finish_intakes()
        try:
            found = self.inbox.look()
        except OSError as error:
            self._report_trouble("", f"goals/ cannot be read: {describe(error)}")
            return
        self._waiting.extend(found.complete)
        for name, words in found.left:
            self._reporter.report("left", f"goals/{name} is left alone: {words}", goal=name)
        for path, problem in found.wrong:
            self._refuse(path, BadFile(path.name, [problem]))
        if found.restless or now < self._late_until:
            self.due = now + TIMING.inbox_restless

    def _look_often(self) -> None:
        """Look often for a while: after a file has left a folder, watchdog holds back what else happens there."""
        self._late_until = time.monotonic() + TIMING.events_late
        self.due = min(self.due, time.monotonic() + TIMING.inbox_restless)

    def _take_one(self, path: Path) -> BegunRun | Exception:
        """Make a goal a run, or return what is in the way. Other goals are being taken at the same time."""
        hold = ExitStack()
        try:
            return hold.enter_context(self.inbox.taking(path)), hold
        except Exception as error:  # noqa: BLE001 - one goal must not take the daemon from all others
            return error

    def _report_taken(self, path: Path, result: BegunRun | Exception) -> BegunRun | None:
        match result:
            case StillChanging():
                self.due = 0.0
            case AgentfsError():
                self._refuse(path, result)
            case OSError():
                self._put_off(path, result)
            case Exception():
                self._refuse(path, UserError(f"{path.name}: agentfs failed on it, which is a bug: {result!r}"))
            case (folder, _):
                self._trouble.pop(path.name, None)
                if self._trouble.pop("", None):
                    self._reporter.note("goals are taken again")
                run = paths.run_id(folder)
                self._reporter.report("taken", f"took goals/{path.name}", run, goal=path.name)
                return result
        return None

    def _put_off(self, path: Path, error: OSError) -> None:
        """Try a goal again later; all of them, if it is no fault of this one."""
        self._finish_at = time.monotonic() + TIMING.inbox_again
        if error.errno not in _NOT_THIS_GOALS_FAULT:
            self.inbox.later(path.name)
            words = f"goals/{path.name} cannot be taken now, and is tried again: {describe(error)}"
            self._report_trouble(path.name, words)
            return
        self._waiting.clear()
        self.due = time.monotonic() + TIMING.inbox_again
        self._report_trouble("", f"no goal can be taken now; they stay in goals/: {describe(error)}")

    def _refuse(self, path: Path, error: AgentfsError) -> None:
        self._look_often()
        problems = len(error.problems) if isinstance(error, BadFile) else 1
        self._report_refused(self.inbox.reject(path, error), problems)

    def _report_refused(self, refused: Refused, problems: int = 1) -> None:
        first = refused.words.splitlines()[0]
        count = f" (and {problems - 1} more)" if problems > 1 else ""
        words = f"rejected: {first.removesuffix(':')}{count}"  # what follows a colon is in the file
        if refused.error is None:
            self._report_trouble(refused.name, words)
            return
        beside = refused.error.relative_to(self.inbox.workspace.root)
        self._trouble.pop(refused.name, None)
        self._reporter.report("rejected", f"{words}; see {beside}", goal=refused.name, error=str(beside))

    def _report_trouble(self, name: str, words: str) -> None:
        """Report trouble that comes again and again once, until it is over."""
        if self._trouble.get(name) != words:
            self._trouble[name] = words
            self._reporter.report("trouble", words)


_NOT_FINISHED = "what an earlier watch was taking cannot be finished"
_NOT_THIS_GOALS_FAULT = (*FULL, errno.EROFS, errno.EMFILE, errno.ENFILE)
