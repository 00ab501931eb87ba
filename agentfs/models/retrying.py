"""When to ask again, and after how long. Pure: the time and the luck arrive as parameters."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agentfs.models.errors import ModelError

RETRIED = (408, 409, 425, 429)  # and everything from 500


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what. Seconds."""

    connect: float = 10.0
    first_byte: float = 600.0  # a long prompt on a small machine is read for minutes
    between: float = 180.0  # two pieces of a reply
    whole: float = 3600.0  # one reply
    tries: int = 5
    knocks: int = 3  # tries where nobody even opens
    first_wait: float = 0.5  # before the second try; doubled for each one more
    longest_wait: float = 60.0  # also of what a server asks for
    luck: Callable[[], float] = field(default=random.random)

    def wait(self, mishap: "Mishap", count: int) -> float | None:
        """Return how long to wait after the count-th mishap in a row; None: it is time to give up."""
        if not mishap.again or count >= (self.tries if mishap.reached else self.knocks):
            return None
        if mishap.retry_after is not None:
            return min(max(mishap.retry_after, 0.0), self.longest_wait)
        step = min(self.first_wait * 2.0 ** (count - 1), self.longest_wait)
        return step * (0.5 + self.luck() / 2)


class Mishap(Exception):
    """One try that brought no reply: the error to raise if it was the last, and whether to try again."""

    def __init__(
        self,
        error: ModelError,
        *,
        again: bool,
        reached: bool = True,  # somebody answered
        begun: bool = False,  # a reply had begun: it cost something, nobody knows what
        retry_after: float | None = None,
        status: int | None = None,
        words: str = "",  # of the server
    ) -> None:
        super().__init__(error.failure.message)
        self.error, self.again, self.reached, self.begun = error, again, reached, begun
        self.retry_after, self.status, self.words = retry_after, status, words


def is_retried(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in RETRIED or status >= 500


def seconds_after(header: str | None, now: datetime) -> float | None:
    """Return what a Retry-After asks for, given as seconds or as a date; None where it says nothing sensible."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return _until(header, now)
    return seconds if 0 <= seconds < float("inf") else None


def _until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)
