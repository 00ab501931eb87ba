"""An answer that waits for a yes: why, where it goes against a person's edits, and what it would change."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from agentfs.core import paths
from agentfs.core.continuation import with_plan
from agentfs.core.facts import Proposal
from agentfs.core.plan_changes import difference, effects
from agentfs.core.planner_calls import question_of
from agentfs.core.run_state import RunState
from agentfs.views.diff import diff_lines, is_short, said, shown_lines
from agentfs.views.words import inert

NOT_YET = "0" * 64  # the hash of a plan that is nowhere yet
SIDES = {"base": "it was", "mine": "yours", "theirs": "the answer"}


def proposal_page(run: str, state: RunState, proposal: Proposal) -> dict[str, Any]:
    """Return all there is to say about an answer that is not in effect: what `diff --question --json` prints."""
    facts, plan = state.facts, proposal.plan
    one = facts.planner_call(proposal.call)
    asked = question_of(one, facts)
    path = f"{paths.PLANNING}/{paths.call_file(one.number, 'question', asked.count)}" if asked else None
    page: dict[str, Any] = {
        "run": run,
        "from": len(facts.revisions),
        "to": None,
        "by": None,
        "question": {
            "call": proposal.call,
            "path": path,
            "reasons": list(proposal.reasons),
            "conflicts": [asdict(conflict) for conflict in proposal.conflicts],
            "by_hand": list(proposal.touched),
        },
        "plan": [],
        "steps": [],
        "effects": [],
    }
    if plan is None:
        return page
    then = with_plan(facts, plan, NOT_YET, proposal.call)
    fates = [asdict(one) for one in effects(then, state.means, plan)]
    return page | asdict(difference(facts.plan, plan)) | {"effects": fates}


def proposal_lines(page: dict[str, Any], *, colours: bool) -> list[str]:
    """Return an answer that waits, for a terminal."""
    head, *rest = diff_lines(page, colours=colours)
    return [head, *reason_lines(page), *conflict_lines(page), *rest]


def reason_lines(page: dict[str, Any]) -> Iterator[str]:
    """Yield why a person is asked."""
    yield from (f"- {inert(reason)}" for reason in page["question"]["reasons"])


def conflict_lines(page: dict[str, Any]) -> Iterator[str]:
    """Yield where an answer goes against a person's edits, with all its values."""
    for conflict in page["question"]["conflicts"]:
        yield ""
        if conflict["field"] is None:
            yield f"! {conflict['step']}  you {conflict['mine']} it; {_whole(conflict['theirs'])}"
            continue
        yield f"! {conflict['step']}  {conflict['field']}"
        yield from _values([(label, conflict[side]) for side, label in SIDES.items()])


def _whole(theirs: str) -> str:
    return f"the answer {theirs} it" if theirs in ("removed", "changed") else f"it is {theirs}"


def _values(sides: list[tuple[str, Any]]) -> Iterator[str]:
    """Yield the values of the sides: each on a line where all are short, else line by line."""
    values = [value for _, value in sides]
    if all(map(is_short, values)):
        yield from (f"    {label}: {words}" for (label, _), words in zip(sides, said(*values), strict=True))
        return
    for (label, value), lines in zip(sides, shown_lines(values), strict=True):
        yield f"    {label}: nothing" if value is None else f"    {label}:"
        yield from (f"      {line}" for line in lines)
