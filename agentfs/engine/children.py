"""Runs in runs: a step whose tool is `run` is a run of its own, and waits, as files, for the end of that.

    order ─► claim, which names the child ─► its folder and goal ─► `begun` in the log ─► its outcome ─► result

Each arrow is on the disk before the next begins. The driver of the run after a crash goes on from the last: a child
is never begun twice, and one that was begun and is not there any more was deleted.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from agentfs.core import paths
from agentfs.core.actions import JobKey
from agentfs.core.config import Settings
from agentfs.core.excerpts import reason
from agentfs.core.facts import DEEPEST, AttemptFinished, Child, ChildNamed, Report
from agentfs.core.outcome import total_usage
from agentfs.core.records import Failure, Limits, Order, Outcome, Parent, Run, Usage
from agentfs.core.run_state import derive, seconds_left
from agentfs.engine.attempts import attempt_context, confine, in_folder, task_for
from agentfs.engine.driver import Driver, Job
from agentfs.engine.goal_source import AboveChild, GoalSource, with_used_goal
from agentfs.engine.intake import JudgedGoal, judge_goal, taking
from agentfs.engine.means import catalogue_of, has_model, means_of, means_with, run_record
from agentfs.engine.run_reader import reader_for
from agentfs.errors import AgentfsError, BadFile
from agentfs.executor.attempt import finish_answered
from agentfs.executor.attempt_log import BEGUN, CHILD, AlreadyClaimed, AttemptLog, child_in
from agentfs.storage.workspace import Workspace, goal_path
from agentfs.tools.base import ToolResult

_SHORTEST_PARENT = 8  # characters of the parent's name that stay in the child's, however long the step's is


class Impossible(Exception):
    """A run cannot be begun."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


# ── the beginning ───────────────────────────────────────────────────────────────────────────────────


def begin(order: Order, driver: Driver) -> None:
    """Carry out an order of the tool `run`, from wherever an earlier driver came to."""
    child = _claim(order, driver)
    try:
        if _is_there(child, order, driver):
            _note(BEGUN, {}, order, driver)
        else:
            child = _make(child, _judge(order, driver), order, driver)
    except Impossible as impossible:
        driver.learn(driver.publish(driver.unstarted(order, "failed", impossible.failure), order))
        return
    driver.learn(ChildNamed(order, child, begun=True))
    driver.world.wake()


def _claim(order: Order, driver: Driver) -> str:
    """Return the child that the log of an attempt names; it is claimed now if that was not done before."""
    log = AttemptLog(driver.steps_folder, order, driver.world.mask, driver.world.clock)
    child = _free_name(order, driver)
    try:
        log.claim_for(child)
    except AlreadyClaimed:
        child = (child_in(log.path) or (child, False))[0]
    finally:
        log.close()
    return child


def _free_name(order: Order, driver: Driver) -> str:
    """Return a name that no run has, made of the run's and the step's; or that of this very attempt's own run.

    Its log may be lost, with the name in it: the ledger holds no logs.
    """
    parent = driver.folder.name[: max(_SHORTEST_PARENT, paths.NAME_LENGTH - 1 - len(order.step))]
    name, day = paths.run_name(f"{parent}-{order.step}"), driver.world.clock.day()
    number, child, runs = 1, f"{day}/{name}", _runs(driver)
    while (runs / child).exists() and not _is_there(child, order, driver):
        number += 1
        child = f"{day}/{name}-{number}"
    return child


def _make(child: str, goal: JudgedGoal, order: Order, driver: Driver) -> str:
    """Make the child, and write that down; return its name: another run may have got the one that it had."""
    with ExitStack() as hold:
        while True:
            try:
                folder = hold.enter_context(
                    taking(goal, Workspace(driver.world.workspace), driver.world.clock, child)
                )
                break
            except FileExistsError:
                child = _free_name(order, driver)
                _note(CHILD, {"child": child}, order, driver)
                if _is_there(child, order, driver):
                    _note(BEGUN, {}, order, driver)
                    return child
            except OSError as error:
                words = f"{child} cannot be made: {error.strerror}"
                raise Impossible(Failure(kind="input", message=words)) from None
        _note(BEGUN, {}, order, driver)
        driver.world.begun.put((folder, hold.pop_all()))
    return child


def _is_there(child: str, order: Order, driver: Driver) -> bool:
    """Whether a run of this name is the one that this very attempt began, with its goal in it."""
    folder = _runs(driver) / child
    try:
        record = run_record(folder)
        goal_path(folder)
    except (OSError, ValueError, AgentfsError):
        return False
    return record.parent == _parent(order, driver)


def _judge(order: Order, driver: Driver) -> JudgedGoal:
    """Return the goal that the child is to have, held against what the run above may do."""
    above, run = _above(order, driver), driver.facts.settings
    _must_not_be_too_deep(driver)
    asked = {"uses": order.input.get("uses"), "params": order.input.get("params") or {}}
    content = f"{json.dumps(asked, indent=2, ensure_ascii=False)}\n".encode()
    shown, origin = f"{run.run}, step {order.step}", f"step {order.step} of {run.run}"
    world = driver.world
    try:
        used = with_used_goal(GoalSource(content, paths.REQUEST, shown, origin, above=above), world.workspace)
        settings = _settings_under(run, world.settings)
        catalogue = catalogue_of(settings, world.environment, world.known)
        planner = has_model(settings.planner, world.environment)
        return judge_goal(used, world.workspace, settings, catalogue, planner=planner, hide=world.mask.text)
    except AgentfsError as error:
        message = f"{asked['uses']} cannot be run: {_words(error)}"
        raise Impossible(Failure(kind="input", message=message, hint=_hint(error))) from None


