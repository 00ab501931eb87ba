"""Drive one run in the foreground, with the runs that are its steps: turn, wait for something, turn again."""

import queue
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agentfs.core import paths
from agentfs.core.actions import Action, Wait
from agentfs.core.run_state import RunState
from agentfs.engine.driver import Driver, Lookout, glance, open_children
from agentfs.engine.perform import turn
from agentfs.engine.status_page import StatusFile
from agentfs.errors import AgentfsError
from agentfs.storage.locks import locked
from agentfs.storage.timing import TIMING


class Wake:
    """Lets one thread wait until another, or a signal that interrupts it, has something for it.

    Not a threading.Event: a signal may come while the waiting thread holds the event's lock, and setting it from
    there waits for that lock for ever. A SimpleQueue may be put into at any moment.
    """

    def __init__(self) -> None:
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        if self._signals.empty():
            self._signals.put(None)

    def wait(self, seconds: float) -> None:
        """Return when it was set since it was last cleared, or when that long has passed."""
        with suppress(queue.Empty):
            self._signals.get(timeout=max(0.0, seconds))
            self._signals.put(None)  # it stays set until it is cleared

    def clear(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._signals.get_nowait()


@dataclass(slots=True)
class Stop:
    """How hard a person has asked to stop: once, and what runs finishes; twice, and it is ended."""

    asked: int = 0
    wake: Wake = field(default_factory=Wake)
    announced: int = 0
    lent: bool = False  # another program has the terminal: Ctrl-C is for that one

    def ask(self, times: int = 1) -> None:
        self.asked += times
        self.wake.set()


class Watcher(Protocol):
    """Is informed of what happens in a run."""

    def turn(self, state: RunState, actions: list[Action]) -> None: ...

    def note(self, words: str) -> None: ...


class Asker(Protocol):
    """Asks a person, on the terminal, what the run asks."""

    def turn(self, driver: Driver, *, stopping: bool) -> bool:
        """Ask what is open, act on what was answered; return whether the run goes on when that is answered."""
        ...

    def has_news(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rest:
    """How a run and those that are steps of it came to rest."""

    why: Wait | None  # None: a person asked to stop
    below: list[tuple[Driver, Wait]]  # the runs that are steps of it and have not ended


OpenChild = Callable[[Path], tuple[Driver, Watcher]]  # a run that is a step of another; its lock is held


@dataclass(slots=True)
class DrivenRun:
    """A run that is driven here, with what looks at its folder."""

    driver: Driver
    watcher: Watcher
    hold: ExitStack  # the lock of a run that is a step of another, and what else ends with it
    lookout: Lookout
    status: StatusFile
    looked_at: float = 0.0
    read_at: float = 0.0  # when to read its folder whatever a glance says

    @classmethod
    def of(cls, driver: Driver, watcher: Watcher, hold: ExitStack) -> "DrivenRun":
        return cls(driver, watcher, hold, Lookout(driver, glance(driver.folder)), StatusFile(driver.folder))

    def turn(self, stop: Stop) -> None:
        driver = self.driver
        turn(driver, draining=stop.asked > 0)
        self.lookout.acted_at = time.monotonic()
        if driver.notify:
            driver.notify(driver.state, driver.actions)
        self.watcher.turn(driver.state, driver.actions)
        self.status.keep(driver.state)
        if driver.trouble is not None:
            raise driver.trouble
        if stop.asked > 1:
            driver.stop_all()

    def rest(self) -> Wait | None:
        """Return why nothing more happens by itself, or before a run that is a step of this one ends."""
        rest = self.driver.rest()
        return None if rest and rest.on == "child" and self.driver.must_look else rest

    @property
    def look_at(self) -> float:
        """When to look at its folder again."""
        return self.looked_at + (TIMING.restless if self.driver.is_restless else TIMING.glance)

    def look_if_due(self) -> None:
        """Have the folder read again if it has changed, or is being changed; now and then whatever it looks like."""
        now = time.monotonic()
        if now < self.look_at:
            return
        self.looked_at = now
        if self.driver.is_restless or now >= self.read_at:
            self.read_at = now + TIMING.rescan
            self.driver.look_again()
        else:
            self.lookout.look(now)


def drive(
    driver: Driver,
    stop: Stop,
    watcher: Watcher,
    asker: Asker | None = None,
    open_child: OpenChild | None = None,
) -> Rest:
    """Drive a run until it rests; with `open_child` also those that are steps of it, until all rest."""
    with ExitStack() as hold:
        root = DrivenRun.of(driver, watcher, hold)
        family = hold.enter_context(closing(Family(root, stop, open_child)))
        why = _drive(family, stop, asker)
        return Rest(why, [(one.driver, wait) for one in family.children if (wait := one.rest())])


def _drive(family: "Family", stop: Stop, asker: Asker | None) -> Wait | None:
    """Take turns of all until they rest; return why the run at the top does, or None if a person asked to stop."""
    root, runs = family.root, family.runs
    while True:
        root.turn(stop)
        family.turn_children()
        _announce(stop, runs, root.watcher)
        asks = asker is not None and any(asker.turn(one.driver, stopping=stop.asked > 0) for one in runs)
        rests = [one.rest() for one in runs]
        rest = None if stop.asked or asks or family.elsewhere or not all(rests) else rests[0]
        if rest or (stop.asked and not any(one.driver.jobs for one in runs)):
            for one in runs:
                one.status.keep(one.driver.state, now=True, driven=False)
            return rest
        if all(one.driver.reports.empty() and one.driver.awaits_reports() for one in runs):
            _wait(family, stop, asker)
        else:
            for one in runs:
                one.look_if_due()


class Family:
    """The runs that are driven here: the one at the top, and those that are steps of it, or of these."""

    def __init__(self, root: DrivenRun, stop: Stop, open_child: OpenChild | None) -> None:
        self.root, self.runs = root, [root]
        self.elsewhere: set[str] = set()  # children that another process drives
        self._stop, self._open_child = stop, open_child
        self._failed: set[str] = set()  # children that cannot be driven
        self._revisions = 0

    @property
    def children(self) -> list[DrivenRun]:
        return self.runs[1:]

    def turn_children(self) -> None:
        """Turn every child, take in those that began, let go of those that have ended."""
        if self._open_child is None:
            return
        self._look_up()
        for one in self.children:
            try:
                one.turn(self._stop)
            except Exception as error:  # noqa: BLE001 - what is wrong with a run is no fault of the one above
                self._let_go(one)
                self._set_aside(one.driver.facts.run.run, error)
            else:
                if one.driver.has_ended:
                    self._let_go(one)
        if not self._stop.asked:
            self._take_in(self._open_child)

    def _look_up(self) -> None:
        """Have the children look again when a plan has changed: they may be paused or cancelled."""
        revisions = sum(len(one.driver.facts.revisions) for one in self.runs)
        if revisions != self._revisions:
            self._revisions = revisions
            for one in self.children:
                one.driver.look_again()

    def _let_go(self, one: DrivenRun) -> None:
        one.driver.stop_all()
        with suppress(OSError):
            one.status.keep(one.driver.state, now=True, driven=False)
        one.hold.close()
        self.runs.remove(one)
        for other in self.runs:
            other.driver.look_again()

    def _set_aside(self, run: str, error: Exception) -> None:
        self._failed.add(run)
        self.root.watcher.note(f"{run} cannot be driven: {error}")

    def _take_in(self, open_child: OpenChild) -> None:
        """Drive the runs that began here, and those that are open and nobody drives."""
        world = self.root.driver.world
        for folder, hold in world.take_begun():
            self._open(folder, hold, open_child)
        before, self.elsewhere = self.elsewhere, set()
        here = {one.driver.facts.run.run for one in self.runs}
        for one in [*self.runs]:
            for run in () if one.driver.must_look else open_children(one.driver.facts):
                if run in here or run in self._failed:
                    continue
                folder, hold = world.workspace / "runs" / run, ExitStack()
                if hold.enter_context(locked(folder)):
                    self._open(folder, hold, open_child)
                else:
                    hold.close()
                    self.elsewhere.add(run)
        if before - self.elsewhere:
            self.root.driver.look_again()

    def _open(self, folder: Path, hold: ExitStack, open_child: OpenChild) -> None:
        hold.callback(self.root.driver.world.toolbox.run_ended, folder)
        try:
            self.runs.append(DrivenRun.of(*open_child(folder), hold))
        except (OSError, AgentfsError, ValueError) as error:
            hold.close()
            self._set_aside(paths.run_id(folder), error)

    def close(self) -> None:
        """Let go of all children: of those that were begun and not opened yet, too."""
        for _, hold in self.root.driver.world.take_begun():
            hold.close()
        for one in self.children:
            one.driver.stop_all()
            one.hold.close()


def _wait(family: Family, stop: Stop, asker: Asker | None) -> None:
    """Wait until there is a reason to turn: a report, a change in a folder, a person's word, or time has passed."""
    runs, asked = family.runs, stop.asked
    longest = min(_patience(one.driver) for one in runs)
    until = time.monotonic() + (min(longest, TIMING.glance) if family.elsewhere else longest)
    while all(one.driver.reports.empty() for one in runs) and stop.asked == asked:
        for one in runs:
            one.look_if_due()
        now = time.monotonic()
        if now >= until or (asker and asker.has_news()) or any(one.driver.must_look for one in runs):
            return
        stop.wake.wait(min(until, *(one.look_at for one in runs)) - now)
        stop.wake.clear()


def _patience(driver: Driver) -> float:
    """Return for how many seconds a run needs no turn though nothing happens."""
    if not driver.has_to_wait:
        return TIMING.calm
    due, pause = driver.due_in(), TIMING.status_page if driver.jobs else TIMING.rescan
    return pause if due is None else min(pause, max(due, TIMING.shortest))


def _announce(stop: Stop, runs: list[DrivenRun], watcher: Watcher) -> None:
    """Say, once each, what a person's Ctrl-C does."""
    if stop.asked == stop.announced or not any(one.driver.jobs for one in runs):
        return
    stop.announced = stop.asked
    watcher.note("what runs finishes; Ctrl-C again ends it" if stop.asked == 1 else "what runs is being ended")
