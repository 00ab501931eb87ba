"""Two plans that grew from one, brought together: three-way, by step and field. Pure.

    base ──► mine      a person's, as it stands
       └───► theirs    what a planner answered to the base

A field that one side changed is taken from that side. One that both changed, each its own way, is a conflict; so is a
step that one side changed and the other removed, and one that both added under one id. There the merged plan has the
answer's side: it is what a person's yes puts into effect, and without a conflict it needs none. `status`,
`limits` and `tools` are the person's, always; the order of steps means nothing once each says what it waits for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from agentfs.core.hashing import OVERRIDES, PLAN_SCHEMA, canonical, check_value, in_order, spelled_out
from agentfs.core.plan_graph import referred
from agentfs.core.records import Check, JsonObject, Plan, Record, Step

StepValue = dict[str, Any]
FIELDS = tuple(name for name in Step.model_fields if name != "id")


@dataclass(frozen=True, slots=True)
class Conflict:
    """What a person and an answer want otherwise. Without a field it is about the step as a whole, in words."""

    step: str
    field: str | None
    base: JsonValue
    mine: JsonValue
    theirs: JsonValue

    @property
    def place(self) -> str:
        return self.step if self.field is None else f"{self.step}.{self.field}"


@dataclass(frozen=True, slots=True)
class Merged:
    """A plan of both sides, and where the answer's side was taken against the person's."""

    plan: JsonObject
    conflicts: tuple[Conflict, ...] = ()


def merge(base: Plan, mine: Plan, theirs: Plan, *, whole_steps: bool = False) -> Merged:
    """Return both sides' changes of a plan in one. `whole_steps`: a step that both changed is not divided."""
    was, own, new = (steps_of(plan) for plan in (base, mine, theirs))
    steps: dict[str, StepValue] = {}
    conflicts: list[Conflict] = []
    order = _order(own, new)
    for name in order:
        step, found = _merged_step(name, was.get(name), own.get(name), new.get(name), whole_steps)
        conflicts += found
        if step is not None:
            steps[name] = step
    conflicts += _put_right(steps, was, new)
    title = theirs.goal if mine.goal == base.goal else mine.goal
    checks = merge_checks(base.checks or (), mine.checks or (), theirs.checks or ())
    merged = [steps[name] for name in order if name in steps]
    return Merged(plan_value(mine, title, merged, checks), tuple(conflicts))


def merge_checks(base: Sequence[Check], mine: Sequence[Check], theirs: Sequence[Check]) -> tuple[Check, ...]:
    """Return a plan's own checks: the answer's, without those a person took out, and with those a person put in."""
    taken_out = [check for check in base if check not in mine]
    put_in = [check for check in mine if check not in base]
    kept = [check for check in theirs if check not in taken_out and check not in put_in]
    return (*kept, *put_in)


def plan_value(
    head: Plan, title: str | None, steps: Iterable[StepValue], checks: Sequence[Check] | None = None
) -> JsonObject:
    """Return a plan of these steps and checks under the status and overrides of another, in plan form."""
    value: dict[str, Any] = {"$schema": head.schema_ or PLAN_SCHEMA}
    if title is not None:
        value["goal"] = title
    value["status"] = head.status
    for name in OVERRIDES:
        if (own := getattr(head, name)) is not None:
            value[name] = _dumped(own)
    if checks:
        value["checks"] = [check_value(check) for check in checks]
    return value | {"steps": [in_order(step) for step in steps]}


def steps_of(plan: Plan) -> dict[str, StepValue]:
    """Return the steps of a plan by id, each with its depends_on spelt out."""
    return {step["id"]: step for step in spelled_out([_dumped(step) for step in plan.steps])}


def _dumped(record: Record) -> dict[str, Any]:
    """Return a record as a person would write it: nothing that is absent, and 5 seconds, not 5.0."""
    given = record.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: int(one) if isinstance(one, float) and one.is_integer() else one for name, one in given.items()}


def _order(own: Mapping[str, StepValue], new: Mapping[str, StepValue]) -> list[str]:
    """Return every id: the person's in their order, each of the answer's behind the one it follows there."""
    order = list(own)
    for before, name in zip([None, *new], new, strict=False):
        if name not in own:
            order.insert(order.index(before) + 1 if before is not None else 0, name)
    return order


# ── one step ──────────────────────────────────────────────────────────────────────────────────────────────


def _merged_step(
    name: str, was: StepValue | None, own: StepValue | None, new: StepValue | None, whole: bool
) -> tuple[StepValue | None, list[Conflict]]:
    """Return a step as it is merged, None if it leaves the plan, and what is in conflict about it."""
    if own is not None and new is not None:
        return _merged_fields(name, was, own, new, whole)
    left, mine = (own, True) if own is not None else (new, False)
    if was is None:  # one side has added it
        return left, []
    if left is None or not _differing(was, left):  # one side has removed it, and the other let it be
        return None, []
    if mine:
        return None, [Conflict(name, None, None, "changed", "removed")]
    return left, [Conflict(name, None, None, "removed", "changed")]


def _merged_fields(
    name: str, was: StepValue | None, own: StepValue, new: StepValue, whole: bool
) -> tuple[StepValue, list[Conflict]]:
    """Return a step that both sides have. One that both have added is in conflict wherever they differ."""
    mine, theirs = (_differing(was or {}, side) for side in (own, new))
    apart = [field for field in FIELDS if not same(field, own.get(field), new.get(field))]
    if was is not None and not (whole and mine and theirs):
        apart = [field for field in apart if field in mine and field in theirs]
    taken = {*theirs, *apart}  # where both changed it to the same, either will do
    step = {"id": name} | {
        field: value for field in FIELDS if (value := (new if field in taken else own).get(field)) is not None
    }
    before = was or {}
    return step, [Conflict(name, field, before.get(field), own.get(field), new.get(field)) for field in apart]


def _differing(one: StepValue, other: StepValue) -> list[str]:
    return [field for field in FIELDS if not same(field, one.get(field), other.get(field))]


def same(field: str, one: Any, other: Any) -> bool:
    """Whether two values of a field mean the same; what a step waits for has no order."""
    if field == "depends_on" and one is not None and other is not None:
        return set(one) == set(other)
    return (one is None and other is None) or canonical(one) == canonical(other)


# ── what is needed and gone ───────────────────────────────────────────────────────────────────────────────


def _put_right(
    steps: dict[str, StepValue], was: Mapping[str, StepValue], new: Mapping[str, StepValue]
) -> Iterator[Conflict]:
    """Let no step wait for one that has gone: what the answer needs comes back, what it dropped is not waited for.

    A reference to what the answer dropped cannot be put right here; the check of the plan names it.
    """
    ahead = list(steps)
    while ahead:
        name = ahead.pop(0)
        for gone in [one for one in _needed(steps[name]) if one not in steps]:
            if gone in new:
                steps[gone] = new[gone]
                ahead.append(gone)
                yield Conflict(gone, None, None, "removed", f"needed by {name}")
            elif gone in (waits := steps[name]["depends_on"]):
                left = [one for one in waits if one != gone]
                steps[name] = steps[name] | {"depends_on": left}
                yield Conflict(name, "depends_on", was.get(name, {}).get("depends_on"), waits, left)


def _needed(step: StepValue) -> list[str]:
    return list(dict.fromkeys([*step["depends_on"], *sorted(referred(Step.model_validate_json(canonical(step))))]))
