"""Write orders and have them carried out: what a step becomes when it may run."""

import contextlib
import json
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.excerpts import TimeLimit, check_words, hints_of, joined
from agentfs.core.facts import ASK, Facts, Talk
from agentfs.core.proof import acceptance_checks, check_sha256, held_before, persons_checks, planners_checks
from agentfs.core.records import Failure, JudgeCheck, Order, Result, Run, Step
from agentfs.core.resolve import Output, Resolved, resolve_step, room_of_step
from agentfs.core.steps import StepView, retry_wait
from agentfs.engine.driver import Driver, Job, News, World
from agentfs.engine.model_context import desk_for
from agentfs.executor.asking import next_question, put_question
from agentfs.executor.attempt import (
    Doubts,
    Workshop,
    asks_a_model,
    attempt,
    publish_result,
    render,
    resume,
    settled,
    unstarted,
)
from agentfs.executor.desk import Accept, Asked, Desk
from agentfs.executor.evidence import left_spoiled, no_evidence, protected_files, snapshot
from agentfs.executor.log import AlreadyClaimed, AttemptLog
from agentfs.executor.questions import gate
from agentfs.executor.rebuilding import remembered
from agentfs.storage.files import temp_name
from agentfs.tools.base import Bench, Confinement, Preparable, ToolResult
from agentfs.tools.sandbox import readable_path
from agentfs.tools.secrets import given_secrets
from agentfs.tools.text_tools import Note

DEFAULT_TIMEOUT = 600.0
CHECK_SECONDS = 120.0


def order_for(view: StepView, number: int, driver: Driver) -> Order:
    """Return the order of a step that could run now."""
    step, facts = view.step, driver.facts
    if view.key is None or view.resolved is None:
        raise RuntimeError(f"{view.id} has no order yet: {view.why}")
    resolved = _with_real_paths(view, driver)
    return Order(
        run=facts.run.run,
        step=step.id,
        attempt=number,
        revision=len(facts.revisions),
        key=view.key,
        after=dict(view.after),
        description=step.description,
        tool=step.tool,
        input=resolved.input,
        tools=step.tools,
        model=step.model,
        success_condition=step.success_condition,
        checks=resolved.checks,
        expects=step.expects,
        timeout_s=step.timeout_s or DEFAULT_TIMEOUT,
        repeatable=driver.state.around.repeatable(step) if driver.state.around else False,
        issued_at=driver.world.clock.stamp(),
    )


def _with_real_paths(view: StepView, driver: Driver) -> Resolved:
    """The key speaks of paths in the run's folder, so that a run can be moved; a program needs whole ones."""
    if view.resolved is None:
        raise RuntimeError("resolved before ordered")
    if not view.resolved.files:
        return view.resolved
    room = room_of_step(driver.state.bounds.output_bytes, len(driver.state.steps))
    resolved = resolve_step(view.step, outputs_of(driver), driver.facts.goal.text, room)
    return resolved if isinstance(resolved, Resolved) else view.resolved


def issue(view: StepView, driver: Driver) -> None:
    """Write the order, then have it carried out; a step with `needs` first has to pass them."""
    order = order_for(view, view.next, driver)
    if view.resolved and view.resolved.needs:
        driver.submit(("attempt", view.id, view.next), lambda job: _after_needs(view, order, driver, job))
        return
    _publish_order(order, driver)
    _carry_out(order, driver)


def _publish_order(order: Order, driver: Driver) -> None:
    name = paths.step_file(order.step, order.attempt, "order")
    driver.shelf.put(name, render(order), durable=False)  # derivable again: no fsync


def start(view: StepView, driver: Driver) -> None:
    """Take an order that is there, no matter which process wrote it."""
    order = driver.facts.attempt(view.id, view.attempt).order
    if order is not None:
        _carry_out(order, driver)


