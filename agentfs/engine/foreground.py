"""Drive one run in the foreground: turn, wait for something to happen, turn again, until it rests."""

import queue
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from agentfs.core import paths
from agentfs.core.decide import Action, Wait
from agentfs.core.facts import Facts
from agentfs.core.run_state import RunState
from agentfs.engine.driver import Driver, at_rest
from agentfs.engine.status_page import EVERY_SECONDS as PAGE_SECONDS
from agentfs.engine.status_page import StatusFile
from agentfs.storage.files import is_own_temp
from agentfs.storage.watcher import FolderWatch

RESCAN_SECONDS = 10.0
RESTLESS_SECONDS = 0.1
ALERT_SECONDS = 1.0
SHORTEST_SECONDS = 0.01  # clocks do not agree to the microsecond
CALM_SECONDS = 0.05  # what has begun is shown when nothing else has come for that long
DEAF_SECONDS = 1.0  # where not everything is heard


class Wake:
    """Lets one thread wait until another, or a signal that interrupts it, has something for it.

    Not a threading.Event: a signal may come while the waiting thread holds the event's lock, and setting it from
    there waits for that lock for ever. A SimpleQueue may be put into at any moment.
    """

    def __init__(self) -> None:
        self._rung: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, seconds: float) -> None:
        """Return when it was set since it was last cleared, or when that long has passed."""
        with suppress(queue.Empty):
            self._rung.get(timeout=max(0.0, seconds))
            self._rung.put(None)  # it stays set until it is cleared

    def clear(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._rung.get_nowait()


@dataclass(slots=True)
class Stop:
    """How hard a person has asked to stop: once, and what runs finishes; twice, and it is ended."""

    asked: int = 0
    wake: Wake = field(default_factory=Wake)
    told: int = 0
    lent: bool = False  # another program has the terminal: Ctrl-C is for that one

    def ask(self, times: int = 1) -> None:
        self.asked += times
        self.wake.set()


class Watcher(Protocol):
    """Whoever is told what happens."""

    def turn(self, state: RunState, actions: list[Action]) -> None: ...

    def note(self, words: str) -> None: ...


class Asker(Protocol):
    """Whoever asks a person, on the terminal, what the run asks."""

    def turn(self, state: RunState, *, stopping: bool) -> bool:
        """Ask what is open, act on what was answered; return whether the run goes on when that is answered."""
        ...

    def has_news(self) -> bool: ...


class AsksNothing:
    """Leaves every question to its file."""

    def turn(self, state: RunState, *, stopping: bool) -> bool:  # noqa: ARG002
        return False

    def has_news(self) -> bool:
        return False


def drive(driver: Driver, stop: Stop, watcher: Watcher, asker: Asker | None = None) -> Wait | None:
    """Drive until the run rests; return why it does, or None if a person asked to stop."""
    asker = asker or AsksNothing()
    folders, steps = [driver.folder, driver.folder / paths.PLANNING], [driver.folder / paths.STEPS]
    status = StatusFile(driver.folder)
    with FolderWatch(folders, stop.wake.set, written=steps) as watch:
        lookout = Lookout(driver, watch)
        if watch.deaf:
            watcher.note(f"the run is looked at every second: {watch.deaf}")
        while True:
            actions = driver.turn(draining=stop.asked > 0)
            watcher.turn(driver.state, actions)
            status.keep(driver.state)
            _tell(stop, driver, watcher)
            if driver.trouble is not None:
                raise driver.trouble
            if stop.asked > 1:
                driver.stop_all()
            asks = asker.turn(driver.state, stopping=stop.asked > 0)
            rest = None if stop.asked or asks else _resting(actions, driver)
            if rest or (stop.asked and not driver.jobs):
                status.keep(driver.state, now=True, driven=False)
                return rest
            if driver.mail.empty() and driver.awaits(actions):
                _wait(driver, stop, lookout, asker, _patience(driver, actions))
            elif lookout.has_news():
                driver.look_again()


@dataclass(slots=True)
class Lookout:
    """Tells when to look at the folder again: a file that is news, one that is being written, or time has passed."""

    driver: Driver
    watch: FolderWatch
    looked: float = field(default_factory=time.monotonic)
    alert: float = 0.0  # until when another process may be about to give a file its name

    def has_news(self) -> bool:
        seen = self.watch.seen()
        if any(is_unnamed(path, self.driver) for path in seen):
            self.alert = time.monotonic() + ALERT_SECONDS
        elif not any(is_news(path, self.driver) for path in seen) and self.patience() > 0:
            return False
        self.looked = time.monotonic()
        return True

    def patience(self) -> float:
        """Return for how many seconds there is no need to look unless something is seen."""
        pause = DEAF_SECONDS if self.watch.deaf else RESCAN_SECONDS
        if self.driver.reader.restless or self.driver.leftovers or self.alert > time.monotonic():
            pause = RESTLESS_SECONDS
        return self.looked + pause - time.monotonic()


def is_unnamed(path: str, driver: Driver) -> bool:
    """Whether an event speaks of a file in steps/ that another process has written and will now link to its place."""
    folder, name = _in_run(path, driver)
    return folder == paths.STEPS and name.startswith((".", "#")) and not is_own_temp(name)


def _in_run(path: str, driver: Driver) -> tuple[str, str]:
    """Return in which folder of a run a file is, "" for the run's own, and its name. A run may be called `steps`."""
    folder, _, name = path.removeprefix(f"{driver.folder}/").rpartition("/")
    return folder, name


def _patience(driver: Driver, actions: list[Action]) -> float:
    """Return for how many seconds no turn is needed though nothing happens."""
    if not all(isinstance(action, Wait) for action in actions):
        return CALM_SECONDS
    due, pause = driver.due_in(), PAGE_SECONDS if driver.jobs else RESCAN_SECONDS
    return pause if due is None else min(pause, max(due, SHORTEST_SECONDS))


def _wait(driver: Driver, stop: Stop, lookout: Lookout, asker: Asker, most: float) -> None:
    """Wait until there is a reason to turn: mail, news of the folder, a person's word, or that long has passed."""
    asked, until = stop.asked, time.monotonic() + most
    while driver.mail.empty() and stop.asked == asked and time.monotonic() < until:
        if asker.has_news() or driver.must_look:
            return
        stop.wake.wait(max(0.0, min(lookout.patience(), until - time.monotonic())))
        stop.wake.clear()
        if lookout.has_news():
            driver.look_again()
            return


def _tell(stop: Stop, driver: Driver, watcher: Watcher) -> None:
    """Say, once each, what a person's Ctrl-C does."""
    if stop.asked == stop.told or not driver.jobs:
        return
    stop.told = stop.asked
    watcher.note("what runs finishes; Ctrl-C again ends it" if stop.asked == 1 else "what runs is being ended")


def _resting(actions: list[Action], driver: Driver) -> Wait | None:
    """Nothing more happens by itself, and nothing is half written that might still change that."""
    return None if driver.reader.restless else at_rest(actions, driver)


def is_news(path: str, driver: Driver) -> bool:
    """Whether an event may speak of something this driver has not done itself."""
    folder, name = _in_run(path, driver)
    match folder:
        case paths.STEPS:
            file = paths.parse_step_file(name)
            if file is None or ("attempt", file.step, file.attempt) in driver.jobs:
                return False  # none of ours, or its news comes by mail
            return not _knows(driver.facts, file)
        case paths.PLANNING:
            return paths.parse_call_file(name) is not None
        case _:
            return name in (paths.PLAN, paths.OUTCOME, paths.REPLAN) or name.startswith("goal.")


def _knows(facts: Facts, file: paths.StepFile) -> bool:
    attempt = facts.attempt(file.step, file.attempt)
    match file.kind:
        case "order":
            return attempt.order is not None
        case "log":
            return attempt.claimed
        case "result":
            return attempt.result is not None
        case "question":
            return len(attempt.talks) >= file.count
        case "output":
            return True
        case _:
            return False
