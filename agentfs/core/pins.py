"""Which fields of a plan a person set by hand. Pure.

A field is a person's from the edit that changed it until somebody else's revision changes it again, which happens
only with a person's yes. `status` and `limits` are no fields of a step: they are always a person's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agentfs.core.differences import StepDifference, difference
from agentfs.core.records import Plan, Revision

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


def pinned(history: Iterable[tuple[Revision, Plan]]) -> Pins:
    """Return the fields that are a person's after these revisions, all of them in order."""
    held = Holding()
    for revision, plan in history:
        held = held.after(revision, plan)
    return held.pins


def _fields(change: StepDifference) -> frozenset[str]:
    named = {one.field.partition(".")[0] for one in change.fields}
    return frozenset(named | ({"depends_on"} if change.after else set()))