def _carry_out(order: Order, driver: Driver) -> None:
    if order.tool == ASK:
        _put_question(order, driver)
        return
    key, at_once = ("attempt", order.step, order.attempt), driver.alone and _takes_no_time(order, driver)
    driver.submit(key, lambda job: _attempted(order, driver, job), at_once=at_once)
    if not at_once:  # else the order comes with its result
        known = replace(driver.facts.attempt(order.step, order.attempt), order=order)
        driver.facts = driver.facts.with_attempt(order.step, known)


def _takes_no_time(order: Order, driver: Driver) -> bool:
    """Whether handing an attempt to another thread would take longer than the attempt."""
    tool = driver.world.tools.get(order.tool or "")
    return isinstance(tool, Note) and not order.checks and order.expects is None


def _put_question(order: Order, driver: Driver) -> None:
    """Carry out an `ask`: claim it and write the question; the answer settles it, however long that takes."""
    shop = workshop(driver, ())
    log = AttemptLog(shop.shelf, order, shop.mask, shop.clock)
    try:
        log.claim(None)
    except AlreadyClaimed:
        driver.look_again()
        return
    finally:
        log.close()
    count = next_question(order, shop.shelf)
    put_question(order, str(order.input.get("question", "")), count, shop.shelf, shop.mask)
    driver.facts = _waiting(order, count)(driver.facts)


def _waiting(order: Order, count: int) -> News:
    """Return the news that an attempt waits with a question."""

    def news(facts: Facts) -> Facts:
        known = facts.attempt(order.step, order.attempt)
        talks = (*known.talks, Talk(count, ask=True))
        return facts.with_attempt(order.step, replace(known, order=order, claimed=True, talks=talks))

    return news


def take_answer(view: StepView, reply: str, driver: Driver) -> None:
    """Settle an `ask` with what the person wrote, or let the model that asked go on; the checks decide either way."""
    attempt = driver.facts.attempt(view.id, view.attempt)
    order = attempt.order
    if order is None:
        return
    if order.tool is None:
        talks = (*attempt.talks[:-1], replace(attempt.talks[-1], taken=True))
        driver.facts = driver.facts.with_attempt(view.id, replace(attempt, talks=talks))

    def work(job: Job) -> News:
        files = _files_of(order, driver)
        shop = workshop(driver, files, order)
        if order.tool is None:
            return _came_to(resume(order, reply, shop, job.stop), order, driver)
        return _came_to(settled(order, ToolResult(output=reply.strip("\r\n")), shop, job.stop), order, driver)

    driver.submit(("attempt", order.step, order.attempt), work)


def cut_while_waiting(order: Order, error: Failure, driver: Driver) -> Result:
    """Return the result of an attempt that waited for a person and is no longer wanted."""
    memory = remembered(driver.folder / paths.STEPS / paths.step_file(order.step, order.attempt, "log"))
    blank = unstarted(order, "interrupted", error, driver.world.clock, driver.world.sandbox)
    if memory is None:  # a step that only asked: nothing was begun
        return blank
    return blank.model_copy(
        update={"started_at": memory.started_at, "duration_s": memory.seconds, "usage": memory.usage}
    )


def _attempted(order: Order, driver: Driver, job: Job) -> News:
    files = _files_of(order, driver)
    try:
        came_to = attempt(order, workshop(driver, files, order), job.stop)
    except AlreadyClaimed:
        return lambda facts: facts.with_attempt(
            order.step, replace(facts.attempt(order.step, order.attempt), order=order, claimed=True)
        )

    return _came_to(came_to, order, driver)


def _came_to(came_to: Result | Asked, order: Order, driver: Driver) -> News:
    """Return the news of an attempt: its result, or that it waits with a question."""

    def news(facts: Facts) -> Facts:
        if isinstance(came_to, Asked):
            driver.look_again()  # a reply that came at once was not looked at while the attempt was under way
            return _waiting(order, came_to.count)(facts)
        known = facts.attempt(order.step, order.attempt)
        return facts.with_attempt(order.step, replace(known, order=order, claimed=True, result=came_to))

    return news


