"""Run the checks of a goal: those a model wrote, before the work; all of them, and those of its steps, at the end."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from agentfs.core import actions as acts
from agentfs.core import paths
from agentfs.core.excerpts import TimeLimit, as_text
from agentfs.core.facts import ChecksFinished, Nothing, Report
from agentfs.core.hashing import check_value
from agentfs.core.outcome import answer_of
from agentfs.core.proof import (
    Changes,
    Gather,
    Piece,
    acceptance_checks,
    check_sha256,
    is_named,
    no_evidence,
    persons_checks,
    steps_to_check,
    written_by_models,
)
from agentfs.core.records import (
    Check,
    CheckResult,
    CommandCheck,
    Failure,
    GoalChecks,
    ResolvedCheck,
    ResolvedCommandCheck,
    Step,
    StepChecks,
)
from agentfs.core.resolve import Resolved
from agentfs.core.steps import LIMIT, UNREACHABLE
from agentfs.engine.attempts import outputs_of, resolve, spoiled_files, step_context, using_folder, with_model
from agentfs.engine.driver import Driver, Job
from agentfs.executor.attempt import render
from agentfs.executor.checks import is_small
from agentfs.executor.evidence import (
    NOT_PUT_BACK,
    SPOILED,
    changes_in,
    changes_in_order,
    changes_piece,
    file_pieces,
    output_piece,
    snapshot,
    tool_pieces,
    watched_by,
)
from agentfs.executor.task import failure_of
from agentfs.models.base import ModelError
from agentfs.planner.acceptance import file_names
from agentfs.storage.files import JsonLines, publish
from agentfs.storage.timing import TIMING
from agentfs.tools.base import StepContext

# What is put into a file that is not there yet, to see whether a check looks at it; a sum over the wrong column is 0.
_IN_IT = {"": "whatever is in it", "-\n": "whatever is in it", "0\n": "with nothing but 0 in it"}


# ── before the work ───────────────────────────────────────────────────────────────────────────────────────


def look_before(
    call: int, driver: Driver, job: Job, checks: Sequence[Check], *, as_checks: bool = True
) -> tuple[CheckResult | None, ...]:
    """Run checks before the work: the working folder is read-only, and there is no network."""
    context = step_context(driver, job.stop, f"{paths.call_conversation(call)}{paths.BEFORE}")
    if context.confinement.sandbox == "none":
        return tuple(None for _ in checks)  # a model wrote them, and nothing would confine them
    read_only = replace(context.confinement, writable=False, network=False)
    aside = replace(context, confinement=read_only)
    return tuple(_found_before(check, aside, as_check=as_checks) for check in checks)


def _found_before(check: Check, context: StepContext, *, as_check: bool) -> CheckResult:
    limit = TimeLimit(TIMING.check_before, "check")
    until = replace(context, deadline=context.now() + limit.seconds, limit=limit)
    resolved = ResolvedCommandCheck(kind="command", run=check.run) if isinstance(check, CommandCheck) else check
    alone = replace(until, read_only_checks=frozenset((check_sha256(check),)))
    found = context.observer.check((resolved,), alone, None, no_evidence)[0]
    if found.ok or not as_check or not isinstance(check, CommandCheck):
        return found
    missing = [name for name in file_names(check.run) if not (context.confinement.workdir / name).exists()]
    return _found_with(missing, check, until) or found


def _found_with(missing: Sequence[str], check: CommandCheck, context: StepContext) -> CheckResult | None:
    """Return that a check holds once the files it names are there, with next to nothing in them."""
    if not missing or not is_small(context.confinement.workdir):
        return None
    for content, words in _IN_IT.items():
        put = "; ".join(
            f"mkdir -p {quote(os.path.dirname(name) or '.')}; printf %s {quote(content)} > {quote(name)}"
            for name in missing
        )
        mutant = ResolvedCommandCheck(kind="command", run=f"{put}; sh -c {quote(check.run)}")
        alone = replace(context, read_only_checks=frozenset((check_sha256(mutant),)))
        if context.observer.check((mutant,), alone, None, no_evidence)[0].ok:
            detail = f"it holds as soon as {missing[0]} is there, {words}"
            return CheckResult(kind="command", ok=True, detail=detail, run=check.run)
    return None


# ── at the end ────────────────────────────────────────────────────────────────────────────────────────────


def check_goal(action: acts.RunGoalChecks, driver: Driver) -> None:
    """Run the goal's checks, and those of steps that can be run again; what they found is written down."""

    def work(job: Job) -> Report:
        with using_folder("writes", driver, job):
            return _check(action, driver, job)

    driver.submit(acts.JobKey("checks", "", action.call), work)


