"""The time, as a parameter: everything that needs it is given one of these."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall time for people and records, monotonic time for durations and deadlines."""

    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic

    def stamp(self) -> str:
        """Return now as records write it: RFC 3339, UTC, microseconds."""
        moment = self.wall()
        if moment.tzinfo is not UTC:
            moment = moment.astimezone(UTC)
        return moment.isoformat("T", "microseconds")[: -len("+00:00")] + "Z"

    def day(self) -> str:
        """Return the local day, which names the folder of the runs that begin on it."""
        return self.wall().astimezone().strftime("%Y-%m-%d")
