"""Which fields of a plan a person set by hand. Pure.

A field is a person's from the edit that changed it until somebody else's revision changes it again, which happens
only with a person's yes. `status` and `limits` are no fields of a step: they are always a person's.
"""

from collections.abc import Iterable, Mapping

from agentfs.core.differences import Difference, difference
from agentfs.core.records import Plan, Revision

Pins = Mapping[str, frozenset[str]]  # step -> the names of its fields that are a person's


def pinned(history: Iterable[tuple[Revision, Plan]]) -> Pins:
    """Return the fields that are a person's after these revisions, all of them in order."""
    pins: dict[str, set[str]] = {}
    before: Plan | None = None
    for revision, plan in history:
        _follow(pins, difference(before, plan), by_hand=revision.trigger == "edited")
        before = plan
    return {step: frozenset(fields) for step, fields in pins.items() if fields}


def _follow(pins: dict[str, set[str]], change: Difference, *, by_hand: bool) -> None:
    for one in change.steps:
        fields = {field.field.partition(".")[0] for field in one.fields} | ({"depends_on"} if one.after else set())
        if one.kind != "changed":
            pins.pop(one.step, None)  # a step of the same name is another step
        if one.kind != "removed":
            mine = pins.setdefault(one.step, set())
            mine.update(fields) if by_hand else mine.difference_update(fields)
