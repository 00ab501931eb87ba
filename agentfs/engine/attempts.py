"""Write orders and have them carried out: what a step becomes when it may run."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentfs.agents.presets import Agent
from agentfs.core import paths
from agentfs.core.actions import JobKey
from agentfs.core.each import STARTING_MOVES
from agentfs.core.excerpts import TimeLimit, check_words, hints_of, join_messages
from agentfs.core.facts import (
    ASK,
    RUN,
    AttemptAsked,
    AttemptFinished,
    ConditionHeld,
    Facts,
    GateAsked,
    Nothing,
    OrderIssued,
    OrderTaken,
    Report,
)
from agentfs.core.planner_calls import DO, loops
from agentfs.core.proof import (
    acceptance_checks,
    check_sha256,
    held_before,
    no_evidence,
    persons_checks,
    persons_goal_checks,
    planners_checks,
)
from agentfs.core.records import CheckResult, Failure, JudgeCheck, Order, ResolvedCheck, Result, Run, Step
from agentfs.core.resolve import Output, Resolved, Unresolved, reference_limit, resolve_step
from agentfs.core.run_state import Use
from agentfs.core.steps import StepView, condition_sha256, retry_wait
from agentfs.core.underway import use_of
from agentfs.engine.driver import Driver, Job, World
from agentfs.engine.isolation import IsolatedFolder
from agentfs.errors import UserError
from agentfs.executor.attempt import (
    Halt,
    asks_a_model,
    attempt,
    finish_answered,
    render,
    resume,
)
from agentfs.executor.attempt_log import AlreadyClaimed, AttemptLog, read_memory
from agentfs.executor.evidence import left_spoiled, protected_files
from agentfs.executor.questions import gate, next_question, put_question
from agentfs.executor.task import Acceptance, AgentRules, Asked, LoopRules, ProofRules, Task
from agentfs.ledger.worktrees import WorktreeError
from agentfs.models.base import ModelSession
from agentfs.places.relay import Lost, Remote, attempt_elsewhere
from agentfs.storage.files import temp_name
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, Preparable, StepContext, ToolResult
from agentfs.tools.process import StopSign
from agentfs.tools.sandbox import readable_path
from agentfs.tools.secrets import given_secrets
from agentfs.tools.text_tools import note


def order_for(view: StepView, number: int, driver: Driver) -> Order:
    """Return the order of a step that could run now."""
    step, facts = view.step, driver.facts
    if view.key is None or (view.resolved is None and step.each is None):
        raise RuntimeError(f"{view.id} has no order yet: {view.why}")
    resolved = Resolved({}, (), (), ()) if step.each is not None else _with_real_paths(view, driver)
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
        agent=(agent := agent_for(view, driver)),
        network=True if agent else None,
        tools=step.tools,
        model=step.model,
        success_condition=step.success_condition,
        checks=resolved.checks,
        expects=step.expects,
        timeout_s=step.timeout_s or TIMING.step,
        repeatable=driver.state.around.repeatable(step) if driver.state.around else False,
        place=driver.state.place_of(step),
        issued_at=driver.world.clock.stamp(),
    )


def agent_for(view: StepView, driver: Driver) -> str | None:
    """Return the agent that does the next attempt at a step: when one has failed, the next of its `fallback`."""
    first = view.step.agent or (driver.facts.settings.agent if view.step.tool is None else None)
    if first is None:
        return None
    known = driver.world.agents.get(first)
    chain = (first, *(known.fallback if known else ()))
    failed = [one for one in driver.facts.attempts.get(view.id, ()) if one.result and one.result.status == "failed"]
    return chain[min(len(chain) - 1, sum(one.result is not None and one.result.key == view.key for one in failed))]


def _with_real_paths(view: StepView, driver: Driver) -> Resolved:
    """The key speaks of paths in the run's folder, so that a run can be moved; a program needs whole ones."""
    if view.resolved is None:
        raise RuntimeError("resolved before ordered")
    if not view.resolved.files:
        return view.resolved
    resolved = resolve(view.step, driver, outputs_of(driver), share=len(driver.state.steps))
    return resolved if isinstance(resolved, Resolved) else view.resolved


