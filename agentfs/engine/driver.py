"""Drive one run: read facts, derive, decide, perform. What an action does to the world is in `perform`.

    files ──read──► facts ──derive──► state ──decide──► actions ──perform──► files
                      ▲                                                        │
                      └──────────── own writes are learned at once ────────────┘

Events wake the driver and never inform it: it looks at the folder again. Work that takes time (attempts, checks,
calls) runs on a pool; a job that ends leaves its report, a value, in `reports` and wakes the driver.
"""

import functools
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from agentfs.agents.presets import Agent
from agentfs.core import paths
from agentfs.core.actions import Action, JobKey, Wait
from agentfs.core.config import Settings
from agentfs.core.decide import decide, next_retry
from agentfs.core.mask import Mask
from agentfs.core.records import Order, Run, Sandbox, Tools
from agentfs.core.reports import AttemptAsked, Report, apply
from agentfs.core.run_state import Means, derive, used_by
from agentfs.core.underway import Underway, is_underway, takes_place
from agentfs.engine.day_limit import DayLimit
from agentfs.engine.isolation import IsolatedFolder
from agentfs.engine.notify import EndNotifier, Notifier
from agentfs.engine.run_reader import RunReader
from agentfs.errors import UserError
from agentfs.executor.attempt import Halt
from agentfs.executor.checks import RealObserver
from agentfs.models.base import Model
from agentfs.models.budget import Budget
from agentfs.places.relay import Places
from agentfs.planner import Planner
from agentfs.storage.clock import Clock
from agentfs.storage.files import StepsFolder
from agentfs.storage.locks import keep
from agentfs.storage.plan_files import DisplacedFile, look_after
from agentfs.storage.starting import Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, Observer, Tool
from agentfs.tools.registry import Known, Toolbox

Models = Callable[
    [Run, str | None], Model | None
]  # for a run, by name (None: the one it began with); None: there is none


class Commits(Protocol):
    """What brings the ledger up to date with a run."""

    def note(self, folder: Path) -> None: ...

    def look_through(self, ended: Iterable[Path]) -> None: ...

    def is_idle(self) -> bool: ...


class ChildRuns(Protocol):
    """What begins the runs that are steps of others, and ends those steps when they have ended."""

    def begin(self, order: Order, driver: "Driver") -> None: ...

    def finish(self, step: str, attempt: int, driver: "Driver") -> None: ...

    def take_begun(self) -> list[tuple[Path, ExitStack]]:
        """Return the runs that were begun since this was last asked, each with what holds its lock."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything a driver touches beside its run's folder. Nothing is global."""

    workspace: Path
    settings: Settings
    environment: dict[str, str]
    clock: Clock
    pool: Executor  # attempts and checks
    calls: Executor  # calls of the planner: they wait for a model, and take no place from an attempt
    toolbox: Toolbox
    means: Means  # of the run that is driven
    committer: Commits
    children: ChildRuns  # the runs that are steps of others
    mask: Mask
    sandbox: Sandbox
    person: tuple[str, str]
    wake: Callable[[], None]  # a turn should be taken soon
    executor: Models = lambda _run, _name: None  # the models that do steps
    planner: Models = lambda _run, _name: None  # and those that plan
    observer: Observer = field(default_factory=RealObserver)  # runs checks, compares folders
    starter: Starter = field(default_factory=Starter)  # of processes
    on_wait: Notifier | None = None  # runs a person's command when a run waits for them
    on_end: EndNotifier | None = None  # and when one has ended
    agents: Mapping[str, Agent] = field(default_factory=dict)  # the coding agents there are, by name
    protected: tuple[Path, ...] = ()  # what agentfs runs or trusts by the settings' word
    places: Places = field(default_factory=Places)  # where else attempts may run
    day: DayLimit | None = None  # what all runs together may spend today

    @property
    def tools(self) -> dict[str, Tool]:
        return self.toolbox.tools

    @property
    def known(self) -> Known:
        """The tools as plans see them."""
        specs = {name: tool.spec for name, tool in self.tools.items()}
        return Known(specs, self.toolbox.own, self.toolbox.broken)


@dataclass(slots=True)
class Job:
    """Something under way on the pool, and how to end it early."""

    stop: Halt = field(default_factory=Halt)
    place: str | None = None  # where it runs; None: here
    ended: bool = False  # it has left its report, or is about to


