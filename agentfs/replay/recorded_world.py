"""A world in which everything from outside comes from a recording, and a driver that works in it."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from agentfs.agents.presets import Agent
from agentfs.core import paths
from agentfs.core.actions import JobKey
from agentfs.core.config import Settings
from agentfs.core.facts import AttemptFinished, Report
from agentfs.core.records import Order, Result, Revision, Run
from agentfs.core.run_state import Means
from agentfs.core.tool_spec import ToolSpec, split_name
from agentfs.engine.attempts import attempt_context, task_for
from agentfs.engine.driver import Driver, Job, World
from agentfs.engine.means import means_of, means_with
from agentfs.engine.run_reader import reader_for
from agentfs.engine.world import planner_for
from agentfs.executor import conversation
from agentfs.executor.attempt import finish_answered
from agentfs.executor.attempt_log import BEGUN, AlreadyClaimed, AttemptLog, child_in
from agentfs.models.base import Model
from agentfs.places.relay import Places
from agentfs.planner import Planner
from agentfs.planner.model import ModelPlanner
from agentfs.planner.one_step import OneStep
from agentfs.planner.prompt import Material, Surroundings
from agentfs.prompts import load_prompt
from agentfs.replay.playback import Killed, Playback, RecordedModel, RecordedObserver, RecordedTool
from agentfs.replay.recording import Recording, Try
from agentfs.storage.workspace import load_settings
from agentfs.tools import text_tools
from agentfs.tools.registry import Known, Toolbox, builtins, known_tools

_LISTING = re.compile(
    r"(?:\A|\n\n)# Working folder\n\n"
    r"(It is empty\.|(`{3,})\n(.*?)\n\2(\n\(and more that is not listed\))?)(?=\n\n|\Z)",
    re.DOTALL,
)
_ENTRY = re.compile(r"(.*)  (\d+) bytes\Z")
_TURNS = re.compile(r"it took (\d+) turns and did not finish\Z")


class _NoLedger:
    """Takes the place of the ledger: a replay commits nothing."""

    def note(self, folder: Path) -> None:
        pass

    def look_through(self, ended: Iterable[Path]) -> None:
        pass

    def is_idle(self) -> bool:
        return True


class _ReplayDriver(Driver):
    """A driver that does at once, in its own thread, what it is to have done; its turns are the fold's."""

    playback: Playback

    def submit(
        self,
        key: JobKey,
        work: Callable[[Job], Report],
        *,
        at_once: bool = False,  # noqa: ARG002
        pool: Executor | None = None,  # noqa: ARG002
        place: str | None = None,  # noqa: ARG002
    ) -> None:
        job = self.jobs[key] = Job(stop=self.playback.stop_sign(paths.conversation(key[1], key[2])))
        with suppress(Killed):
            self.reports.put((key, work(job)))
        del self.jobs[key]


@dataclass(frozen=True, slots=True)
class _RecordedChildren:
    """Runs in runs as they were recorded: begun when they were, ended when the attempt was."""

    playback: Playback

    def begin(self, order: Order, driver: Driver) -> None:
        """Name the run that was begun then; where none could be, say so as then."""
        recording, world = self.playback.recording, driver.world
        whose = paths.conversation(order.step, order.attempt)
        named = child_in(recording.folder / f"{whose}.log.jsonl")
        log = AttemptLog(driver.steps_folder, order, world.mask, world.clock)
        with suppress(AlreadyClaimed):
            log.claim_for(named[0] if named else NO_CHILD)
            log.write(BEGUN, {})
        log.close()
        result = recording.result(whose)
        if result is not None and result.child is None:
            driver.publish(driver.unstarted(order, result.status, result.error))

    def finish(self, step: str, attempt: int, driver: Driver) -> None:
        """End the attempt as it ended then."""
        whose = paths.conversation(step, attempt)
        order, result = driver.facts.attempt(step, attempt).order, self.playback.recording.result(whose)
        if order is None or result is None:
            return

        def work(job: Job) -> Report:
            task = task_for(order, driver)
            context = attempt_context(task, driver, job)
            given = RecordedTool(text_tools.run.spec, self.playback).of_step(context)
            given = replace(given, child=result.child, usage=result.usage)
            return AttemptFinished(finish_answered(task, given, context), order)

        driver.submit(JobKey("attempt", step, attempt), work)


