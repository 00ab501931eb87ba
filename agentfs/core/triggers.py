"""Every reason to call the planner, from what a run's files mean. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from agentfs.core import paths
from agentfs.core.facts import Facts, Talk, words_below
from agentfs.core.plan_graph import PlanGraph
from agentfs.core.planner_calls import CallsSummary, Pending, asks_after_every_step, next_call, rejection
from agentfs.core.records import Trigger
from agentfs.core.step_table import StepTable
from agentfs.core.steps import result_path

if TYPE_CHECKING:
    from agentfs.core.run_state import RunState

TRIGGER_ORDER: tuple[Trigger, ...] = get_args(Trigger)  # the record lists them as they are answered
FIRST = Pending("first", None, "there is no plan yet", ())
WITHOUT_WORDS = "a person asked for another plan"


def pending_without_plan(facts: Facts, calls: CallsSummary) -> tuple[Pending, ...]:
    """Return why a planner is asked for a first plan, unless it said that there can be none and nobody asks again."""
    said = calls.latest.answer if calls.latest else None
    gave_up = said is not None and said.verdict == "impossible" and calls.goal_sha256 == facts.goal.sha256
    asked = tuple(_asked(facts, calls))
    return (FIRST, *asked) if asked or not gave_up else ()


def pending_in(facts: Facts, board: StepTable, scheme: PlanGraph, calls: CallsSummary) -> tuple[Pending, ...]:
    """Return every reason to call the planner, the most pressing first."""
    found = [
        Pending(view.trigger, view.id, f"{view.id}: {view.why}", view.evidence)
        for view in board.moving(scheme, "call")
        if view.trigger is not None
    ]
    if calls.goal_sha256 not in (None, facts.goal.sha256):
        found.append(Pending("goal_changed", None, "the goal was edited", ()))
    found += [*_asked(facts, calls), *_every_step(facts, board, calls)]
    return tuple(sorted(found, key=lambda pending: TRIGGER_ORDER.index(pending.trigger)))


def _asked(facts: Facts, calls: CallsSummary) -> Iterator[Pending]:
    """A person's own words: in replan.md, in one that a call has taken, or in a reply that rejects an answer."""
    if facts.replan is not None:
        evidence = paths.call_file(next_call(facts), "asked")
        yield Pending("asked", None, _said(facts.replan), (f"{paths.PLANNING}/{evidence}",))
    for one in facts.calls:
        taken = f"{paths.PLANNING}/{paths.call_file(one.number, 'asked')}"
        if one.words is not None and taken not in calls.spent:
            yield Pending("asked", None, _said(one.words), (taken,))
    for one in calls.rejected:
        talk = rejection(one) or Talk()
        reply = f"{paths.PLANNING}/{paths.call_file(one.number, 'reply', talk.count)}"
        if reply not in calls.spent:
            said = words_below(talk.reply or "") or f"the answer of call {one.number} was rejected"
            yield Pending("asked", None, said, (reply,))


def _said(words: str) -> str:
    return words.strip() or WITHOUT_WORDS


def _every_step(facts: Facts, board: StepTable, calls: CallsSummary) -> Iterator[Pending]:
    if not asks_after_every_step(facts):
        return
    for view in board.views.values():
        path = result_path(view.id, view.attempt)
        if view.status == "done" and path not in calls.spent:
            yield Pending("every_step", view.id, f"{view.id} is done", (path,))


def may_be_repaired(state: "RunState", pending: tuple[Pending, ...]) -> bool:
    """Whether the executor's model is asked before the planner: once for each planned tool step that failed."""
    facts, first = state.facts, pending[0]
    view = state.steps.get(first.step or "")
    if not (facts.run.repair and state.means.executor) or facts.goal.has_steps or view is None or len(pending) > 1:
        return False
    asked = any(one.call and one.call.role == "executor" and one.call.step == view.id for one in facts.calls)
    failed = first.trigger in ("step_failed", "repeated_failure") and view.status == "failed"
    return failed and view.step.tool is not None and not asked


def next_step(state: "RunState") -> Pending:
    """Return the reason to ask for one more step: all that there are have ended."""
    tried = [view for view in state.steps.values() if view.attempt]
    paths = [result_path(view.id, view.attempt) for view in tried]
    last = tried[-1].id if tried else None
    detail = f"{last} has ended: what is next?" if last else "what is next?"
    return Pending("next_step", last, detail, tuple(path for path in paths if path not in state.calls.spent))
