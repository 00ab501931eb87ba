"""The things a run waits for a person with, each told apart from all others by what the files say. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agentfs.core import paths
from agentfs.core.attention import About, OpenQuestion, open_questions, ways_on
from agentfs.core.decide import Action, Wait
from agentfs.core.facts import ASK
from agentfs.core.run_state import RunState

What = About | Literal["plan", "limit", "planner", "model", "files", "other"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thing that a person has to see to."""

    thing: str  # the same for as long as it is the same thing, whoever looks
    what: What
    file: str  # to look at, in the run's folder
    why: str
    how: str  # what to type; empty: nothing but an edit helps


def waiting(state: RunState, last: Action) -> tuple[Waiting, ...]:
    """Return what waits for a person; `last` is the last of what was decided. A run that they paused does not."""
    if state.facts.outcome is not None:
        return ()
    return (*_opened(state), *_held(state, last))


def _opened(state: RunState) -> Iterator[Waiting]:
    found, run = open_questions(state), state.facts.run.run
    for one in found:
        how = "\n".join(one.commands(run, alone=len(found) == 1))
        if one.about == "draft":
            yield Waiting(f"draft of call {_last_call(state)}", "draft", paths.PLAN, "the plan is a draft", how)
        else:
            yield Waiting(one.question_path, one.about, one.question_path, _why(state, one), how)


def _last_call(state: RunState) -> int:
    """Return who drafted it: what a person makes of a draft by hand is no new one to them."""
    return next((one.call for one in reversed(state.facts.revisions) if one.call), 0)


def _why(state: RunState, one: OpenQuestion) -> str:
    if one.step is None:
        return f"the planner's answer of call {one.number} needs a yes"
    order = state.facts.attempt(one.step, one.number).order
    asked = order.input.get("question") if order is not None and order.tool == ASK else None
    return f"{one.step}: {asked or state.steps[one.step].why}"


def _held(state: RunState, last: Action) -> Iterator[Waiting]:
    """Yield what holds the whole run up with no question that could be answered."""
    if not isinstance(last, Wait) or last.on != "person":
        return
    facts, limit, failed = state.facts, state.limit_reached, state.calls.failed
    how = next(iter(ways_on(state, facts.run.run)), "")
    if facts.broken:
        yield Waiting(f"files: {last.why}", "files", "", last.why, how)
    elif facts.plan_file.problems:
        thing = f"plan.json after revision {len(facts.revisions)}"
        yield Waiting(thing, "plan", paths.PLAN_ERROR, last.why, how)
    elif failed is not None:
        path = f"{paths.PLANNING}/{paths.call_file(failed.number, 'answer')}"
        yield Waiting(path, "planner", path, last.why, how)
    elif limit is not None:
        yield Waiting(f"limits.{limit.name} {limit.amount}", "limit", paths.PLAN, last.why, how)
    elif reach := state.moving("reach"):
        yield Waiting(f"model for {reach[0].id}.{reach[0].attempt}", "model", paths.PLAN, last.why, how)
    elif not open_questions(state) and not (facts.plan is not None and facts.plan.status == "paused"):
        yield Waiting(last.why, "other", paths.PLAN, last.why, how)