NO_CHILD = "0000-00-00/none"  # the run that a torn log does not name


def _recorded_world(playback: Playback, settings: Settings, workspace: Path) -> World:
    recording, models = playback.recording, playback.recording.run.models
    known = _known_tools(recording, workspace)
    tools = {
        name: builtins()[name] if spec.effects == "none" and name in builtins() else RecordedTool(spec, playback)
        for name, spec in known.specs.items()
    }
    means = _means(recording, means_with({name: tool.spec for name, tool in tools.items()}))
    results, children = recording.all(Result), _RecordedChildren(playback)

    def planner(_run: Run, _name: str | None) -> Model | None:
        return RecordedModel(models.planner or "", models.planner_temperature, playback) if means.planner else None

    def executor(_run: Run, name: str | None) -> Model | None:
        model = name or models.executor or ""
        return RecordedModel(model, models.executor_temperature, playback) if means.executor else None

    idle = ThreadPoolExecutor(1)  # nothing is ever given to it, so it starts no thread
    return World(
        workspace=workspace,
        settings=settings,
        environment={},
        clock=playback.clock(),
        pool=idle,
        calls=idle,
        toolbox=Toolbox(tools, known.own, known.broken),
        means=means,
        committer=_NoLedger(),
        begin_child=children.begin,
        finish_child=children.finish,
        mask=playback.mask,
        sandbox="none" if any(result.sandbox == "none" for result in results) else "bubblewrap",
        person=("a person", ""),
        wake=lambda: None,
        executor=executor,
        planner=planner,
        observer=RecordedObserver(playback),
        places=Places(recorded=True),
        agents=_recorded_agents(recording),
    )


def _recorded_agents(recording: Recording) -> dict[str, Agent]:
    """Return the agents that orders name, each with those that took over where it failed."""
    chains: dict[tuple[str, str], list[str]] = {}
    for order in sorted(recording.all(Order), key=lambda one: one.attempt):
        chain = chains.setdefault((order.step, order.key), [])
        if order.agent and chain[-1:] != [order.agent]:
            chain.append(order.agent)
    longest = sorted((chain for chain in chains.values() if chain), key=len)
    return {chain[0]: Agent(chain[0], (), "text", fallback=tuple(chain[1:])) for chain in longest}


def open_recorded(playback: Playback, settings: Settings, workspace: Path) -> Driver:
    """Return a driver of the run that is replayed, with planners that are shown the working folder as it was."""
    folder, world = playback.folder, _recorded_world(playback, settings, workspace)
    reader = reader_for(folder, settings, patient=False, known=world.known)
    judge = reader.judge
    run = playback.recording.run
    has_model = world.means.executor and (run.agent is None or run.models.executor is not None)
    judge.catalogue = replace(judge.catalogue, model=has_model)
    model, prompt = world.planner(playback.recording.run, None), load_prompt("planner", workspace)
    planner: Planner | None = None
    looks = partial(_look_around, playback)
    if model is not None:
        planner = ModelPlanner(model, prompt, judge.catalogue, judge.parsed, workspace, looks)
    chosen = planner_for(folder, reader, world, planner)
    if isinstance(chosen.loop, OneStep):
        chosen = replace(chosen, loop=replace(chosen.loop, look_around=looks))
    driver = _ReplayDriver(folder, reader, world, chosen, places=10_000)
    driver.playback = playback
    return driver


def _look_around(
    playback: Playback,
    folder: Path,
    run: Run,
    workspace: Path,  # noqa: ARG001 - nothing is read from where it lies now
    context: object,  # noqa: ARG001
    goal: str,  # noqa: ARG001
) -> tuple[Material, Surroundings]:
    """Return the working folder as the planner was shown it then."""
    answer = playback.recording.answer(playback.call)
    lines, complete = (
        (answer.folder.entries, answer.folder.complete) if answer and answer.folder else _recorded_listing(playback)
    )
    files = frozenset(match[1] for line in lines if (match := _ENTRY.match(line)))
    folders = frozenset(line.removesuffix("/") for line in lines if line.endswith("/"))
    around = Surroundings(str(folder.resolve() / run.workdir), (), files, folders, complete)
    return Material(listing=lines, complete=complete), around


