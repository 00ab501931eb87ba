"""Commit in the background what runs have that the ledger has not: many runs together.

Pending commits are the revisions of a run, and its outcome, that `main` does not have yet. They are derived from
files, so nothing is queued that could be lost: `note` only says which run to look at. Any process may commit, and one
may be cut off in between. A lock that a person holds delays the commit, never the run.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from agentfs.core import paths
from agentfs.core.commit_messages import AGENTFS, author_of, outcome_message, revision_message
from agentfs.core.goal_file import MAX_BYTES
from agentfs.core.paths import run_id
from agentfs.core.records import Answer, Outcome, Revision, Usage
from agentfs.core.text import first_line
from agentfs.errors import UserError
from agentfs.ledger.git import LedgerBroken, LedgerBusy, NoGit
from agentfs.ledger.ledger import Entry, Ledger, Still, blob_sha, committable
from agentfs.storage.files import read_whole
from agentfs.storage.safe_open import NotRegular, names_in, read_regular, scan
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import goal_path

AT_ONCE = 100  # runs


class Committer:
    """Commits in the background: whatever is pending when something is due, in one go."""

    def __init__(
        self, ledger: Ledger, person: tuple[str, str], say: Callable[[str], None], *, commit_logs: bool = False
    ) -> None:
        self._batch, self._say = Batch(ledger, person, logs=commit_logs), say
        self._due: dict[Path, float] = {}  # run folder -> not before this moment
        self._behind: set[Path] = set()  # those of them that are committed: the index waits for a person
        self._unsure: list[Path] = []  # ended runs whose last commit may be missing
        self._turn = threading.Condition()
        self._busy = False
        self._closing = False
        self._reported: set[str] = set()
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        Starter().start(self._thread.start)

    def note(self, folder: Path) -> None:
        """Note that a run may have something to commit."""
        with self._turn:
            waits_already = bool(self._due)
            self._behind.discard(folder)
            self._due[folder] = time.monotonic() + TIMING.commit_pause
            if not waits_already:
                self._turn.notify_all()

    def look_through(self, ended: Iterable[Path]) -> None:
        """Find out, while nothing is due, which of these runs ended without a commit of their end."""
        with self._turn:
            self._unsure += ended
            self._turn.notify_all()

    def is_idle(self) -> bool:
        """Whether nothing is known to be pending, and nothing is left to look through."""
        with self._turn:
            return not self._due and not self._busy and not self._unsure

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is pending; False if a lock or a fault keeps a commit from being made for that long.

        A commit that is being made is waited for, for a busy machine takes its time. The index of another branch is
        not waited for.
        """
        end = time.monotonic() + seconds
        with self._turn:
            self._due = dict.fromkeys(self._due, 0.0)
            self._turn.notify_all()
            while self._busy or self._uncommitted() or (self._due and self._batch.ledger.is_checked_out()):
                self._turn.wait(TIMING.commit_again / 5)
                late = time.monotonic() - end
                if late >= (TIMING.commit_longest if self._busy else 0.0):
                    return not self._uncommitted()
        return True

    def _uncommitted(self) -> set[Path]:
        return self._due.keys() - self._behind

    def close(self) -> None:
        """Stop; what is still pending is found again at the next start."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while folders := self._next():
            report = self._batch.commit(folders)
            for line in report.lines:
                if line not in self._reported:
                    self._reported.add(line)
                    self._say(line)
            with self._turn:
                if not self._closing:
                    self._behind |= {folder for folder in report.behind if folder not in self._due}
                    for folder in (*report.left, *report.behind):
                        self._due.setdefault(folder, time.monotonic() + TIMING.commit_again)
                self._busy = False
                self._turn.notify_all()

    def _next(self) -> list[Path]:
        """Return the runs to commit next, once one is due; [] when it is time to close."""
        while not self._closing:
            with self._turn:
                now, due = time.monotonic(), self._when()
                if due is not None and due <= now:
                    self._busy = True
                    taken = list(self._due)[:AT_ONCE]  # the others are due soon: together they cost little more
                    for folder in taken:
                        del self._due[folder]
                    self._behind.difference_update(taken)
                    return taken
                unsure, self._unsure = self._unsure[:AT_ONCE], self._unsure[AT_ONCE:]
                self._busy = bool(unsure)
                if not unsure and not self._closing:
                    self._turn.wait(None if due is None else due - now)
            for folder in self._batch.without_end(unsure):
                self.note(folder)
            with self._turn:
                self._busy = False
                self._turn.notify_all()
        return []

    def _when(self) -> float | None:
        """Return when to commit: once no more runs come, or the first of them has waited long enough."""
        if not self._due:
            return None
        moments = self._due.values()
        return min(max(moments), min(moments) + TIMING.commit_more)


@dataclass(slots=True)
class Report:
    """What came of committing runs."""

    left: list[Path] = field(default_factory=list)  # to be tried again
    behind: list[Path] = field(default_factory=list)  # committed: only the index waits
    lines: list[str] = field(default_factory=list)  # what a person should know

    def add(self, other: "Report") -> None:
        self.left += other.left
        self.behind += other.behind
        self.lines += other.lines


@dataclass(frozen=True, slots=True)
class Batch:
    """Commits many runs in one go: to which ledger, in whose name a person's edits, and whether logs belong to it."""

    ledger: Ledger
    person: tuple[str, str]
    logs: bool = False

    def commit(self, folders: list[Path]) -> Report:
        """Commit what is pending of these runs, and bring the index in step with it."""
        entries: dict[Path, list[tuple[Entry, Still]]] = {}
        report = Report()
        try:
            committed = self.ledger.committed_of([run_id(folder) for folder in folders])
            report.left += [one for one in folders if not self._gather(one, committed[run_id(one)], entries, report)]
            if together := [entry for one in entries.values() for entry in one]:
                self.ledger.commit_all(together)
        except NoGit as why:
            later = "with git, `agentfs watch` or `agentfs resume RUN` commits them"
            return Report(lines=[f"revisions are not committed: {why}; {later}"])
        except LedgerBusy as busy:
            return Report(folders, lines=[*report.lines, f"the ledger waits: {busy}"])
        except LedgerBroken as broken:
            if len(folders) == 1:
                return Report(folders, lines=[*report.lines, f"the ledger cannot be written: {broken}"])
            report = Report()
            for folder in folders:  # it may be the fault of one of them
                report.add(self.commit([folder]))
            return report
        try:
            if entries and not self.ledger.sync_index(*map(run_id, entries)):
                report.behind += entries
        except LedgerBroken as broken:
            report.lines.append(f"the ledger's index waits: {broken}")
            report.behind += entries
        return report

    def _gather(
        self,
        folder: Path,
        committed: Mapping[str, str],
        entries: dict[Path, list[tuple[Entry, Still]]],
        report: Report,
    ) -> bool:
        """Add the pending entries of a run, maybe none: then only its index is looked at. False: try again later."""
        run = run_id(folder)
        try:
            entries[folder] = pending_entries(folder, committed, self.person, logs=self.logs)
        except FileNotFoundError as missing:
            if folder.is_dir():
                report.lines.append(f"the ledger passes over {run}: {missing.filename} is gone")
        except OSError as error:
            report.lines.append(f"the ledger waits: {error.strerror} ({error.filename})")
            return False
        except (ValueError, UserError) as error:  # one run whose files do not read keeps no other waiting
            report.lines.append(f"the ledger passes over {run}: {first_line(str(error))}")
        return True

    def without_end(self, folders: list[Path]) -> list[Path]:
        """Return those of these runs whose outcome the ledger has not, or its index."""
        if not folders:
            return []
        try:
            held = self.ledger.held([run_id(folder) for folder in folders], paths.OUTCOME)
            behind = self.ledger.behind()
            return [
                one
                for one in folders
                if run_id(one) in behind or held[run_id(one)] != blob_sha(read_whole(one / paths.OUTCOME))
            ]
        except (LedgerBusy, LedgerBroken, OSError):
            return folders  # committing them reports what is wrong