def resolve(step: Step, driver: Driver, outputs: Mapping[str, Output], share: int = 1) -> Resolved | Unresolved:
    """Return a step with values in place of references. `share`: how many steps share the room there is for them."""
    view = driver.state.view(step.id)
    params = (view.params if view else None) or driver.facts.run.params or {}
    room = reference_limit(driver.state.bounds.output_bytes, share)
    return resolve_step(step, outputs, driver.facts.goal.text, room, params)


def issue(view: StepView, driver: Driver) -> None:
    """Write the order, then have it carried out; a condition and `needs` are looked at before."""
    order = order_for(view, view.next, driver)
    if needs_checking(view):
        key = JobKey("attempt", view.id, view.next)
        driver.submit(key, partial(_attempt_if_ready, view, order, driver), place=order.place)
        return
    _publish_order(order, driver)
    _carry_out(order, driver)


def needs_checking(view: StepView) -> bool:
    """Whether something is looked at before a step gets its order, or its gate asks."""
    return view.condition is not None or (view.resolved is not None and bool(view.resolved.needs))


def look_at_condition(view: StepView, driver: Driver) -> None:
    """Look at the condition of a step that goes through a list, before any of its items gets an order."""
    blank, condition = order_for(view, view.next, driver), view.condition

    def work(job: Job) -> Report:
        with using_folder(use_of(view.step, driver.state.means), driver, job):
            skipped = _check_condition(condition, blank, driver, job) if condition else None
        return skipped or ConditionHeld(view.id, blank.key)

    driver.submit(JobKey("gate", view.id, view.next), work)


def _publish_order(order: Order, driver: Driver) -> None:
    name = paths.step_file(order.step, order.attempt, "order")
    durable = order.tool == RUN  # its end may be recorded by another process, on another day
    driver.steps_folder.put(name, render(order), durable=durable)  # else derivable again: no fsync


def start(view: StepView, driver: Driver) -> None:
    """Take an order that is there, no matter which process wrote it."""
    order = driver.facts.attempt(view.id, view.attempt).order
    if order is not None:
        _carry_out(order, driver)


def _carry_out(order: Order, driver: Driver) -> None:
    if order.tool == ASK:
        _put_question(order, driver)
        return
    if order.tool == RUN:
        driver.world.begin_child(order, driver)
        return
    key, at_once = JobKey("attempt", order.step, order.attempt), driver.is_alone and _takes_no_time(order, driver)
    driver.submit(key, partial(_attempt, order, driver), at_once=at_once, place=order.place)
    if not at_once:  # else the order comes with its result
        driver.learn(OrderIssued(order))


def _takes_no_time(order: Order, driver: Driver) -> bool:
    """Whether handing an attempt to another thread would take longer than the attempt."""
    tool = driver.world.tools.get(order.tool or "")
    return tool is note and not order.checks and order.expects is None


def _put_question(order: Order, driver: Driver) -> None:
    """Carry out an `ask`: claim it and write the question; the answer ends it, however long that takes."""
    context = step_context(driver, Halt(), paths.conversation(order.step, order.attempt))
    log = AttemptLog(context.steps_folder, order, context.mask, context.clock)
    try:
        log.claim(None)
    except AlreadyClaimed:
        driver.look_again()
        return
    finally:
        log.close()
    count = next_question(order, context.steps_folder)
    put_question(order, str(order.input.get("question", "")), count, context)
    driver.learn(AttemptAsked(order, count))


