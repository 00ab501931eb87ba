"""Schedules: when a time has come, and whether a run is to begin for it."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest

from agentfs.core.records import Goal
from agentfs.core.schedule import Due, Schedule, ScheduledRun, due, duration, read_schedule

BERLIN = ZoneInfo("Europe/Berlin")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def daily(**more: object) -> Schedule:
    return Schedule("0 3 * * *", None, UTC, **more)  # type: ignore[arg-type]


def a_run(day: str, started: str, ended: str | None, due_at: str | None = None) -> ScheduledRun:
    return ScheduledRun(day, at(due_at or started), at(started), at(ended) if ended else None)


def zone(name: str | None) -> tzinfo | None:
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, ValueError):
        return None


# ── times ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("now", "newest", "following"),
    [
        ("2026-11-18T03:00", "2026-11-18T03:00", "2026-11-19T03:00"),
        ("2026-11-18T02:59:59", "2026-11-17T03:00", "2026-11-18T03:00"),
        ("2026-11-18T03:00:30", "2026-11-18T03:00", "2026-11-19T03:00"),
    ],
)
def test_the_newest_time_has_come_and_the_next_has_not(now: str, newest: str, following: str) -> None:
    assert (daily().newest(at(now)), daily().next(at(now))) == (at(newest), at(following))


def test_every_counts_from_midnight_utc() -> None:
    schedule = Schedule("", timedelta(hours=6), BERLIN)
    assert schedule.newest(at("2026-11-18T11:59")) == at("2026-11-18T06:00")
    assert schedule.newest(at("2026-11-18T12:00")) == at("2026-11-18T12:00")
    assert schedule.next(at("2026-11-18T12:00")) == at("2026-11-18T18:00")


@pytest.mark.parametrize(
    ("times", "around", "found"),
    [
        # a time that does not exist is the next that does
        ("30 2 * * *", "2026-03-29T12:00", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        # one that comes twice comes once
        ("30 2 * * *", "2026-10-25T12:00", ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]),
        ("0 3 * * *", "2026-10-25T12:00", ["2026-10-24T01:00", "2026-10-25T02:00", "2026-10-26T02:00"]),
    ],
)
def test_daylight_saving_time(times: str, around: str, found: list[str]) -> None:
    schedule = Schedule(times, None, BERLIN)
    newest = schedule.newest(at(around))
    assert newest is not None
    before, after = schedule.newest(newest - timedelta(seconds=1)), schedule.next(newest)
    assert [before, newest, after] == [at(one) for one in found]
    assert schedule.next(newest - timedelta(seconds=1)) == newest


# ── due ───────────────────────────────────────────────────────────────────────────────────────────────────


NIGHT = at("2026-11-18T03:00")


@pytest.mark.parametrize(
    ("now", "schedule", "runs", "expected"),
    [
        ("2026-11-18T03:00", daily(), [], Due(NIGHT, "due")),
        ("2026-11-18T03:01", daily(), [], Due(NIGHT, "due")),
        (
            "2026-11-18T03:01:01",
            daily(),
            [],
            Due(NIGHT, "missed", "nothing watched then, and catch_up is not set"),
        ),
        ("2026-11-18T08:59", daily(catch_up=timedelta(hours=6)), [], Due(NIGHT, "due")),
        (
            "2026-11-18T09:01",
            daily(catch_up=timedelta(hours=6)),
            [],
            Due(NIGHT, "missed", "nothing watched then, and it is older than catch_up"),
        ),
        (
            "2026-11-18T03:00:30",
            daily(),
            [a_run("a", "2026-11-18T03:00:01", None, "2026-11-18T03:00")],
            Due(NIGHT, "ran"),
        ),
        (
            "2026-11-18T03:00:30",
            daily(),
            [a_run("y", "2026-11-17T03:00:01", None, "2026-11-17T03:00")],
            Due(NIGHT, "skipped", "y was under way"),
        ),
        (  # it has ended since, and the time is still passed over
            "2026-11-18T03:00:50",
            daily(),
            [a_run("y", "2026-11-17T03:00:01", "2026-11-18T03:00:40", "2026-11-17T03:00")],
            Due(NIGHT, "skipped", "y was under way"),
        ),
        (
            "2026-11-18T03:00:50",
            daily(),
            [a_run("y", "2026-11-17T03:00:01", "2026-11-17T04:00", "2026-11-17T03:00")],
            Due(NIGHT, "due"),
        ),
        (
            "2026-11-18T05:00",
            daily(overlap="queue"),
            [a_run("y", "2026-11-17T03:00:01", None, "2026-11-17T03:00")],
            Due(NIGHT, "queued", "it waits until y has ended"),
        ),
        (  # the time lies in that run, so it is due however long that took
            "2026-11-18T05:00",
            daily(overlap="queue"),
            [a_run("y", "2026-11-17T03:00:01", "2026-11-18T04:59", "2026-11-17T03:00")],
            Due(NIGHT, "due"),
        ),
        (  # the clock was ahead for a while: what ran for a later time is no reason to leave this one out
            "2026-11-18T03:00",
            daily(),
            [a_run("t", "2026-11-19T03:00:01", "2026-11-19T03:00:02", "2026-11-19T03:00")],
            Due(NIGHT, "due"),
        ),
    ],
)
def test_whether_a_run_begins(now: str, schedule: Schedule, runs: list[ScheduledRun], expected: Due) -> None:
    assert due(schedule, at(now), LONG_AGO, runs) == expected


def test_a_time_before_the_file_was_changed_is_not_due() -> None:
    changed = at("2026-11-18T03:00:10")
    assert due(daily(), at("2026-11-18T03:00:20"), changed, []) == Due(NIGHT, "new", "the file was changed since")


def test_one_run_makes_up_for_all_times_that_were_missed() -> None:
    hourly = Schedule("0 * * * *", None, UTC, catch_up=timedelta(hours=6))
    newest = at("2026-11-18T09:00")
    assert due(hourly, at("2026-11-18T09:10"), LONG_AGO, []) == Due(newest, "due")
    made = [a_run("a", "2026-11-18T09:10", "2026-11-18T09:11", "2026-11-18T09:00")]
    assert due(hourly, at("2026-11-18T09:12"), LONG_AGO, made) == Due(newest, "ran")


# ── what a file says ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schedule": "0 0 30 2 *"}, "schedule: '0 0 30 2 *' never comes true"),
        ({"schedule": "0 0 31 2,4 *"}, "schedule: '0 0 31 2,4 *' never comes true"),
        ({"schedule": "61 * * * *"}, "schedule: '61 * * * *' is not valid: bad minute"),
        ({"schedule": "* * * *"}, "schedule: '* * * *' has 4 fields, not five"),
        ({"schedule": "0 * * * * *"}, "schedule: '0 * * * * *' has 6 fields, not five"),
        ({"schedule": "@daily"}, "schedule: '@daily' has 1 fields, not five"),
        ({"schedule": "every 0h"}, "schedule: 'every 0h' is not an interval"),
        ({"schedule": "every day"}, "schedule: 'every day' is not an interval"),
        ({"schedule": "every 30s"}, "schedule: 'every 30s' is not an interval"),
        ({"schedule": "every 6h", "timezone": "Europe/Berln"}, "timezone: 'Europe/Berln' is not a known time zone"),
        ({"schedule": "every 6h", "timezone": "../etc/passwd"}, "timezone: '../etc/passwd' is not a known time zone"),
        ({"schedule": "every 6h", "catch_up": "soon"}, "catch_up: 'soon' is not a duration"),
        ({"schedule": "every 6h", "catch_up": "9999d"}, "catch_up: '9999d' is not a duration"),
        ({}, "a goal in schedules/ needs a schedule"),
    ],
)
def test_what_cannot_be_a_schedule(fields: dict[str, str], words: str) -> None:
    schedule, problems = read_schedule(Goal.model_validate(fields), zone)
    assert schedule is None
    assert [one.message.startswith(words) for one in problems] == [True]
    assert all(one.fix for one in problems)


def test_everything_wrong_is_reported_at_once() -> None:
    fields = Goal.model_validate({"schedule": "x", "timezone": "Mars/One", "catch_up": "-1h"})
    assert [one.pointer for one in read_schedule(fields, zone)[1]] == ["/schedule", "/catch_up", "/timezone"]


def test_what_a_schedule_says() -> None:
    fields = Goal.model_validate(
        {"schedule": "0  3 * * 1-5", "timezone": "Europe/Berlin", "overlap": "queue", "catch_up": "1h30m"}
    )
    expected = Schedule("0 3 * * 1-5", None, BERLIN, "queue", timedelta(minutes=90))
    assert read_schedule(fields, zone) == (expected, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90m", timedelta(minutes=90)),
        ("1d 2h", timedelta(hours=26)),
        ("5min", timedelta(minutes=5)),
        ("", None),
        ("6", None),
    ],
)
def test_durations(text: str, expected: timedelta | None) -> None:
    assert duration(text) == expected
