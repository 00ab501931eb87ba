"""Where a run is played again: a fresh workspace, a world with no outside, and a driver that waits for its cue.

Nothing here runs on another thread: what the engine hands to a pool is held until the recording says that it ended.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.decide import Action, AskPerson, CallPlanner, IssueOrder, StopAttempt
from agentfs.core.facts import Facts
from agentfs.core.records import Answer, Author, Call, JsonObject, Run
from agentfs.core.run_state import Means, RunState
from agentfs.core.tool_spec import ToolSpec
from agentfs.disk import publish, read_whole
from agentfs.engine import Driver, Job, JobKey, News, World, no_model
from agentfs.executor.attempt import Halt, render
from agentfs.judge import FileJudge
from agentfs.means import reader_for
from agentfs.models.base import Model
from agentfs.models.line import Line
from agentfs.planner import Planner
from agentfs.planner.acceptance import Look
from agentfs.planner.choosing import Nobody
from agentfs.planner.lint import Surroundings
from agentfs.planner.model import ModelPlanner
from agentfs.planner.one_step import OneStep
from agentfs.planner.prompt import Material
from agentfs.planner.surroundings import LookAround
from agentfs.prompts import load_prompt
from agentfs.replaying.hints import Hints
from agentfs.replaying.models import RecordedModel
from agentfs.replaying.playback import Playback
from agentfs.replaying.recording import Recording
from agentfs.replaying.tapes import Tape
from agentfs.replaying.timeline import LAST
from agentfs.replaying.tools import RecordedChecks, RecordedTool, RecordedWatch
from agentfs.tools.base import Tool
from agentfs.tools.registry import Known, builtins, known_tools
from agentfs.world import known_to, planner_for, take_charge

_LISTING = re.compile(
    r"\n\n# Working folder\n\n(It is empty\.|(`{3,})\n(.*?)\n\2(\n\(and more that is not listed\))?)(?=\n\n# |\Z)",
    re.DOTALL,
)
_ENTRY = re.compile(r"(.*)  (\d+) bytes\Z")


def same_paths(recorded: Path, replayed: Path, run: str) -> Callable[[str], str]:
    """Return what makes texts of both runs comparable: where the run lies is not a difference."""
    anywhere = re.compile(rf"(?:/[^\s/\"'`]+)*/{re.escape(run)}(?=/|\b)")

    def plain(text: str) -> str:
        for folder in (str(replayed), str(recorded)):
            text = text.replace(folder, f"/{run}")
        return anywhere.sub("RUN", text)

    return plain


def set_up(recording: Recording, root: Path) -> Path:
    """Make a workspace with the run as it began, and return the run's folder."""
    folder = root / "runs" / recording.run.run
    for part in (paths.PLANNING, paths.REVISIONS, paths.STEPS, paths.FILES):
        (folder / part).mkdir(parents=True)
    (root / "agentfs.toml").touch()
    publish(folder / paths.RUN, render(recording.run), durable=False)
    publish(folder / recording.goal_name, recording.first_goal(), durable=False)
    if (kept := recording.folder / paths.PLANNING / paths.CONTEXT).is_file():
        publish(folder / paths.PLANNING / paths.CONTEXT, read_whole(kept), durable=False)
    return folder


# ── the world ─────────────────────────────────────────────────────────────────────────────────────────────


class _Unkept:
    """Stands where the ledger is: a replay commits nothing."""

    def note(self, folder: Path) -> None:
        pass

    def look_through(self, ended: Iterable[Path]) -> None:
        pass

    def is_idle(self) -> bool:
        return True


@contextmanager
def recorded_world(playback: Playback, settings: Settings, hints: Hints, workspace: Path | None) -> Iterator[World]:
    """Yield a world in which everything from outside comes from the recording."""
    recording = playback.recording
    known = _known(recording, workspace)
    tools = {name: _tool(spec, playback) for name, spec in known.specs.items()}
    models = recording.run.models
    planner = RecordedModel(models.planner or "", models.planner_temperature, playback)

    def executor(_run: Run, name: str | None) -> Model:
        return RecordedModel(name or models.executor or "", models.executor_temperature, playback)

    with ThreadPoolExecutor(1) as idle:  # nothing is ever given to it
        yield World(
            workspace=workspace or playback.folder.parents[2],
            clock=playback.time.clock(),
            pool=idle,
            desk=idle,
            tools=tools,
            means=Means(hints.planner, hints.executor, {name: tool.spec.repeatable for name, tool in tools.items()}),
            keeper=_Unkept(),
            mask=playback.mask,
            sandbox=hints.sandbox,
            environment={},
            person=("somebody", ""),
            wake=lambda: None,
            own=known.own,
            broken=known.broken,
            executor=executor if hints.executor else no_model,
            planner=(lambda _run, _name: planner) if hints.planner else no_model,
            check=RecordedChecks(playback),
            watch=RecordedWatch(playback),
            max_turns=hints.max_turns or settings.executor.max_turns,
        )


