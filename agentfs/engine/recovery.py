"""Take over a run: end what a dead driver left running, and record what it left open."""

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentfs.agents.running import usage_in_log
from agentfs.core import paths
from agentfs.core.actions import JobKey
from agentfs.core.facts import Attempt, Claim, Facts, Nothing, PlannerCall, Report
from agentfs.core.hashing import sha256_bytes
from agentfs.core.records import Answer, Failure, Result, Usage
from agentfs.core.steps import UNKNOWN_KEY
from agentfs.engine.driver import Driver, Job
from agentfs.executor.attempt import render
from agentfs.executor.attempt_log import claim_in, marks_in
from agentfs.models.base import usage_in
from agentfs.places.relay import wait_for_orphan
from agentfs.storage.files import listing, publish, read_lines, read_whole
from agentfs.storage.plan_files import keep_beside
from agentfs.tools.process import end_survivors

_CUT = Failure(kind="interrupted", message="agentfs was ended before this attempt finished", cause="crash")


def take_over(driver: Driver) -> None:
    """Record how what a driver before this one left open has ended, and count what it asked of models.

    Nothing claims to run then that does not, but for what may still run at other places. The run's lock is held.
    """
    folder, facts = driver.folder, driver.facts
    sweep(folder, {revision.plan_sha256 for revision in facts.revisions}.union(*(one.tries for one in facts.calls)))
    for step, attempt in _left_open(facts):
        if claim_of(folder, step, attempt).place is None:
            finished = driver.publish(cut_off(driver, step, attempt)).result
            driver.facts = driver.facts.with_attempt(step, replace(attempt, result=finished))
    for one in facts.calls:
        if one.call is not None and one.answer is None:
            driver.facts = driver.facts.with_call(_interrupt_call(folder, one))
        if one.checks is not None and one.call is None and not one.again and facts.outcome is None:
            driver.facts = driver.facts.with_call(_set_aside_checks(folder, one))
    driver.derive()
    _take_over_orphans(driver)
    for usage in asked_of_models(folder, driver.facts):
        driver.budget.spent = driver.budget.spent.plus_usage(usage)
    driver.world.committer.note(folder)


def _left_open(facts: Facts) -> Iterator[tuple[str, Attempt]]:
    """Yield the attempts that were made and have not ended; one that waits goes on from its files."""
    for step, attempts in facts.attempts.items():
        for one in attempts:
            if one.is_unfinished and (one.claimed or one.torn) and not one.asks and not one.child:
                yield step, one


def claim_of(folder: Path, step: str, attempt: Attempt) -> Claim:
    """Return what an attempt's claim says: where it runs or ran. Without one it never began, anywhere."""
    return (
        claim_in(folder / paths.STEPS / paths.step_file(step, attempt.number, "log")) if attempt.claimed else Claim()
    )


def _take_over_orphans(driver: Driver) -> None:
    """Wait for attempts elsewhere whose driver is gone: they end themselves; then record that they were cut off."""
    since = driver.world.clock.monotonic()
    for step, attempt in _left_open(driver.facts):
        if place := claim_of(driver.folder, step, attempt).place:
            work = partial(_take_over_orphan, step, attempt, since, driver=driver)
            driver.submit(JobKey("attempt", step, attempt.number), work, pool=driver.world.calls, place=place)


def _take_over_orphan(step: str, attempt: Attempt, since: float, job: Job, driver: Driver) -> Report:
    if not wait_for_orphan(job.stop, since):
        return Nothing()
    claim = claim_of(driver.folder, step, attempt)
    lost = Failure(kind="interrupted", message=f"the attempt at {claim.place} was lost: its driver ended")
    more = {"error": lost, "place": claim.place, "host": claim.host}
    return driver.publish(cut_off(driver, step, attempt).model_copy(update=more), attempt.order)


def asked_of_models(folder: Path, facts: Facts) -> Iterator[Usage]:
    """Yield what the attempts that wait for a person have asked of models so far: no result says it yet."""
    for step, attempts in facts.attempts.items():
        for attempt in attempts:
            log = folder / paths.STEPS / paths.step_file(step, attempt.number, "log")
            if attempt.asks and (usage := usage_in(log)):
                yield usage


def sweep(folder: Path, ours: Collection[str]) -> None:
    """Remove temp files that a dead driver left; a plan among them that nobody has seen is kept beside plan.json."""
    for part in ("", paths.STEPS, paths.PLANNING, paths.REVISIONS):
        for name in listing(folder / part):
            if not name.startswith(".") or not name.endswith(".tmp") or _in_use(name):
                continue
            path = folder / part / name
            source = read_whole(path)
            if path.name.startswith(".plan.") and source and sha256_bytes(source) not in ours:
                keep_beside(folder, source)
            path.unlink(missing_ok=True)


def _in_use(name: str) -> bool:
    """Whether a living process other than this one is writing it: a command beside us, which takes no lock."""
    pid = next((part for part in name.split(".") if part.isdigit()), "")
    return bool(pid) and int(pid) != os.getpid() and os.path.exists(f"/proc/{pid}")


def cut_off(driver: Driver, step: str, attempt: Attempt) -> Result:
    """End what is left of an attempt and return its result: nobody knows how far it came.

    A claim is an attempt that was made, whatever else of it is missing.
    """
    log, state = driver.folder / paths.STEPS / paths.step_file(step, attempt.number, "log"), driver.state
    if attempt.claimed:
        for mark in marks_in(log):
            end_survivors(mark)
    order, view, now = attempt.order, state.view(step), driver.world.clock.stamp()
    claimed_key = attempt.claim.key if attempt.claim else None
    return Result(
        run=state.facts.run.run,
        step=step,
        attempt=attempt.number,
        revision=order.revision if order else max(1, len(state.facts.revisions)),
        key=order.key if order else claimed_key or UNKNOWN_KEY,
        after=order.after if order else dict(view.after if view else {}),
        status="interrupted",
        error=_CUT,
        sandbox=driver.world.sandbox,
        usage=usage_in(log) or usage_in_log([*read_lines(log)]),
        started_at=(order.issued_at if order else now) if attempt.claimed else None,
        ended_at=now,
        duration_s=0.0,
    )


def _set_aside_checks(folder: Path, one: PlannerCall) -> PlannerCall:
    """Set aside what the goal's checks found: nobody was looking, and the folder may have changed since."""
    words = b"agentfs was started again since these checks were run: they are run once more\n"
    publish(folder / paths.PLANNING / paths.call_file(one.number, "again"), words, durable=True)
    return replace(one, again=True)


def _interrupt_call(folder: Path, one: PlannerCall) -> PlannerCall:
    usage = usage_in(folder / paths.PLANNING / paths.call_file(one.number, "log"))
    answer = Answer(call=one.number, verdict="interrupted", error=_CUT, usage=usage, duration_s=0.0)
    publish(folder / paths.PLANNING / paths.call_file(one.number, "answer"), render(answer), durable=True)
    return replace(one, answer=answer)
