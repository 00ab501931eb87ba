"""Keep the ledger in step with the runs: whatever revision or outcome has no commit yet gets one.

Commits are derived from files, so nothing is queued that could be lost: `note` only says which run to look at.
A lock that a person holds delays the commit, never the run.
"""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from agentfs.core import names
from agentfs.core.messages import AGENTFS, author_of, outcome_message, revision_message
from agentfs.core.records import Answer, Outcome, Revision, Usage
from agentfs.errors import UserError
from agentfs.ledger import Entry, Ledger, LedgerBroken, LedgerBusy, Still, committable
from agentfs.reader import goal_path
from agentfs.views.words import first_line

RETRY_SECONDS = 0.5
AT_ONCE = 64  # runs
PAUSE_SECONDS = 0.5  # the steps that begin with a plan go first, and what happens meanwhile needs no look of its own
UNCOMMITTED = (".log.jsonl", ".output.txt")
_REVISION = re.compile(rb'"revision": ?([0-9]+)')


@dataclass(frozen=True, slots=True)
class Owed:
    """A commit that a run still owes the ledger."""

    message: str
    author: tuple[str, str]
    at: datetime
    plan: bytes | None  # None: the run ended before there was one
    upto: int | None  # the revision it is for; None: the outcome


def owed(folder: Path, run: str, ledger: Ledger, person: tuple[str, str]) -> Iterator[Owed]:
    """Yield what this run has that the ledger has not, oldest first."""
    committed = ledger.committed(run)
    numbers = sorted(n for n, kind in _revision_files(folder) if kind == "record")
    for number in numbers:
        if f"{names.REVISIONS}/{names.revision_file(number)}" not in committed:
            yield _owed_revision(folder, run, number, person)
    outcome = folder / names.OUTCOME
    if outcome.exists():
        source = outcome.read_bytes()
        if committed.get(names.OUTCOME) != blob_sha(source):
            yield _owed_outcome(folder, run, numbers[-1] if numbers else None, source)


def commit_owed(folder: Path, run: str, ledger: Ledger, person: tuple[str, str], *, logs: bool) -> None:
    """Commit what a run owes, oldest first."""
    if entries := entries_owed(folder, run, ledger, person, logs=logs):
        ledger.commit_all(entries)


def entries_owed(
    folder: Path, run: str, ledger: Ledger, person: tuple[str, str], *, logs: bool
) -> list[tuple[Entry, Still]]:
    """Return what a run owes, oldest first; nothing that somebody else commits, or forgets, before it is our turn."""
    entries: list[tuple[Entry, Still]] = []
    for one in owed(folder, run, ledger, person):
        entry = Entry(run, files_at(folder, one, logs=logs), one.message, *one.author, one.at)
        entries.append((entry, partial(_is_owed, one, folder, entry, ledger)))
    return entries


def _is_owed(one: Owed, folder: Path, entry: Entry, ledger: Ledger) -> bool:
    """Whether it still is, now that nobody else can write to the ledger."""
    committed = ledger.committed(entry.run)
    if one.upto is not None:
        missing = f"{names.REVISIONS}/{names.revision_file(one.upto)}" not in committed
    else:
        missing = committed.get(names.OUTCOME) != blob_sha(entry.files[names.OUTCOME])
    return missing and folder.is_dir()


def _revision_files(folder: Path) -> Iterator[tuple[int, str]]:
    for path in (folder / names.REVISIONS).iterdir():
        if found := names.parse_revision_file(path.name):
            yield found


def _owed_revision(folder: Path, run: str, number: int, person: tuple[str, str]) -> Owed:
    revision = Revision.model_validate_json((folder / names.REVISIONS / names.revision_file(number)).read_bytes())
    plan = (folder / names.REVISIONS / names.revision_plan_file(number)).read_bytes()
    message = revision_message(run, revision, _usage_of(folder, revision))
    return Owed(message, author_of(revision, person), _moment(revision.at), plan, number)


def _usage_of(folder: Path, revision: Revision) -> Usage | None:
    if revision.call is None:
        return None
    path = folder / names.PLANNING / names.call_file(revision.call, "answer")
    return Answer.model_validate_json(path.read_bytes()).usage


def _owed_outcome(folder: Path, run: str, last: int | None, source: bytes) -> Owed:
    outcome = Outcome.model_validate_json(source)
    plan = (folder / names.REVISIONS / names.revision_plan_file(last)).read_bytes() if last else None
    message = outcome_message(run, outcome, in_plan=len(json.loads(plan)["steps"]) if plan else 0)
    return Owed(message, AGENTFS, _moment(outcome.ended_at), plan, None)