def _known(recording: Recording, workspace: Path | None) -> Known:
    """Return the tools of a run; of a person's own that are not here, what their orders tell."""
    orders = [one.order for one in recording.attempts.values() if one.order]
    used = dict.fromkeys([*recording.run.tools, *(order.tool for order in orders if order.tool)])
    known = known_tools(workspace, used)
    lost = [name for name in used if name not in known.specs]
    more = {
        name: ToolSpec(
            name,
            "a tool of one's own",
            {"type": "object"},
            "execute",
            repeatable=all(order.repeatable for order in orders if order.tool == name),
        )
        for name in lost
    }
    return Known({**known.specs, **more}, (*known.own, *lost), known.broken)


def _tool(spec: ToolSpec, playback: Playback) -> Tool:
    """Return a tool that gives what was given; one that touches nothing is what it always is."""
    return (
        builtins()[spec.name] if spec.effects == "none" and spec.name in builtins() else RecordedTool(spec, playback)
    )


# ── the planner ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RecordedPlanner:
    """The planner on a model, shown the working folder as it was; nobody, where there was nobody."""

    planner: ModelPlanner
    recording: Recording

    def author(self, call: Call, facts: Facts) -> Author:
        return self._for(call).author(call, facts)

    def takes_time(self, call: Call, facts: Facts) -> bool:
        return self._for(call).takes_time(call, facts)

    def answer(self, call: Call, state: RunState, folder: Path, line: Line, look: Look) -> Answer:
        return self._for(call).answer(call, state, folder, line, look)

    def _for(self, call: Call) -> Planner:
        recorded = self.recording.calls.get(call.call)
        tape = self.recording.tape(paths.call_conversation(call.call))
        if recorded and recorded.answer and recorded.answer.verdict == "failed" and not tape.tries:
            return Nobody()
        return replace(self.planner, look=_look_then(tape))


@dataclass(frozen=True, slots=True)
class RecordedLoop:
    """Code that plans one step, and has checks written for the working folder as it was."""

    loop: OneStep
    recording: Recording

    def author(self, call: Call, facts: Facts) -> Author:
        return self.loop.author(call, facts)

    def takes_time(self, call: Call, facts: Facts) -> bool:
        return self.loop.takes_time(call, facts)

    def answer(self, call: Call, state: RunState, folder: Path, line: Line, look: Look) -> Answer:
        tape = self.recording.tape(paths.call_conversation(call.call))
        return replace(self.loop, look_around=_look_then(tape)).answer(call, state, folder, line, look)


def _look_then(tape: Tape) -> LookAround:
    return partial(_looked, tape.tries[0].messages[1:2] if tape.tries else ())


def _looked(
    told: tuple[JsonObject, ...],
    folder: Path,
    run: Run,
    workspace: Path,  # noqa: ARG001 - nothing is read from where it lies now
    context: object,  # noqa: ARG001
) -> tuple[Material, Surroundings]:
    """Return the working folder as a planner was shown it then."""
    found = _LISTING.search(str(told[0].get("content")) if told else "")
    lines = tuple(found[3].split("\n")) if found and found[3] else ()
    sized = {match[1]: match for line in lines if (match := _ENTRY.match(line))}
    folders = frozenset(line.removesuffix("/") for line in lines if line.endswith("/"))
    complete = bool(found) and not (found and found[4])
    around = Surroundings(str(folder.resolve() / run.workdir), (), frozenset(sized), folders, complete)
    return Material(listing=lines, complete=complete), around


