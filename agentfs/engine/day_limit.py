"""What all runs of a workspace have spent on models since midnight, and whether that is all they may spend today.

Read from the results of attempts and calls as they appear, and from agentfs.toml as it is now. Nothing is stored.
"""

import json
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.run_state import Reached
from agentfs.errors import AgentfsError
from agentfs.storage.clock import Clock, format_moment, later
from agentfs.storage.files import read_whole
from agentfs.storage.safe_open import names_in
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace, all_folders, load_settings


class DayLimit:
    """Holds all runs of a workspace to `limits.day_usd`. Any thread may ask."""

    def __init__(self, workspace: Workspace, environment: Mapping[str, str], clock: Clock) -> None:
        self._workspace, self._environment, self._clock = workspace, dict(environment), clock
        self._setting: tuple[object, float | None] = (None, None)  # of which file, what it says
        self._setting_due = self._runs_due = -math.inf
        self._runs: set[str] = set()
        self._midnight = ""
        self._listed: dict[str, int] = {}  # by folder: when it had changed last as it was listed
        self._costs: dict[str, dict[str, float]] = {}  # by run: what each record that ended today cost
        self._lock = threading.Lock()

    def reached_by(self, folder: Path) -> Reached | None:
        """Return that the limit is reached, for the run that asks; None if there is room, or no limit."""
        with self._lock:
            limit = self._limit()
            if limit is None or self._sum_today(str(folder)) < limit:
                return None
            return Reached("day_usd", f"${limit:g} a day")

    def _limit(self) -> float | None:
        """Return the setting as it is now; while the file is not valid, as it was."""
        if (now := time.monotonic()) < self._setting_due:
            return self._setting[1]
        self._setting_due = now + TIMING.day_setting
        version = _version(self._workspace.settings)
        if version != self._setting[0] or self._setting[0] is None:
            with suppress(AgentfsError):
                settings = load_settings(self._workspace.settings, self._environment)
                self._setting = version, settings.limits.day_usd
        return self._setting[1]

    def _sum_today(self, folder: str) -> float:
        """Return what every run has spent today; `folder`: one that may be too new to be in the list."""
        if (midnight := self._clock.midnight()) != self._midnight:
            self._midnight, self._runs_due = midnight, -math.inf
            self._listed.clear()
            self._costs.clear()
        if (now := time.monotonic()) >= self._runs_due:
            self._runs_due = now + TIMING.day_runs
            self._runs = set(self._runs_of_today())
        self._runs.add(folder)
        for run in self._runs:
            for part in (paths.STEPS, paths.PLANNING):
                self._look(run, f"{run}/{part}")
        return math.fsum(cost for run in self._runs for cost in self._costs.get(run, {}).values())

    def _runs_of_today(self) -> Iterator[str]:
        """Yield the runs in which something may have ended today: those that did, and those that have not."""
        began = datetime.fromisoformat(self._midnight).timestamp()
        for folder in all_folders(self._workspace.runs):
            try:
                if os.lstat(f"{folder}/{paths.OUTCOME}").st_mtime >= began:
                    yield folder
            except OSError:
                yield folder

    def _look(self, run: str, folder: str) -> None:
        """Count the records of a folder that have not been counted; an unchanged folder has none."""
        try:
            changed = os.stat(folder).st_mtime_ns
            if self._listed.get(folder) == changed:
                return
            names = names_in(folder)
        except OSError:
            return
        costs = self._costs.setdefault(run, {})
        for name in names:
            path = f"{folder}/{name}"
            if path not in costs and _is_result(name):
                costs[path] = self._cost(path)
        if time.time_ns() - changed > TIMING.racy_longest * 1e9:
            self._listed[folder] = changed

    def _cost(self, path: str) -> float:
        """Return what a record says that it cost, if it ended today; a cost that nobody knows is not counted."""
        try:
            record = json.loads(read_whole(path))
            usage = (None if record.get("child") else record.get("usage")) or {}  # a run in a run counts itself
            cost = float(usage.get("cost_usd") or 0.0)
            return cost if cost > 0 and _ended_at(record, path) >= self._midnight else 0.0
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return 0.0


def _version(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_result(name: str) -> bool:
    step, call = paths.parse_step_file(name), paths.parse_call_file(name)
    return (step is not None and step.kind == "result") or (call is not None and call.kind in ("answer", "checks"))


def _ended_at(record: Mapping[str, Any], path: str) -> str:
    """Return when something ended: an attempt or a call as it says, checks of a goal by when they were written."""
    match record:
        case {"ended_at": str() as ended}:
            return ended
        case {"started_at": str() as began, "duration_s": int() | float() as took}:
            return later(began, took)
        case _:
            return format_moment(datetime.fromtimestamp(os.stat(path).st_mtime).astimezone())
