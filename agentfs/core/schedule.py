"""When a goal in `schedules/` is due. Pure: the time, the zone and the runs there are arrive as values.

Nothing is stored. Due is the newest time of the schedule that is not older than `catch_up` (a minute at least), came
after the file was last changed, and that no run was begun for. With `overlap: skip` a time in which a run of that
schedule was under way is passed over; with `queue` it is due when that run has ended. One run makes up for all times
that were missed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from agentfs.core.problems import Problem
from agentfs.core.records import Goal

FOLDER = "schedules"
FIELDS = ("schedule", "timezone", "overlap", "catch_up")
LEAST = timedelta(minutes=1)  # a time is due for that long, whatever catch_up says
LONGEST = timedelta(days=366)
_EVERY = re.compile(r"every\s+(.+)\Z")
_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,6})h)?(?:(\d{1,7})m(?:in)?)?\Z")
_FIVE = 5
Zone = Callable[[str | None], tzinfo | None]  # the name of a time zone, None for the local one -> it, if it is known


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the fields of a scheduled goal say."""

    times: str  # five cron fields; "" with `every`
    every: timedelta | None
    zone: tzinfo
    overlap: Literal["skip", "queue"] = "skip"
    catch_up: timedelta = timedelta(0)

    @property
    def window(self) -> timedelta:
        return max(self.catch_up, LEAST)

    def newest(self, now: datetime) -> datetime | None:
        """Return the newest time that has come; None if there is none."""
        if self.every is not None:
            return _EPOCH + (now - _EPOCH) // self.every * self.every
        return next(self._moments(now + timedelta(minutes=1), now, reverse=True), None)

    def next(self, now: datetime) -> datetime | None:
        """Return the next time; None if there is none."""
        if self.every is not None:
            return _EPOCH + ((now - _EPOCH) // self.every + 1) * self.every
        return next(self._moments(now, now, reverse=False), None)

    def _moments(self, start: datetime, now: datetime, *, reverse: bool) -> Iterator[datetime]:
        from cronsim import CronSim

        for moment in CronSim(self.times, start.astimezone(self.zone), reverse):
            if (moment <= now) == reverse:
                yield moment.astimezone(UTC)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# ── what a file says ──────────────────────────────────────────────────────────────────────────────────────


def read_schedule(fields: Goal, zone: Zone) -> tuple[Schedule | None, list[Problem]]:
    """Return the schedule of a goal, or what is wrong with it."""
    problems = [*_times_problems(fields.schedule), *_catch_up_problems(fields.catch_up)]
    where = zone(fields.timezone)
    if where is None:
        words = f"timezone: {fields.timezone!r} is not a known time zone"
        problems.append(Problem(words, "write it like Europe/Berlin or UTC", "/timezone"))
    if problems or where is None or fields.schedule is None:
        return None, problems
    catch_up = duration(fields.catch_up or "") or timedelta(0)
    every = _interval(fields.schedule)
    times = "" if every else " ".join(fields.schedule.split())
    return Schedule(times, every, where, fields.overlap or "skip", catch_up), []


def _interval(text: str) -> timedelta | None:
    match = _EVERY.match(text.strip())
    return duration(match[1]) if match else None


def duration(text: str) -> timedelta | None:
    """Return what 90m, 6h, 1h30m or 7d is; None if it is none of these, or nothing, or more than a year."""
    match = _DURATION.match(text.strip().replace(" ", ""))
    if match is None or not text.strip():
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups())
    found = timedelta(days=days, hours=hours, minutes=minutes)
    return found if timedelta(0) < found <= LONGEST else None


def _times_problems(text: str | None) -> Iterator[Problem]:
    fix = 'write five cron fields ("0 3 * * *": minute, hour, day, month, weekday) or every 6h'
    if text is None:
        yield Problem(f"a goal in {FOLDER}/ needs a schedule", fix)
    elif text.strip().startswith("every"):
        if _interval(text) is None:
            yield Problem(
                f"schedule: {text!r} is not an interval", "write it like every 30m, every 6h or every 1d", "/schedule"
            )
    elif why := _cron_problem(text):
        yield Problem(f"schedule: {text!r} {why}", fix, "/schedule")


def _cron_problem(text: str) -> str | None:
    """Return why cron fields cannot be used; None if they can."""
    fields = text.split()
    if len(fields) != _FIVE:
        return f"has {len(fields)} fields, not five"
    if (error := _cron_error(*fields)) is None:
        return None
    minute, hour, day, month, weekday = fields
    apart = (_cron_error(minute, hour, day, "*", weekday), _cron_error(minute, hour, "*", month, weekday))
    return f"is not valid: {error}" if any(apart) else "never comes true"  # such as the 30th of February


def _cron_error(*fields: str) -> str | None:
    from cronsim import CronSim, CronSimError

    try:
        return None if next(CronSim(" ".join(fields), _EPOCH), None) else "it never comes true"
    except CronSimError as error:
        return f"{str(error)[:1].lower()}{str(error)[1:]}"


def _catch_up_problems(text: str | None) -> Iterator[Problem]:
    if text is not None and duration(text) is None:
        yield Problem(
            f"catch_up: {text!r} is not a duration", "write it like 30m, 6h or 2d, a year at most", "/catch_up"
        )


# ── whether it is due ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A run that a schedule began."""

    run: str
    due: datetime
    started: datetime
    ended: datetime | None  # None: it has not ended


Word = Literal["due", "ran", "skipped", "queued", "missed", "new", "never"]


@dataclass(frozen=True, slots=True)
class Due:
    """What becomes of the newest time of a schedule, and why."""

    time: datetime | None
    word: Word
    why: str = ""


def due(schedule: Schedule, now: datetime, changed: datetime, runs: Sequence[ScheduledRun]) -> Due:
    """Return whether a run is to begin now. `changed`: when the file was. `runs`: those of this schedule."""
    time = schedule.newest(now)
    if time is None:
        return Due(None, "never", "no time has come yet")
    if any(run.due == time for run in runs):
        return Due(time, "ran")
    if time <= changed:
        return Due(time, "new", "the file was changed since")
    under_way = next((run for run in runs if run.started <= time <= (run.ended or now)), None)
    if under_way and schedule.overlap == "skip":
        return Due(time, "skipped", f"{under_way.run} was under way")
    if schedule.overlap == "queue" and (first := next((run for run in runs if run.ended is None), None)):
        return Due(time, "queued", f"it waits until {first.run} has ended")
    if under_way or now - time <= schedule.window:
        return Due(time, "due")
    why = "it is older than catch_up" if schedule.catch_up else "catch_up is not set"
    return Due(time, "missed", f"nothing watched then, and {why}")
