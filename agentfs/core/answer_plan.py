"""Steps that a planner answered -> a whole plan: what is finished stays as it is, by code. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentfs.core.excerpts import as_text
from agentfs.core.facts import Facts
from agentfs.core.goal_file import lenient_steps
from agentfs.core.hashing import PLAN_SCHEMA, check_value, in_order, overrides_of, spelled_out
from agentfs.core.proof import wants_acceptance
from agentfs.core.records import Call, JsonObject, Mode, PlanStatus, Trigger
from agentfs.core.run_state import RunState
from agentfs.core.tool_spec import Catalogue

StepValue = dict[str, Any]
_RESULT_LENGTH = 4_000  # characters of one result
UNANSWERABLE: frozenset[Trigger] = frozenset(("first", "next_step", "drift"))  # by `keep`: there is nothing to keep


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stand when an answer comes: what it is merged into, and what it may say."""

    title: str
    status: PlanStatus = "approved"
    mode: Mode = "split"
    triggers: frozenset[Trigger] = frozenset(("first",))
    plan: JsonObject | None = None  # as it stands, in plan form
    done: frozenset[str] = frozenset()  # steps that are done, and still count
    steps: tuple[StepValue, ...] = field(default=())  # the plan's, each with its depends_on
    checks: tuple[JsonObject, ...] = ()  # the plan's own; no answer drops one
    evidence: str = ""  # the goal and the results so far: what stands in the way must stand there
    wants_checks: bool = False  # a model has to write acceptance checks with this answer

    @property
    def kept(self) -> dict[str, StepValue]:
        """The steps that stay whatever the answer lists: done ones, and those that a person left out."""
        return {step["id"]: step for step in self.steps if step["id"] in self.done or step.get("skip")}

    @property
    def open(self) -> dict[str, StepValue]:
        """The steps that an answer may change or drop."""
        kept = self.kept
        return {step["id"]: step for step in self.steps if step["id"] not in kept}

    @property
    def may_keep(self) -> bool:
        return self.plan is not None and self.triggers.isdisjoint(UNANSWERABLE)

    @property
    def may_finish(self) -> bool:
        return bool(self.done)


def standing_of(call: Call, state: RunState, plan: JsonObject | None) -> Standing:
    """Return how things stand for a call. `plan`: the last revision's."""
    facts = state.facts
    triggers = frozenset((call.trigger, *(pending.trigger for pending in state.pending)))
    if plan is None:
        first: PlanStatus = "approved" if facts.run.approve == "never" else "draft"
        return Standing(
            facts.goal.title,
            first,
            facts.run.mode,
            triggers,
            checks=_goals_own(facts),
            evidence=facts.goal.text,
            wants_checks=wants_acceptance(facts),
        )
    given: Any = plan
    edited = "goal_changed" in triggers
    return Standing(
        title=facts.goal.title if edited else given.get("goal") or facts.goal.title,
        status=given["status"],
        mode=facts.run.mode,
        triggers=triggers,
        plan=plan,
        done=frozenset(view.id for view in state.steps.values() if view.status == "done"),
        steps=tuple(spelled_out(given["steps"])),
        checks=_goals_own(facts) if edited else tuple(given.get("checks") or ()),
        evidence="\n".join((facts.goal.text, *_results(facts))),
        wants_checks=edited and wants_acceptance(facts),
    )


def _results(facts: Facts) -> Iterator[str]:
    """Yield what the attempts brought, each within bounds."""
    for attempts in facts.attempts.values():
        for result in (one.result for one in attempts if one.result):
            yield as_text(result.output)[:_RESULT_LENGTH]
            yield result.error.message[:_RESULT_LENGTH] if result.error else ""
            yield from (check.detail[:_RESULT_LENGTH] for check in result.checks)


def _goals_own(facts: Facts) -> tuple[JsonObject, ...]:
    """Return the checks that a goal brings, for its plan; a run of the first release looks at the goal itself."""
    return tuple(map(check_value, facts.goal.checks)) if facts.run.proof is not None else ()


def loosened(listed: Sequence[Any], standing: Standing, catalogue: Catalogue) -> list[Any]:
    """Return an answer's steps as plan.json would spell them; the first follows what was finished last."""
    before: list[Any] = [{"id": name, "depends_on": []} for name in list(standing.kept)[-1:]]
    return list(lenient_steps([*before, *listed], catalogue)[len(before) :])


def merged(listed: Sequence[Any], standing: Standing) -> JsonObject:
    """Return the plan that an answer's steps make with what is finished."""
    kept = standing.kept
    return plan_of([*kept.values(), *(step for step in listed if _id(step) not in kept)], standing)


def kept_plan(standing: Standing) -> JsonObject | None:
    """Return the plan without its unfinished steps; None if there are none to drop."""
    return plan_of(list(standing.kept.values()), standing) if standing.open else None


def plan_of(steps: Sequence[Any], standing: Standing) -> JsonObject:
    """Return a plan of these steps under the present status and overrides."""
    ids, kept = {_id(step) for step in steps}, standing.kept
    plan: dict[str, Any] = {"$schema": PLAN_SCHEMA, "goal": standing.title, "status": standing.status}
    plan |= overrides_of(standing.plan or {})
    plan |= {"checks": [*standing.checks]} if standing.checks else {}
    plan["steps"] = [_rid_of_the_gone(step, ids) if _id(step) in kept else step for step in steps]
    return plan


def _rid_of_the_gone(step: StepValue, ids: set[Any]) -> StepValue:
    """Return a finished step that no longer waits for what has left: it has run, so that takes nothing from it."""
    return in_order(step | {"depends_on": [one for one in step["depends_on"] if one in ids]})


def _id(step: Any) -> Any:
    name = step.get("id") if isinstance(step, Mapping) else None
    return name if isinstance(name, str) else None
