"""Which fields of a plan a person set by hand. Pure.

A field is a person's from the edit that changed it until somebody else's revision changes it again, which happens
only with a person's yes. What a plan says beside its steps (`status`, `limits`, `tools`) is always a person's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agentfs.core.hashing import render_plan
from agentfs.core.plan_changes import StepDifference, difference
from agentfs.core.plan_merge import FIELDS, StepValue, merge_checks, plan_value, same, steps_of
from agentfs.core.records import Check, Plan, Revision

Pins = Mapping[str, frozenset[str]]  # step -> the names of its fields that are a person's


@dataclass(frozen=True, slots=True)
class Holding:
    """What is a person's after some revisions; the next ones are taken up one by one."""

    revisions: int = 0
    plan: Plan | None = None
    pins: Pins = field(default_factory=dict)

    def after(self, revision: Revision, plan: Plan) -> "Holding":
        """Return what is a person's once this revision has been made, too."""
        pins = dict(self.pins)
        for one in difference(self.plan, plan).steps:
            fields = _fields(one)
            mine = frozenset() if one.kind == "added" else pins.get(one.step, frozenset())
            pins[one.step] = mine | fields if revision.trigger == "edited" else mine - fields
            if one.kind == "removed" or not pins[one.step]:
                del pins[one.step]  # a step of the same name would be another step
        return Holding(self.revisions + 1, plan, pins)


def unedited(history: Iterable[tuple[Revision, Plan]]) -> Plan | None:
    """Return the plan as it would be had no person edited it: every other revision's changes, and no others.

    An edited goal is laid over what people made of the plan with this as the base, so that only what the goal itself
    says otherwise is taken for a change.
    """
    before: dict[str, StepValue] = {}
    own: dict[str, StepValue] = {}
    last: Plan | None = None
    checks: tuple[Check, ...] = ()
    for revision, plan in history:
        after, by_hand = steps_of(plan), revision.trigger == "edited" and last is not None
        if not by_hand:
            _take_changes(own, before, after, of_edits=not _is_fallback(revision))
            checks = merge_checks((last.checks if last else None) or (), checks, plan.checks or ())
        before, last = after, plan
    if last is None or not own:
        return last
    return Plan.model_validate_json(render_plan(plan_value(last, last.goal, own.values(), checks)))


def _is_fallback(revision: Revision) -> bool:
    """Whether a runbook answered to a failure: that rewires what is there, and is no word about what it says."""
    return revision.by.role == "runbook" and revision.trigger != "goal_changed"


def _take_changes(
    own: dict[str, StepValue], before: Mapping[str, StepValue], after: Mapping[str, StepValue], *, of_edits: bool
) -> None:
    """Make the changes that led from one plan to another. `of_edits`: also where a person had set the field."""
    for name in before.keys() - after.keys():
        own.pop(name, None)
    for name, step in after.items():
        if name not in before:
            own[name] = step
        elif name in own:
            was, mine = before[name], own[name]
            changed = {field for field in FIELDS if not same(field, was.get(field), step.get(field))}
            taken = {field for field in changed if of_edits or same(field, was.get(field), mine.get(field))}
            own[name] = {field: value for field, value in mine.items() if field not in taken}
            own[name] |= {field: step[field] for field in taken if step.get(field) is not None}


def pinned(history: Iterable[tuple[Revision, Plan]]) -> Pins:
    """Return the fields that are a person's after these revisions, all of them in order."""
    held = Holding()
    for revision, plan in history:
        held = held.after(revision, plan)
    return held.pins


def _fields(change: StepDifference) -> frozenset[str]:
    named = {one.field.partition(".")[0] for one in change.fields}
    return frozenset(named | ({"depends_on"} if change.after else set()))