class Driver:
    """One run, driven. Hold the lock of its folder for as long as you use one."""

    def __init__(self, folder: Path, reader: RunReader, world: World, planner: Planner, *, places: int) -> None:
        self.folder, self.reader, self.world, self.planner = folder, reader, world, planner
        self.steps_folder = StepsFolder.of(folder)
        self.places = places  # attempts this process may run at once
        self.reports: queue.SimpleQueue[tuple[JobKey, Report | BaseException]] = queue.SimpleQueue()
        self.jobs: dict[JobKey, Job] = {}
        self.facts = reader.read()
        self.state = derive(self.facts, world.means)
        self.budget = Budget(self.state.bounds, used_by(self.state))
        self.isolated: IsolatedFolder | None = None  # the run's worktree, if it has one of its own
        self.doing: dict[str, str] = {}  # by conversation: what an agent does now, in words
        self.received: dict[str, int] = {}  # by conversation: characters of the reply that is coming, or came last
        self.trouble: BaseException | None = None
        self.displaced: list[DisplacedFile] = []  # plans that came out of an exchange and may still be written to
        self.placed = False  # a plan is in its place and has no number yet: plan.json is not read before it has
        self.alone = False  # the action being performed has nothing beside it that it could hold up
        self.notify = world.on_wait.of_run(folder) if world.on_wait else None
        self.rooms: dict[Tools | None, Confinement] = {}  # what the tools may touch, by what the plan says of them
        self._look = threading.Event()

    def look_again(self) -> None:
        """Say that something in the folder may have changed. Any thread may."""
        self._look.set()
        self.world.wake()

    @property
    def must_look(self) -> bool:
        """Whether something in the folder may have changed since it was last read."""
        return self._look.is_set()

    def turn(self, *, draining: bool = False) -> list[Action]:
        """Read, derive, decide, perform; return what was decided. Draining starts nothing new."""
        self._read()
        self._derive()
        actions = decide(self.state, self.places, self.now(), self._underway(draining))
        self._perform(actions)
        return actions

    def _read(self) -> None:
        """Bring the facts up to date: what jobs report, then the folder if something there may have changed."""
        self._take_reports()
        if self.trouble is None and not keep(self.folder):
            words = "now: the lock lay in runs/.git, which was deleted or replaced. What ran here is ended"
            self.trouble = UserError(f"another process drives {self.facts.run.run} {words}")
        if self.displaced:
            self.displaced = look_after(self.folder, self.displaced, self.reader.completeness)
        placed, self.placed = self.placed, False
        if self._look.is_set() and not placed:
            self._look.clear()
            self.facts = self.reader.read(self.facts)
        self.facts = self.reader.judged(self.facts)

    def _derive(self) -> None:
        self.state = derive(self.facts, self.world.means, self.state)
        if self.world.day and (day := self.world.day.reached_by(self.folder)) != self.state.day:
            self.state = replace(self.state, day=day)

    def _take_reports(self) -> None:
        while not self.reports.empty():
            key, report = self.reports.get()
            self.jobs.pop(key, None)
            if isinstance(report, BaseException):
                self.trouble = self.trouble or report
                continue
            self.learn(report)
            if isinstance(report, AttemptAsked):
                self._look.set()  # a reply that came at once was not looked at while the attempt was under way

    def _underway(self, draining: bool) -> Underway:
        """Return what this process is doing for the run; after trouble it starts nothing."""
        jobs = {key: job.stop.is_set() for key, job in self.jobs.items()}
        elsewhere = {key: job.place for key, job in self.jobs.items() if job.place}
        rooms = self.world.places.free()
        asking = self.reader.is_coming(self.folder / paths.REPLAN)
        return Underway(jobs, draining or self.trouble is not None, elsewhere, rooms, asking=asking)

    def _perform(self, actions: list[Action]) -> None:
        from agentfs.engine.perform import perform

        self.budget.bounds = self.state.bounds
        self.alone = len(actions) == 1 and not self.jobs
        for action in actions:
            perform(action, self)

    def now(self) -> str:
        """Return the time by which it is decided what may start."""
        return self.world.clock.stamp()

    def due_in(self) -> float | None:
        """Return in how many seconds something is due that waits for its time; None if nothing does."""
        one = next_retry(self.state, self.now())
        due = self.world.clock.seconds_until(one.not_before) if one and one.not_before else None
        return TIMING.day_limit if self.state.day and (due is None or due > TIMING.day_limit) else due

    def taken(self) -> int:
        """Return how many places for attempts are taken."""
        return sum(takes_place(key) and job.place is None for key, job in self.jobs.items())

    def at_work(self) -> int:
        """Return how many of these have not ended yet."""
        return sum(takes_place(key) and job.place is None and not job.ended for key, job in self.jobs.items())

    def awaits(self, actions: list[Action]) -> bool:
        """Whether all that was decided is to wait, or is under way now: nothing else follows before a report."""
        jobs = {key: job.stop.is_set() for key, job in self.jobs.items()}
        return all(isinstance(action, Wait) or is_underway(action, self.facts, jobs) for action in actions)

    def submit(
        self,
        key: JobKey,
        work: Callable[[Job], Report],
        *,
        at_once: bool = False,
        pool: Executor | None = None,
        place: str | None = None,
    ) -> None:
        """Run something on a pool, or at once if it takes no time; its report is taken at the next turn.

        `place`: where it is carried out; a thread here waits for it.
        """
        opened = self.world.places.opened.get(place or "")
        job = self.jobs[key] = Job(place=place)

        def run() -> None:
            try:
                report: Report | BaseException = work(job)
            except BaseException as error:  # noqa: BLE001 - a worker's surprise belongs to the driver, not to a thread
                report = error
            job.ended = True
            if opened:
                opened.take(-1)
            self.reports.put((key, report))

        def run_and_wake() -> None:
            run()
            self.world.wake()

        if at_once:
            run()
        else:
            if opened:
                opened.take()
            (opened.pool if opened else pool or self.world.pool).submit(run_and_wake)

    def receives(self, whose: str) -> Callable[[int], None]:
        """Return what counts the characters of a reply in this conversation as they come: views may show it."""
        return functools.partial(self.received.__setitem__, whose)

    def shows(self, whose: str) -> Callable[[str], None]:
        """Return what takes what an agent does now, in words: views may show it."""
        return functools.partial(self.doing.__setitem__, whose)

    def learn(self, report: Report) -> None:
        """Lay over the facts what a worker reports, or what this driver has written itself."""
        self.facts = apply(report, self.facts)

    def update(self, **changed: object) -> None:
        """Lay one of our own writes over the facts, so that it need not be read back."""
        self.facts = replace(self.facts, **changed)  # type: ignore[arg-type]

    def stop_all(self) -> None:
        """Ask everything under way to end, as this process lets go of the run."""
        for job in self.jobs.values():
            job.stop.leave()


def at_rest(actions: list[Action], driver: Driver) -> Wait | None:
    """Return why nothing more will happen by itself; None while something may."""
    if driver.jobs or driver.displaced or len(actions) != 1 or not isinstance(actions[0], Wait):
        return None
    return actions[0] if actions[0].on in ("person", "child", "nothing") else None
