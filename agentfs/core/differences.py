"""How two plans differ, value by value, and what the second means for work already done. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from agentfs.core.facts import Facts
from agentfs.core.hashing import OVERRIDES, canonical
from agentfs.core.plan_graph import dependencies
from agentfs.core.records import Plan, Record, Step
from agentfs.core.run_state import Means, derive
from agentfs.core.steps import StepView

Kind = Literal["added", "removed", "changed"]
Fate = Literal["again", "first", "on", "stopped", "kept", "skipped", "failed"]
NESTED = ("input", *OVERRIDES)  # told name by name: what a person edits is one of their values


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One value that is not what it was; null: it was, or is, absent."""

    field: str
    old: JsonValue
    new: JsonValue


@dataclass(frozen=True, slots=True)
class Rewired:
    """What a step came after, and what it comes after now."""

    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepDifference:
    """How one step differs; all fields of one that is new, none of one that has gone."""

    step: str
    kind: Kind
    fields: tuple[FieldChange, ...] = ()
    after: Rewired | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """How one plan differs from another."""

    plan: tuple[FieldChange, ...] = ()
    steps: tuple[StepDifference, ...] = ()

    def of(self, kind: Kind) -> tuple[str, ...]:
        return tuple(one.step for one in self.steps if one.kind == kind)


def difference(old: Plan | None, new: Plan) -> Difference:
    """Return how the new plan differs by meaning: a depends_on that is only spelt out is no change."""
    before = {step.id: step for step in old.steps} if old else {}
    after = {step.id: step for step in new.steps}
    came, come = dependencies(old) if old else {}, dependencies(new)
    steps = [StepDifference(step, "removed") for step in before if step not in after]
    for name, step in after.items():
        fields = tuple(_step_changes(before.get(name), step))
        rewired = Rewired(came.get(name, ()), come[name])
        moved = rewired if set(rewired.old) != set(rewired.new) or name not in before else None
        if name not in before:
            steps.append(StepDifference(name, "added", fields, moved))
        elif fields or moved:
            steps.append(StepDifference(name, "changed", fields, moved))
    return Difference(tuple(_plan_changes(old, new)), tuple(steps))


def _step_changes(old: Step | None, new: Step) -> Iterator[FieldChange]:
    names = [name for name in Step.model_fields if name not in ("id", "depends_on")]
    yield from _changes(names, _value(old) if old else {}, _value(new))


def _plan_changes(old: Plan | None, new: Plan) -> Iterator[FieldChange]:
    if old is not None:
        names = [name for name in Plan.model_fields if name not in ("schema_", "steps")]
        yield from _changes(names, _value(old), _value(new))


def _value(record: Record) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = record.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


def _changes(
    names: list[str], old: Mapping[str, JsonValue], new: Mapping[str, JsonValue], prefix: str = ""
) -> Iterator[FieldChange]:
    for name in names:
        was, now = old.get(name), new.get(name)
        if (was is None and now is None) or canonical(was) == canonical(now):  # not `==`, to which true is 1
            continue
        if name in NESTED and not prefix:
            inner, outer = _table(was), _table(now)
            yield from _changes([*dict.fromkeys([*inner, *outer])], inner, outer, f"{name}.")
        else:
            yield FieldChange(f"{prefix}{name}", was, now)


def _table(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


# ── what it means for work already done ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Effect:
    """What becomes of a step under a plan, and why."""

    step: str
    fate: Fate
    why: str


def effects(facts: Facts, means: Means, plan: Plan) -> tuple[Effect, ...]:
    """Return what becomes of each step of a plan, given the attempts there are."""
    state = derive(replace(facts, plan=plan, outcome=None), means)
    return tuple(Effect(view.id, _fate(view, facts), view.why) for view in state.steps.values())


def _fate(view: StepView, facts: Facts) -> Fate:
    match view.status:
        case "done":
            return "kept"
        case "skipped":
            return "skipped"
        case "ordered" | "running":
            return "stopped" if view.move == "stop" else "on"
        case "failed" | "blocked" | "rejected":
            return "failed"
        case _:
            done = any(one.result and one.result.status == "done" for one in facts.attempts.get(view.id, ()))
            return "again" if done else "first"
