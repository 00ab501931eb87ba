"""The time, as a parameter: everything that needs it is given one of these."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall time for people and records, monotonic time for durations and deadlines."""

    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic

    def stamp(self) -> str:
        """Return now as records write it: RFC 3339, UTC, microseconds."""
        return stamped(self.wall())

    def seconds_until(self, stamp: str) -> float:
        """Return how long it is until then."""
        return (datetime.fromisoformat(stamp) - self.wall()).total_seconds()

    def local(self) -> datetime:
        """Return now as people here read it; as UTC where TZ names no time that there can be."""
        moment = self.wall()
        try:
            return moment.astimezone()
        except (ValueError, OverflowError):  # TZ=UTC+99
            return moment

    def day(self) -> str:
        """Return the local day, which names the folder of the runs that begin on it."""
        return self.local().strftime("%Y-%m-%d")


def stamped(moment: datetime) -> str:
    """Return a moment as records write it."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat("T", "microseconds")[: -len("+00:00")] + "Z"


def later(stamp: str, seconds: float) -> str:
    """Return the moment so many seconds after another, both as records write them."""
    return stamped(datetime.fromisoformat(stamp) + timedelta(seconds=seconds))
