"""Runs that have ended: a person may take one up again, or edit one, which does nothing until then and is told.

Only the last five hundred are looked at. Of all others a scan asks one thing: whether the outcome is still there.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from agentfs.core import paths
from agentfs.disk import read_whole
from agentfs.seats import is_open, subfolders
from agentfs.ui.progress import Teller

MOST = 500
LATEST = 64  # are looked at each time for whether they were taken up again
LOOKS = 10  # go through all of them in search of edits
EACH = 3  # are told one by one; after a copy of the workspace every file may look edited
_FILES = (paths.PLAN, *(f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES), paths.REPLAN)
_FOLDERS = (paths.STEPS, paths.PLANNING)


class Ended:
    """Knows the runs that ended last."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._told: dict[Path, set[tuple[str, int]]] = {}  # the run that ended last comes last
        self._unseen: list[Path] = []  # whose edits are still to be looked for before all are again

    def add(self, folder: Path) -> None:
        self._told.pop(folder, None)
        self._told[folder] = set()
        while len(self._told) > MOST:
            del self._told[next(iter(self._told))]

    def reopened(self) -> list[Path]:
        """Return those of the latest that have no outcome any more; they are no longer of the ended."""
        found = [folder for folder in islice(reversed(self._told), LATEST) if is_open(folder)]
        for folder in found:
            del self._told[folder]
        return found

    def tell_of_edits(self) -> None:
        """Say, once each, what was edited after a run's end; each look is at some of them, the longest unseen."""
        self._unseen = self._unseen or list(self._told)
        share = 1 + len(self._told) // LOOKS
        looked_at, self._unseen = self._unseen[:share], self._unseen[share:]
        edited: dict[str, str] = {}
        for folder in looked_at:
            if (told := self._told.get(folder)) is not None and (new := set(_edits(str(folder))) - told):
                told.update(new)
                if changed := sorted(name for name, _ in new if not _is_last_revision(folder, name)):
                    edited[f"{folder.parent.name}/{folder.name}"] = ", ".join(changed)
        if len(edited) > EACH:
            words = f"files of {len(edited)} runs changed after their end, of {next(iter(edited))} among them"
            self._teller.note(f"{words}: `agentfs resume RUN` takes one up again")
            return
        for run, files in edited.items():
            words = f"{files} changed, but the run has ended: `agentfs resume {run}` takes it up again"
            self._teller.tell("note", words, run)


def _edits(folder: str) -> Iterator[tuple[str, int]]:
    """Yield what is younger than the outcome, and since when. A change always sets ctime, whatever mtime says."""
    with suppress(OSError):
        end = os.lstat(f"{folder}/{paths.OUTCOME}").st_ctime_ns
        for name in (*_FILES, *_FOLDERS):
            with suppress(FileNotFoundError):
                found = os.lstat(f"{folder}/{name}")
                changed = found.st_mtime_ns if name in _FOLDERS else found.st_ctime_ns
                if changed > end:
                    yield name, changed


def _is_last_revision(folder: Path, name: str) -> bool:
    """Whether this is a plan that was saved, or copied, as it was: byte for byte the run's last revision."""
    if name != paths.PLAN:
        return False
    with suppress(OSError):
        revisions = folder / paths.REVISIONS
        parsed = map(paths.parse_revision_file, os.listdir(revisions))
        numbers = [found[0] for found in parsed if found and found[1] == "plan"]
        last = revisions / paths.revision_plan_file(max(numbers, default=1))
        return read_whole(last) == read_whole(folder / name)
    return False


def ended_runs(runs: Path) -> list[Path]:
    """Return every run that has ended, the last one last."""
    found = []
    for day in subfolders(str(runs)):
        for folder in subfolders(day):
            with suppress(OSError):
                ended = os.lstat(f"{folder}/{paths.OUTCOME}").st_mtime
                if paths.is_run_id("/".join(folder.rsplit("/", 2)[1:])):
                    found.append((ended, Path(folder)))
    return [folder for _, folder in sorted(found)]
