"""What a run may use, and what it has used, counted from its files. Pure."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Literal

from agentfs.core.config import LimitSettings
from agentfs.core.facts import Attempt, Facts
from agentfs.core.records import Limits, Result, Usage

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits in force: those the run began with, overridden by the plan's."""

    replans: int
    attempts: int
    parallel: int
    steps: int
    requests: int
    tokens: int
    cost_usd: float
    minutes: float
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used so far."""

    requests: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0  # in which at least one attempt ran, or a model planned; waiting for a person costs nothing
    spans: tuple[Span, ...] = ()  # when that was: merged, sorted

    @property
    def asked(self) -> bool:
        """Whether a model was asked for anything."""
        return bool(self.requests or self.tokens or self.cost_usd)

    def plus_usage(self, usage: Usage | None) -> "Spent":
        if usage is None:
            return self
        return replace(
            self,
            requests=self.requests + usage.requests,
            tokens=self.tokens + usage.input_tokens + usage.output_tokens,
            cost_usd=self.cost_usd + (usage.cost_usd or 0.0),
        )

    def plus(self, result: Result) -> "Spent":
        if result.started_at is None:
            return self
        return self.plus_usage(result.usage).plus_time(result.started_at, result.duration_s)

    def plus_time(self, started_at: str, duration_s: float) -> "Spent":
        began = _seconds(started_at)
        spans, added = merged(self.spans, (began, began + duration_s))
        return replace(self, seconds=self.seconds + added, spans=spans)


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that keeps anything new from starting."""

    name: Literal["minutes", "requests", "tokens", "cost_usd"]
    amount: str

    def __str__(self) -> str:
        return f"the limit of {self.amount} is reached (limits.{self.name})"


def bounds_of(facts: Facts) -> Bounds:
    """Return the limits in force."""
    own = (facts.plan.limits if facts.plan else None) or Limits()
    began, defaults = facts.run.limits, LimitSettings()

    def value(name: str) -> object:
        for source in (own, began):
            if (found := getattr(source, name)) is not None:
                return found
        return getattr(defaults, name)

    return Bounds(**{f.name: value(f.name) for f in fields(Bounds)})  # type: ignore[arg-type]


def reached(bounds: Bounds, attempts: Spent, calls: Spent) -> Reached | None:
    """Return which limit stops the run from starting anything new; None if none does."""
    if seconds_left(bounds, attempts, calls) <= 0:
        return minutes_reached(bounds)
    if not (attempts.asked or calls.asked):
        return None  # what asks no model needs no room for it
    return no_room(bounds, total(attempts, calls))


def minutes_reached(bounds: Bounds) -> Reached:
    return Reached("minutes", f"{bounds.minutes:g} minutes")


def seconds_left(bounds: Bounds, attempts: Spent, calls: Spent) -> float:
    """Return how long a run may still work: time in which an attempt ran and a model planned counts once."""
    spans, seconds = attempts.spans, attempts.seconds
    for span in calls.spans:
        spans, added = merged(spans, span)
        seconds += added
    return bounds.minutes * 60 - seconds


def total(one: Spent, other: Spent) -> Spent:
    """Return what two have asked of models together; time is no part of it."""
    return Spent(
        requests=one.requests + other.requests,
        tokens=one.tokens + other.tokens,
        cost_usd=one.cost_usd + other.cost_usd,
    )


def no_room(bounds: Bounds, used: Spent) -> Reached | None:
    """Return which limit leaves no room for another request to a model; None if none does."""
    if used.requests >= bounds.requests:
        return Reached("requests", f"{bounds.requests} requests")
    if used.tokens >= bounds.tokens:
        return Reached("tokens", f"{bounds.tokens} tokens")
    if used.cost_usd >= bounds.cost_usd:
        return Reached("cost_usd", f"${bounds.cost_usd:g}")
    return None


Attempts = Mapping[str, tuple[Attempt, ...]]


def spent_of(attempts: Attempts, before: Attempts | None = None, spent: Spent | None = None) -> Spent:
    """Return what attempts have used, on top of what was counted before."""
    if before is None or spent is None:
        return _spent_on([attempt.result for mine in attempts.values() for attempt in mine if attempt.result])
    for step, mine in attempts.items():
        counted = {attempt.number for attempt in before.get(step, ()) if attempt.result}
        for attempt in mine:
            if attempt.result and attempt.number not in counted:
                spent = spent.plus(attempt.result)
    return spent


def _spent_on(results: Iterable[Result]) -> Spent:
    """Return what these results have used: as if they were added one by one, but their spans are laid at once."""
    started = [(_seconds(result.started_at), result) for result in results if result.started_at is not None]
    spent = Spent()
    for _, result in started:
        spent = spent.plus_usage(result.usage)
    spans: list[Span] = []
    for start, end in sorted((start, start + result.duration_s) for start, result in started):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return replace(spent, spans=tuple(spans), seconds=math.fsum(end - start for start, end in spans))


def spent_on_calls(facts: Facts) -> Spent:
    """Return what the planner's calls have used, and the judge of the goal's checks."""
    spent = Spent()
    for one in facts.calls:
        spent = spent.plus_usage(one.answer.usage if one.answer else None)
        spent = spent.plus_usage(one.checks.usage if one.checks else None)
        if one.answer and one.answer.started_at:
            spent = spent.plus_time(one.answer.started_at, one.answer.duration_s)
    return spent


def merged(spans: tuple[Span, ...], new: Span) -> tuple[tuple[Span, ...], float]:
    """Return spans with one more laid over them, still sorted and apart, and the seconds that adds."""
    start, end = new
    if not spans or spans[-1][1] < start:  # as a rule it is the latest
        return (*spans, new), end - start
    first = bisect_left(spans, start, key=lambda span: span[1])
    last, known = first, 0.0
    while last < len(spans) and spans[last][0] <= end:
        start, end = min(start, spans[last][0]), max(end, spans[last][1])
        known += spans[last][1] - spans[last][0]
        last += 1
    return (*spans[:first], (start, end), *spans[last:]), end - start - known


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
