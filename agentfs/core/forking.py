"""What a new run takes from another: its plan, the results that count under it, its settings. Pure."""

from dataclasses import dataclass, replace

from agentfs.core import paths
from agentfs.core.facts import Facts
from agentfs.core.planner_calls import LOOPS, is_loop
from agentfs.core.records import Answer, Author, Call, JsonObject, Mode, Plan, Run
from agentfs.core.run_state import Means, derive
from agentfs.core.steps import result_path

FIRST_CALL = 1
AGENTFS = Author(role="agentfs", name="agentfs")


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


def carried(facts: Facts, means: Means, plan: Plan) -> Carried:
    """Return which attempts still count under a plan: done, or failed where that holds nothing up."""
    state = derive(replace(facts, plan=plan, outcome=None), means)
    along = {view.id: view.attempt for view in state.steps.values() if view.satisfied and view.result is not None}
    paths = [result_path(step, number) for step, last in along.items() for number in range(1, last + 1)]
    seen = tuple(path for path in paths if path in state.calls.spent and not _asks_again(path, facts))
    left = tuple(view.id for view in state.steps.values() if not view.satisfied)
    return Carried(along, seen, left)


def _asks_again(path: str, facts: Facts) -> bool:
    """Of a runbook's surprise a person is asked in the fork too: what they said was said of the other run."""
    file = paths.parse_step_file(path.removeprefix(f"{paths.STEPS}/"))
    result = facts.attempt(file.step, file.attempt).result if file else None
    return facts.goal.has_steps and result is not None and result.surprising


def forked_run(run: Run, name: str, source: str, choices: Choices, at: str) -> Run:
    """Return how the new run begins: as the other did, but for what was chosen."""
    models = run.models.model_copy(
        update={
            "planner": choices.planner or run.models.planner,
            "executor": choices.executor or run.models.executor,
        }
    )
    mode = choices.mode or run.mode
    return run.model_copy(update={"run": name, "mode": mode, "models": models, "source": source, "started_at": at})


def first_call(goal_sha256: str, source: str, plan: JsonObject, evidence: tuple[str, ...]) -> tuple[Call, Answer]:
    """Return the call that a fork begins with, and its answer: whoever drives it makes that the first revision."""
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


def is_forks_own(call: Call, run: Run) -> bool:
    """Whether a call is the one that a fork was made with: code answered it."""
    return call.call == FIRST_CALL and call.detail == run.source and paths.is_fork_source(run.source)
