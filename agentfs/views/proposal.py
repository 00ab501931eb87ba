"""An answer that waits for a yes: why, where it goes against a person's edits, and what it would change."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from agentfs.core import names
from agentfs.core.calls import question_of
from agentfs.core.differences import difference, effects
from agentfs.core.proposals import Proposal
from agentfs.core.reopening import with_plan
from agentfs.core.state import RunState
from agentfs.views.diff import diff_lines, is_short, said, text_of
from agentfs.views.words import block, cut, inert

LINES = 40  # of one value
NOT_YET = "0" * 64  # the hash of a plan that is nowhere yet
SIDES = {"base": "it was", "mine": "yours", "theirs": "the answer"}


def proposal_page(run: str, state: RunState, proposal: Proposal) -> dict[str, Any]:
    """Return all there is to say about an answer that is not in effect: what `diff --question --json` prints."""
    facts, plan = state.facts, proposal.plan
    one = facts.planner_call(proposal.call)
    asked = question_of(one, facts)
    path = f"{names.PLANNING}/{names.call_file(one.number, 'question', asked.count)}" if asked else None
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


def proposal_lines(page: dict[str, Any], width: int, *, colours: bool) -> list[str]:
    """Return an answer that waits, for a terminal."""
    head, *rest = diff_lines(page, width, colours=colours)
    return [head, *reason_lines(page, width), *conflict_lines(page, width), *rest]


def reason_lines(page: dict[str, Any], width: int | None = None) -> Iterator[str]:
    """Yield why a person is asked."""
    for reason in page["question"]["reasons"]:
        words = f"- {inert(reason)}"
        yield cut(words, width) if width else words


def conflict_lines(page: dict[str, Any], width: int) -> Iterator[str]:
    """Yield where an answer goes against a person's edits, with both values."""
    for conflict in page["question"]["conflicts"]:
        yield ""
        if conflict["field"] is None:
            yield cut(f"! {conflict['step']}  you {conflict['mine']} it; {_whole(conflict['theirs'])}", width)
            continue
        yield cut(f"! {conflict['step']}  {conflict['field']}", width)
        for side, label in SIDES.items():
            yield from _value(label, conflict[side], width)


def _whole(theirs: str) -> str:
    return f"the answer {theirs} it" if theirs in ("removed", "changed") else f"it is {theirs}"


def _value(label: str, value: Any, width: int) -> Iterator[str]:
    flat = value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if is_short(flat):
        yield cut(f"    {label}: {said(flat)}", width)
        return
    yield f"    {label}:"
    lines = block(text_of(value))
    yield from (cut(f"      {line}", width) for line in lines[:LINES])
    if len(lines) > LINES:
        yield f"      … {len(lines) - LINES} more lines"