def take_answer(view: StepView, reply: str, driver: Driver) -> None:
    """Finish an `ask` with what the person wrote, or let the model that asked go on; the checks decide either way."""
    attempt = driver.facts.attempt(view.id, view.attempt)
    order = attempt.order
    if order is None:
        return
    if order.tool is None:
        talks = (*attempt.talks[:-1], replace(attempt.talks[-1], taken=True))
        driver.facts = driver.facts.with_attempt(view.id, replace(attempt, talks=talks))

    def work(job: Job) -> Report:
        with in_folder(order, driver, job, goes_on=order.tool is None) as keeping:
            task = task_for(order, driver, keeping)
            context = attempt_context(task, driver, job)
            if order.tool is None and order.place and not driver.world.places.recorded:
                return _attempt_elsewhere(task, context, driver, job, reply)
            if order.tool is None:
                return _report(resume(task, reply, context), order)
            return _report(finish_answered(task, ToolResult(output=reply.strip("\r\n")), context), order)

    driver.submit(JobKey("attempt", order.step, order.attempt), work, place=order.place)


def cut_while_waiting(order: Order, error: Failure, driver: Driver) -> Result:
    """Return the result of an attempt that waited for a person and is no longer wanted."""
    memory = read_memory(driver.folder / paths.STEPS / paths.step_file(order.step, order.attempt, "log"))
    blank = driver.unstarted(order, "interrupted", error)
    if memory is None:  # a step that only asked: nothing was begun
        return blank
    return blank.model_copy(
        update={"started_at": memory.started_at, "duration_s": memory.seconds, "usage": memory.usage}
    )


def _attempt(order: Order, driver: Driver, job: Job) -> Report:
    try:
        with in_folder(order, driver, job) as keeping:
            task = task_for(order, driver, keeping)  # what may not change is looked at once nothing else runs
            context = attempt_context(task, driver, job)
            if order.place and not driver.world.places.recorded:
                return _attempt_elsewhere(task, context, driver, job)
            return _report(attempt(task, context), order)
    except AlreadyClaimed:
        return OrderTaken(order)


@contextmanager
def in_folder(order: Order, driver: Driver, job: Job, *, goes_on: bool = False) -> Iterator[IsolatedFolder | None]:
    """Let an attempt use the folder of its run; yield what keeps its changes, in an isolated run."""
    if driver.isolated is None:
        yield None
        return
    try:
        use = use_of(order, driver.state.means)
        with driver.isolated.turn(use, job.stop, order, goes_on=goes_on) as keeping:
            yield keeping
    except WorktreeError as error:
        raise UserError(f"{order.run}: its worktree cannot be used: {error}") from None


def using_folder(use: Use, driver: Driver, job: Job) -> AbstractContextManager[None]:
    """Let checks that belong to no attempt use the folder of the run."""
    return driver.isolated.look(use, job.stop) if driver.isolated else nullcontext()


def _attempt_elsewhere(
    task: Task, context: StepContext, driver: Driver, job: Job, reply: str | None = None
) -> Report:
    """Have an order carried out at its place."""

    def count(result: Result) -> None:
        if result.usage:
            driver.budget.spent = driver.budget.spent.plus_usage(result.usage)

    facts, budget = driver.facts, driver.budget
    remote = Remote(facts.settings, facts.goal.has_steps, budget.bounds, lambda: budget.spent, count)
    try:
        found = attempt_elsewhere(task, context, remote, driver.world.places, job.stop, reply)
        return _report(found, task.order)
    except AlreadyClaimed:
        return OrderTaken(task.order)
    except Lost:
        return Nothing()  # it may still be running: the next driver waits, and records it


def _report(found: Result | Asked, order: Order) -> Report:
    """Return what an attempt reports: its result, or that it waits with a question."""
    return AttemptAsked(order, found.count) if isinstance(found, Asked) else AttemptFinished(found, order)


def _files_of(order: Order, driver: Driver) -> tuple[str, ...]:
    """Return the steps whose whole output this order refers to by path."""
    view = driver.state.view(order.step)
    return view.resolved.files if view and view.resolved else ()


def _attempt_if_ready(view: StepView, order: Order, driver: Driver, job: Job) -> Report:
    """Issue an order, and carry it out, if the step's condition and `needs` hold."""
    with using_folder(use_of(view.step, driver.state.means), driver, job):
        if unready := _unready(view, order, driver, job, paths.NEEDS):
            return unready
    _publish_order(order, driver)
    return OrderIssued(order) if order.tool in (ASK, RUN) else _attempt(order, driver, job)


