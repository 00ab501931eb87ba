"""Begins the runs of `schedules/` when their times have come. Remembers nothing that files do not say.

Every schedule is looked at all the time, by the clock of the machine: it may be set, and a daemon may have been down.
Which times have had their run is read from the runs.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from agentfs.core import paths
from agentfs.core.problems import Problem
from agentfs.core.schedule import FOLDER, Due
from agentfs.daemon.inbox import Begun, Inbox
from agentfs.daemon.reporter import Reporter
from agentfs.engine.intake import JudgedGoal, judge_goal, taking
from agentfs.engine.schedules import RunsOfSchedules, ScheduleFile, due_now, read_file, schedule_names
from agentfs.errors import AgentfsError, BadFile
from agentfs.storage.clock import Clock
from agentfs.storage.completeness import Completeness, signature
from agentfs.storage.timing import TIMING

_OPEN = ("due", "queued")  # what may still become of a time


@dataclass(slots=True)
class _Entry:
    """A file in schedules/, and the time of it that nothing more is to be done about."""

    seen: object
    file: ScheduleFile
    decided: datetime | None = None
    again_at: float = 0.0  # when to look again at a time that waits, or could not be begun


@dataclass(slots=True)
class Timetable:
    """Looks at schedules/ again and again."""

    inbox: Inbox
    reporter: Reporter
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    due: float = 0.0  # when to look again
    _completeness: Completeness = field(default_factory=Completeness)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _runs: RunsOfSchedules | None = None

    @property
    def root(self) -> Path:
        return self.inbox.workspace.root

    def take(self, now: float) -> list[Begun]:
        """Return the folders of the runs that begin now, each with its lock held."""
        if now < self.due:
            return []
        self.due = now + TIMING.glance
        names = schedule_names(self.root)
        self._entries = {name: entry for name, entry in self._entries.items() if name in names}
        found = (self._begin(entry) for name in names if (entry := self._entry(name)) is not None)
        return [begun for begun in found if begun is not None]

    def _entry(self, name: str) -> _Entry | None:
        """Return a file as it is, once its writer has finished; a file that does not read is reported."""
        path, known = self.root / FOLDER / name, self._entries.get(name)
        seen = signature(path)
        if known is not None and known.seen == seen:
            return known
        if not path.is_symlink() and not self._completeness.is_complete(path):
            return None
        try:
            file = read_file(self.root, name)
        except OSError as error:
            self.reporter.report_once(f"{FOLDER}/{name} cannot be read: {error.strerror}")
            return None
        self._entries[name] = _Entry(seen, file)
        if file.problems:
            self._report_problems(file, file.shown, file.problems)
        else:
            self._judge(file, self.wall())  # what is wrong with it is known now, not at three in the morning
        return self._entries[name]

    def _begin(self, entry: _Entry) -> Begun | None:
        """Begin the run that a schedule is due for; None if it is not."""
        file, now = entry.file, self.wall()
        newest = file.schedule.newest(now) if file.schedule else None
        if newest is None or newest == entry.decided or time.monotonic() < entry.again_at:
            return None
        if self._runs is None:
            self._runs = RunsOfSchedules(self.inbox.workspace.runs)
        verdict = due_now(file, now, self._runs)
        if verdict.word not in _OPEN:
            entry.decided, entry.again_at = newest, 0.0
            self._report(file, verdict)
        elif verdict.word == "due" and (begun := self._run(file, newest)):
            entry.decided, entry.again_at = newest, 0.0
            return begun
        else:
            entry.again_at = time.monotonic() + TIMING.schedule_again
        return None

    def _report(self, file: ScheduleFile, verdict: Due) -> None:
        if verdict.word == "skipped" and verdict.time:
            words = f"{file.shown}: {local_words(verdict.time)} is skipped: {verdict.why}"
            self.reporter.report("schedule", words, schedule=file.name)

    def _run(self, file: ScheduleFile, moment: datetime) -> Begun | None:
        """Make a run for one time of a schedule; what is in the way is reported, and it is tried again."""
        hold = ExitStack()
        if (goal := self._judge(file, moment)) is None:
            return None
        try:
            folder = hold.enter_context(taking(goal, self.inbox.workspace, Clock(self.wall)))
        except (AgentfsError, OSError) as error:
            hold.close()
            self.reporter.report_once(f"{file.shown} is due, and cannot begin: {error}")
            return None
        words = f"began {file.shown}, due {local_words(moment)}"
        self.reporter.report("scheduled", words, paths.run_id(folder), schedule=file.name)
        return folder, hold

    def _judge(self, file: ScheduleFile, moment: datetime) -> JudgedGoal | None:
        """Return the goal of a schedule; None: it is not valid, which is reported once."""
        inbox = self.inbox
        try:
            source, settings, catalogue = file.source(moment), inbox.settings, inbox.catalogue
            return judge_goal(source, self.root, settings, catalogue, planner=inbox.planner, hide=inbox.hide)
        except BadFile as error:
            self._report_problems(file, error.file, error.problems)
        except AgentfsError as error:
            self.reporter.report_once(f"{file.shown} cannot run: {error}")
        return None

    def _report_problems(self, file: ScheduleFile, where: str, problems: Sequence[Problem]) -> None:
        words = "; ".join(problem.shown(where) for problem in problems)
        self.reporter.report_once(f"{file.shown} cannot run: {words}")


def local_words(moment: datetime) -> str:
    """Return a moment as people here read it, to the minute."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
