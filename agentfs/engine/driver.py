"""One run that is driven: its facts, its state, and what is under way for it. `perform.turn` takes its turns.

Events wake the driver and never inform it: it looks at the folder again. Work that takes time (attempts, checks,
calls) runs on a pool; a job that ends leaves its report, a value, in `reports` and wakes the driver.
"""

import functools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from agentfs.agents.presets import Agent
from agentfs.agents.running import usage_in_log
from agentfs.core import paths
from agentfs.core.actions import Action, JobKey, Wait
from agentfs.core.config import Settings
from agentfs.core.decide import decide, next_retry
from agentfs.core.facts import Attempt, AttemptAsked, AttemptFinished, Facts, Report, apply
from agentfs.core.mask import Mask
from agentfs.core.records import Failure, Order, Result, ResultStatus, Run, Sandbox, Tools
from agentfs.core.run_state import Means, derive, used_by
from agentfs.core.steps import UNKNOWN_KEY
from agentfs.core.underway import Underway, is_underway, takes_place
from agentfs.engine.isolation import IsolatedFolder
from agentfs.engine.means import DayLimit
from agentfs.engine.notify import EndNotifier, Notifier
from agentfs.engine.run_reader import RunReader
from agentfs.errors import UserError
from agentfs.executor.attempt import Halt, publish_result, unstarted_result
from agentfs.executor.attempt_log import marks_in
from agentfs.executor.checks import RealObserver
from agentfs.models.base import Model, usage_in
from agentfs.models.budget import Budget
from agentfs.places.relay import Places
from agentfs.planner import Planner
from agentfs.storage.clock import Clock
from agentfs.storage.files import Signature, StepsFolder, listing, read_lines, signature
from agentfs.storage.locks import keep
from agentfs.storage.plan_files import DisplacedFile, look_after
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, Observer, Tool
from agentfs.tools.process import end_survivors
from agentfs.tools.registry import Known, Toolbox

# Return a model for a run, by name (None: the one it began with), or None where there is none.
Models = Callable[[Run, str | None], Model | None]


CUT = Failure(kind="interrupted", message="agentfs was ended before this attempt finished", cause="crash")
BegunRun = tuple[Path, ExitStack]  # the folder of a new run, and what holds its lock


