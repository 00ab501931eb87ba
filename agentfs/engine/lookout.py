"""Has a person, or another process, changed the folder of a run? Asked of every open run twice a second.

A glance costs some 20 µs, so no event is needed, wherever the folder is. While a run works, its steps/ changes by its
driver's own doing: then only what people write counts, and the folder is read in full once it has been quiet.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentfs.core import paths
from agentfs.core.facts import Facts
from agentfs.engine.driver import Driver
from agentfs.storage.completeness import Signature
from agentfs.storage.files import listing
from agentfs.storage.locks import keep
from agentfs.storage.timing import TIMING

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
        tuple(map(_trace, (*(f"{top}/{name}" for name in _EDITED), *beside))),
        folders,
        {path: _trace(path) for path in replies},
    )


def _trace(path: str) -> Signature | None:
    """Return what changes when something else has that name, be it a file or not; None: nothing has it."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


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