def _check(action: acts.RunGoalChecks, driver: Driver, job: Job) -> Report:
    state = driver.state
    log = driver.folder / paths.PLANNING / paths.checks_log_file(action.call)
    whose = f"{paths.call_conversation(action.call)}.checks"
    context = step_context(driver, job.stop, whose)
    with JsonLines(log, context.mask, context.clock) as lines:
        context = replace(context, log=lines.write, read_only_checks=written_by_models(state.facts))
        context = with_model(context, None, driver)
        found, error = _run_goal_checks(driver, context)
        if spoiled := spoiled_files(whose, driver):
            lines.write(SPOILED, {"files": [*spoiled]})
            words = f"{NOT_PUT_BACK}: {', '.join(map(os.path.basename, spoiled))}"
            found = (*found, CheckResult(kind="file", ok=False, detail=words))
        again = tuple(_found_again(step, driver, context) for step in steps_to_check(state)) if not error else ()
    record = driver.world.mask.record(
        GoalChecks(
            revision=len(state.facts.revisions),
            after={step: view.attempt for step, view in state.steps.items()},
            checks=found,
            steps=again,
            touched=context.observer.see("touched", whose, lambda: tuple(find_touched(driver, context))),
            error=error,
            usage=context.session.usage if context.session else None,
        )
    )
    if job.stop.is_set() and not error:  # what was found says nothing then
        return Nothing()
    publish(driver.folder / paths.PLANNING / paths.call_file(action.call, "checks"), render(record), durable=True)
    return ChecksFinished(action.call, record)


def _resolve(step: Step, driver: Driver) -> tuple[ResolvedCheck, ...] | str:
    """Return the checks of a step with values in place of references, or why there are none."""
    resolved = resolve(step, driver, outputs_of(driver))
    return resolved.checks if isinstance(resolved, Resolved) else resolved.why


def _run_goal_checks(driver: Driver, context: StepContext) -> tuple[tuple[CheckResult, ...], Failure | None]:
    """Return what the goal's checks found, or why a judge could not be asked; one that gives no verdict says no."""
    checks = _resolve(Step(id="goal", checks=acceptance_checks(driver.facts)), driver)
    if isinstance(checks, str):
        return (CheckResult(kind="command", ok=False, detail=checks),), None
    try:
        return context.observer.check(checks, context, answer_of(driver.state), _gather(driver, context)), None
    except ModelError as error:
        failure = failure_of(error, context)
        if failure.kind in (LIMIT, UNREACHABLE):
            return (), failure
        return (CheckResult(kind="judge", ok=False, detail=f"it could not be judged: {failure.message}"),), None


def _found_again(step: Step, driver: Driver, context: StepContext) -> StepChecks:
    checks = _resolve(step, driver)
    if isinstance(checks, str):  # what it used has gone with a step that left the plan
        gone = CheckResult(kind="command", ok=False, detail=f"it cannot be run again: {checks}")
        return StepChecks(step=step.id, checks=(gone,))
    aside = replace(context, name=f"{context.name}.{step.id}")
    return StepChecks(step=step.id, checks=context.observer.check(checks, aside, None, no_evidence))


def _gather(driver: Driver, context: StepContext) -> Gather:
    """Return what collects the evidence about a whole run: every done step, and what became of the folder."""
    state = driver.state
    done = [view for view in state.steps.values() if view.status == "done" and view.result]
    logs = {view.id: _log(driver, view.id, view.attempt) for view in done}

    def gather(condition: str) -> list[Piece]:
        texts = [condition, driver.facts.goal.text]
        texts += [as_text(check_value(check)) for check in acceptance_checks(driver.facts)]
        answer = answer_of(state)
        pieces = [output_piece(answer, "The answer of the run")] if answer is not None else []
        for view in done:
            output = view.result.output if view.result else None
            if len(done) > 1 and output is not None:
                pieces.append(output_piece(output, f"The output of the step {view.id}"))
            pieces += tool_pieces(logs[view.id], f"What the tools of {view.id} returned")
        return [*pieces, *file_pieces(texts, context), *changes_piece(_changes(driver))]

    return gather


def _log(driver: Driver, step: str, attempt: int) -> Path:
    return driver.folder / paths.STEPS / paths.step_file(step, attempt, "log")


def _changes(driver: Driver) -> Changes:
    """Return what all attempts of the run changed."""
    logs = (_log(driver, step, one.number) for step, attempts in driver.facts.attempts.items() for one in attempts)
    found = [changes_in(log) for log in logs]
    return Changes(
        *(
            tuple(dict.fromkeys(name for one in found for name in getattr(one, what)))
            for what in ("added", "changed", "removed")
        )
    )


def find_touched(driver: Driver, context: StepContext) -> Iterator[str]:
    """Yield the files that a person's checks name and that a step changed; of a folder also what was put into it."""
    checks, first, workdir = persons_checks(driver.state), _first_changes(driver), context.confinement.workdir
    if not checks or not first:
        return
    watched = watched_by(checks, context)
    own = {path for path, what in first.items() if what == "added"}
    had = [word for word in watched.names if any(f"{word}/{name}" not in own for name in snapshot(workdir / word))]
    for path in first:
        if watched.has_new(path) or is_named(path, had) if path in own else watched.has(path):
            yield path


def _first_changes(driver: Driver) -> dict[str, str]:
    """Return each file that attempts changed, and what became of it first: one that was added then is their own."""
    attempts = [(step, one) for step, listed in driver.facts.attempts.items() for one in listed]
    attempts.sort(key=lambda each: each[1].order.issued_at if each[1].order else "")
    found: dict[str, str] = {}
    for step, one in attempts:
        for what, path in changes_in_order(_log(driver, step, one.number)):
            found.setdefault(path, what)
    return found
