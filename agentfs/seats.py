"""The runs a daemon drives: which they are; of each its driver, its lock, and when to look at its folder again."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.core.decide import Action, Wait
from agentfs.driving import ALERT_SECONDS, is_news, is_unnamed
from agentfs.engine import Driver, at_rest
from agentfs.ui.status_page import StatusFile
from agentfs.watching import Glance, glance


@dataclass(eq=False, slots=True)
class Seat:
    """One run, driven for as long as `hold` is open."""

    driver: Driver
    hold: ExitStack  # the run's lock, and whatever else ends with it
    status: StatusFile
    seen: Glance
    since: float = field(default_factory=time.monotonic)
    looked: float = field(default_factory=time.monotonic)  # when it was last compared with what was seen
    attended: bool = False  # it was tried to have watchdog tell of its folders
    watched: bool = False  # and watchdog does
    settled: set[tuple[str, int]] = field(default_factory=set)  # attempts whose end was told
    alert: float = 0.0  # until when somebody may be about to give a file its name
    told: str = ""  # why it waits, as it was told
    leaving: bool = False  # set aside, as soon as what it has under way is over

    @classmethod
    def of(cls, driver: Driver, hold: ExitStack) -> "Seat":
        attempts = driver.facts.attempts.items()
        settled = {(step, one.number) for step, tries in attempts for one in tries if one.result}
        return cls(driver, hold, StatusFile(driver.folder), glance(driver.folder), settled=settled)

    @property
    def folder(self) -> Path:
        return self.driver.folder

    @property
    def finished(self) -> int:
        """How many places its jobs hold that have ended and wait to be taken in."""
        return self.driver.taken() - self.driver.at_work()

    @property
    def under_way(self) -> int:
        """How many places its jobs hold that have not ended."""
        return self.driver.at_work()

    @property
    def is_busy(self) -> bool:
        """Whether a job has not ended yet, calls of the planner included."""
        return any(not job.ended for job in self.driver.jobs.values())

    def hear(self, path: str) -> None:
        """Take in an event."""
        if is_unnamed(path, self.driver):
            self.alert = time.monotonic() + ALERT_SECONDS
            self.driver.look_again()
        elif is_news(path, self.driver):
            self.driver.look_again()

    def check(self) -> None:
        """Look again if the folder is gone, of which no event tells; and if nothing tells of anything, peek."""
        if not self.watched:
            self.peek()
        elif not os.path.lexists(f"{self.folder}/{paths.RUN}"):
            self.driver.look_again()

    def peek(self) -> None:
        """Look again if something there is not what it was, or a reply that does not count may have been mended."""
        now, self.looked = glance(self.folder), time.monotonic()
        if now != self.seen or self._has_idle_reply():
            self.seen = now
            self.driver.look_again()

    def _has_idle_reply(self) -> bool:
        facts = self.driver.facts
        for view in self.driver.state.moving("person"):
            tries = facts.attempts.get(view.id, ())
            if tries and any(talk.reply is not None for talk in tries[-1].talks):
                return True
        return False

    def is_restless(self) -> bool:
        """Whether something is being written, so that the folder has to be looked at again soon."""
        driver = self.driver
        return bool(driver.reader.restless or driver.leftovers or self.alert > time.monotonic())

    def has_ended(self, actions: list[Action]) -> bool:
        """Whether nothing is left to do but to let go of the run."""
        driver = self.driver
        over = driver.facts.outcome is not None and not driver.jobs and not driver.leftovers
        return over and all(isinstance(action, Wait) for action in actions)

    def waits(self, actions: list[Action]) -> Wait | None:
        """Return why the run waits for a person, if that has not been told yet."""
        if any(not isinstance(action, Wait) for action in actions):
            self.told = ""
        rest = None if self.driver.reader.restless else at_rest(actions, self.driver)
        if rest is None or rest.on != "person" or rest.why == self.told:
            return None
        self.told = rest.why
        return rest


def open_runs(runs: Path) -> Iterator[Path]:
    """Yield the folder of every run that has not ended, the oldest day first. Of one that has, it costs one call."""
    for day in sorted(subfolders(str(runs))):
        for folder in sorted(one for one in subfolders(day) if not os.access(f"{one}/{paths.OUTCOME}", os.F_OK)):
            if is_open(Path(folder)):
                yield Path(folder)


def subfolders(folder: str) -> list[str]:
    """Return the folders in a folder, hidden ones left out; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [one.path for one in entries if one.name[0] != "." and one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def is_open(folder: Path) -> bool:
    """Whether a folder holds a run without an outcome; one with no goal yet belongs to whoever makes it."""
    top = str(folder)
    if os.path.lexists(f"{top}/{paths.OUTCOME}") or not paths.is_run_id("/".join(top.rsplit("/", 2)[1:])):
        return False
    return os.path.lexists(f"{top}/{paths.RUN}") and any(
        os.path.lexists(f"{top}/goal{suffix}") for suffix in paths.GOAL_SUFFIXES
    )
