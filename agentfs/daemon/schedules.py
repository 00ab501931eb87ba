"""The goals in `schedules/`: what they say, the runs that were begun for them, and beginning those that are due.

Remembers nothing that files do not say: which times have had their run is read from the runs. Every schedule is
looked at all the time, by the clock of the machine: it may be set, and a daemon may have been down.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.goal_file import MAX_BYTES, examine_goal, read_request
from agentfs.core.hashing import sha256_bytes
from agentfs.core.problems import Locate, Problem, Rejected
from agentfs.core.records import Goal
from agentfs.core.schedule import FOLDER, Due, Schedule, ScheduledRun, due, read_schedule
from agentfs.core.tool_spec import Catalogue
from agentfs.daemon.inbox import Inbox
from agentfs.daemon.reporter import Reporter
from agentfs.engine.driver import BegunRun
from agentfs.engine.goal_source import GoalSource
from agentfs.engine.intake import JudgedGoal, judge_goal, taking
from agentfs.errors import AgentfsError, BadFile
from agentfs.storage.clock import Clock, format_moment, local_zone, zone_named
from agentfs.storage.completeness import Completeness
from agentfs.storage.files import signature
from agentfs.storage.safe_open import MOST_RECORD, hold_named, names_in, read_regular
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import all_folders, has_goal

_NEWEST = 200  # runs of one schedule that are looked at


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A file in schedules/, as it was read."""

    path: Path
    content: bytes
    changed: datetime
    schedule: Schedule | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def shown(self) -> str:
        return f"{FOLDER}/{self.path.name}"

    @property
    def sha256(self) -> str:
        return sha256_bytes(self.content)

    def source(self, time: datetime) -> GoalSource:
        """Return the goal that is run for one of its times."""
        origin = os.fsencode(self.path).decode("utf-8", "replace")
        due_at = format_moment(time)
        return GoalSource(self.content, self.path.name, self.shown, origin, self.name, schedule=self.name, due=due_at)


def zone_of(name: str | None) -> tzinfo | None:
    """Return a time zone by its name, the local one for None; None if there is no such zone."""
    return local_zone() if name is None else zone_named(name)


def schedule_names(root: Path) -> list[str]:
    """Return the names of the files in schedules/ that may be goals."""
    try:
        listed = names_in(root / FOLDER)
    except OSError:
        return []
    return sorted(name for name in listed if name[0] != "." and name.lower().endswith(paths.GOAL_SUFFIXES))


def read_file(root: Path, name: str) -> ScheduleFile:
    """Return what a file in schedules/ says; raises OSError if it is no file."""
    path = root / FOLDER / name
    with hold_named(path.parent) as folder:
        content = read_regular(name, MAX_BYTES, folder=folder)
        changed = datetime.fromtimestamp(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, UTC)
    try:
        fields, places = _fields(content, name)
        schedule, problems = read_schedule(fields, zone_of)
        problems = [one.at(*places(one.pointer, False)) if one.pointer else one for one in problems]
    except Rejected as rejected:
        schedule, problems = None, list(rejected.problems)
    return ScheduleFile(path, content, changed, schedule, tuple(problems))


def fields_in(file: ScheduleFile) -> Goal:
    """Return the fields of a file, as far as they read."""
    try:
        return _fields(file.content, file.path.name)[0]
    except Rejected:
        return Goal()


def _fields(content: bytes, name: str) -> tuple[Goal, Locate]:
    """Return the fields of a scheduled goal, or of a request; raise `Rejected` if they are not valid.

    What is wrong with its steps is seen when the goal is judged: that needs to know the tools.
    """
    if request := read_request(content, name):
        return request.fields, request.places
    goal, problems = examine_goal(content, name, Catalogue({}, frozenset()), planned=True)
    if wrong := [one for one in problems if one.pointer and not one.pointer.startswith("/steps")]:
        raise Rejected(wrong)
    return goal.fields, goal.places


# ── the runs of a schedule ────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class RunsOfSchedules:
    """Finds the runs that schedules began; what run.json says of one never changes, and is read once."""

    runs: Path
    _known: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)

    def of(self, file: ScheduleFile) -> list[ScheduledRun]:
        """Return the runs of a schedule, the newest first: those of its name, and of these very bytes."""
        found = [
            (folder, record)
            for folder, record in self._records()
            if record["schedule"] == file.name or file.sha256 in (record["goal_sha256"], record["request_sha256"])
        ]
        found.sort(key=lambda one: str(one[1]["started_at"]), reverse=True)
        return [_read_scheduled(folder, record) for folder, record in found[:_NEWEST]]

    def _records(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        there = [folder for folder in all_folders(self.runs) if has_goal(folder)]
        self._known = {folder: self._known[folder] for folder in there if folder in self._known}
        for folder in there:
            if folder not in self._known:
                self._known[folder] = _schedule_in(folder)
            if record := self._known[folder]:
                yield folder, record


def _schedule_in(folder: str) -> Mapping[str, Any] | None:
    """Return what run.json says of the schedule; None if no schedule began the run."""
    with suppress(OSError, ValueError):
        content = read_regular(f"{folder}/{paths.RUN}", MOST_RECORD)
        if b'"due": "' in content:  # most runs have none
            record = json.loads(content)
            names = ("schedule", "due", "started_at", "goal_sha256", "request_sha256")
            return {name: record.get(name) for name in names}
    return None


def _read_scheduled(folder: str, record: Mapping[str, Any]) -> ScheduledRun:
    run = "/".join(folder.rsplit("/", 2)[1:])
    began = datetime.fromisoformat(record["started_at"])
    return ScheduledRun(run, datetime.fromisoformat(record["due"]), began, _read_end(folder))


def _read_end(folder: str) -> datetime | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return datetime.fromisoformat(json.loads(read_regular(f"{folder}/{paths.OUTCOME}", MOST_RECORD))["ended_at"])
    return None


def due_now(file: ScheduleFile, now: datetime, runs: RunsOfSchedules) -> Due:
    """Return what becomes of the newest time of a schedule; one that does not read is never due."""
    if file.schedule is None:
        return Due(None, "never", "the file is not valid")
    return due(file.schedule, now, file.changed, runs.of(file))


def why_needed(folder: Path, now: datetime) -> str | None:
    """Return why a run has to stay: its schedule would make up for its time again; None if it would not."""
    record = _schedule_in(str(folder))
    if record is None:
        return None
    root = folder.parents[2]
    for name in schedule_names(root):
        with suppress(OSError):
            file = read_file(root, name)
            since = now - datetime.fromisoformat(record["due"])
            if file.name == record["schedule"] and file.schedule and since <= file.schedule.window:
                return f"{file.shown} would run again for {record['due']}, which is within its catch_up"
    return None


# ── beginning what is due ─────────────────────────────────────────────────────────────────────────────────

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

    def take(self, now: float) -> list[BegunRun]:
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

    def _begin(self, entry: _Entry) -> BegunRun | None:
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

    def _run(self, file: ScheduleFile, moment: datetime) -> BegunRun | None:
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
