"""Put the world of one process together: tools, sandbox, ledger, pool. Nothing here is global."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentfs.core.config import Settings
from agentfs.core.records import Run, Sandbox
from agentfs.core.run_state import Means, derive
from agentfs.engine.driver import Driver, Models, World, no_model
from agentfs.engine.means import has_model, means_of, reader_for, run_record, tools_in_plan
from agentfs.engine.notify import Bell, no_bell
from agentfs.engine.plan_judge import FileJudge
from agentfs.engine.recovery import asked_of_models, take_over
from agentfs.engine.run_reader import RunReader
from agentfs.errors import UserError
from agentfs.ledger import Ledger, LedgerError, person
from agentfs.ledger.committer import Committer
from agentfs.ledger.forget import Forgetting
from agentfs.models import create_model
from agentfs.models.base import Model
from agentfs.planner import Planner
from agentfs.planner.choosing import NEVER_A_PLANNER, Chosen, Nobody
from agentfs.planner.model import ModelPlanner
from agentfs.planner.one_step import OneStep
from agentfs.planner.own_steps import OwnSteps
from agentfs.planner.repair import Repair
from agentfs.planner.surroundings import look_around
from agentfs.prompts import load_prompt
from agentfs.storage.clock import Clock
from agentfs.storage.installation import named_files, searched_path
from agentfs.storage.starting import Pool, Starter
from agentfs.storage.workspace import Workspace, trust_file
from agentfs.tools import sandbox
from agentfs.tools.registry import Known, known_tools, opened_tools
from agentfs.tools.secrets import given_secrets, mask_for

FLUSH_SECONDS = 5.0
CALLS_AT_ONCE = 16
Say = Callable[[str], None]


def known_to(world: World) -> Known:
    """Return the tools of a world as plans see them."""
    return Known({name: tool.spec for name, tool in world.tools.items()}, world.own, world.broken)


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
    """Yield a world to drive runs in; at the end, what the ledger is owed is committed."""
    clock = Clock()
    keeper, author = _keeper(workspace, settings, say)
    pool, desk = Pool(settings.limits.parallel, "attempt"), Pool(CALLS_AT_ONCE, "call")
    bell: Bell | None = None
    starting = {**environment, "PATH": searched_path(environment)}  # for what the settings have us run
    stack = ExitStack()
    try:
        confined = sandbox_for(settings, say)
        box = stack.enter_context(opened_tools(workspace.root, confined, settings.tools.web_search.url))
        mask = mask_for(settings, environment, box.tools)
        if settings.on_wait:
            bell = Bell(settings.on_wait, workspace.root, starting, say, mask, clock)
        yield World(
            workspace=workspace.root,
            clock=clock,
            pool=pool,
            desk=desk,
            tools=box.tools,
            means=Means(repeatable={name: tool.spec.repeatable for name, tool in box.tools.items()}),
            keeper=keeper,
            mask=mask,
            sandbox=confined,
            environment=dict(environment),
            person=author,
            wake=wake,
            own=box.own,
            broken=box.broken,
            executor=_executors(settings, starting),
            planner=_planners(settings, starting),
            max_turns=settings.executor.max_turns,
            call_s=settings.planner.timeout_s,
            bell=bell.of_run if bell else no_bell,
            protected=(trust_file(environment).parent, *_files_run(settings, workspace.root)),
            starter=Starter(say),
        )
    finally:
        pool.shutdown(wait=True)
        desk.shutdown(wait=True)
        stack.close()
        _close(keeper, say)
        if bell:
            bell.close()


@contextmanager
def idle_world(workspace: Workspace, settings: Settings, folder: Path, say: Say) -> Iterator[World]:
    """Yield a world in which one run can be ended, and nothing started; at the end that is committed."""
    keeper, author = _keeper(workspace, settings, say)
    environment, run = dict(os.environ), run_record(folder)
    known = known_tools(workspace.root, run.tools)
    pool = Pool(1, "idle")
    try:
        yield World(
            workspace=workspace.root,
            clock=Clock(),
            pool=pool,
            desk=pool,
            tools={},
            means=means_of(run, {name: spec.repeatable for name, spec in known.specs.items()}),
            keeper=keeper,
            mask=mask_for(settings, environment, {}),
            sandbox=_confined_now(settings),
            environment=environment,
            person=author,
            wake=lambda: None,
        )
    finally:
        pool.shutdown(wait=True)
        _close(keeper, say)


def _confined_now(settings: Settings) -> Sandbox:
    """Return how programs would be confined; nothing is started, so nobody is warned."""
    return "none" if settings.tools.sandbox == "off" or sandbox.unavailable_because() else "bubblewrap"


def _keeper(workspace: Workspace, settings: Settings, say: Say) -> tuple[Committer, tuple[str, str]]:
    """Return who brings the ledger up to date, and the person whose edits it commits."""
    try:
        ledger = Ledger.create(workspace.runs)
    except LedgerError as error:
        raise UserError(str(error)) from None
    if trouble := ledger.trouble():
        raise UserError(trouble)
    author = person(workspace.runs)
    Forgetting(workspace.runs, ledger, author).finish()
    return Committer(ledger, author, say, commit_logs=settings.ledger.commit_logs), author


def _close(keeper: Committer, say: Say) -> None:
    """Commit what is owed."""
    if not keeper.flush(FLUSH_SECONDS):
        say("the ledger is behind: its next commits follow when agentfs runs again")
    keeper.close()


def _files_run(settings: Settings, root: Path) -> tuple[Path, ...]:
    """Return the files that the settings have agentfs run, unconfined: no step may change them."""
    models = (one.command or () for one in (settings.planner, settings.executor) if one.kind == "command")
    found = [
        *named_files(settings.on_wait or (), str(root)),
        *(path for one in models for path in named_files(one, os.getcwd())),
    ]
    return tuple(map(Path, dict.fromkeys(found)))


def _executors(settings: Settings, environment: Mapping[str, str]) -> Models:
    """Return who does the steps of a run that have no tool: by default the model that the run began with."""
    if not has_model(settings.executor, environment):
        return no_model

    def executor(run: Run, name: str | None) -> Model:
        chosen = name or run.models.executor or settings.executor.model
        return create_model(settings.executor, chosen, run.models.executor_temperature, environment)

    return executor


def _planners(settings: Settings, environment: Mapping[str, str]) -> Models:
    """Return who plans goals in words: the model a run began with; address and key are read at each start."""
    if not has_model(settings.planner, environment):
        return no_model

    def planner(run: Run, name: str | None) -> Model:
        chosen = name or run.models.planner or settings.planner.model
        return create_model(settings.planner, chosen, run.models.planner_temperature, environment)

    return planner


def _model_planner(folder: Path, judge: FileJudge, world: World) -> Planner:
    """Return the planner on a model that a run began with."""
    if not world.means.planner:
        return Nobody(NEVER_A_PLANNER)
    model = world.planner(run_record(folder), None)
    if model is None:
        return Nobody()
    prompt = load_prompt("planner", world.workspace)
    look = partial(look_around, mask=world.mask.text)
    return ModelPlanner(model, prompt, judge.catalogue, judge.parsed, world.workspace, world.clock, look)


def open_driver(folder: Path, settings: Settings, world: World) -> Driver:
    """Return a driver that has taken over a run. The caller holds its lock."""
    run = run_record(folder)
    given = (*run.env, *(tools_in_plan(folder).env or ()))
    means = means_of(run, world.means.repeatable)
    world = replace(world, mask=world.mask.also(given_secrets(given)), means=means)
    reader = reader_for(folder, settings, patient=True, known=known_to(world))
    planner = planner_for(folder, reader, world)
    driver = Driver(folder, reader, world, planner, places=settings.limits.parallel)
    take_charge(driver)
    return driver


def planner_for(folder: Path, reader: RunReader, world: World, model: Planner | None = None) -> Chosen:
    """Return who answers the calls of a run; `model`: another planner in the place of the one on a model."""
    if not isinstance(reader.judge, FileJudge):
        raise TypeError("a driver judges files")
    return Chosen(
        own=OwnSteps(reader.judge.parsed, world.clock),
        loop=OneStep(
            reader.judge.parsed,
            reader.judge.catalogue,
            world.clock,
            world.workspace,
            lambda run: world.executor(run, None),
            partial(look_around, mask=world.mask.text),
        ),
        model=model or _model_planner(folder, reader.judge, world),
        repair=Repair(lambda run: world.executor(run, None), reader.judge.catalogue, world.workspace, world.clock),
        executor=world.means.executor,
    )


def take_charge(driver: Driver) -> None:
    """Settle what a driver before this one left open, and count what it asked of models."""
    folder, world = driver.folder, driver.world
    driver.facts = take_over(folder, driver.state, world.clock, world.mask, world.sandbox)
    driver.state = derive(driver.facts, world.means)
    for usage in asked_of_models(folder, driver.facts):
        driver.meter.spent = driver.meter.spent.plus_usage(usage)
    world.keeper.note(folder)
