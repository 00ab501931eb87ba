"""What takes an ended run up again: which attempts and calls are set aside, and whether that is enough. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentfs.core.decide import EndRun, RecordRevision, decide, given_up
from agentfs.core.facts import Facts, PlanFile, words_below
from agentfs.core.plan_changes import changes
from agentfs.core.records import Author, Failure, Plan, Result, Revision, Role
from agentfs.core.run_state import Means, RunState, derive, goal_checks, unjudged
from agentfs.core.steps import A_NO

HELD_UP = ("failed", "blocked", "rejected")


@dataclass(frozen=True, slots=True)
class Aside:
    """What is set aside so that it is done anew."""

    attempts: tuple[tuple[str, int], ...] = ()
    calls: tuple[int, ...] = ()


def with_plan(facts: Facts, plan: Plan, digest: str, call: int | None = None) -> Facts:
    """Return the facts once this plan is the next revision: a person's, or that of a call."""
    answered: Role = "runbook" if facts.goal.has_steps else "planner"
    revision = Revision(
        revision=len(facts.revisions) + 1,
        call=call,
        by=Author(role="person" if call is None else answered, name=""),
        trigger="edited",
        step=None,
        detail="plan.json was edited",
        evidence=(),
        base_sha256=facts.revisions[-1].plan_sha256 if facts.revisions else None,
        plan_sha256=digest,
        changes=changes(facts.plan, plan),
        at=facts.run.started_at,
    )
    return replace(facts, plan=plan, plan_file=PlanFile(digest, plan), revisions=(*facts.revisions, revision))


def in_force(state: RunState, judged: Callable[[Facts], Facts] = lambda facts: facts) -> RunState:
    """Return the state once what stands in plan.json, if that is new and valid, is a revision; ended or not.

    `judged`: lays the answer that waits, if there is one, over that.
    """
    facts = replace(state.facts, outcome=None)
    state = derive(facts, state.means)
    file = facts.plan_file
    match decide(state, 1)[0]:
        case RecordRevision(call=call) if file.plan is not None and file.sha256 is not None:
            return derive(judged(with_plan(facts, file.plan, file.sha256, call)), state.means)
        case _:
            return state


def after_no(state: RunState) -> RunState:
    """Return the state once every no that a person gave to a gate is on record, which comes before anything else."""
    facts = state.facts
    for view in state.moving("reject"):
        attempt = facts.attempt(view.id, view.next)
        no = words_below(attempt.talks[-1].reply or "") if attempt.talks else ""
        result = Result(
            run=facts.run.run,
            step=view.id,
            attempt=view.next,
            revision=len(facts.revisions),
            key=view.key or "",
            after=dict(view.after),
            status="rejected",
            error=Failure(kind="rejected", message=no or A_NO),
            sandbox="none",
            started_at=None,
            ended_at=facts.run.started_at,
            duration_s=0.0,
        )
        facts = facts.with_attempt(view.id, replace(attempt, result=result))
    return derive(facts, state.means, state)


def to_set_aside(state: RunState) -> Aside:
    """Return what holds a run up: failed steps, a planner that could not answer, checks of the goal that fail."""
    failed = [view for view in state.steps.values() if view.status in HELD_UP and view.attempt]
    holding = [view for view in failed if not view.satisfied] or failed  # those under `continue` hold nothing up
    silent = unanswered(state)
    calls = [*silent.calls, *(one.number for one in (state.calls.refused, given_up(state)) if one is not None)]
    if not holding and (checked := goal_checks(state)) and checked.checks:
        calls += [] if all(check.ok for check in checked.checks.checks) else [checked.number]
    return Aside((*((view.id, view.attempt) for view in holding), *silent.attempts), tuple(calls))


def unanswered(state: RunState) -> Aside:
    """Return what came to nothing because no model answered: a call, attempts, a judge of the goal's checks."""
    failed, checked = state.calls.failed, goal_checks(state)
    attempts = tuple((view.id, view.attempt) for view in state.moving("reach"))
    calls = [one.number for one in (failed, checked if unjudged(checked) else None) if one]
    return Aside(attempts, tuple(calls))


def set_aside(facts: Facts, aside: Aside) -> Facts:
    """Return the facts once these attempts and calls are set aside."""
    for step, number in aside.attempts:
        facts = facts.with_attempt(step, replace(facts.attempt(step, number), again=True))
    for number in aside.calls:
        facts = facts.with_call(replace(facts.planner_call(number), again=True))
    return facts


def still_ends(facts: Facts, means: Means) -> EndRun | None:
    """Return the end that a run comes to at once if its outcome is removed; None: it goes on."""
    state = after_no(in_force(derive(facts, means)))
    return next((action for action in decide(state, 1) if isinstance(action, EndRun)), None)