# ── pending commits: read from a run's folder, so any process may make them ─────────────────────────────


UNCOMMITTED = (".log.jsonl", ".output.txt")
PARTS = ("", paths.PLANNING, paths.REVISIONS, paths.STEPS)
_ALONE = frozenset((paths.RUN, paths.REQUEST, paths.PLAN, paths.OUTCOME, *paths.GOALS))
_REVISION = re.compile(rb'"revision": ?([0-9]+)')


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit that a run has yet to get."""

    message: str
    author: tuple[str, str]
    at: datetime
    plan: bytes | None  # None: the run ended before there was one
    revision: int | None  # the revision it is for; None: the outcome


def pending_entries(
    folder: Path, committed: Mapping[str, str], person: tuple[str, str], *, logs: bool
) -> list[tuple[Entry, Still]]:
    """Return what is to be committed of a run, oldest first, given what is: each unless another process does it."""
    entries: list[tuple[Entry, Still]] = []
    for one in _find_pending(folder, committed, person):
        entry = Entry(run_id(folder), _files_of(folder, one, logs=logs), one.message, *one.author, one.at)
        entries.append((entry, partial(_is_pending, one, folder, entry)))
    return entries


def _find_pending(folder: Path, committed: Mapping[str, str], person: tuple[str, str]) -> Iterator[PendingCommit]:
    found = map(paths.parse_revision_file, names_in(folder / paths.REVISIONS))
    numbers = sorted(one[0] for one in found if one and one[1] == "record")
    for number in numbers:
        if f"{paths.REVISIONS}/{paths.revision_file(number)}" not in committed:
            yield _pending_revision(folder, number, person)
    if (folder / paths.OUTCOME).exists():
        source = read_whole(folder / paths.OUTCOME)
        if committed.get(paths.OUTCOME) != blob_sha(source):
            yield _pending_outcome(folder, numbers[-1] if numbers else None, source)


def _is_pending(one: PendingCommit, folder: Path, entry: Entry, committed: Mapping[str, str]) -> bool:
    """Whether it still is pending, and the run not forgotten, now that no other process can write to the ledger."""
    if one.revision is not None:
        missing = f"{paths.REVISIONS}/{paths.revision_file(one.revision)}" not in committed
    else:
        missing = committed.get(paths.OUTCOME) != blob_sha(entry.files[paths.OUTCOME])
    return missing and folder.is_dir()


def _pending_revision(folder: Path, number: int, person: tuple[str, str]) -> PendingCommit:
    revision = Revision.model_validate_json(read_whole(folder / paths.REVISIONS / paths.revision_file(number)))
    plan = read_whole(folder / paths.REVISIONS / paths.revision_plan_file(number))
    message = revision_message(run_id(folder), revision, usage_of_call(folder, revision.call))
    return PendingCommit(message, author_of(revision, person), moment(revision.at), plan, number)


def usage_of_call(folder: Path, call: int | None) -> Usage | None:
    """Return what a planner's answer took."""
    if call is None:
        return None
    return Answer.model_validate_json(read_whole(folder / paths.PLANNING / paths.call_file(call, "answer"))).usage


