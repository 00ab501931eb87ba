"""Which folders below runs/ hold a run, and whether it has ended. Reads names only: of an ended run one call each."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentfs.core import paths
from agentfs.storage.safe_open import subfolders


def all_folders(runs: Path) -> Iterator[str]:
    """Yield every folder that is named as a run is, the oldest day first."""
    for day in sorted(subfolders(runs)):
        yield from filter(_is_named_as_run, sorted(subfolders(day)))


def open_runs(runs: Path) -> Iterator[Path]:
    """Yield the folder of every run that has not ended, the oldest day first."""
    for folder in all_folders(runs):
        if not os.access(f"{folder}/{paths.OUTCOME}", os.F_OK) and is_open(Path(folder)):
            yield Path(folder)


def ended_runs(runs: Path) -> list[Path]:
    """Return every run that has ended, the last one last."""
    found = []
    for folder in all_folders(runs):
        with suppress(OSError):
            found.append((os.lstat(f"{folder}/{paths.OUTCOME}").st_mtime, Path(folder)))
    return [folder for _, folder in sorted(found)]


def is_open(folder: Path) -> bool:
    """Whether a folder holds a run without an outcome; one with no goal yet is still being made."""
    top = str(folder)
    if os.path.lexists(f"{top}/{paths.OUTCOME}") or not _is_named_as_run(top):
        return False
    return os.path.lexists(f"{top}/{paths.RUN}") and has_goal(top)


def has_goal(folder: Path | str) -> bool:
    return any(os.path.lexists(f"{folder}/goal{suffix}") for suffix in paths.GOAL_SUFFIXES)


def _is_named_as_run(folder: str) -> bool:
    return paths.is_run_id("/".join(folder.rsplit("/", 2)[1:]))
