"""What a run may use, and what it has used, counted from its files. Pure."""

from bisect import bisect_left
from dataclasses import dataclass, fields, replace
from datetime import datetime

from agentfs.core.config import LimitSettings
from agentfs.core.facts import Facts
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
    spans: tuple[Span, ...] = ()  # when attempts ran: merged, sorted

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
        span = (_seconds(result.started_at), _seconds(result.started_at) + result.duration_s)
        return replace(self.plus_usage(result.usage), spans=merged(self.spans, span))

    @property
    def seconds(self) -> float:
        """Time in which at least one attempt ran; waiting for a person costs nothing."""
        return sum(end - start for start, end in self.spans)


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


def reached(bounds: Bounds, attempts: Spent, calls: Spent) -> str | None:
    """Return which limit stops the run from starting anything new, in words; None if none does."""
    spent = replace(
        attempts,
        requests=attempts.requests + calls.requests,
        tokens=attempts.tokens + calls.tokens,
        cost_usd=attempts.cost_usd + calls.cost_usd,
    )
    if spent.seconds >= bounds.minutes * 60:
        return f"the limit of {bounds.minutes:g} minutes is reached (limits.minutes)"
    if spent.requests and spent.requests >= bounds.requests:
        return f"the limit of {bounds.requests} requests is reached (limits.requests)"
    if spent.tokens and spent.tokens >= bounds.tokens:
        return f"the limit of {bounds.tokens} tokens is reached (limits.tokens)"
    if spent.cost_usd and spent.cost_usd >= bounds.cost_usd:
        return f"the limit of ${bounds.cost_usd:g} is reached (limits.cost_usd)"
    return None


def spent_of(facts: Facts, before: tuple[Facts, Spent] | None = None) -> Spent:
    """Return what the attempts of a run have used. `before` saves counting again what was counted then."""
    then, spent = before or (None, Spent())
    old = then.attempts if then else {}
    for step, attempts in facts.attempts.items():
        if (known := old.get(step)) is attempts:
            continue
        counted = {a.number for a in known or () if a.result}
        for attempt in attempts:
            if attempt.result and attempt.number not in counted:
                spent = spent.plus(attempt.result)
    return spent


def spent_on_calls(facts: Facts) -> Spent:
    """Return what the planner's calls have used."""
    spent = Spent()
    for one in facts.calls:
        spent = spent.plus_usage(one.answer.usage if one.answer else None)
    return spent


def merged(spans: tuple[Span, ...], new: Span) -> tuple[Span, ...]:
    """Return spans with one more laid over them; they stay sorted and apart."""
    start, end = new
    first = bisect_left(spans, start, key=lambda span: span[1])
    last = first
    while last < len(spans) and spans[last][0] <= end:
        start, end = min(start, spans[last][0]), max(end, spans[last][1])
        last += 1
    return (*spans[:first], (start, end), *spans[last:])


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