def _files_of(order: Order, driver: Driver) -> tuple[str, ...]:
    """Return the steps whose whole output this order refers to by path."""
    view = driver.state.steps.get(order.step)
    return view.resolved.files if view and view.resolved else ()


def _after_needs(view: StepView, order: Order, driver: Driver, job: Job) -> News:
    """Carry out an order once the step's `needs` hold."""
    if (unready := _unready(view, order, driver, job, paths.NEEDS)) is not None:
        return unready
    _publish_order(order, driver)
    return _attempted(order, driver, job)


def ask_gate(view: StepView, driver: Driver) -> None:
    """Put a gate's question; what the step needs is looked at before a person is asked."""
    order = order_for(view, view.next, driver)
    if not (view.resolved and view.resolved.needs):
        driver.facts = _put_gate(view, order, driver)(driver.facts)
        return

    def work(job: Job) -> News:
        unready = _unready(view, order, driver, job, paths.GATE_NEEDS)
        return unready if unready is not None else _put_gate(view, order, driver)

    driver.submit(("gate", view.id, view.next), work)


def _put_gate(view: StepView, order: Order, driver: Driver) -> News:
    """Write the question of a gate, and return the news that it stands."""
    count = len(driver.facts.attempt(view.id, order.attempt).talks) + 1
    text = gate(order, paths.step_file(view.id, order.attempt, "reply", count), view.result, view.step.why)
    driver.shelf.put(paths.step_file(view.id, order.attempt, "question", count), text.encode(), durable=True)

    def news(facts: Facts) -> Facts:
        attempt = facts.attempt(view.id, order.attempt)
        known = tuple(talk for talk in attempt.talks if talk.count < count)
        return facts.with_attempt(view.id, replace(attempt, talks=(*known, Talk(count, order.key))))

    return news


def _unready(view: StepView, order: Order, driver: Driver, job: Job, suffix: str) -> News | None:
    """Run a step's `needs`: one fails, and it is blocked, with a result and no order. None: all hold."""
    shop = workshop(driver, ())
    needs = view.resolved.needs if view.resolved else ()
    whose = f"{paths.conversation(view.id, order.attempt)}{suffix}"
    found = shop.check(needs, bench_for_checks(shop, driver, job, whose), None, no_evidence)
    if job.stop.is_set():  # what was found says nothing then
        return lambda facts: facts
    if all(check.ok for check in found):
        return None
    wrong = [check for check in found if not check.ok]
    words = joined(check_words(check) for check in wrong)
    error = Failure(kind="needs", message=f"what it needs is missing: {words}", hint=hints_of(wrong))
    blank = unstarted(order, "blocked", error, driver.world.clock, driver.world.sandbox)
    result = publish_result(blank.model_copy(update={"checks": found}), shop.shelf, shop.mask)
    return lambda facts: facts.with_attempt(view.id, replace(facts.attempt(view.id, order.attempt), result=result))


def outputs_of(driver: Driver) -> dict[str, Output]:
    """Return the outputs that count now, each with the whole path of its file."""
    return {
        view.id: Output(view.result.output, view.result.cut, _shown_to_tools(_output_path(view, driver), driver))
        for view in driver.state.steps.values()
        if view.status == "done" and view.result
    }


def _shown_to_tools(path: Path, driver: Driver) -> str:
    """Return a path as an order has it: whole, or as seen from the working folder where the whole is not UTF-8."""
    whole = str(path)
    if whole.encode("utf-8", "replace").decode() == whole:
        return whole
    return os.path.relpath(path, driver.folder / driver.facts.run.workdir)


def _output_path(view: StepView, driver: Driver) -> Path:
    return driver.folder / paths.STEPS / paths.step_file(view.id, view.attempt, "output")


