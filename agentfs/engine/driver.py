"""Drive one run: read facts, derive, decide, perform. What an action does to the world is in `deeds`.

    files ──read──► facts ──derive──► state ──decide──► actions ──perform──► files
                      ▲                                                        │
                      └──────────── own writes are learned at once ────────────┘

Events wake the driver and never inform it: it looks at the folder again. Work that takes time (attempts, checks)
runs on a pool; when a job ends it leaves its news in `mail` and wakes the driver.
"""

import functools
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from agentfs.core import paths
from agentfs.core.decide import (
    Action,
    AskPerson,
    EndRun,
    IssueOrder,
    RunGoalChecks,
    SettleReply,
    StartAttempt,
    StopAttempt,
    Wait,
    abandoned,
    decide,
    next_retry,
)
from agentfs.core.facts import Facts
from agentfs.core.mask import Mask
from agentfs.core.records import Run, Sandbox, Tools
from agentfs.core.run_state import Means, derive, used_by
from agentfs.core.steps import StepView
from agentfs.engine.notify import RunBell, no_bell
from agentfs.engine.run_reader import RunReader
from agentfs.executor.attempt import Halt
from agentfs.executor.checks import Checker, run_checks
from agentfs.executor.desk import MAX_TURNS
from agentfs.executor.evidence import FolderWatch
from agentfs.models.base import Model
from agentfs.models.budget import Budget
from agentfs.planner import Planner
from agentfs.storage.clock import Clock
from agentfs.storage.displaced_plans import look_after
from agentfs.storage.files import Leftover
from agentfs.storage.starting import Starter
from agentfs.storage.steps_folder import Shelf
from agentfs.tools.base import Confinement, Tool

CALL_SECONDS = 1800.0

Models = Callable[
    [Run, str | None], Model | None
]  # for a run, by name (None: the one it began with); None: there is none


class Keeping(Protocol):
    """Whoever brings the ledger up to date with a run, once it is told to look."""

    def note(self, folder: Path) -> None: ...

    def look_through(self, ended: Iterable[Path]) -> None: ...

    def is_idle(self) -> bool: ...


def no_model(_run: Run, _name: str | None) -> Model | None:
    """Return the model of a world that has none."""
    return None


JobKey = tuple[str, str, int]  # what, which step, which number
News = Callable[[Facts], Facts]  # what a finished job has learned, to be laid over the facts


@dataclass(frozen=True, slots=True)
class World:
    """Everything a driver touches beside its run's folder. Nothing is global."""

    workspace: Path
    clock: Clock
    pool: Executor  # attempts and checks
    desk: Executor  # calls of the planner: they wait for a model, and take no place from an attempt
    tools: dict[str, Tool]
    means: Means  # of the run that is driven
    keeper: Keeping
    mask: Mask
    sandbox: Sandbox
    environment: dict[str, str]
    person: tuple[str, str]
    wake: Callable[[], None]  # turn() should be called soon
    own: tuple[str, ...] = ()  # the tools that are a person's own
    broken: tuple[str, ...] = ()  # and why others of theirs cannot be used
    executor: Models = no_model  # the models that do steps
    planner: Models = no_model  # and those that plan
    check: Checker = run_checks
    starter: Starter = field(default_factory=Starter)  # of processes
    watch: FolderWatch = field(default_factory=FolderWatch)  # of working folders
    bell: Callable[[Path], RunBell] = no_bell  # who is told that a run waits for a person
    max_turns: int = MAX_TURNS  # of one step's loop
    call_s: float = CALL_SECONDS  # that one call of the planner may take
    protected: tuple[Path, ...] = ()  # what agentfs runs or trusts by the settings' word


@dataclass(slots=True)
class Job:
    """Something under way on the pool, and how to end it early."""

    stop: Halt = field(default_factory=Halt)
    ended: bool = False  # its news is in the mail, or about to be