def _recorded_listing(playback: Playback) -> tuple[tuple[str, ...], bool]:
    """Return what an answer of an older release, which does not hold it, was shown: its conversation does."""
    tries = playback.recording.conversation(paths.call_conversation(playback.call)).tries
    shown = str(tries[0].messages[1].get("content")) if tries and len(tries[0].messages) > 1 else ""
    found = _LISTING.search(shown)
    return tuple(found[3].split("\n")) if found and found[3] else (), found is not None and not found[4]


def _known_tools(recording: Recording, workspace: Path) -> Known:
    """Return the tools of a run; of a person's own that are not here, what their orders tell."""
    orders = recording.all(Order)
    used = dict.fromkeys([*recording.run.tools, *(order.tool for order in orders if order.tool)])
    known = known_tools(workspace, used)
    lost = {
        name: ToolSpec(
            name,
            "a tool of one's own",
            {"type": "object"},
            "execute",
            repeatable=all(order.repeatable for order in orders if order.tool == name),
        )
        for name in used
        if name not in known.specs
    }
    lost |= {name: _as_ordered(lost.get(name) or known.specs[name], orders) for name in used if split_name(name)}
    return Known({**known.specs, **lost}, (*known.own, *lost), known.broken)


def _as_ordered(spec: ToolSpec, orders: Sequence[Order]) -> ToolSpec:
    """Return a tool of an MCP server as it was then: whether its hints are trusted may have changed since."""
    again = [order.repeatable for order in orders if order.tool == spec.name]
    return replace(spec, repeatable=all(again), gated=not all(again)) if again else spec


# ── what no record says ───────────────────────────────────────────────────────────────────────────────────


def recorded_settings(recording: Recording, workspace: Path | None) -> Settings:
    """Return the settings of a workspace, with a search engine and as many turns of a loop as the run had."""
    settings = load_settings(workspace / paths.SETTINGS, {}) if workspace else Settings()
    offered = any("\n- web_search (" in shown for shown in _briefings(recording))
    used = any(order.tool == "web_search" for order in recording.all(Order))
    search = settings.tools.web_search.model_copy(update={"url": "recorded" if offered or used else ""})
    tools = settings.tools.model_copy(update={"web_search": search})
    turns = next(_turns(recording), settings.executor.max_turns)  # of a run whose run.json does not say it
    executor = settings.executor.model_copy(update={"max_turns": turns})
    return settings.model_copy(update={"tools": tools, "executor": executor})


def _means(recording: Recording, tools: Means) -> Means:
    """Return what models the run had. run.json of the first release names some also where there were none."""
    if recording.run.proof is not None:
        return means_of(recording.run, tools)
    outcome, roles = recording.outcome, {one.by.role for one in recording.all(Revision)}
    asked = {one.role for one in _tries(recording)}
    out_of_replans = outcome is not None and outcome.reason == "replan_budget_exhausted"
    offered = any("\n- no tool: a model does" in shown for shown in _briefings(recording))
    return replace(
        tools,
        planner="planner" in asked | roles or out_of_replans,
        executor=bool(asked & {"executor", "judge"}) or "agentfs" in roles or offered,
    )


def _tries(recording: Recording) -> Iterator[Try]:
    return (one for conversation in recording.conversations.values() for one in conversation.tries)


def _briefings(recording: Recording) -> Iterator[str]:
    asked = (one for one in _tries(recording) if one.role == "planner" and len(one.messages) > 1)
    return (str(one.messages[1].get("content")) for one in asked)


def _turns(recording: Recording) -> Iterator[int]:
    """Yield how many turns a loop might take, where one came to its last."""
    for result in recording.all(Result):
        if result.error and (found := _TURNS.match(result.error.message)):
            yield int(found[1])
    for request in _tries(recording):
        if any(message.get("content") == conversation.LAST_TURN for message in request.messages[-1:]):
            yield sum(message.get("role") == "assistant" for message in request.messages) + 1
