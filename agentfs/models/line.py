"""One conversation's line: what is said on it is logged, counted and held to the limits of its run.

The log of a conversation is exact, and does not repeat itself: a `request` says how many messages of the request
before it are kept, and lists those that follow. `body` is what else was sent: left out where it stayed the same.

    {"event": "request", "number": 2, "role": "executor", "model": "…", "keep": 3, "messages": […], …}
    {"event": "reply",   "number": 2, "message": {…}, "finish": "stop", "usage": {…}, "seconds": 1.2, …}
    {"event": "failed",  "number": 2, "error": {…}, "usage": {…}, "again_in": 2.0}

A request is written before it is sent, so that one which nobody saw the end of is still counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core.records import JsonObject, Usage
from agentfs.core.run_state import Spent
from agentfs.jsonlines import read_lines
from agentfs.models.errors import ModelError
from agentfs.models.meter import Meter
from agentfs.tools.base import StopSign

Log = Callable[[str, Mapping[str, Any]], None]


def unheard(_characters: int) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class Line:
    """The log, the limits, the deadline and the stop sign of one call, or of one attempt."""

    log: Log
    meter: Meter
    stop: StopSign
    deadline: float  # time.monotonic()
    heard: Callable[[int], None] = unheard  # how many characters of a reply have arrived
    whose: str = ""  # the conversation's name, which is its log's: planning/2, steps/total.1
    late: ModelError | None = None  # what is raised at the deadline; None: that its time was up
    number: int = 0  # of the latest request
    usage: Usage | None = None  # everything so far
    _kept: Spent = field(default_factory=Spent)  # the room kept for the request under way
    _sent: dict[str, tuple[JsonObject, ...]] = field(default_factory=dict)  # by role: the messages sent last
    _beside: dict[str, Any] = field(default_factory=dict)  # by role: what was sent last beside the messages

    def request(self, role: str, model: str, messages: tuple[JsonObject, ...], more: Mapping[str, Any]) -> None:
        """Note a request that is about to be sent; raises LimitReached if the run has no room for it."""
        self._kept = self.meter.reserve(messages)
        self.number += 1
        kept = _shared(self._sent.get(role, ()), messages)
        self._sent[role] = messages
        told = {"number": self.number, "role": role, "model": model, "keep": kept, "messages": list(messages[kept:])}
        self.log("request", {**told, **self._news(role, more)})

    def _news(self, role: str, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is said of a request, without a body that is the one before's."""
        known, self._beside[role] = self._beside.get(role), more.get("body")
        same = "body" in more and more["body"] == known
        return {name: value for name, value in more.items() if name != "body" or not same}

    def reply(self, message: JsonObject, usage: Usage, more: Mapping[str, Any]) -> None:
        """Note a reply, whole or not, and what it took."""
        self.meter.spend(usage, self._kept)
        self.usage = added(self.usage, usage)
        self.log("reply", {"number": self.number, "message": message, "usage": _told(usage), **more})

    def failed(self, usage: Usage, more: Mapping[str, Any]) -> None:
        """Note a request that brought no reply; it was made, so it counts."""
        self.meter.spend(usage, self._kept)
        self.usage = added(self.usage, usage)
        self.log("failed", {"number": self.number, "usage": _told(usage), **more})


def _told(usage: Usage) -> JsonObject:
    """Return what a reply's line says of its usage; the request's line says the rest."""
    return usage.model_dump(exclude={"role", "requests"})


def _shared(before: tuple[JsonObject, ...], now: tuple[JsonObject, ...]) -> int:
    """Return how many messages two requests begin with alike."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if old is not new and old != new:
            break
        count += 1
    return count


def added(total: Usage | None, more: Usage) -> Usage:
    """Return the sum; a cost that is unknown anywhere is unknown in the sum. The first one names role and model."""
    if total is None:
        return more
    known = total.cost_usd is not None and more.cost_usd is not None
    return total.model_copy(
        update={
            "requests": total.requests + more.requests,
            "input_tokens": total.input_tokens + more.input_tokens,
            "cached_tokens": total.cached_tokens + more.cached_tokens,
            "output_tokens": total.output_tokens + more.output_tokens,
            "cost_usd": (total.cost_usd or 0.0) + (more.cost_usd or 0.0) if known else None,
        }
    )


def usage_in(path: Path) -> Usage | None:
    """Return what the conversation in a log took; a request that nobody saw the end of counts, its cost unknown."""
    usage, waiting = None, None
    for entry in read_lines(path):
        match entry.get("event"):
            case "request":
                usage = added(usage, waiting) if waiting else usage
                waiting = _unseen(entry)
            case "reply" | "failed" if waiting:
                told = {**waiting.model_dump(), **entry["usage"]}
                usage, waiting = added(usage, Usage.model_validate(told)), None
            case _:
                pass
    return added(usage, waiting) if waiting else usage


def _unseen(request: Mapping[str, Any]) -> Usage:
    return Usage(
        role=request["role"],
        model=request["model"],
        requests=1,
        input_tokens=0,
        cached_tokens=0,
        output_tokens=0,
        cost_usd=None,
    )
