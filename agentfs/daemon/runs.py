"""The runs of a daemon: those it drives, those that ended lately, and those that failed in a way of their own.

Nothing here decides when something happens: the loop in `daemon` does.
"""

import errno
import heapq
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agentfs.core import paths
from agentfs.core.actions import Wait
from agentfs.core.decide import needs_place
from agentfs.daemon.reporter import Reporter
from agentfs.engine.driver import Driver, Glance, Lookout, glance
from agentfs.engine.perform import turn
from agentfs.engine.report import finished_attempts
from agentfs.engine.status_page import StatusFile
from agentfs.errors import AgentfsError
from agentfs.storage.files import read_whole
from agentfs.storage.plan_files import last_revision
from agentfs.storage.workspace import is_open

NEVER = math.inf
TURNS = 16  # of one run in a row, while it has something to do at once: it ends the sooner, and costs less
FULL = (errno.ENOSPC, errno.EDQUOT)


# ── a run that is driven ──────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False, slots=True)
class ManagedRun:
    """One run, driven for as long as `hold` is open. Times are monotonic; `NEVER`: nothing is planned."""

    driver: Driver
    hold: ExitStack  # the run's lock, and whatever else ends with it
    status: StatusFile
    lookout: Lookout
    reported: set[tuple[str, int]]  # attempts whose end was reported
    due: float = 0.0  # when it has its next turns; a new run goes first
    look_at: float = NEVER  # when its folder is read again, as something is being written there
    page_at: float = NEVER  # when STATUS.md is written
    waits_since: float = NEVER  # for a place: it could start more attempts than it may
    wait_reported: str = ""
    is_leaving: bool = False  # it failed, and is let go of as soon as what it has under way is over

    @classmethod
    def of(cls, driver: Driver, hold: ExitStack, seen: Glance) -> "ManagedRun":
        return cls(driver, hold, StatusFile(driver.folder), Lookout(driver, seen), finished_attempts(driver.facts))

    @property
    def folder(self) -> Path:
        return self.driver.folder

    @property
    def is_busy(self) -> bool:
        """Whether a job has not ended yet, calls of the planner included."""
        return any(not job.ended for job in self.driver.jobs.values())

    @property
    def place_order(self) -> tuple[float, float]:
        """What the line for places is sorted by: a run whose attempt has just ended comes after those that waited."""
        has_given_back = self.driver.taken() > self.driver.at_work()
        return (NEVER if has_given_back else self.waits_since, self.due)

    def take_turns(self, *, draining: bool, report: Callable[["ManagedRun"], None]) -> None:
        """Turn until the run has to wait, or others should have their turns. A failure is this run's alone."""
        driver, room = self.driver, 0
        self.waits_since = self.place_order[0]
        for _ in range(TURNS):
            room = max(0, driver.places - driver.at_work())
            try:
                turn(driver, draining=draining)
            except Exception as error:  # noqa: BLE001 - one broken run never holds up another
                driver.trouble = error
            if driver.trouble is not None:
                return
            if driver.notify:
                driver.notify(driver.state, driver.actions)
            report(self)
            if driver.has_to_wait:
                break
        if room:
            self.waits_since = time.monotonic() if sum(map(needs_place, driver.actions)) >= room else NEVER
        else:
            could_start = driver.state.moving("order", "start", "ask", "retry", most=1)
            self.waits_since = min(self.waits_since, time.monotonic()) if could_start else NEVER

    def new_wait(self) -> Wait | None:
        """Return why the run waits for a person, if that has not been reported yet."""
        if not self.driver.has_to_wait:
            self.wait_reported = ""
        rest = self.driver.rest()
        if rest is None or rest.on != "person" or rest.why == self.wait_reported:
            return None
        self.wait_reported = rest.why
        return rest


def share_places(runs: Sequence[ManagedRun], free: int) -> list[ManagedRun]:
    """Let runs start as many attempts as is fair; return those that may start some."""
    held = [run.driver.at_work() for run in runs]
    for run, mine, more in zip(runs, held, share(free, held), strict=True):
        run.driver.places = mine + more
    return [run for run, mine in zip(runs, held, strict=True) if run.driver.places > mine]


def share(free: int, held: Sequence[int]) -> list[int]:
    """Hand out free places one by one, each to the run that holds fewest, the first of those first."""
    given = [0] * len(held)
    line = [(count, place) for place, count in enumerate(held)]
    heapq.heapify(line)
    for _ in range(free if line else 0):
        count, place = line[0]
        given[place] += 1
        heapq.heapreplace(line, (count + 1, place))
    return given


# ── runs that have ended ──────────────────────────────────────────────────────────────────────────────────

_FILES = (paths.PLAN, *(f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES), paths.REPLAN)
_FOLDERS = (paths.STEPS, paths.PLANNING)


