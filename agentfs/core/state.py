"""Derive what a run's files mean. Pure: same files, same state, always."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentfs.core.facts import Attempt, Facts, PlannerCall
from agentfs.core.plan_graph import PlanGraph
from agentfs.core.planner_calls import DO, CallsSummary, Pending, loops, pending_in, pending_without_plan
from agentfs.core.records import Failure, Revision, Step
from agentfs.core.resolve import room_of_step
from agentfs.core.run_state import Bounds, Reached, Spent, bounds_of, reached, spent_of, spent_on_calls, total
from agentfs.core.step_table import BUSY, StepTable, build_table, update_table
from agentfs.core.steps import Around, StepView, is_repeatable


@dataclass(frozen=True, slots=True)
class Means:
    """What this process has to work with, beside the files: models, and tools that may be repeated or not."""

    planner: bool = False
    executor: bool = False
    repeatable: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stray:
    """An unsettled attempt of a step that has left the plan."""

    step: str
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run's files mean at one moment."""

    facts: Facts
    means: Means
    bounds: Bounds
    calls: CallsSummary
    calls_spent: Spent
    spent: Spent = field(default_factory=Spent)
    scheme: PlanGraph | None = None
    around: Around | None = None
    board: StepTable = field(default_factory=StepTable)
    strays: tuple[Stray, ...] = ()
    pending: tuple[Pending, ...] = ()
    doomed: bool = False  # the current plan only cleans up: the run will end failed

    @property
    def steps(self) -> Mapping[str, StepView]:
        return self.board.views

    @property
    def running(self) -> tuple[StepView, ...]:
        return self.moving(BUSY)

    @property
    def limit_reached(self) -> Reached | None:
        return reached(self.bounds, self.spent, self.calls_spent)

    def moving(self, *moves: str, most: int | None = None) -> tuple[StepView, ...]:
        """Return the steps that call for one of these moves, in the plan's order; `most`: no more than that."""
        return self.board.moving(self.scheme, *moves, most=most) if self.scheme else ()


def used_by(state: RunState) -> Spent:
    """Return what the models have been asked so far, over calls and attempts."""
    return total(state.spent, state.calls_spent)


def derive(facts: Facts, means: Means, before: RunState | None = None) -> RunState:
    """Return the state these files mean. `before`, a state of the same run, saves work and changes nothing."""
    if before is not None and facts is before.facts and means is before.means:
        return before
    if before is not None and before.means is means and (touched := facts.touched_since(before.facts)) is not None:
        return _derive_again(facts, before, touched)
    bounds, calls = bounds_of(facts), CallsSummary.of(facts)
    state = RunState(facts, means, bounds, calls, spent_on_calls(facts), spent_of(facts.attempts))
    if facts.plan is None:
        return replace(state, pending=pending_without_plan(facts, calls))
    scheme = PlanGraph.of(facts.plan)
    around = _around(facts, means, bounds, calls, scheme)
    board = build_table(facts, scheme, around)
    return replace(
        state,
        scheme=scheme,
        around=around,
        board=board,
        strays=_strays(facts, board),
        pending=pending_in(facts, board, scheme, calls),
        doomed=_doomed(facts),
    )


def _derive_again(facts: Facts, before: RunState, touched: frozenset[str]) -> RunState:
    """Return the state when only the attempts of some steps have changed."""
    new = {step: facts.attempts.get(step, ()) for step in touched}
    spent = spent_of(new, before.facts.attempts, before.spent)
    if before.scheme is None or before.around is None:
        return replace(before, facts=facts, spent=spent)
    board = update_table(before.board, touched, facts, before.scheme, before.around)
    strays = before.strays if all(step in board.views for step in touched) else _strays(facts, board)
    pending = pending_in(facts, board, before.scheme, before.calls)
    return replace(before, facts=facts, spent=spent, board=board, strays=strays, pending=pending)


def _around(facts: Facts, means: Means, bounds: Bounds, calls: CallsSummary, scheme: PlanGraph) -> Around:
    def can_answer(step: str) -> bool:
        return step in facts.answerable if facts.goal.has_steps else means.planner

    def can_answer_no(step: str) -> bool:
        return step in facts.cleanable if facts.goal.has_steps else means.planner

    def repeatable(step: Step) -> bool:
        return is_repeatable(step, means.repeatable)

    def planner_made_stale(step: str, since: int) -> bool:
        touched = scheme.ancestors(step) | {step}
        return any(
            revision.by.role == "planner" and any(change.step in touched for change in revision.changes)
            for revision in facts.revisions
            if revision.revision > since
        )

    return Around(
        goal=facts.goal.text,
        revision=len(facts.revisions),
        attempts=bounds.attempts,
        spent=calls.spent,
        can_answer=can_answer,
        can_answer_no=can_answer_no,
        repeatable=repeatable,
        planner_made_stale=planner_made_stale,
        room=room_of_step(bounds.output_bytes, len(scheme.steps)),
        loop=DO if loops(facts) else None,
    )


def _strays(facts: Facts, board: StepTable) -> tuple[Stray, ...]:
    left = facts.attempts.keys() - board.views.keys()
    latest = ((step, facts.attempts[step][-1]) for step in sorted(left))
    return tuple(Stray(step, attempt) for step, attempt in latest if attempt.is_unfinished)


def _doomed(facts: Facts) -> bool:
    """Whether the last revision that changed steps came from an answer of `impossible`."""
    last = last_change(facts)
    answer = facts.planner_call(last.call).answer if last and last.call else None
    return answer is not None and answer.verdict == "impossible"


def last_change(facts: Facts) -> Revision | None:
    """Return the last revision that changed steps, and not only what the plan says of itself."""
    return next((one for one in reversed(facts.revisions) if any(c.step is not None for c in one.changes)), None)


def goal_checks(state: RunState) -> PlannerCall | None:
    """Return what the goal's checks found, if that still speaks of this plan and these attempts."""
    after = {step: view.attempt for step, view in state.steps.items()}
    for one in reversed(state.facts.calls):
        if one.again or one.checks is None:
            continue
        if one.checks.revision == len(state.facts.revisions) and dict(one.checks.after) == after:
            return one
    return None


def unjudged(checked: PlannerCall | None) -> Failure | None:
    """Return why a judge among the goal's checks could not be asked."""
    return checked.checks.error if checked and checked.checks else None