# ── the driver ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Reined(Halt):
    """A stop sign that is seen where it was seen then: when the recording has nothing more to give."""

    seen: Callable[[], bool] = lambda: True
    stopped: bool = False  # somebody outside stopped it

    def is_set(self) -> bool:
        return (self.raised or self.stopped) and self.seen()

    @property
    def raised(self) -> bool:
        return self._set


@dataclass(slots=True)
class _Held:
    job: Job
    work: Callable[[Job], News]


@dataclass(slots=True)
class Cues:
    """What the recording has come to: until then its orders and calls are held back."""

    recording: Recording
    given: set[str] = field(default_factory=set)

    def holds(self, file: str, *others: str) -> bool:
        known = any((self.recording.folder / one).exists() for one in (file, *others))
        return known and not self.given & {file, *others}


class CuedDriver(Driver):
    """A driver whose work is done in its own thread, when it is told; and that decides nothing before its time."""

    playback: Playback
    cues: Cues
    held: dict[JobKey, _Held]

    def submit(
        self,
        key: JobKey,
        work: Callable[[Job], News],
        *,
        first: Callable[[], None] = lambda: None,
        at_once: bool = False,
        desk: object = None,  # noqa: ARG002
    ) -> None:
        """Hold what the engine wants done until it ended in the recording."""
        first()
        job = self.jobs[key] = Job(stop=self._reined(key))
        self.held[key] = _Held(job, work)
        if at_once or key[0] == "gate":
            self.let_go(key)

    def now(self) -> str:
        """Return a time after every other: when something that waited began, the recording tells."""
        return LAST

    def _reined(self, key: JobKey) -> Halt:
        if key[0] != "attempt":
            return Halt()
        whose, playback = paths.conversation(key[1], key[2]), self.playback
        return _Reined(seen=lambda: playback.reel(whose).played(), stopped=playback.has_stopped(whose))

    def let_go(self, key: JobKey) -> None:
        """Do what is held, from beginning to end."""
        held = self.held.pop(key)
        try:
            news: News | BaseException = held.work(held.job)
        except BaseException as error:  # noqa: BLE001 - as in a pool: it belongs to whoever takes the mail
            news = error
        self.mail.put((key, news))

    def _under_way(self, action: Action) -> bool:
        match action:
            case IssueOrder(view=view):
                order, result = (paths.step_file(view.id, view.next, kind) for kind in ("order", "result"))
                held = self.cues.holds(f"{paths.STEPS}/{order}", f"{paths.STEPS}/{result}")
                return held or super()._under_way(action)
            case AskPerson(view=view, about="gate"):
                files = (paths.step_file(view.id, view.next, kind) for kind in ("question", "result"))
                question, result = (f"{paths.STEPS}/{file}" for file in files)
                return not (self.cues.recording.folder / question).exists() and self.cues.holds(result)
            case CallPlanner(call=call):
                return self.cues.holds(f"{paths.PLANNING}/{paths.call_file(call, 'call')}")
            case StopAttempt(step=step, attempt=number) if job := self.jobs.get(("attempt", step, number)):
                return isinstance(job.stop, _Reined) and job.stop.raised
            case _:
                return super()._under_way(action)


def open_cued(playback: Playback, settings: Settings, world: World, cues: Cues) -> CuedDriver:
    """Return a driver that has taken over the run."""
    folder = playback.folder
    reader = reader_for(folder, settings, patient=False, known=known_to(world))
    if isinstance(reader.judge, FileJudge):  # run.json of the first release names a model also where there was none
        reader.judge.catalogue = replace(reader.judge.catalogue, model=world.means.executor)
    planner = planner_for(folder, reader, world, _planner(playback.recording, reader.judge, world))
    if isinstance(planner.loop, OneStep):
        planner = replace(planner, loop=RecordedLoop(planner.loop, playback.recording))
    driver = CuedDriver(folder, reader, world, planner, places=10_000)
    driver.playback, driver.cues, driver.held = playback, cues, {}
    take_charge(driver)
    return driver


def _planner(recording: Recording, judge: object, world: World) -> Planner | None:
    model = world.planner(recording.run, None)
    if model is None or not isinstance(judge, FileJudge):
        return None
    prompt = load_prompt("planner", world.workspace)
    planner = ModelPlanner(model, prompt, judge.catalogue, judge.parsed, world.workspace, world.clock)
    return RecordedPlanner(planner, recording)
