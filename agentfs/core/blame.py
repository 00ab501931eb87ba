"""Who set each field of a plan: the last revision that changed its value. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentfs.core.hashing import OVERRIDES, overrides_of
from agentfs.core.plan_changes import FieldChange, difference
from agentfs.core.records import Plan, Revision, Step

_RANK = {name: place for place, name in enumerate(("goal", "status", *OVERRIDES, *Step.model_fields))}


@dataclass(frozen=True, slots=True)
class Origin:
    """A field as it stands, and the revision it comes from. Without a step it is the plan's own."""

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
    value = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    yield from (FieldChange(name, None, value[name]) for name in ("goal", "status", "checks") if value.get(name))
    for table, own in overrides_of(value).items():
        yield from (FieldChange(f"{table}.{name}", None, one) for name, one in own.items())


def _take(owned: dict[str, Revision], changes: Iterable[FieldChange], revision: Revision) -> None:
    for change in changes:
        if change.new is None:
            owned.pop(change.field, None)
        else:
            owned[change.field] = revision