def confine(driver: Driver, files: tuple[str, ...]) -> Confinement:
    """Return what the tools of this run may touch, and which outputs of other steps."""
    facts = driver.facts
    room = driver.rooms.get(facts.own_tools)
    if room is None:
        room = room_of(driver.folder, facts.settings, driver.world, own_steps=facts.goal.has_steps)
        driver.world = replace(driver.world, mask=driver.world.mask.also(given_secrets(facts.settings.env)))
        driver.rooms[facts.own_tools] = room
    if not files:
        return room
    outputs = tuple(_whole_output(driver.state.steps[name], driver) for name in files)
    return replace(room, readable=(*room.readable, *outputs))


def confine_model(room: Confinement, doubts: Doubts | None) -> Confinement:
    """Return a room in which what checks rest on is read-only."""
    more = tuple(Path(os.path.realpath(path)) for path in (doubts.protected if doubts else ()))
    return replace(room, protected=(*room.protected, *more)) if more else room


def get_ready(tools: Collection[str], world: World, room: Confinement) -> None:
    """Let tools that take their time to begin with begin before they are called."""
    for name in tools:
        tool = world.tools.get(name)
        if isinstance(tool, Preparable):
            tool.prepare(room)


def room_of(folder: Path, run: Run, world: World, *, own_steps: bool) -> Confinement:
    """Return what the tools of a run may touch. `own_steps`: they are a person's, not a model's."""
    workspace, own = Path(os.path.realpath(world.workspace)), Path(os.path.realpath(folder))
    return Confinement(
        workdir=own / run.workdir,  # run.json has its real path: it is held as that whenever something starts
        workspace=workspace,
        run_files=own / paths.FILES,
        readable=tuple(Path(readable_path(os.path.join(workspace, one))) for one in run.read),
        network=run.network,
        sandbox=world.sandbox,
        programs=world.sandbox != "none" or run.sandbox == "off" or own_steps,
        env={name: world.environment[name] for name in run.env if name in world.environment},
        protected=world.protected,
        hosts=run.hosts,
        run=f"{folder.parent.name}/{folder.name}",
    )


def _whole_output(view: StepView, driver: Driver) -> Path:
    """Return the file that holds a step's whole output; one that fitted into its result gets a file now."""
    path = _output_path(view, driver)
    if view.result and not view.result.cut and not path.exists():
        output = view.result.output
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        with contextlib.suppress(FileExistsError):  # two steps may ask for it at once
            driver.shelf.put(path.name, text.encode(), durable=True)
    return path


def workshop(driver: Driver, files: tuple[str, ...], order: Order | None = None) -> Workshop:
    """Return what one attempt of this run works with."""
    doubts = doubts_about(order, driver) if order else None
    return Workshop(
        shelf=driver.shelf,
        confinement=confine_model(confine(driver, files), doubts),
        tools=driver.world.tools,
        mask=driver.world.mask,
        clock=driver.world.clock,
        output_bytes=driver.state.bounds.output_bytes,
        desk=_desk(order, driver),
        check=driver.world.check,
        retry_wait_s=_retry_wait(order, driver) if order else 0.0,
        starter=driver.world.starter,
        watch=driver.world.watch,
        doubts=doubts,
    )


def _desk(order: Order | None, driver: Driver) -> Desk | None:
    if order is not None and not asks_a_model(order, driver.world.tools):
        return None
    return desk_for(order, driver, _acceptance(driver))