class EndedRuns:
    """The runs that ended last. A person may resume one; an edit of one does nothing until then, and is reported."""

    MOST = 500  # are known
    LATEST = 64  # are looked at each time for whether they were resumed
    LOOKS = 20  # go through all of them in search of edits
    EACH = 3  # are reported one by one; after a copy of the workspace every file may look edited

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._reported: dict[Path, set[tuple[str, int]]] = {}  # the run that ended last comes last
        self._unseen: list[Path] = []  # whose edits are still to be looked for before all are again
        self._open_before: set[Path] = set()

    def add(self, folder: Path) -> None:
        self._reported.pop(folder, None)
        self._reported[folder] = set()
        while len(self._reported) > self.MOST:
            del self._reported[next(iter(self._reported))]

    def take_reopened(self) -> list[Path]:
        """Return those of the latest that have no outcome any more, and forget them.

        Nor the last time: while a person changes branches in runs/, an outcome may be gone for a moment.
        """
        open_now = {folder for folder in islice(reversed(self._reported), self.LATEST) if is_open(folder)}
        found, self._open_before = open_now & self._open_before, open_now
        for folder in found:
            del self._reported[folder]
        return sorted(found)

    def report_edits(self) -> None:
        """Report, once each, what was edited after a run's end; each call looks at some, the longest unseen first."""
        self._unseen = self._unseen or list(self._reported)
        some = 1 + len(self._reported) // self.LOOKS
        looked_at, self._unseen = self._unseen[:some], self._unseen[some:]
        edited: dict[str, str] = {}
        for folder in looked_at:
            known = self._reported.get(folder)
            if known is not None and (new := set(_edits(str(folder))) - known):
                known.update(new)
                if changed := sorted(name for name, _ in new if not _is_last_revision(folder, name)):
                    edited[paths.run_id(folder)] = ", ".join(changed)
        if len(edited) > self.EACH:
            words = f"files of {len(edited)} runs changed after their end, of {next(iter(edited))} among them"
            self._reporter.note(f"{words}: `agentfs resume RUN` takes one up again")
            return
        for run, files in edited.items():
            words = f"{files} changed, but the run has ended: `agentfs resume {run}` takes it up again"
            self._reporter.report("note", words, run)


def _edits(folder: str) -> Iterator[tuple[str, int]]:
    """Yield what is younger than the outcome, and since when. A change always sets ctime, whatever mtime says."""
    with suppress(OSError):
        end = os.lstat(f"{folder}/{paths.OUTCOME}").st_ctime_ns
        for name in (*_FILES, *_FOLDERS):
            with suppress(FileNotFoundError):
                found = os.lstat(f"{folder}/{name}")
                changed = found.st_mtime_ns if name in _FOLDERS else found.st_ctime_ns
                if changed > end:
                    yield name, changed


def _is_last_revision(folder: Path, name: str) -> bool:
    """Whether this is a plan that was saved, or copied, as it was: byte for byte the run's last revision."""
    with suppress(OSError):
        return name == paths.PLAN and last_revision(folder) == read_whole(folder / name)
    return False


# ── runs that failed in a way of their own ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Failure:
    seen: Glance  # as the run was
    time_may_help: bool
    words: str


class FailedRuns:
    """Runs that could not be driven: each is left alone until it has changed, or for a while if that may help."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._failures: dict[Path, _Failure] = {}

    def add(self, folder: Path, error: BaseException, seen: Glance | None = None) -> None:
        """Leave a run alone until it is no longer as it was seen before the failure (None: as it is now)."""
        if (folder / paths.RUN).exists():
            words = f"set aside: {describe(error)}"
        else:
            words = "its folder was moved or deleted; what ran in it is ended"
        known, run = self._failures.get(folder), paths.run_id(folder)
        self._failures[folder] = _Failure(seen or glance(folder), isinstance(error, OSError | MemoryError), words)
        if known is None or known.words != words:
            self._reporter.report("trouble", words, run)
        self._reporter.forget_run(run)

    def may_be_tried(self, folder: Path) -> bool:
        found = self._failures.get(folder)
        return found is None or found.time_may_help or found.seen != glance(folder, found.seen)

    def changed(self) -> list[Path]:
        """Return those that are not as they were."""
        return [folder for folder, found in self._failures.items() if found.seen != glance(folder, found.seen)]

    def remove(self, folder: Path) -> None:
        """Forget a run that is driven again."""
        if self._failures.pop(folder, None):
            self._reporter.report("note", "goes on", paths.run_id(folder))

    def keep_only(self, there: set[Path]) -> None:
        for folder in self._failures.keys() - there:
            del self._failures[folder]


def describe(error: BaseException) -> str:
    """Return what a person should know of a failure."""
    if isinstance(error, OSError) and error.errno in FULL:
        return f"{error.strerror}; it goes on when there is room"
    if isinstance(error, MemoryError):
        return "there is not enough memory; it is tried again in a while"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error) if isinstance(error, AgentfsError) else f"{type(error).__name__}: {error}"