def _moment(timestamp: str) -> datetime:
    return datetime.fromisoformat(timestamp).astimezone(UTC)


def blob_sha(source: bytes) -> str:
    """Return the name git gives to this content."""
    return hashlib.sha1(b"blob %d\0" % len(source) + source, usedforsecurity=False).hexdigest()


def files_at(folder: Path, one: Owed, *, logs: bool = False) -> dict[str, bytes]:
    """Return every file that belongs into a commit: the run's story so far; logs and working files only if asked."""
    files = {names.RUN: (folder / names.RUN).read_bytes()} | ({names.PLAN: one.plan} if one.plan else {})
    goal = goal_path(folder)
    files[goal.name] = goal.read_bytes()
    if one.upto is None:
        files[names.OUTCOME] = (folder / names.OUTCOME).read_bytes()
    for part in (names.PLANNING, names.REVISIONS, names.STEPS):
        skipped = ".json" if part == names.STEPS and one.upto == 1 else None  # no order is older than the first plan
        found = _plain_files(f"{folder}/{part}", f"{part}/", logs=logs, skipped=skipped)
        files |= {name: source for name, source in found if _belongs(part, name, source, one.upto)}
    return {**files, **(_working_files(folder) if logs else {})}


def as_it_stands(folder: Path, *, logs: bool = False) -> dict[str, bytes]:
    """Return the files of a run that belong into the ledger, as they are: whatever is missing or does not read."""
    alone = {names.RUN, names.PLAN, names.OUTCOME, *(f"goal{suffix}" for suffix in names.GOAL_SUFFIXES)}
    found = {name: source for name, source in _plain_files(f"{folder}", "", logs=logs) if name in alone}
    for part in (names.PLANNING, names.REVISIONS, names.STEPS):
        found.update(_plain_files(f"{folder}/{part}", f"{part}/", logs=logs))
    return {**found, **(_working_files(folder) if logs else {})}