def _above(order: Order, driver: Driver) -> AboveChild:
    run, state, spent = driver.facts.settings, driver.state, driver.budget.spent
    bounds = state.bounds
    left = Limits(
        replans=max(0, bounds.replans - state.calls.replans),
        attempts=bounds.attempts,
        parallel=bounds.parallel,
        steps=bounds.steps,
        requests=max(0, bounds.requests - spent.requests),
        tokens=max(0, bounds.tokens - spent.tokens),
        cost_usd=max(0.0, bounds.cost_usd - spent.cost_usd),
        minutes=max(0.0, seconds_left(bounds, state.spent, state.calls_spent) / 60),
        items=bounds.items,
        output_bytes=bounds.output_bytes,
    )
    workdir = confine(driver, ()).workdir
    return AboveChild(_parent(order, driver), run.approve, workdir, left, run.isolation is not None)


def _must_not_be_too_deep(driver: Driver) -> None:
    if len([*_ancestors(driver)]) >= DEEPEST:
        hint = "let one of them do what it uses others for"
        message = f"runs in runs go at most {DEEPEST} deep"
        raise Impossible(Failure(kind="input", message=message, hint=hint))


def _ancestors(driver: Driver) -> Iterator[Run]:
    """Yield the runs that a run is in, the nearest first."""
    run = driver.facts.run
    while run.parent is not None and paths.is_run_id(run.parent.run):
        try:
            run = run_record(_runs(driver) / run.parent.run)
        except (OSError, ValueError):
            return
        yield run


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────


def finish(step: str, attempt: int, driver: Driver) -> None:
    """Let an attempt end as the run has that it was; the step's own checks decide, as for any tool."""
    known = driver.facts.attempt(step, attempt)
    order, child = known.order, known.child
    if child is None:
        return
    given, worked_s = _child_result(child, driver)
    if order is None:
        lost = Failure(
            kind="lost", message=f"the order of {step} is gone, so nobody can say what {child.run} was for"
        )
        blank = driver.cut_off(step, known)
        failed = blank.model_copy(
            update={"status": "failed", "error": lost, "usage": given.usage, "child": child.run}
        )
        driver.learn(driver.publish(failed))
        return
    key = JobKey("attempt", step, attempt)
    driver.submit(key, partial(_finish, order=order, given=given, worked_s=worked_s, driver=driver))


def _child_result(child: Child, driver: Driver) -> tuple[ToolResult, float]:
    """Return what a run that has ended gives to the step that it was, and how long it worked."""
    if child.outcome is None:
        words = f"the run {child.run} is gone: its folder was moved or deleted before it ended"
        hint = f"put it back, or: agentfs retry {driver.facts.run.run} STEP begins another"
        return ToolResult(failure=Failure(kind="lost", message=words, hint=hint), child=child.run), 0.0
    return as_result(child.run, child.outcome, driver), _seconds(child.run, driver)


def _seconds(child: str, driver: Driver) -> float:
    """Return how long a run has worked: waiting for a person is free."""
    try:
        facts = reader_for(_runs(driver) / child, driver.world.settings, patient=False).read()
        state = derive(facts, means_of(facts.run, means_with({})))
    except (OSError, ValueError, AgentfsError):
        return 0.0
    return state.bounds.minutes * 60 - seconds_left(state.bounds, state.spent, state.calls_spent)


def as_result(run: str, outcome: Outcome, driver: Driver) -> ToolResult:
    """Return what an outcome is to the step that the run was: a run that was cancelled has failed."""
    usage = _usage(outcome)
    if outcome.status == "done":
        return ToolResult(output=outcome.answer, usage=usage, child=run)
    above = driver.facts.plan is not None and driver.facts.plan.status == "cancelled"
    kind = "cancelled" if outcome.status == "cancelled" and above else "run"
    word = "was cancelled" if outcome.status == "cancelled" else "failed"
    failure = Failure(
        kind=kind, message=f"the run {run} {word}: {reason(outcome.summary)}", hint=f"agentfs show {run}"
    )
    return ToolResult(failure=failure, usage=usage, child=run)


def _usage(outcome: Outcome) -> Usage | None:
    return total_usage("executor", [one for one in (outcome.usage.planner, outcome.usage.executor) if one])


def _finish(job: Job, order: Order, given: ToolResult, worked_s: float, driver: Driver) -> Report:
    if given.usage:
        driver.budget.spent = driver.budget.spent.plus_usage(given.usage)
    with in_folder(order, driver, job) as keeping:
        task = task_for(order, driver, keeping)
        return AttemptFinished(finish_answered(task, given, attempt_context(task, driver, job), worked_s), order)


def _runs(driver: Driver) -> Path:
    return driver.folder.parents[1]


def _parent(order: Order, driver: Driver) -> Parent:
    return Parent(run=driver.facts.run.run, step=order.step, attempt=order.attempt)


def _note(event: str, fields: Mapping[str, str], order: Order, driver: Driver) -> None:
    """Append a line to an attempt's log, on the disk before anything rests on it."""
    log = AttemptLog(driver.steps_folder, order, driver.world.mask, driver.world.clock)
    log.reopen()
    try:
        log.write(event, fields)
        log.sync()
    finally:
        log.close()


def _settings_under(run: Run, settings: Settings) -> Settings:
    """Return the settings of a child: its tools may touch no more than those of the run above."""
    tools = {name: getattr(run, name) for name in ("network", "sandbox", "read", "env", "hosts")}
    own = settings.tools.model_copy(update={"allow": run.tools, **tools})
    return settings.model_copy(update={"tools": own})


def _words(error: AgentfsError) -> str:
    if isinstance(error, BadFile):
        return "; ".join(one.shown(error.file) for one in error.problems)
    return str(error)


def _hint(error: AgentfsError) -> str | None:
    return error.advice or None if isinstance(error, BadFile) else None