class Driver:
    """One run, driven. Hold the lock of its folder for as long as you use one."""

    def __init__(self, folder: Path, reader: RunReader, world: World, planner: Planner, *, places: int) -> None:
        self.folder, self.reader, self.world, self.planner = folder, reader, world, planner
        self.shelf = Shelf.of(folder)
        self.places = places  # attempts this process may run at once
        self.mail: queue.SimpleQueue[tuple[JobKey, News | BaseException]] = queue.SimpleQueue()
        self.jobs: dict[JobKey, Job] = {}
        self.facts = reader.read()
        self.state = derive(self.facts, world.means)
        self.meter = Budget(self.state.bounds, used_by(self.state))
        self.heard: dict[str, int] = {}  # by conversation: characters of the reply that is coming, or came last
        self.trouble: BaseException | None = None
        self.leftovers: list[Leftover] = []  # plans that came out of an exchange and may still be written to
        self.placed = False  # a plan is in its place and has no number yet: nobody looks at plan.json before it has
        self.alone = False  # the action being performed has nothing beside it that it could hold up
        self.bell = world.bell(folder)
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
        """Read, derive, decide, perform; return what was decided. Draining starts nothing new, nor does trouble."""
        from agentfs.engine.perform import perform

        self._take_mail()
        draining = draining or self.trouble is not None
        if self.leftovers:
            self.leftovers = look_after(self.folder, self.leftovers, self.reader.still)
        placed, self.placed = self.placed, False
        if self._look.is_set() and not placed:
            self._look.clear()
            self.facts = self.reader.read(self.facts)
        self.facts = self.reader.judged(self.facts)
        self.state = derive(self.facts, self.world.means, self.state)
        self.meter.bounds = self.state.bounds
        slots = 0 if draining else self.places - self.taken() + self._already_started()
        actions = [action for action in decide(self.state, slots, self.now()) if not self._under_way(action)]
        if slots > 0 and not self.jobs:
            actions = abandoned(self.state, actions)
        if draining:
            actions = [a for a in actions if isinstance(a, Wait | StopAttempt)]
        if any(isinstance(a, EndRun) for a in actions) and self._halt_checks():
            actions = [a for a in actions if not isinstance(a, EndRun)]
        actions = [a for a in actions if not (isinstance(a, EndRun) and self._is_being_asked())]
        self.alone = len(actions) == 1 and not self.jobs
        for action in actions:
            perform(action, self)
        if self.facts.outcome is not None:
            self.stop_all()  # a call that is still open: nobody waits for its answer
        actions = actions or [Wait("attempt", "work is under way")]
        self.bell(self.state, actions)
        return actions

    def now(self) -> str:
        """Return the time by which it is decided what may start."""
        return self.world.clock.stamp()

    def due_in(self) -> float | None:
        """Return in how many seconds something is due that waits for its time; None if nothing does."""
        one = next_retry(self.state, self.now())
        return self.world.clock.seconds_until(one.not_before) if one and one.not_before else None

    def _halt_checks(self) -> bool:
        """End the checks of what steps need, as nothing is asked after the end; return whether there are any."""
        checking = [job for key, job in self.jobs.items() if key[0] in ("attempt", "gate") and not self._ordered(key)]
        for job in checking:
            job.stop.halt()
        return bool(checking)

    def _ordered(self, key: JobKey) -> bool:
        attempt = self.facts.attempt(key[1], key[2])
        return attempt.order is not None or attempt.torn

    def _is_being_asked(self) -> bool:
        """Whether a person is still writing a wish for another plan: no end is certain before it is read."""
        wish = self.folder / paths.REPLAN
        return wish.exists() and not self.reader.still.is_complete(wish)

    def taken(self) -> int:
        """Return how many places are taken: a call of the planner waits for another program, and takes none."""
        return sum(key[0] != "call" for key in self.jobs)

    def at_work(self) -> int:
        """Return how many of these have not ended yet."""
        return sum(key[0] != "call" and not job.ended for key, job in self.jobs.items())

    def _already_started(self) -> int:
        """Return how many steps that may start have a job: to the files alone, each of them still needs a place."""
        return sum(self._has_a_job(view) for key in self.jobs if (view := self.state.steps.get(key[1])))

    def _has_a_job(self, view: StepView) -> bool:
        """Whether what would be started is under way: its order stands, or its needs are being looked at."""
        match view.move:
            case "start":
                return ("attempt", view.id, view.attempt) in self.jobs
            case "order" | "retry":
                return ("attempt", view.id, view.next) in self.jobs
            case "ask":
                return ("gate", view.id, view.next) in self.jobs
            case _:
                return False

    def _take_mail(self) -> None:
        while not self.mail.empty():
            key, news = self.mail.get()
            self.jobs.pop(key, None)
            if isinstance(news, BaseException):
                self.trouble = self.trouble or news
            else:
                self.facts = news(self.facts)

    def awaits(self, actions: list[Action]) -> bool:
        """Whether all that was decided is to wait, or is under way now: nothing else follows before there is news."""
        return all(isinstance(action, Wait) or self._under_way(action) for action in actions)

    def _under_way(self, action: Action) -> bool:
        match action:
            case IssueOrder(view=view) | StartAttempt(view=view) | AskPerson(view=view):
                return self._has_a_job(view)
            case SettleReply(view=view, about="ask"):
                return ("attempt", view.id, view.attempt) in self.jobs
            case RunGoalChecks():
                return any(key[0] == "checks" for key in self.jobs)
            case StopAttempt(step=step, attempt=number):
                if job := self.jobs.get(("attempt", step, number)):
                    return job.stop.is_set()
                return self.facts.attempt(step, number).order is None  # torn: there is nothing to settle
            case _:
                return False

    def submit(
        self,
        key: JobKey,
        work: Callable[[Job], News],
        *,
        at_once: bool = False,
        desk: Executor | None = None,
    ) -> None:
        """Run something on the pool, or at once if it takes no time; its news arrives by mail either way."""
        job = self.jobs[key] = Job()

        def run() -> None:
            try:
                news: News | BaseException = work(job)
            except BaseException as error:  # noqa: BLE001 - a worker's surprise belongs to the driver, not to a thread
                news = error
            job.ended = True
            self.mail.put((key, news))

        def run_and_wake() -> None:
            run()
            self.world.wake()

        if at_once:
            run()
        else:
            (desk or self.world.pool).submit(run_and_wake)

    def hears(self, whose: str) -> Callable[[int], None]:
        """Return what is told how many characters of a reply in this conversation have come: views may show it."""
        return functools.partial(self.heard.__setitem__, whose)

    def learn(self, **changed: object) -> None:
        """Lay one of our own writes over the facts, so that nobody has to read it back."""
        self.facts = replace(self.facts, **changed)  # type: ignore[arg-type]

    def stop_all(self) -> None:
        """Ask everything under way to end."""
        for job in self.jobs.values():
            job.stop.halt()


def at_rest(actions: list[Action], driver: Driver) -> Wait | None:
    """Return why nothing more will happen by itself; None while something may."""
    if driver.jobs or driver.leftovers or len(actions) != 1 or not isinstance(actions[0], Wait):
        return None
    return actions[0] if actions[0].on in ("person", "nothing") else None