def _plain_files(folder: str, prefix: str, *, logs: bool, skipped: str | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files in a folder that git can hold; there are thousands: a Path takes longer."""
    left_out = tuple(suffix for suffix in (skipped, *(() if logs else UNCOMMITTED)) if suffix)
    try:
        with os.scandir(folder) as entries:
            files = [one.name for one in entries if not one.name.endswith(left_out) and _is_plain(one)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(files):
        if committable(prefix + name):
            with open(f"{folder}/{name}", "rb", buffering=0) as file:
                yield prefix + name, file.read()


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.name[0] != "." and entry.is_file(follow_symlinks=False)


def _working_files(folder: Path) -> dict[str, bytes]:
    """Return what the steps made, as far as git can hold it."""
    found = {}
    for path in sorted((folder / names.FILES).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink() and committable(name):
            found[name] = path.read_bytes()
    return found


def _belongs(part: str, name: str, source: bytes, upto: int | None) -> bool:
    """Whether a file belongs to the story up to a revision: a late commit does not tell what came after it."""
    if upto is None:
        return True
    if part == names.REVISIONS:
        found = names.parse_revision_file(name.rpartition("/")[2])
        return found is not None and found[0] <= upto
    if part == names.STEPS and name.endswith(".json"):
        said = _REVISION.search(source)
        return said is None or int(said[1]) < upto
    return True


class Keeper:
    """Commits in the background: whatever is owed when something is due, in one go."""

    def __init__(
        self, ledger: Ledger, person: tuple[str, str], say: Callable[[str], None], *, commit_logs: bool = False
    ) -> None:
        self._ledger, self._person, self._say, self._logs = ledger, person, say, commit_logs
        self._due: dict[Path, float] = {}  # run folder -> not before this moment
        self._unsure: list[Path] = []  # ended runs: does the ledger have their end?
        self._turn = threading.Condition()
        self._busy = False
        self._closing = False
        self._told: set[str] = set()
        self._thread: threading.Thread | None = None

    def note(self, folder: Path) -> None:
        """Say that a run may owe a commit."""
        with self._turn:
            self._due[folder] = time.monotonic() + PAUSE_SECONDS
            self._go_on()

    def look_through(self, ended: Iterable[Path]) -> None:
        """Find out, while nothing is due, which of these runs ended without a commit of their end."""
        with self._turn:
            self._unsure += ended
            self._go_on()

    def _go_on(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
            self._thread.start()
        self._turn.notify_all()

    def is_idle(self) -> bool:
        """Whether nothing is known to be owed, and nothing is left to look through."""
        with self._turn:
            return not self._due and not self._busy and not self._unsure

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is owed; False if a lock or a fault still stands after that long."""
        end = time.monotonic() + seconds
        with self._turn:
            self._due = dict.fromkeys(self._due, 0.0)
            self._turn.notify_all()
            while self._due or self._busy:
                self._turn.wait(max(0.0, min(end - time.monotonic(), RETRY_SECONDS)))
                if time.monotonic() >= end:
                    return False
        return True

    def close(self) -> None:
        """Stop; what is still owed is found again at the next start."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while folders := self._next():
            left = self._settle(folders)
            with self._turn:
                if not self._closing:
                    for folder in left:
                        self._due.setdefault(folder, time.monotonic() + RETRY_SECONDS)
                self._busy = False
                self._turn.notify_all()

    def _next(self) -> list[Path]:
        """Return the runs to settle next, once one is due; none: it is time to close."""
        while not self._closing:
            with self._turn:
                now = time.monotonic()
                if any(moment <= now for moment in self._due.values()):
                    self._busy = True
                    taken = list(self._due)[:AT_ONCE]  # the others are due soon: together they cost little more
                    for folder in taken:
                        del self._due[folder]
                    return taken
                unsure, self._unsure = self._unsure[:AT_ONCE], self._unsure[AT_ONCE:]
                self._busy = bool(unsure)
                if not unsure and not self._closing:
                    self._turn.wait(max(0.0, min(self._due.values()) - now) if self._due else None)
            for folder in self._without_end(unsure):
                self.note(folder)
            with self._turn:
                self._busy = False
                self._turn.notify_all()
        return []

    def _without_end(self, folders: list[Path]) -> list[Path]:
        """Return those of these runs whose outcome the ledger has not, or its index."""
        try:
            held = self._ledger.held([_run_id(folder) for folder in folders], names.OUTCOME)
            behind = self._ledger.behind()
            return [
                one
                for one in folders
                if _run_id(one) in behind or held[_run_id(one)] != blob_sha((one / names.OUTCOME).read_bytes())
            ]
        except (LedgerBusy, LedgerBroken, OSError):
            return folders  # settling them says what is wrong

    def _settle(self, folders: list[Path]) -> list[Path]:
        """Commit what these runs owe; return those for which it has to be tried again."""
        owing: dict[Path, list[tuple[Entry, Still]]] = {}
        left = [folder for folder in folders if not self._gather(folder, owing)]
        try:
            if entries := [entry for one in owing.values() for entry in one]:
                self._ledger.commit_all(entries)
        except LedgerBusy as busy:
            self._tell(f"the ledger waits: {busy}")
        except LedgerBroken as broken:
            if len(folders) > 1:  # it may be the fault of one of them
                return [one for folder in folders for one in self._settle([folder])]
            self._tell(f"the ledger cannot be written: {broken}")
        else:
            return left if not owing or self._index_is_in_step(owing) else [*left, *owing]
        return folders

    def _index_is_in_step(self, folders: Iterable[Path]) -> bool:
        """Bring the index in step with what is committed of these runs; False: not now."""
        try:
            return self._ledger.sync_index(*map(_run_id, folders))
        except LedgerBroken as broken:
            self._tell(f"the ledger's index waits: {broken}")
            return False

    def _gather(self, folder: Path, owing: dict[Path, list[tuple[Entry, Still]]]) -> bool:
        """Add what a run owes, if only a look at the index; False: not now."""
        run = _run_id(folder)
        try:
            owing[folder] = entries_owed(folder, run, self._ledger, self._person, logs=self._logs)
        except FileNotFoundError as missing:
            if folder.is_dir():
                self._tell(f"the ledger passes over {run}: {missing.filename} is gone")
        except OSError as error:
            self._tell(f"the ledger waits: {error.strerror} ({error.filename})")
            return False
        except LedgerBroken as broken:
            self._tell(f"the ledger cannot be written: {broken}")
            return False
        except (ValueError, UserError) as error:  # one run whose files do not read keeps no other waiting
            self._tell(f"the ledger passes over {run}: {first_line(str(error))}")
        return True

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._say(words)


def _run_id(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"
