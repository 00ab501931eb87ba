"""How two plans differ, by meaning; what that means for work already done; who set each field. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from agentfs.core.facts import Facts
from agentfs.core.hashing import OVERRIDES, canonical, overrides_of
from agentfs.core.plan_graph import dependencies
from agentfs.core.records import (
    Change,
    Check,
    CommandCheck,
    FileCheck,
    HttpCheck,
    JudgeCheck,
    OutputCheck,
    Plan,
    Record,
    Revision,
    Step,
    Tools,
)
from agentfs.core.run_state import Means, derive
from agentfs.core.steps import StepView

REMOVED = "removed"


def changes(old: Plan | None, new: Plan) -> tuple[Change, ...]:
    """Return every difference: steps removed, added, changed field by field, rewired; then the plan's own fields."""
    steps = difference(old, new).steps
    whole = [Change(step=one.step, what=kind) for kind in (REMOVED, "added") for one in steps if one.kind == kind]
    inside = [Change(step=one.step, what=what) for one in steps if one.kind == "changed" for what in _step_words(one)]
    return (*whole, *inside, *(Change(step=None, what=what) for what in _plan_words(old, new)))


def _step_words(one: "StepDifference") -> list[str]:
    rewired = [f"now after {', '.join(one.after.new) or 'nothing'}"] if one.after else []
    return [*(f"{name} changed" for name in one.names), *rewired]


def _plan_words(old: Plan | None, new: Plan) -> list[str]:
    if old is None:
        return []
    found = [f"status {old.status} -> {new.status}"] if old.status != new.status else []
    found += ["limits changed"] if old.limits != new.limits else []
    found += [f"check added: {_check(one)}" for one in new.checks or () if one not in (old.checks or ())]
    found += [f"check removed: {_check(one)}" for one in old.checks or () if one not in (new.checks or ())]
    found += _tool_changes(old.tools or Tools(), new.tools or Tools())
    return [*found, *(["goal changed"] if old.goal != new.goal else [])]


def _check(check: Check) -> str:
    match check:
        case CommandCheck():
            return check.run
        case FileCheck():
            return check.path
        case HttpCheck():
            return check.url
        case JudgeCheck():
            return check.condition
        case OutputCheck():
            return "a schema for the output"


def _tool_changes(old: Tools, new: Tools) -> list[str]:
    """Return in so many words what the run's tools may do from now on: who reads the ledger has to see it."""
    return [f"tools.{name}: {_describe(value)}" for name, value in new if value != getattr(old, name)]


def _describe(value: object) -> str:
    if value is None:
        return "as the run began"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


# ── value by value ───────────────────────────────────────────────────────────────────────────────────────


Kind = Literal["added", "removed", "changed"]
Fate = Literal["again", "first", "on", "stopped", "kept", "skipped", "failed"]
NESTED = ("input", *OVERRIDES)  # reported name by name: what a person edits is one of their values


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

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that differ, but for what it comes after."""
        return tuple(dict.fromkeys(field.field.partition(".")[0] for field in self.fields))


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
    if old is not None and old.model_dump_json() == new.model_dump_json():
        return  # nearly all of them, and quick to see
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
            found = [*_changes([*dict.fromkeys([*inner, *outer])], inner, outer, f"{name}.")]
            yield from found or [FieldChange(name, was, now)]  # one is empty, the other absent
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


# ── who set each field ───────────────────────────────────────────────────────────────────────────────────


_RANK = {name: place for place, name in enumerate(("goal", "status", *OVERRIDES, *Step.model_fields))}


@dataclass(frozen=True, slots=True)
class Origin:
    """A field as it is now, and the revision it comes from. Without a step it is the plan's own."""

    step: str | None
    field: str
    revision: Revision


Owners = dict[str | None, dict[str, Revision]]


def blame(history: Iterable[tuple[Revision, Plan]]) -> tuple[Origin, ...]:
    """Return where each field of the last plan comes from: the plan's own first, then those of its steps."""
    owners: Owners = {None: {}}
    before: Plan | None = None
    for revision, plan in history:
        _follow(owners, before, plan, revision)
        before = plan
    listed = [None, *(step.id for step in before.steps)] if before else []
    return tuple(
        Origin(step, field, owners[step][field])
        for step in listed
        for field in sorted(owners[step], key=lambda field: _RANK[field.partition(".")[0]])
    )


def _follow(owners: Owners, before: Plan | None, plan: Plan, revision: Revision) -> None:
    change = difference(before, plan)
    own = change.plan if before else tuple(_set_at_first(plan))
    _take(owners[None], own, revision)
    for one in change.steps:
        if one.kind != "changed":
            owners[one.step] = {}  # one of the same name is another step
        _take(owners[one.step], one.fields, revision)
        if one.after is not None:
            owners[one.step]["depends_on"] = revision


def _set_at_first(plan: Plan) -> Iterator[FieldChange]:
    """Yield what a first plan says of itself: with no plan before it, that is no difference."""
    value = _value(plan)
    yield from (FieldChange(name, None, value[name]) for name in ("goal", "status", "checks") if value.get(name))
    for table, own in overrides_of(value).items():
        yield from (FieldChange(f"{table}.{name}", None, one) for name, one in own.items())


def _take(owned: dict[str, Revision], changes: Iterable[FieldChange], revision: Revision) -> None:
    for change in changes:
        if change.new is None:
            owned.pop(change.field, None)
        else:
            owned[change.field] = revision
