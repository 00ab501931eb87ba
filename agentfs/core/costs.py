"""What runs have asked of models and what that cost, from their logs and results: one, many, two side by side. Pure.

A sum in which one part is unknown is unknown: a price that nobody knows never counts as nothing.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from agentfs.core.attention import phase, reason
from agentfs.core.outcome import tally
from agentfs.core.plan_changes import difference
from agentfs.core.records import Plan
from agentfs.core.run_state import RunState


@dataclass(frozen=True, slots=True)
class Spend:
    """What was asked and what it took. None: unknown."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int | None = 0  # part of the output
    cost_usd: float | None = 0.0
    seconds: float | None = 0.0  # waited for models

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(*(_both(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, or what a result says of several: who asked, which model, what it took."""

    role: str
    model: str | None
    spend: Spend
    at: str | None = None  # when it ended, or began if nobody saw its end; None: nothing says


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that was asked in one call, one attempt, or one look at the goal's checks."""

    asked: tuple[Asked, ...]
    call: int | None = None
    trigger: str | None = None  # of the call
    step: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """What a run took, by everything that can be blamed for it."""

    total: Spend
    by_role: dict[str, Spend] = field(default_factory=dict)
    by_model: dict[str, Spend] = field(default_factory=dict)
    by_step: dict[str, Spend] = field(default_factory=dict)
    by_call: dict[int, Spend] = field(default_factory=dict)
    triggers: dict[int, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)  # by step: those that asked a model
    models: dict[str, list[str]] = field(default_factory=dict)  # by role: those that were asked


def asked_in(entries: Iterable[Mapping[str, Any]]) -> Iterator[Asked]:
    """Yield every request of a log; one that nobody saw the end of counts too, its cost unknown."""
    for request, reply in requests_in(entries):
        role, model = _text(request.get("role")) or "executor", _text(request.get("model"))
        at = _text(reply.get("at")) or _text(request.get("at"))
        reasoning = _count(reply.get("reasoning_tokens")) if reply else None
        yield Asked(role, model, _read_spend(reply.get("usage"), 1, reasoning, _amount(reply.get("seconds"))), at)


def requests_in(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield what a log says was asked of models, each with its reply, which is empty where nobody saw one."""
    asked: Mapping[str, Any] | None = None
    for entry in entries:
        match entry.get("event"):
            case "request":
                if asked is not None:
                    yield asked, {}
                asked = entry
            case "reply" | "failed" if asked is not None:
                yield asked, entry
                asked = None
            case _:
                pass
    if asked is not None:
        yield asked, {}


def _read_spend(usage: Any, requests: int, reasoning: int | None, seconds: float | None) -> Spend:
    usage = usage if isinstance(usage, Mapping) else {}
    counts = {name: _count(usage.get(name)) for name in ("input_tokens", "cached_tokens", "output_tokens")}
    cost = _amount(usage.get("cost_usd"))
    return Spend(requests, **counts, reasoning_tokens=reasoning, cost_usd=cost, seconds=seconds)


def asked_by(usage: Any, at: str | None = None) -> Iterator[Asked]:
    """Yield what a result's `usage` says, where there is no log to ask; it does not tell of waiting or reasoning."""
    if isinstance(usage, Mapping):
        spend = _read_spend(usage, _count(usage.get("requests")), None, None)
        yield Asked(_text(usage.get("role")) or "executor", _text(usage.get("model")), spend, at)


def costs_of(conversations: Iterable[Conversation]) -> Costs:
    """Return what these took, in sum and by part."""
    costs = Costs(Spend())
    for talk in conversations:
        if talk.step is not None and talk.asked:
            costs.attempts[talk.step] = costs.attempts.get(talk.step, 0) + 1
        if talk.call is not None and talk.asked and talk.trigger:
            costs.triggers[talk.call] = talk.trigger
        for one in talk.asked:
            costs = replace(costs, total=costs.total + one.spend)
            _count_in(costs.by_role, one.role, one.spend)
            if (name := one.model or "unknown") not in (asked := costs.models.setdefault(one.role, [])):
                asked.append(name)
            _count_in(costs.by_model, one.model or "unknown", one.spend)
            _count_in(costs.by_step, talk.step, one.spend)
            _count_in(costs.by_call, talk.call, one.spend)
    return costs


def _count_in(parts: dict[Any, Spend], key: Any, spend: Spend) -> None:
    if key is not None:
        parts[key] = parts.get(key, Spend()) + spend


def as_page(run: str, costs: Costs) -> dict[str, Any]:
    """Return costs as JSON."""
    return {
        "run": run,
        "total": asdict(costs.total),
        "by_role": [{"role": role, **asdict(spend)} for role, spend in costs.by_role.items()],
        "by_model": [{"model": model, **asdict(spend)} for model, spend in costs.by_model.items()],
        "by_step": [
            {"step": step, "attempts": costs.attempts[step], **asdict(spend)} for step, spend in costs.by_step.items()
        ],
        "by_call": [
            {"call": call, "trigger": costs.triggers.get(call), **asdict(spend)}
            for call, spend in sorted(costs.by_call.items())
        ],
    }


def _both(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _amount(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# ── many runs ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Charge:
    """One request of one run, with what it is summed up by."""

    run: str
    goal: str  # the name that runs of one goal share
    day: str
    asked: Asked


PARTS = ("day", "goal", "model", "role")


def charges_page(since: str, charges: Iterable[Charge]) -> dict[str, Any]:
    """Return what many runs took as JSON: in sum, by day, and by what cost most."""
    total, runs = Spend(), set[str]()
    parts: dict[str, dict[str, Spend]] = {name: {} for name in PARTS}
    for one in charges:
        total, spend = total + one.asked.spend, one.asked.spend
        runs.add(one.run)
        keys = (one.day, one.goal, one.asked.model or "unknown", one.asked.role)
        for name, key in zip(PARTS, keys, strict=True):
            _count_in(parts[name], key, spend)
    lists = {name: [{name: key, **asdict(spend)} for key, spend in _sort_groups(name, parts[name])] for name in PARTS}
    by = {f"by_{name}": found for name, found in lists.items()}
    return {"since": since, "runs": len(runs), "total": asdict(total), **by}


def _sort_groups(name: str, parts: Mapping[str, Spend]) -> list[tuple[str, Spend]]:
    """Return days in their order; of the rest what cost most first, what nobody knows the cost of before that."""
    if name == "day":
        return sorted(parts.items())
    return sorted(parts.items(), key=lambda part: (part[1].cost_usd is not None, -(part[1].cost_usd or 0), part[0]))


def goal_name(name: str, others: Container[str]) -> str:
    """Return the name that runs of one goal share; `others`: the names of all runs of that day.

    A goal that is run again on one day has `-2`, `-3` … after its name.
    """
    base, dash, number = name.rpartition("-")
    return base if dash and number.isdigit() and base in others else name


# ── two runs side by side ────────────────────────────────────────────────────────────────────────────────


def compare_runs(one: tuple[RunState, Costs], other: tuple[RunState, Costs]) -> dict[str, Any]:
    """Return two runs as JSON: each by itself, and how the second one's plan differs from the first one's."""
    old, new = one[0].facts, other[0].facts
    return {
        "runs": [_side(*one), _side(*other)],
        "same_goal": old.goal.sha256 == new.goal.sha256,
        **_plans(old.plan, new.plan),
    }


def _plans(old: Plan | None, new: Plan | None) -> dict[str, Any]:
    """Return how two plans differ by meaning; null where one of them is still to come."""
    if old is None or new is None:
        return {"plan": None, "steps": None}
    found = asdict(difference(old, new))
    return {"plan": found["plan"], "steps": found["steps"]}


def _side(state: RunState, costs: Costs) -> dict[str, Any]:
    facts = state.facts
    outcome, run = facts.outcome, facts.run
    return {
        "run": run.run,
        "source": run.source,
        "mode": run.mode,
        "planner": _models_asked(costs, "planner"),
        "executor": _models_asked(costs, "executor"),
        "state": outcome.status if outcome else phase(state),
        "reason": outcome.reason if outcome else None,
        "why": outcome.summary if outcome else reason(state),
        "steps": tally(state).as_json(),
        "attempts": sum(bool(one.result) for mine in facts.attempts.values() for one in mine),
        "revisions": len(facts.revisions),
        "calls": len(facts.calls),
        "replans": state.calls.replans,
        "seconds": {
            "working": round(state.spent.seconds, 6),
            "planning": round(sum(one.answer.duration_s for one in facts.calls if one.answer), 6),
            "elapsed": _seconds_between(run.started_at, outcome.ended_at) if outcome else None,
        },
        "total": asdict(costs.total),
        "by_role": {role: asdict(spend) for role, spend in costs.by_role.items()},
    }


def _models_asked(costs: Costs, role: str) -> str | None:
    """Return the models that were asked in a role; None: none was, whatever the settings name."""
    return ", ".join(costs.models.get(role, ())) or None


def _seconds_between(began: str, ended: str) -> float:
    return round((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds(), 6)