def _acceptance(driver: Driver) -> Accept | None:
    """Return what runs the plan's checks when a loop claims to be done; a judge is asked only at the end."""
    facts, written = driver.facts, held_before(driver.facts)
    own = tuple(check for check in acceptance_checks(facts) if not isinstance(check, JudgeCheck))
    if not own or facts.run.proof is None:
        return None
    workdir, runs = driver.folder.resolve() / facts.run.workdir, driver.world.workspace / "runs"
    before = snapshot(workdir, without=runs)

    def accept(bench: Bench, output: Any) -> list[str]:
        room = room_of_step(driver.state.bounds.output_bytes, 1)
        resolved = resolve_step(Step(id="goal", checks=own), {}, facts.goal.text, room)
        checks = resolved.checks if isinstance(resolved, Resolved) else ()
        aside = replace(bench, whose=f"{bench.whose}{paths.ACCEPT}", looks_only=frozenset(written))
        found = driver.world.check(checks, aside, output, no_evidence)
        bench.log("acceptance", {"checks": [one.model_dump(exclude_none=True) for one in found]})
        shown = [
            one if check_sha256(check) not in written else one.model_copy(update={"run": None})
            for check, one in zip(own, found, strict=False)
        ]
        wrong = [f"{one.kind}: {check_words(one)}" for one in shown if not one.ok]
        untouched = wrong and before == snapshot(workdir, without=runs)
        return [*wrong, "no file has been changed so far"] if untouched else wrong

    return accept


def doubts_about(order: Order, driver: Driver) -> Doubts | None:
    """Return what is looked at where a model has a part in an attempt; None: a tool does a person's own step."""
    facts = driver.facts
    if facts.run.proof is None or (order.tool is not None and facts.goal.has_steps):
        return None
    planned = planners_checks(facts) if order.tool is None else frozenset()
    view = driver.state.steps.get(order.step)
    own = zip((view.step.checks if view else None) or (), order.checks, strict=False)
    unproven = tuple(resolved for check, resolved in own if check_sha256(check) in planned)
    earlier = [one for one in facts.attempts.get(order.step, ()) if one.result and one.number != order.attempt]
    seen = [check for one in earlier if one.order and _began(one.result) for check in one.order.checks]
    persons = persons_checks(driver.state)
    return Doubts(
        names_in=(facts.goal.text,),
        unproven=unproven,
        unseen=tuple(check for check in unproven if check not in seen),
        held=frozenset(digest for one in earlier if one.result for digest in one.result.held_before),
        protect=facts.goal.protect,
        protected=protected_files(facts.goal.protect, persons, confine(driver, ()).workdir),
        persons=persons,
        spoiled=tuple(spoiled_files(paths.conversation(order.step, order.attempt), driver)),
    )


def spoiled_files(whose: str, driver: Driver) -> list[str]:
    """Return the protected files that an attempt of this run changed and nobody has put back."""
    guilty = (
        driver.folder / paths.STEPS / paths.step_file(step, one.number, "log")
        for step, attempts in driver.facts.attempts.items()
        for one in attempts
        if one.result and one.result.error and one.result.error.kind == "tampered"
    )
    return driver.world.watch.spoiled(whose, lambda: left_spoiled(guilty))


def _began(result: Result | None) -> bool:
    return result is not None and result.status in ("done", "failed")


def _retry_wait(order: Order, driver: Driver) -> float:
    """Return how long it is waited before another try, if this order fails."""
    view, around = driver.state.steps.get(order.step), driver.state.around
    if view is None or around is None:
        return 0.0
    return retry_wait(view.step, order.key, driver.facts.attempts.get(order.step, ()), around)


def bench_for_checks(shop: Workshop, driver: Driver, job: Job, whose: str) -> Bench:
    """Return a bench for checks that belong to no attempt: nothing to claim, no log of their own."""
    return Bench(
        confinement=shop.confinement,
        deadline=shop.clock.monotonic() + CHECK_SECONDS,
        stop=job.stop,
        output_bytes=shop.output_bytes,
        output_file=driver.folder / paths.STEPS / temp_name("check"),
        claim=lambda _mark: None,
        log=lambda _event, _fields: None,
        mask=shop.mask,
        whose=whose,
        now=shop.clock.monotonic,
        limit=TimeLimit(CHECK_SECONDS, "check"),
        starter=shop.starter,
    )