def ask_gate(view: StepView, driver: Driver) -> None:
    """Put a gate's question; what the step needs is checked before a person is asked."""
    order = order_for(view, view.next, driver)
    if not needs_checking(view):
        driver.learn(_put_gate(view, order, driver))
        return

    def work(job: Job) -> Report:
        with using_folder(use_of(view.step, driver.state.means), driver, job):
            unready = _unready(view, order, driver, job, paths.GATE_NEEDS)
        return unready or _put_gate(view, order, driver)

    driver.submit(JobKey("gate", view.id, view.next), work)


def _put_gate(view: StepView, order: Order, driver: Driver) -> GateAsked:
    """Write the question of a gate, and report that it is there."""
    count = len(driver.facts.attempt(view.id, order.attempt).talks) + 1
    tool = driver.world.tools.get(order.tool or "")
    orders = [order_for(one, one.next, driver) for one in view.items if one.move in STARTING_MOVES]
    reply, touches = paths.step_file(view.id, order.attempt, "reply", count), tool.spec.touches if tool else ""
    text = gate(order, reply, view.result, view.step.why, orders, touches)
    driver.steps_folder.put(paths.step_file(view.id, order.attempt, "question", count), text.encode(), durable=True)
    return GateAsked(view.id, order.attempt, count, order.key)


def _unready(view: StepView, order: Order, driver: Driver, job: Job, suffix: str) -> Report | None:
    """Check a step's condition and `needs`; return that it is skipped or blocked, with no order. None: all hold."""
    if view.condition and (skipped := _check_condition(view.condition, order, driver, job)):
        return skipped
    found = _check_early(view.resolved.needs if view.resolved else (), order, driver, job, suffix)
    if job.stop.is_set():
        return Nothing()
    wrong = [check for check in found if not check.ok]
    if not wrong:
        return None
    words = join_messages(check_words(check) for check in wrong)
    error = Failure(kind="needs", message=f"what it needs is missing: {words}", hint=hints_of(wrong))
    return _without_order(driver.unstarted(order, "blocked", error), found, driver)


def _check_condition(condition: ResolvedCheck, order: Order, driver: Driver, job: Job) -> Report | None:
    """Check a step's condition; return that it is skipped, or blocked where there is no verdict. None: it holds."""
    found = _check_early((condition,), order, driver, job, paths.WHEN)
    if job.stop.is_set():
        return Nothing()
    (one,) = found
    if one.ok:
        return None
    if one.error:
        error = Failure(kind="when", message=f"its condition gave no verdict: {check_words(one)}", hint=one.hint)
        return _without_order(driver.unstarted(order, "blocked", error), found, driver)
    skipped = driver.unstarted(order, "skipped")
    return _without_order(skipped.model_copy(update={"when_sha256": condition_sha256(condition)}), found, driver)


def _check_early(
    checks: Sequence[ResolvedCheck], order: Order, driver: Driver, job: Job, suffix: str
) -> tuple[CheckResult, ...]:
    """Return what checks find that are run before a step has its order."""
    if not checks:
        return ()
    context = step_context(driver, job.stop, f"{paths.conversation(order.step, order.attempt)}{suffix}")
    return context.observer.check(checks, context, None, no_evidence)


def _without_order(result: Result, found: tuple[CheckResult, ...], driver: Driver) -> AttemptFinished:
    return driver.publish(result.model_copy(update={"checks": found}))


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
    found = driver.confinements.get(facts.own_tools)
    if found is None:
        found = confinement_of(driver.folder, facts.settings, driver.world, own_steps=facts.goal.has_steps)
        driver.world = replace(driver.world, mask=driver.world.mask.also(given_secrets(facts.settings.env)))
        driver.confinements[facts.own_tools] = found
    if not files:
        return found
    outputs = tuple(_whole_output(driver.state.steps[name], driver) for name in files)
    return replace(found, readable=(*found.readable, *outputs))


