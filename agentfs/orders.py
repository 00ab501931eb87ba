"""Write orders and have them carried out: what a step becomes when it may run."""

import contextlib
import json
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from agentfs.core import decide as acts
from agentfs.core import names
from agentfs.core.facts import ASK, Facts, Talk
from agentfs.core.failures import TimeLimit, check_words, hints_of, joined
from agentfs.core.records import CheckResult, Failure, GoalChecks, Order, ResolvedCheck, Result, Run, Step
from agentfs.core.references import Output, Resolved, resolve_step, room_of_step
from agentfs.core.steps import LIMIT, UNREACHABLE, StepView, retry_wait
from agentfs.desks import desk_for, final_outputs
from agentfs.disk import publish, temp_name
from agentfs.engine import Driver, Job, News, World
from agentfs.executor.asking import next_question, put_question
from agentfs.executor.attempt import (
    Workshop,
    asks_a_model,
    attempt,
    publish_result,
    render,
    resume,
    settled,
    unstarted,
)
from agentfs.executor.desk import Asked
from agentfs.executor.log import AlreadyClaimed, AttemptLog
from agentfs.executor.rebuilding import remembered
from agentfs.jsonlines import JsonLines
from agentfs.models.errors import ModelError
from agentfs.models.line import Line
from agentfs.questions import gate
from agentfs.tools.base import Bench, Confinement, Preparable, ToolResult
from agentfs.tools.note import Note
from agentfs.tools.sandbox import readable_path
from agentfs.tools.secrets import given_secrets

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
    resolved = resolve_step(view.step, _outputs(driver), driver.facts.goal.text, room)
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
    name = names.step_file(order.step, order.attempt, "order")
    driver.shelf.put(name, render(order), durable=False)  # derivable again: no fsync


def start(view: StepView, driver: Driver) -> None:
    """Take an order that stands, whoever wrote it."""
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
    memory = remembered(driver.folder / names.STEPS / names.step_file(order.step, order.attempt, "log"))
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
    if (unready := _unready(view, order, driver, job, names.NEEDS)) is not None:
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
        unready = _unready(view, order, driver, job, names.GATE_NEEDS)
        return unready if unready is not None else _put_gate(view, order, driver)

    driver.submit(("gate", view.id, view.next), work)


def _put_gate(view: StepView, order: Order, driver: Driver) -> News:
    """Write the question of a gate, and return the news that it stands."""
    count = len(driver.facts.attempt(view.id, order.attempt).talks) + 1
    text = gate(order, names.step_file(view.id, order.attempt, "reply", count), view.result)
    driver.shelf.put(names.step_file(view.id, order.attempt, "question", count), text.encode(), durable=True)

    def news(facts: Facts) -> Facts:
        attempt = facts.attempt(view.id, order.attempt)
        known = tuple(talk for talk in attempt.talks if talk.count < count)
        return facts.with_attempt(view.id, replace(attempt, talks=(*known, Talk(count, order.key))))

    return news


def _unready(view: StepView, order: Order, driver: Driver, job: Job, suffix: str) -> News | None:
    """Run a step's `needs`: one fails, and it is blocked, with a result and no order. None: all hold."""
    shop = workshop(driver, ())
    needs = view.resolved.needs if view.resolved else ()
    whose = f"{names.conversation(view.id, order.attempt)}{suffix}"
    found = shop.check(needs, _check_bench(shop, driver, job, whose), None, ())
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


def check_goal(action: acts.RunGoalChecks, driver: Driver) -> None:
    """Run the goal's own checks; only what they found missing is written down."""
    driver.submit(("checks", "", action.call), lambda job: _goal_checked(action, driver, job))


def _goal_checked(action: acts.RunGoalChecks, driver: Driver, job: Job) -> News:
    state, shop = driver.state, workshop(driver, ())
    own, room = Step(id="goal", checks=state.facts.goal.checks), room_of_step(state.bounds.output_bytes, 1)
    resolved = resolve_step(own, _outputs(driver), state.facts.goal.text, room)
    log = driver.folder / names.PLANNING / names.checks_log_file(action.call)
    whose = f"{names.call_conversation(action.call)}.checks"
    with JsonLines(log, shop.mask, shop.clock) as said:
        bench = _check_bench(shop, driver, job, whose)
        line = Line(said.write, driver.meter, job.stop, bench.deadline, driver.hears(whose), whose=whose)
        bench = replace(bench, model=driver.world.executor(state.facts.run, None), line=line)
        if isinstance(resolved, Resolved):
            found, error = _found(resolved.checks, shop, bench, final_outputs(state))
        else:
            found, error = (CheckResult(kind="command", ok=False, detail=resolved.why),), None
    found_out = GoalChecks(
        revision=len(state.facts.revisions),
        after={step: view.attempt for step, view in state.steps.items()},
        checks=found,
        error=error,
        usage=line.usage,
    )
    record = driver.world.mask.record(found_out)
    publish(driver.folder / names.PLANNING / names.call_file(action.call, "checks"), render(record), durable=True)
    return lambda facts: facts.with_call(replace(facts.planner_call(action.call), checks=record))


def _found(
    checks: tuple[ResolvedCheck, ...], shop: Workshop, bench: Bench, evidence: tuple[str, ...]
) -> tuple[tuple[CheckResult, ...], Failure | None]:
    """Return what the goal's checks found, or why a judge could not be asked; one that gives no verdict says no."""
    try:
        return shop.check(checks, bench, None, evidence), None
    except ModelError as error:
        from agentfs.executor.ends import failure_of

        failure = failure_of(error, bench)
        if failure.kind in (LIMIT, UNREACHABLE):
            return (), failure
        return (CheckResult(kind="judge", ok=False, detail=f"it could not be judged: {failure.message}"),), None


def _outputs(driver: Driver) -> dict[str, Output]:
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
    return driver.folder / names.STEPS / names.step_file(view.id, view.attempt, "output")


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
        run_files=own / names.FILES,
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
    return Workshop(
        shelf=driver.shelf,
        confinement=confine(driver, files),
        tools=driver.world.tools,
        mask=driver.world.mask,
        clock=driver.world.clock,
        output_bytes=driver.state.bounds.output_bytes,
        desk=desk_for(order, driver) if order is None or asks_a_model(order, driver.world.tools) else None,
        check=driver.world.check,
        retry_wait_s=_retry_wait(order, driver) if order else 0.0,
        starter=driver.world.starter,
    )


def _retry_wait(order: Order, driver: Driver) -> float:
    """Return how long it is waited before another try, if this order fails."""
    view, around = driver.state.steps.get(order.step), driver.state.around
    if view is None or around is None:
        return 0.0
    return retry_wait(view.step, order.key, driver.facts.attempts.get(order.step, ()), around)


def _check_bench(shop: Workshop, driver: Driver, job: Job, whose: str) -> Bench:
    """Return a bench for checks that belong to no attempt: nothing to claim, no log of their own."""
    return Bench(
        confinement=shop.confinement,
        deadline=shop.clock.monotonic() + CHECK_SECONDS,
        stop=job.stop,
        output_bytes=shop.output_bytes,
        output_file=driver.folder / names.STEPS / temp_name("check"),
        claim=lambda _mark: None,
        log=lambda _event, _fields: None,
        mask=shop.mask,
        whose=whose,
        now=shop.clock.monotonic,
        limit=TimeLimit(CHECK_SECONDS, "check"),
        starter=shop.starter,
    )