class Commits(Protocol):
    """What brings the ledger up to date with a run."""

    def note(self, folder: Path) -> None: ...

    def look_through(self, ended: Iterable[Path]) -> None: ...

    def is_idle(self) -> bool: ...


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
    begin_child: Callable[[Order, "Driver"], None]  # carries out an order of the tool `run`
    finish_child: Callable[[str, int, "Driver"], None]  # ends the attempt that such a run was
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
    begun: "queue.SimpleQueue[BegunRun]" = field(
        default_factory=queue.SimpleQueue
    )  # new runs that nothing drives yet

    @property
    def tools(self) -> dict[str, Tool]:
        return self.toolbox.tools

    @property
    def known(self) -> Known:
        """The tools as plans see them."""
        specs = {name: tool.spec for name, tool in self.tools.items()}
        return Known(specs, self.toolbox.own, self.toolbox.broken)

    def take_begun(self) -> list[BegunRun]:
        """Return the runs that were begun as steps of others since this was last asked."""
        found = []
        while not self.begun.empty():
            found.append(self.begun.get())
        return found


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
        self.actions: list[Action] = []  # what the last turn decided
        self.notify = world.on_wait.of_run(folder) if world.on_wait else None
        self.confinements: dict[Tools | None, Confinement] = {}  # what tools may touch, by what the plan says of them
        self._look = threading.Event()

    def look_again(self) -> None:
        """Say that something in the folder may have changed. Any thread may."""
        self._look.set()
        self.world.wake()

    @property
    def must_look(self) -> bool:
        """Whether something in the folder may have changed since it was last read."""
        return self._look.is_set()

    def read(self) -> None:
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

    def derive(self) -> None:
        """Bring the state, and what may be spent, up to date with the facts."""
        self.state = derive(self.facts, self.world.means, self.state)
        if self.world.day and (day := self.world.day.reached_by(self.folder)) != self.state.day:
            self.state = replace(self.state, day=day)
        self.budget.bounds = self.state.bounds

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

    def decide(self, *, draining: bool) -> list[Action]:
        """Return what to do next, given what is under way; draining, or after trouble, nothing new is started."""
        elsewhere = {key: job.place for key, job in self.jobs.items() if job.place}
        asking = self.reader.is_coming(self.folder / paths.REPLAN)
        free = {name: place.free() for name, place in self.world.places.opened.items()}
        underway = Underway(self._stopping(), draining or self.trouble is not None, elsewhere, free, asking=asking)
        self.actions = decide(self.state, self.places, self.now(), underway)
        return self.actions

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

    @property
    def is_alone(self) -> bool:
        """Whether what was decided has nothing beside it that it could hold up."""
        return len(self.actions) == 1 and not self.jobs

    @property
    def has_to_wait(self) -> bool:
        """Whether nothing was decided but to wait."""
        return all(isinstance(action, Wait) for action in self.actions)

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to do but to let go of the run."""
        return self.facts.outcome is not None and not self.jobs and not self.displaced and self.has_to_wait

    @property
    def is_restless(self) -> bool:
        """Whether something is being written, so that the folder has to be read again soon."""
        return bool(self.reader.restless or self.displaced)

    def awaits_reports(self) -> bool:
        """Whether all that was decided is to wait, or is under way now: nothing else follows before a report."""
        return all(isinstance(one, Wait) or is_underway(one, self.facts, self._stopping()) for one in self.actions)

    def _stopping(self) -> dict[JobKey, bool]:
        """Return each job, and whether it was asked to stop."""
        return {key: job.stop.is_set() for key, job in self.jobs.items()}

    def rest(self) -> Wait | None:
        """Return why nothing more will happen by itself; None while something may, or is being written."""
        if self.is_restless or self.jobs or len(self.actions) != 1:
            return None
        wait = self.actions[0]
        return wait if isinstance(wait, Wait) and wait.on in ("person", "child", "nothing") else None

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
            if not at_once:
                self.world.wake()

        if at_once:
            run()
            return
        if opened:
            opened.take()
        (opened.pool if opened else pool or self.world.pool).submit(run)

    def receives(self, whose: str) -> Callable[[int], None]:
        """Return what counts the characters of a reply in this conversation as they come: views may show it."""
        return functools.partial(self.received.__setitem__, whose)

    def shows(self, whose: str) -> Callable[[str], None]:
        """Return what takes what an agent does now, in words: views may show it."""
        return functools.partial(self.doing.__setitem__, whose)

    def learn(self, report: Report) -> None:
        """Add to the facts what a worker reports, or what this driver has written itself."""
        self.facts = apply(report, self.facts)

    def update(self, **changed: object) -> None:
        """Add one of our own writes to the facts, so that it need not be read back."""
        self.facts = replace(self.facts, **changed)  # type: ignore[arg-type]

    def unstarted(self, order: Order, status: ResultStatus, error: Failure | None = None) -> Result:
        """Return the result of an order that was never carried out."""
        return unstarted_result(order, status, error, self.world.clock, self.world.sandbox)

    def cut_off(self, step: str, attempt: Attempt) -> Result:
        """End what is left of an attempt and return its result: nobody knows how far it came.

        A claim is an attempt that was made, whatever else of it is missing.
        """
        log, state = self.folder / paths.STEPS / paths.step_file(step, attempt.number, "log"), self.state
        if attempt.claimed:
            for mark in marks_in(log):
                end_survivors(mark)
        order, view, now = attempt.order, state.view(step), self.world.clock.stamp()
        claimed_key = attempt.claim.key if attempt.claim else None
        return Result(
            run=state.facts.run.run,
            step=step,
            attempt=attempt.number,
            revision=order.revision if order else max(1, len(state.facts.revisions)),
            key=order.key if order else claimed_key or UNKNOWN_KEY,
            after=order.after if order else dict(view.after if view else {}),
            status="interrupted",
            error=CUT,
            sandbox=self.world.sandbox,
            usage=usage_in(log) or usage_in_log([*read_lines(log)]),
            started_at=(order.issued_at if order else now) if attempt.claimed else None,
            ended_at=now,
            duration_s=0.0,
        )

    def publish(self, result: Result, order: Order | None = None) -> AttemptFinished:
        """Write a result, and return the report of it."""
        return AttemptFinished(publish_result(result, self.steps_folder, self.world.mask), order)

    def stop_all(self) -> None:
        """Ask everything under way to end, as this process lets go of the run."""
        for job in self.jobs.values():
            job.stop.leave()


# ── has a person, or another process, changed the folder? ────────────────────────────────────────────────
#
# Asked of every open run twice a second: a glance costs some 20 µs, so no event is needed, wherever the folder is.
# While a run works, its steps/ changes by its driver's own doing: then only what people write counts, and the folder
# is read in full once it has been quiet.

_PEOPLES = (".again.md", ".reply.md")
_EDITED = (paths.RUN, paths.PLAN, paths.OUTCOME, paths.REPLAN, *(f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES))


@dataclass(frozen=True, slots=True)
class Glance:
    """What changes when a person, or another process, writes into a run's folder."""

    files: tuple[Signature | None, ...]  # the plan, the goal …
    folders: tuple[int, ...]  # when steps/ and planning/ got or lost a file
    replies: dict[str, Signature | None]  # what people have written there


