"""Which runs a person speaks of: all of them, told apart with as little work as that takes; by age, state or name.

Of a run that has ended one lstat is made, and nothing is read before it is shown or has to be chosen by what it says.
"""

import os
import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agentfs.core import paths
from agentfs.errors import UserError
from agentfs.views.words import inert

_AGE = re.compile(r"([0-9]{1,6}) ?(s|min|m|h|d|w)\Z")
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_HOLDS = (paths.RUN, paths.PLAN, *(f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES))


@dataclass(frozen=True, slots=True)
class Listing:
    """The runs of a workspace: the open ones, and the ended ones by when their outcome was written, newest first."""

    open: tuple[Path, ...]
    ended: tuple[tuple[float, str], ...]  # seconds since the epoch, folder


def list_runs(runs: Path) -> Listing:
    """Return every run there is. A folder with nothing of a run in it is being made, or was left by a dead intake."""
    open_runs: list[Path] = []
    ended: list[tuple[float, str]] = []
    for folder in _run_folders(str(runs)):
        try:
            ended.append((os.lstat(f"{folder}/{paths.OUTCOME}").st_mtime, folder))
        except OSError:
            if any(os.path.lexists(f"{folder}/{name}") for name in _HOLDS):
                open_runs.append(Path(folder))
    return Listing(tuple(open_runs), tuple(sorted(ended, reverse=True)))


def _run_folders(runs: str) -> Iterator[str]:
    for day in _subfolders(runs):
        for name in _subfolders(f"{runs}/{day}"):
            if paths.is_run_id(f"{day}/{name}"):
                yield f"{runs}/{day}/{name}"


def _subfolders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [one.name for one in entries if one.name[0] != "." and one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def moment_of(arguments: Namespace, option: str) -> datetime | None:
    """Return the moment that `--since 2d` or `--older-than 2026-11-01` means; None if it was not typed."""
    text = getattr(arguments, option.replace("-", "_"))
    if text is None:
        return None
    try:
        return _moment(text.strip(), datetime.now(UTC))
    except (ValueError, OverflowError):
        raise UserError(
            f"--{option} {inert(text)}: write how long ago (90min, 3h, 2d, 4w), or a day (2026-11-01)"
        ) from None


def _moment(text: str, now: datetime) -> datetime:
    """Return a moment; a day begins at midnight where this machine is."""
    if age := _AGE.match(text):
        return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
    return datetime.fromisoformat(text).astimezone(UTC)


def time_of(timestamp: str) -> datetime | None:
    """Return the moment a record names; None where it names none."""
    try:
        return datetime.fromisoformat(timestamp).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