def prepare_tools(tools: Collection[str], world: World, confinement: Confinement) -> None:
    """Start what tools need, before they are called, if that takes its time."""
    for name in tools:
        tool = world.tools.get(name)
        if isinstance(tool, Preparable):
            tool.prepare(confinement)


def confinement_of(folder: Path, run: Run, world: World, *, own_steps: bool) -> Confinement:
    """Return what the tools of a run may touch. `own_steps`: they are a person's, not a model's."""
    workspace, own = Path(os.path.realpath(world.workspace)), Path(os.path.realpath(folder))
    return Confinement(
        workdir=own / run.workdir,  # run.json has its real path: it is held as that whenever something starts
        workspace=workspace,
        run_files=own / paths.FILES,
        readable=(
            *(Path(readable_path(os.path.join(workspace, one))) for one in run.read),
            # Read-only: only agentfs commits, and a run in a part of a repository changes that part.
            *([Path(run.isolation.git_dir), own / paths.FILES] if run.isolation else ()),
        ),
        network=run.network is True,
        sandbox=world.sandbox,
        programs=world.sandbox != "none" or run.sandbox == "off" or own_steps,
        env={name: world.environment[name] for name in run.env if name in world.environment},
        protected=world.protected,
        hosts=run.hosts,
        run=paths.run_id(folder),
    )


def _whole_output(view: StepView, driver: Driver) -> Path:
    """Return the file that holds a step's whole output; one that fitted into its result gets a file now."""
    path = _output_path(view, driver)
    if view.result and not view.result.cut and not path.exists():
        output = view.result.output
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        with suppress(FileExistsError):  # two steps may ask for it at once
            driver.steps_folder.put(path.name, text.encode(), durable=True)
    return path


def step_context(driver: Driver, stop: StopSign, name: str) -> StepContext:
    """Return the context of checks that belong to no attempt: nothing to claim, no log of their own, no model."""
    world = driver.world
    return StepContext(
        name=name,
        confinement=confine(driver, ()),
        observer=world.observer,
        steps_folder=driver.steps_folder,
        mask=driver.world.mask,  # which knows more once the tools are confined
        deadline=world.clock.monotonic() + TIMING.check,
        stop=stop,
        output_bytes=driver.state.bounds.output_bytes,
        output_file=driver.folder / paths.STEPS / temp_name("check"),
        claim=lambda _mark: None,
        log=lambda _event, _fields: None,
        clock=world.clock,
        limit=TimeLimit(TIMING.check, "check"),
        tools=world.tools,
        starter=world.starter,
        traceparent=paths.traceparent(driver.facts.run.run, driver.facts.run.started_at, name),
    )


def attempt_context(task: Task, driver: Driver, job: Job) -> StepContext:
    """Return the context of an attempt; what checks rest on is read-only in it where a model has a part."""
    order, name = task.order, paths.conversation(task.order.step, task.order.attempt)
    context, confinement = step_context(driver, job.stop, name), confine(driver, _files_of(order, driver))
    protected = tuple(Path(os.path.realpath(path)) for path in (task.proof.protected if task.proof else ()))
    output_file = Path(context.steps_folder.path(order.step, order.attempt, "output"))
    confinement = replace(confinement, protected=(*confinement.protected, *protected))
    context = replace(context, output_file=output_file, confinement=confinement)
    return with_model(context, order.model, driver) if asks_a_model(order, driver.world.tools) else context


def with_model(context: StepContext, model: str | None, driver: Driver) -> StepContext:
    """Return a context in which a model can be asked."""
    session = ModelSession(
        context.log, driver.budget, context.stop, context.deadline, driver.receives(context.name), name=context.name
    )
    return replace(context, model=driver.world.executor(driver.facts.settings, model), session=session)


def task_for(order: Order, driver: Driver, keeping: IsolatedFolder | None = None) -> Task:
    """Return an order with the rules by which it is carried out."""
    return Task(
        order,
        loop_rules(order, driver),
        proof_rules(order, driver),
        _retry_wait(order, driver),
        keeping=keeping,
        agent=agent_rules(order, driver),
    )


