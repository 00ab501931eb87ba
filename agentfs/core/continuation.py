"""Going on with a run: taking an ended one up again, and beginning a new one from another. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentfs.core import paths
from agentfs.core.actions import EndRun, RecordRevision
from agentfs.core.decide import decide, find_given_up
from agentfs.core.facts import Facts, PlanFile, words_below
from agentfs.core.plan_changes import changes
from agentfs.core.planner_calls import FIRST_CALL, LOOPS, is_loop
from agentfs.core.records import Answer, Author, Call, JsonObject, Mode, Plan, Result, Revision, Role, Run
from agentfs.core.run_state import Means, RunState, derive, goal_checks, why_unjudged
from agentfs.core.steps import StepView, rejection, result_path

HELD_UP = ("failed", "blocked", "rejected")


@dataclass(frozen=True, slots=True)
class Aside:
    """What is set aside so that it is done again."""

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
    """Return the state once what is in plan.json, if that is new and valid, is a revision; ended or not.

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


def record_rejections(state: RunState) -> RunState:
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
            error=rejection(no),
            sandbox="none",
            started_at=None,
            ended_at=facts.run.started_at,
            duration_s=0.0,
        )
        facts = facts.with_attempt(view.id, replace(attempt, result=result))
    return derive(facts, state.means, state)


def to_set_aside(state: RunState) -> Aside:
    """Return what holds a run up: failed steps, a planner that could not answer, checks of the goal that fail."""
    failed = [one for view in state.steps.values() for one in _failed_in(view)]
    holding = [view for view in failed if not view.satisfied] or failed  # those under `continue` hold nothing up
    silent = find_unanswered(state)
    calls = [*silent.calls, *(one.number for one in (state.calls.refused, find_given_up(state)) if one is not None)]
    if not holding and (checked := goal_checks(state)) and checked.checks:
        calls += [] if all(check.ok for check in checked.checks.checks) else [checked.number]
    return Aside((*((view.id, view.attempt) for view in holding), *silent.attempts), tuple(calls))


def _failed_in(view: StepView) -> list[StepView]:
    """Return what failed of a step: of one that goes through a list, the items."""
    if view.status not in HELD_UP or not view.attempt:
        return []
    items = [one for one in view.items if one.status in HELD_UP and one.attempt]
    return items if view.status == "failed" and items else [view]


def find_unanswered(state: RunState) -> Aside:
    """Return what came to nothing because no model answered: a call, attempts, a judge of the goal's checks."""
    failed, checked = state.calls.failed, goal_checks(state)
    attempts = tuple((view.id, view.attempt) for view in state.moving("reach"))
    calls = [one.number for one in (failed, checked if why_unjudged(checked) else None) if one]
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
    state = record_rejections(in_force(derive(facts, means)))
    return next((action for action in decide(state, 1) if isinstance(action, EndRun)), None)


# ── forks ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Choices:
    """What a fork has of its own; None: as the run it comes from."""

    planner: str | None = None
    executor: str | None = None
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """The attempts that go along with a plan, and what of them a planner has already looked at."""

    attempts: dict[str, int]  # step -> its last attempt; those before it go along too
    evidence: tuple[str, ...]
    left: tuple[str, ...]  # steps that are still to run


def takes_plan_along(facts: Facts, plan: Plan, mode: Mode | None) -> bool:
    """Whether a fork goes on with the plan; one loop and several steps are no continuation of each other."""
    if mode is None or mode == facts.run.mode or facts.goal.has_steps:
        return True
    return mode not in LOOPS and not is_loop(plan)


def find_carried(facts: Facts, means: Means, plan: Plan) -> Carried:
    """Return which attempts still count under a plan: done, or failed where that holds nothing up."""
    state = derive(replace(facts, plan=plan, outcome=None), means)
    views = [one for view in state.steps.values() for one in (view, *(item for item in view.items if is_done(item)))]
    along = {view.id: view.attempt for view in views if (view.satisfied or is_done(view)) and view.result is not None}
    paths = [result_path(step, number) for step, last in along.items() for number in range(1, last + 1)]
    seen = tuple(path for path in paths if path in state.calls.spent and not _asks_again(path, facts))
    left = tuple(view.id for view in state.steps.values() if not view.satisfied)
    return Carried(along, seen, left)


def is_done(view: StepView) -> bool:
    return view.status == "done"


def _asks_again(path: str, facts: Facts) -> bool:
    """Of a runbook's surprise a person is asked in the fork too: their reply was about the other run."""
    file = paths.parse_step_file(path.removeprefix(f"{paths.STEPS}/"))
    result = facts.attempt(file.step, file.attempt).result if file else None
    return facts.goal.has_steps and result is not None and result.surprising


def fork_record(run: Run, name: str, source: str, choices: Choices, at: str) -> Run:
    """Return how the new run begins: as the other did, but for what was chosen."""
    models = run.models.model_copy(
        update={
            "planner": choices.planner or run.models.planner,
            "executor": choices.executor or run.models.executor,
        }
    )
    mode = choices.mode or run.mode
    own = {"run": name, "mode": mode, "models": models, "source": source, "request_sha256": None, "started_at": at}
    own |= {"schedule": None, "due": None}
    return run.model_copy(update=own)


def first_call(goal_sha256: str, source: str, plan: JsonObject, evidence: tuple[str, ...]) -> tuple[Call, Answer]:
    """Return the call that a fork begins with, and its answer, which becomes the first revision."""
    call = Call(
        call=FIRST_CALL,
        revision=0,
        trigger="first",
        step=None,
        detail=source,
        evidence=evidence,
        goal_sha256=goal_sha256,
        base_sha256=None,
    )
    return call, Answer(call=FIRST_CALL, verdict="plan", plan=plan, answer=source, duration_s=0.0)
