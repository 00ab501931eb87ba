"""Two runs side by side: what they planned, how they ended, what they took. Pure."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from agentfs.core.attention import phase, reason
from agentfs.core.costs import Costs
from agentfs.core.outcome import tally
from agentfs.core.plan_changes import difference
from agentfs.core.records import Plan
from agentfs.core.run_state import RunState


def compared(one: tuple[RunState, Costs], other: tuple[RunState, Costs]) -> dict[str, Any]:
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
        "planner": _asked(costs, "planner"),
        "executor": _asked(costs, "executor"),
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
            "elapsed": _elapsed(run.started_at, outcome.ended_at) if outcome else None,
        },
        "total": asdict(costs.total),
        "by_role": {role: asdict(spend) for role, spend in costs.by_role.items()},
    }


def _asked(costs: Costs, role: str) -> str | None:
    """Return the models that were asked in a role; None: none was, whatever the settings name."""
    return ", ".join(costs.models.get(role, ())) or None


def _elapsed(began: str, ended: str) -> float:
    return round((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds(), 6)