def agent_rules(order: Order, driver: Driver) -> AgentRules | None:
    """Return which agent does an order, and what it may take; None: a tool or a model does it."""
    if order.agent is None:
        return None
    agent = driver.world.agents.get(order.agent) or Agent(order.agent, (), "text")  # the settings no longer have it
    name = paths.conversation(order.step, order.attempt)
    return AgentRules(agent, driver.budget, driver.world.environment, driver.shows(name))


def loop_rules(order: Order, driver: Driver) -> LoopRules:
    """Return how a model does an order: what it may know, and how far it may go."""
    if order.tool is not None:
        return LoopRules()
    run, facts = driver.facts.settings, driver.facts
    own = order.step == DO and loops(facts)
    return LoopRules(
        goal=facts.goal.title,
        earlier=earlier_errors(order, facts),
        max_turns=run.max_turns or driver.world.settings.executor.max_turns,
        may_hand_over=own,
        split_over=run.split_over,
        scratchpad=own and run.mode == "scratchpad",
        acceptance=_acceptance(driver) if own else None,
        unconfined=run.sandbox == "off",
    )


def earlier_errors(order: Order, facts: Facts) -> tuple[str, ...]:
    """Return what went wrong in earlier attempts at this very step, as it is now."""
    results = [one.result for one in facts.attempts.get(order.step, ()) if one.number < order.attempt]
    return tuple(
        f"{result.error.message} ({result.error.hint})" if result.error.hint else result.error.message
        for result in results
        if result and result.error and result.status == "failed" and result.key == order.key
    )


def _acceptance(driver: Driver) -> Acceptance | None:
    """Return the plan's checks that are run when a loop claims to be done."""
    facts, written = driver.facts, held_before(driver.facts)
    own = tuple(check for check in acceptance_checks(facts) if not isinstance(check, JudgeCheck))
    if not own or facts.run.proof is None:
        return None
    resolved = resolve(Step(id="goal", checks=own), driver, {})
    if not isinstance(resolved, Resolved):
        return None
    hidden = tuple(check_sha256(check) in written for check in own)
    return Acceptance(resolved.checks, hidden, frozenset(written))


def proof_rules(order: Order, driver: Driver) -> ProofRules | None:
    """Return what is looked at in an attempt; None: a tool does a person's own step, whose files count for nothing.

    A person's own step may build what their checks run: of such steps only what the goal protects is kept.
    """
    facts = driver.facts
    if facts.run.proof is None:
        return None
    is_persons_own = order.tool is not None and facts.goal.has_steps
    if is_persons_own and not (facts.goal.protect or persons_goal_checks(facts)):
        return None
    planned = planners_checks(facts) if order.tool is None else frozenset()
    view = driver.state.view(order.step)
    own = zip((view.step.checks if view else None) or (), order.checks, strict=False)
    unproven = tuple(resolved for check, resolved in own if check_sha256(check) in planned)
    earlier = [one for one in facts.attempts.get(order.step, ()) if one.result and one.number != order.attempt]
    seen = [check for one in earlier if one.order and _began(one.result) for check in one.order.checks]
    persons = persons_checks(driver.state)
    return ProofRules(
        names_in=(facts.goal.text,),
        unproven=unproven,
        unseen=tuple(check for check in unproven if check not in seen),
        held=frozenset(digest for one in earlier if one.result for digest in one.result.held_before),
        protect=facts.goal.protect,
        protected=protected_files(facts.goal.protect, () if is_persons_own else persons, confine(driver, ()).workdir),
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
    return driver.world.observer.see("spoiled", whose, lambda: left_spoiled(guilty))


def _began(result: Result | None) -> bool:
    return result is not None and result.status in ("done", "failed")


def _retry_wait(order: Order, driver: Driver) -> float:
    """Return how long it is waited before another try, if this order fails."""
    view, around = driver.state.view(order.step), driver.state.around
    if view is None or around is None:
        return 0.0
    return retry_wait(view.step, order.key, driver.facts.attempts.get(order.step, ()), around)
