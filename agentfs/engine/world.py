"""Put the world of one process together: tools, sandbox, ledger, pool; and take over the runs it drives.

Nothing here is global. What a dead driver left running in a run is ended, and what it left open is recorded.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from agentfs.agents.presets import PRESETS, Agent, configure_agents
from agentfs.agents.running import secrets_in
from agentfs.core import paths
from agentfs.core.actions import JobKey
from agentfs.core.config import ExecutorSettings, PlannerSettings, Settings
from agentfs.core.facts import Attempt, Claim, Facts, Nothing, PlannerCall, Report
from agentfs.core.hashing import sha256_bytes
from agentfs.core.mask import Mask
from agentfs.core.mcp import CONFIG
from agentfs.core.records import Answer, Failure, Run, Sandbox, Usage
from agentfs.engine import children
from agentfs.engine.driver import CUT, Driver, Job, Models, World
from agentfs.engine.isolation import open_isolation
from agentfs.engine.means import DayLimit, FileJudge, has_model, means_of, means_with, run_record, tools_in_plan
from agentfs.engine.notify import EndNotifier, Notifier
from agentfs.engine.run_reader import RunReader, reader_for
from agentfs.errors import UserError
from agentfs.executor.attempt import render
from agentfs.executor.attempt_log import claim_in
from agentfs.ledger import Ledger, LedgerError, person
from agentfs.ledger.committer import Committer
from agentfs.ledger.forget import Forgetting
from agentfs.models import create_model
from agentfs.models.base import Model, usage_in
from agentfs.places.relay import Places, opened_places, wait_for_orphan
from agentfs.planner import NEVER_A_PLANNER, Chosen, Nobody, Planner
from agentfs.planner.model import ModelPlanner
from agentfs.planner.one_step import OneStep
from agentfs.planner.proposed import Proposed
from agentfs.planner.repair import Repair
from agentfs.planner.surroundings import look_around
from agentfs.planner.without_model import OwnSteps
from agentfs.prompts import load_prompt
from agentfs.storage.clock import Clock
from agentfs.storage.files import listing, publish, read_whole
from agentfs.storage.installation import named_files, searched_path
from agentfs.storage.plan_files import keep_beside
from agentfs.storage.pool import Pool
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace, trust_file
from agentfs.tools import sandbox
from agentfs.tools.mcp_client import server_command, written_secrets
from agentfs.tools.registry import opened_tools
from agentfs.tools.secrets import given_secrets, mask_for

CALLS_AT_ONCE = 16
Say = Callable[[str], None]


def sandbox_for(settings: Settings, say: Say) -> Sandbox:
    """Return how programs are confined, saying so where they are not."""
    if settings.tools.sandbox == "off":
        say('WARNING: the sandbox is off (sandbox = "off"): tools can touch everything you can')
        return "none"
    because = sandbox.unavailable_because()
    if because is None:
        return "bubblewrap"
    if settings.tools.sandbox == "require":
        raise UserError(f'sandbox = "require", but there is none: {because}')
    say(f"WARNING: no sandbox: {because}. Tools can touch everything you can.")
    return "none"


@contextmanager
def open_world(
    workspace: Workspace, settings: Settings, environment: Mapping[str, str], say: Say, wake: Callable[[], None]
) -> Iterator[World]:
    """Yield a world to drive runs in; at the end, what the ledger lacks is committed."""
    root, clock = workspace.root, Clock()
    starting = {**environment, "PATH": searched_path(environment)}  # for what the settings have us run
    with ExitStack() as commands, committing(workspace, settings, say) as (committer, author), ExitStack() as stack:
        confined = sandbox_for(settings, say)
        protected = (trust_file(environment).parent, *_files_run(settings, root))
        box = stack.enter_context(opened_tools(root, confined, settings, protected=protected))
        agents, starter = configure_agents(settings.agents) if settings.agents else PRESETS, Starter(say)
        mask = mask_for(settings, environment, box.tools).hiding(_secrets_in_files(settings, agents, root))
        places = Places()
        if settings.places or settings.executor.place is not None:
            places = stack.enter_context(opened_places(settings, starting, starter))
        on_wait = Notifier(settings.on_wait, root, starting, say, mask, clock) if settings.on_wait else None
        on_end = end_notifier(settings, workspace, starting, say, mask, clock)
        for command in (on_wait, on_end):
            if command:
                commands.callback(command.close)
        yield World(
            workspace=root,
            settings=settings,
            environment=dict(environment),
            clock=clock,
            pool=stack.enter_context(Pool(settings.limits.parallel, "attempt")),
            calls=stack.enter_context(Pool(CALLS_AT_ONCE, "call")),
            toolbox=box,
            means=means_with({name: tool.spec for name, tool in box.tools.items()}),
            committer=committer,
            begin_child=children.begin,
            finish_child=children.finish,
            mask=mask,
            sandbox=confined,
            person=author,
            wake=wake,
            executor=_models("executor", settings, starting),
            planner=_models("planner", settings, starting),
            agents=agents,
            on_wait=on_wait,
            on_end=on_end,
            protected=protected,
            starter=starter,
            places=places,
            day=DayLimit(workspace, environment, clock),
        )


def end_notifier(
    settings: Settings, workspace: Workspace, environment: Mapping[str, str], say: Say, mask: Mask, clock: Clock
) -> EndNotifier | None:
    """Return what runs `on_end`; None where there is no such command."""
    if settings.on_end is None:
        return None
    root, log = workspace.root, paths.ON_END_LOG
    return EndNotifier(Notifier(settings.on_end, root, environment, say, mask, clock, name="on_end", log=log))


@contextmanager
def committing(workspace: Workspace, settings: Settings, say: Say) -> Iterator[tuple[Committer, tuple[str, str]]]:
    """Yield what brings the ledger up to date, and the person whose edits it commits; at the end, commit the rest."""
    try:
        ledger = Ledger.create(workspace.runs)
    except LedgerError as error:
        raise UserError(str(error)) from None
    if trouble := ledger.trouble():
        raise UserError(trouble)
    author = person(workspace.runs)
    if os.path.lexists(workspace.runs / paths.FORGOTTEN):
        Forgetting(workspace.runs, ledger, author).finish()
    committer = Committer(ledger, author, say, commit_logs=settings.ledger.commit_logs)
    try:
        yield committer, author
    finally:
        if not committer.flush(TIMING.flush):
            say("the ledger is behind: its next commits follow when agentfs runs again")
        committer.close()


def _secrets_in_files(settings: Settings, agents: Mapping[str, Agent], root: Path) -> dict[str, str]:
    """Return the secrets in files that agents are given (only settings name some), and in .mcp.json."""
    of_agents = secrets_in(agents.values()) if settings.agents else {}
    return of_agents | (written_secrets(root) if os.path.lexists(root / CONFIG) else {})


def _files_run(settings: Settings, root: Path) -> tuple[Path, ...]:
    """Return the files that the settings have agentfs run, unconfined or with a variable: no step may change them."""
    models = (one.command or () for one in (settings.planner, settings.executor) if one.kind == "command")
    at_root = (
        settings.on_wait or (),
        settings.on_end or (),
        *(server_command(root, name) for name in settings.mcp.servers),
    )
    found = [
        *(path for one in at_root for path in named_files(one, str(root))),
        *(path for one in models for path in named_files(one, os.getcwd())),
    ]
    return tuple(map(Path, dict.fromkeys(found)))


def _models(role: Literal["planner", "executor"], settings: Settings, environment: Mapping[str, str]) -> Models:
    """Return who has a role in a run: by default the model it began with; address and key are read at each start."""
    own: PlannerSettings | ExecutorSettings = getattr(settings, role)
    has_one = has_model(own, environment)

    def model(run: Run, name: str | None) -> Model | None:
        if not has_one:
            return None
        chosen = name or getattr(run.models, role) or own.model
        return create_model(own, chosen, getattr(run.models, f"{role}_temperature"), environment)

    return model


def _model_planner(folder: Path, judge: FileJudge, world: World) -> Planner:
    """Return the planner on a model that a run began with."""
    if not world.means.planner:
        return Nobody(NEVER_A_PLANNER)
    model = world.planner(run_record(folder), None)
    if model is None:
        return Nobody()
    prompt = load_prompt("planner", world.workspace)
    look = partial(look_around, mask=world.mask.text)
    return ModelPlanner(model, prompt, judge.catalogue, judge.parsed, world.workspace, look)


def open_driver(folder: Path, world: World) -> Driver:
    """Return a driver that has taken over a run. The caller holds its lock."""
    run = run_record(folder)
    given = (*run.env, *(tools_in_plan(folder).env or ()))
    means = means_of(run, world.means)
    world = replace(world, mask=world.mask.also(given_secrets(given)), means=means)
    reader = reader_for(folder, world.settings, patient=True, known=world.known)
    planner = planner_for(folder, reader, world)
    driver = Driver(folder, reader, world, planner, places=world.settings.limits.parallel)
    take_over(driver)
    if driver.facts.outcome is None and run.isolation:
        try:
            driver.isolated = open_isolation(folder, run.isolation, driver.facts, means, world.clock)
        except LedgerError as error:
            raise UserError(str(error)) from None
    return driver


def planner_for(folder: Path, reader: RunReader, world: World, model: Planner | None = None) -> Chosen:
    """Return who answers the calls of a run; `model`: another planner in the place of the one on a model."""
    return Chosen(
        own=OwnSteps(reader.judge.parsed),
        loop=OneStep(
            reader.judge.parsed,
            reader.judge.catalogue,
            world.workspace,
            lambda run: world.executor(run, None),
            partial(look_around, mask=world.mask.text),
        ),
        proposed=Proposed(reader.judge.catalogue),
        model=model or _model_planner(folder, reader.judge, world),
        repair=Repair(lambda run: world.executor(run, None), reader.judge.catalogue, world.workspace),
        executor=world.means.executor,
    )


# ── taking a run over ────────────────────────────────────────────────────────────────────────────────────


def take_over(driver: Driver) -> None:
    """Record how what a driver before this one left open has ended, and count what it asked of models.

    Nothing claims to run then that does not, but for what may still run at other places. The run's lock is held.
    """
    folder, facts = driver.folder, driver.facts
    sweep(folder, {revision.plan_sha256 for revision in facts.revisions}.union(*(one.tries for one in facts.calls)))
    for step, attempt in _left_open(facts):
        if claim_of(folder, step, attempt).place is None:
            finished = driver.publish(driver.cut_off(step, attempt)).result
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
    return driver.publish(driver.cut_off(step, attempt).model_copy(update=more), attempt.order)


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


def _set_aside_checks(folder: Path, one: PlannerCall) -> PlannerCall:
    """Set aside what the goal's checks found: nobody was looking, and the folder may have changed since."""
    words = b"agentfs was started again since these checks were run: they are run once more\n"
    publish(folder / paths.PLANNING / paths.call_file(one.number, "again"), words, durable=True)
    return replace(one, again=True)


def _interrupt_call(folder: Path, one: PlannerCall) -> PlannerCall:
    usage = usage_in(folder / paths.PLANNING / paths.call_file(one.number, "log"))
    answer = Answer(call=one.number, verdict="interrupted", error=CUT, usage=usage, duration_s=0.0)
    publish(folder / paths.PLANNING / paths.call_file(one.number, "answer"), render(answer), durable=True)
    return replace(one, answer=answer)