def _pending_outcome(folder: Path, last: int | None, source: bytes) -> PendingCommit:
    outcome = Outcome.model_validate_json(source)
    plan = read_whole(folder / paths.REVISIONS / paths.revision_plan_file(last)) if last else None
    message = outcome_message(run_id(folder), outcome, in_plan=len(json.loads(plan)["steps"]) if plan else 0)
    return PendingCommit(message, AGENTFS, moment(outcome.ended_at), plan, None)


def moment(timestamp: str) -> datetime:
    """Return the time of a record, as its commit has it."""
    return datetime.fromisoformat(timestamp).astimezone(UTC)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────


def _files_of(folder: Path, one: PendingCommit, *, logs: bool) -> dict[str, bytes]:
    """Return every file that belongs into a commit: the run's story so far; logs and working files only if asked."""
    files = {paths.RUN: read_whole(folder / paths.RUN)} | ({paths.PLAN: one.plan} if one.plan else {})
    goal = goal_path(folder)
    with suppress(NotRegular, IsADirectoryError):  # a link in its place is no goal: what it leads to is not the run's
        files[goal.name] = read_regular(goal, MAX_BYTES)
    with suppress(NotRegular, IsADirectoryError, FileNotFoundError):
        files[paths.REQUEST] = read_regular(folder / paths.REQUEST, MAX_BYTES)
    if one.revision is None:
        files[paths.OUTCOME] = read_whole(folder / paths.OUTCOME)
    for part in PARTS[1:]:
        skipped = ".json" if part == paths.STEPS and one.revision == 1 else None  # no order is older than plan 1
        found = _plain_files(folder, part, logs=logs, skipped=skipped)
        files |= {name: source for name, source in found if _belongs(part, name, source, one.revision)}
    return {**files, **(_working_files(folder) if logs else {})}


def current_files(folder: Path, *, logs: bool = False) -> dict[str, bytes]:
    """Return the files of a run that belong into the ledger, as they are: whatever is missing or does not read."""
    found = dict(one for part in PARTS for one in _plain_files(folder, part, logs=logs))
    return {**found, **(_working_files(folder) if logs else {})}


def _plain_files(folder: Path, part: str, *, logs: bool, skipped: str | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of agentfs's own files that git can hold; there are thousands: a Path takes longer."""
    left_out = tuple(suffix for suffix in (skipped, *(() if logs else UNCOMMITTED)) if suffix)
    try:
        listed = own_files(f"{folder}", part)
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in listed:
        if not path.endswith(left_out) and committable(path):
            yield path, read_whole(f"{folder}/{path}")


def own_files(folder: str, part: str) -> list[str]:
    """Return agentfs's own files in one of the `PARTS` of a run's folder, but for views and for what steps made."""
    found = (one for one in scan(f"{folder}/{part}") if one.name[0] != ".")
    listed = sorted(one.name for one in found if one.is_file(follow_symlinks=False))
    return [f"{part}/{name}" for name in listed] if part else [name for name in listed if name in _ALONE]


def _working_files(folder: Path) -> dict[str, bytes]:
    """Return what the steps made, as far as git can hold it."""
    found = {}
    for path in sorted((folder / paths.FILES).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink() and committable(name):
            found[name] = read_whole(path)
    return found


def _belongs(part: str, name: str, source: bytes, revision: int | None) -> bool:
    """Whether a file belongs to the story up to a revision: a late commit does not hold what came after it."""
    if revision is None:
        return True
    if part == paths.REVISIONS:
        found = paths.parse_revision_file(name.rpartition("/")[2])
        return found is not None and found[0] <= revision
    if part == paths.STEPS and name.endswith(".json"):
        number = _REVISION.search(source)
        return number is None or int(number[1]) < revision
    return True