def glance(run: Path, before: Glance | None = None, beside: Sequence[str] = ()) -> Glance:
    """Return what is there now. It is asked of every open run all the time: some 20 µs. `beside`: of other runs."""
    top = str(run)
    folders = (_change(f"{top}/{paths.STEPS}"), _change(f"{top}/{paths.PLANNING}"))
    replies = before.replies if before and before.folders == folders else _replies(top)
    return Glance(
        tuple(signature(path, regular=False) for path in (*(f"{top}/{name}" for name in _EDITED), *beside)),
        folders,
        {path: signature(path, regular=False) for path in replies},
    )


def _change(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _replies(run: str) -> list[str]:
    found = []
    for folder in (paths.STEPS, paths.PLANNING):
        with suppress(OSError):
            there = listing(f"{run}/{folder}")
            found += [f"{run}/{folder}/{name}" for name in there if name.endswith(_PEOPLES) or ".reply-" in name]
    return found


@dataclass(slots=True)
class Lookout:
    """Has a driver read its folder again when something there has changed that is not its own doing."""

    driver: Driver
    seen: Glance
    acted_at: float = field(default_factory=time.monotonic)  # when the driver had its last turn
    read_at: float = field(default_factory=time.monotonic)
    glanced_at: float = 0.0

    def look(self, now: float) -> None:
        """Glance at the folder, and have it read again if need be."""
        folder = self.driver.folder
        before, seen, self.glanced_at = self.seen, glance(folder, self.seen, _relatives(self.driver)), now
        if not keep(folder):
            self.driver.look_again()  # its next turn says so
        if (seen.files, seen.replies) == (before.files, before.replies):
            is_own_doing = now < self.acted_at + TIMING.own_doing and now < self.read_at + TIMING.reread
            if seen.folders == before.folders or is_own_doing:
                return
        is_racy = any(abs(time.time_ns() - changed) < TIMING.racy * 1e9 for changed in seen.folders)
        self.seen = replace(seen, folders=()) if is_racy else seen
        self.read_at = now
        self.driver.look_again()


def _relatives(driver: Driver) -> list[str]:
    """Return what of other runs concerns this one: revisions of the one above, outcomes of those below."""
    facts, runs = driver.facts, driver.folder.parents[1]
    above = [f"{runs}/{facts.run.parent.run}/{paths.REVISIONS}"] if facts.run.parent else []
    below = open_children(facts)
    return [*above, *(f"{runs}/{child}/{name}" for child in below for name in (paths.OUTCOME, paths.RUN))]


def open_children(facts: Facts) -> list[str]:
    """Return the runs that are steps of a run and have not ended."""
    unfinished = (one.child for attempts in facts.attempts.values() for one in attempts[-1:] if one.result is None)
    return [child.run for child in unfinished if child and child.begun and not child.is_over]
