"""The time, as a parameter: everything that needs it is given one of these."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall time for people and records, monotonic time for durations and deadlines."""

    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic

    def stamp(self) -> str:
        """Return now as records write it: RFC 3339, UTC, microseconds."""
        return format_moment(self.wall())

    def seconds_until(self, stamp: str) -> float:
        """Return how long it is until then."""
        return (datetime.fromisoformat(stamp) - self.wall()).total_seconds()

    def local(self) -> datetime:
        """Return now as people here read it; as UTC where TZ names no time that there can be."""
        return _local(self.wall())

    def day(self) -> str:
        """Return the local day, which names the folder of the runs that begin on it."""
        return self.local().strftime("%Y-%m-%d")

    def midnight(self) -> str:
        """Return when the local day began, as records write it."""
        return format_moment(_local(self.local().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)))


def local_day(stamp: str) -> str:
    """Return the local day of a moment that a record names."""
    return _local(datetime.fromisoformat(stamp)).strftime("%Y-%m-%d")


def _local(moment: datetime) -> datetime:
    """Return a moment as people here read it; one without a time zone is theirs already."""
    try:
        return moment.astimezone()
    except (ValueError, OverflowError):  # TZ=UTC+99
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def format_moment(moment: datetime) -> str:
    """Return a moment as records write it."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat("T", "microseconds")[: -len("+00:00")] + "Z"


def later(stamp: str, seconds: float) -> str:
    """Return the moment so many seconds after another, both as records write them."""
    return format_moment(datetime.fromisoformat(stamp) + timedelta(seconds=seconds))


def zone_named(name: str) -> tzinfo | None:
    """Return a time zone by its name; None if there is no such zone."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def local_zone() -> tzinfo:
    """Return the time zone of this machine with its rules, as TZ or /etc/localtime has it; else UTC."""
    from zoneinfo import ZoneInfo

    if name := os.environ.get("TZ", "").removeprefix(":"):
        return zone_named(name) or UTC
    try:
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC
