"""Run the checks of a goal: those a model wrote, before the work; all of them, and those of its steps, at the end."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from agentfs.core import decide as acts
from agentfs.core import paths
from agentfs.core.excerpts import TimeLimit, as_text
from agentfs.core.hashing import check_value
from agentfs.core.outcome import answer_of
from agentfs.core.proof import acceptance_checks, check_sha256, persons_checks, steps_to_check, written_by_models
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
from agentfs.core.resolve import Resolved, resolve_step, room_of_step
from agentfs.core.steps import LIMIT, UNREACHABLE
from agentfs.engine.attempts import bench_for_checks, outputs_of, spoiled_files, workshop
from agentfs.engine.driver import Driver, Job, News
from agentfs.executor.attempt import Workshop, render
from agentfs.executor.checks import is_small
from agentfs.executor.evidence import (
    NOT_PUT_BACK,
    Changes,
    Gather,
    Piece,
    changes_in,
    changes_in_order,
    changes_piece,
    file_pieces,
    is_named,
    no_evidence,
    output_piece,
    snapshot,
    tool_pieces,
    watched_by,
)
from agentfs.models.base import ModelError, ModelSession
from agentfs.planner.acceptance import Look, file_names
from agentfs.storage.files import publish
from agentfs.storage.jsonl import JsonLines
from agentfs.tools.base import Bench

# What is put into a file that is not there yet, to see whether a check looks at it; a sum over the wrong column is 0.
_IN_IT = {"": "whatever is in it", "-\n": "whatever is in it", "0\n": "with nothing but 0 in it"}
BEFORE_SECONDS = 20.0  # that one check may take before the work: a model wrote it, and nobody has looked at it


# ── before the work ───────────────────────────────────────────────────────────────────────────────────────


def look_before(call: int, driver: Driver, job: Job) -> Look:
    """Return what runs checks before the work: the working folder is only shown, and there is no network."""

    def look(checks: Sequence[Check]) -> tuple[CheckResult | None, ...]:
        shop = workshop(driver, ())
        if shop.confinement.sandbox == "none":
            return tuple(None for _ in checks)  # a model wrote them, and nothing would confine them
        room = replace(shop.confinement, writable=False, network=False)
        bench = bench_for_checks(shop, driver, job, f"{paths.call_conversation(call)}{paths.BEFORE}")
        return tuple(_found_before(check, shop, replace(bench, confinement=room)) for check in checks)

    return look


def _found_before(check: Check, shop: Workshop, bench: Bench) -> CheckResult:
    until = replace(bench, deadline=bench.now() + BEFORE_SECONDS, limit=TimeLimit(BEFORE_SECONDS, "check"))
    resolved = ResolvedCommandCheck(kind="command", run=check.run) if isinstance(check, CommandCheck) else check
    alone = replace(until, looks_only=frozenset((check_sha256(check),)))
    found = shop.check((resolved,), alone, None, no_evidence)[0]
    if found.ok or not isinstance(check, CommandCheck):
        return found
    missing = [name for name in file_names(check.run) if not (shop.confinement.workdir / name).exists()]
    return _found_with(missing, check, shop, until) or found


def _found_with(missing: Sequence[str], check: CommandCheck, shop: Workshop, bench: Bench) -> CheckResult | None:
    """Return that a check holds once the files it names are there, with next to nothing in them."""
    if not missing or not is_small(shop.confinement.workdir):
        return None
    for content, words in _IN_IT.items():
        put = "; ".join(
            f"mkdir -p {quote(os.path.dirname(name) or '.')}; printf %s {quote(content)} > {quote(name)}"
            for name in missing
        )
        mutant = ResolvedCommandCheck(kind="command", run=f"{put}; sh -c {quote(check.run)}")
        alone = replace(bench, looks_only=frozenset((check_sha256(mutant),)))
        if shop.check((mutant,), alone, None, no_evidence)[0].ok:
            detail = f"it holds as soon as {missing[0]} is there, {words}"
            return CheckResult(kind="command", ok=True, detail=detail, run=check.run)
    return None


# ── at the end ────────────────────────────────────────────────────────────────────────────────────────────


def check_goal(action: acts.RunGoalChecks, driver: Driver) -> None:
    """Run the goal's checks, and those of steps that can be run again; what they found is written down."""
    driver.submit(("checks", "", action.call), lambda job: _checked(action, driver, job))


def _checked(action: acts.RunGoalChecks, driver: Driver, job: Job) -> News:
    state, shop = driver.state, workshop(driver, ())
    log = driver.folder / paths.PLANNING / paths.checks_log_file(action.call)
    whose = f"{paths.call_conversation(action.call)}.checks"
    with JsonLines(log, shop.mask, shop.clock) as said:
        bench = bench_for_checks(shop, driver, job, whose)
        line = ModelSession(said.write, driver.meter, job.stop, bench.deadline, driver.hears(whose), name=whose)
        written = written_by_models(state.facts)
        bench = replace(bench, model=driver.world.executor(state.facts.run, None), line=line, looks_only=written)
        found, error = _found(driver, shop, bench)
        if spoiled := spoiled_files(whose, driver):
            words = f"{NOT_PUT_BACK}: {', '.join(map(os.path.basename, spoiled))}"
            found = (*found, CheckResult(kind="file", ok=False, detail=words))
        again = tuple(_found_again(step, driver, shop, bench) for step in steps_to_check(state)) if not error else ()
    record = driver.world.mask.record(
        GoalChecks(
            revision=len(state.facts.revisions),
            after={step: view.attempt for step, view in state.steps.items()},
            checks=found,
            steps=again,
            touched=driver.world.watch.touched(action.call, lambda: tuple(touched(driver, bench))),
            error=error,
            usage=line.usage,
        )
    )
    if job.stop.is_set() and not error:  # what was found says nothing then
        return lambda facts: facts
    publish(driver.folder / paths.PLANNING / paths.call_file(action.call, "checks"), render(record), durable=True)
    return lambda facts: facts.with_call(replace(facts.planner_call(action.call), checks=record))


def _resolved(step: Step, driver: Driver) -> tuple[ResolvedCheck, ...] | str:
    """Return the checks of a step with values in place of references, or why there are none."""
    room = room_of_step(driver.state.bounds.output_bytes, 1)
    resolved = resolve_step(step, outputs_of(driver), driver.facts.goal.text, room)
    return resolved.checks if isinstance(resolved, Resolved) else resolved.why


def _found(driver: Driver, shop: Workshop, bench: Bench) -> tuple[tuple[CheckResult, ...], Failure | None]:
    """Return what the goal's checks found, or why a judge could not be asked; one that gives no verdict says no."""
    checks = _resolved(Step(id="goal", checks=acceptance_checks(driver.facts)), driver)
    if isinstance(checks, str):
        return (CheckResult(kind="command", ok=False, detail=checks),), None
    try:
        return shop.check(checks, bench, answer_of(driver.state), _gather(driver, bench)), None
    except ModelError as error:
        from agentfs.executor.ends import failure_of

        failure = failure_of(error, bench)
        if failure.kind in (LIMIT, UNREACHABLE):
            return (), failure
        return (CheckResult(kind="judge", ok=False, detail=f"it could not be judged: {failure.message}"),), None


def _found_again(step: Step, driver: Driver, shop: Workshop, bench: Bench) -> StepChecks:
    checks = _resolved(step, driver)
    if isinstance(checks, str):  # what it used has gone with a step that left the plan
        gone = CheckResult(kind="command", ok=False, detail=f"it cannot be run again: {checks}")
        return StepChecks(step=step.id, checks=(gone,))
    aside = replace(bench, whose=f"{bench.whose}.{step.id}")
    return StepChecks(step=step.id, checks=shop.check(checks, aside, None, no_evidence))


def _gather(driver: Driver, bench: Bench) -> Gather:
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
        return [*pieces, *file_pieces(texts, bench), *changes_piece(_changes(driver))]

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


def touched(driver: Driver, bench: Bench) -> Iterator[str]:
    """Yield the files that a person's checks name and that a step changed; of a folder also what was put into it."""
    checks, first, workdir = persons_checks(driver.state), _first_changes(driver), bench.confinement.workdir
    if not checks or not first:
        return
    watched = watched_by(checks, bench)
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
