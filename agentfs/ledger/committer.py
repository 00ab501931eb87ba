"""Commit in the background what runs have that the ledger has not: many runs together, in this process or another.

Pending commits are derived from files, so nothing is queued that could be lost: `note` only says which run to look
at. It does not matter which process commits, nor whether one is cut off in between. A lock that a person holds delays
the commit, never the run.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.core.text import first_line
from agentfs.errors import UserError
from agentfs.ledger.git import LedgerBroken, LedgerBusy, NoGit
from agentfs.ledger.ledger import Entry, Ledger, Still, blob_sha
from agentfs.ledger.pending import pending_entries, run_id
from agentfs.storage.files import read_whole
from agentfs.storage.starting import Starter

RETRY_SECONDS = 0.5
LONGEST_COMMIT_SECONDS = 60.0
AT_ONCE = 100  # runs
APART_FROM = 24  # runs whose commits are worth a process of their own: this one has others to drive
APART_SECONDS = 60.0
PAUSE_SECONDS = 0.5  # the steps that begin with a plan go first, and what happens meanwhile needs no look of its own
MORE_SECONDS = 0.7  # that a run waits for others, while more of them keep coming: together they cost less
_PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
from agentfs.storage.installation import import_from_installation; import_from_installation()
from agentfs.ledger.committer import main; main()
"""
_PACKAGES = str(Path(__file__).resolve().parents[2])


class Committer:
    """Commits in the background: whatever is pending when something is due, in one go."""

    def __init__(
        self, ledger: Ledger, person: tuple[str, str], say: Callable[[str], None], *, commit_logs: bool = False
    ) -> None:
        self._batch, self._say = Batch(ledger, person, logs=commit_logs), say
        self._due: dict[Path, float] = {}  # run folder -> not before this moment
        self._unsure: list[Path] = []  # ended runs: does the ledger have their end?
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
            self._due[folder] = time.monotonic() + PAUSE_SECONDS
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
        """Wait until nothing is pending; False if a lock or a fault is still in the way after that long.

        A commit that is being made is waited for, for a busy machine takes its time.
        """
        end = time.monotonic() + seconds
        with self._turn:
            self._due = dict.fromkeys(self._due, 0.0)
            self._turn.notify_all()
            while self._due or self._busy:
                self._turn.wait(RETRY_SECONDS / 5)
                late = time.monotonic() - end
                if late >= (LONGEST_COMMIT_SECONDS if self._busy else 0.0):
                    return False
        return True

    def close(self) -> None:
        """Stop; what is still pending is found again at the next start."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while folders := self._next():
            left = self._commit(folders)
            with self._turn:
                if not self._closing:
                    for folder in left:
                        self._due.setdefault(folder, time.monotonic() + RETRY_SECONDS)
                self._busy = False
                self._turn.notify_all()

    def _next(self) -> list[Path]:
        """Return the runs to commit next, once one is due; none: it is time to close."""
        while not self._closing:
            with self._turn:
                now, due = time.monotonic(), self._when()
                if due is not None and due <= now:
                    self._busy = True
                    taken = list(self._due)[:AT_ONCE]  # the others are due soon: together they cost little more
                    for folder in taken:
                        del self._due[folder]
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
        return min(max(moments), min(moments) + MORE_SECONDS)

    def _commit(self, folders: list[Path]) -> list[Path]:
        """Commit what is pending of these runs; return those for which it has to be tried again."""
        apart = self._batch.commit_apart(folders) if len(folders) >= APART_FROM else None
        report = apart or self._batch.commit(folders)
        for line in report.lines:
            if line not in self._reported:
                self._reported.add(line)
                self._say(line)
        return report.left


@dataclass(slots=True)
class Report:
    """The runs for which it has to be tried again, and what a person should know."""

    left: list[Path] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


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
            return Report(folders, [*report.lines, f"the ledger waits: {busy}"])
        except LedgerBroken as broken:
            if len(folders) == 1:
                return Report(folders, [*report.lines, f"the ledger cannot be written: {broken}"])
            each = [self.commit([folder]) for folder in folders]  # it may be the fault of one of them
            return Report([run for one in each for run in one.left], [line for one in each for line in one.lines])
        if entries and not self._sync_index(entries, report):
            report.left += entries
        return report

    def _sync_index(self, folders: Iterable[Path], report: Report) -> bool:
        try:
            return self.ledger.sync_index(*map(run_id, folders))
        except LedgerBroken as broken:
            report.lines.append(f"the ledger's index waits: {broken}")
            return False

    def _gather(
        self,
        folder: Path,
        committed: Mapping[str, str],
        entries: dict[Path, list[tuple[Entry, Still]]],
        report: Report,
    ) -> bool:
        """Add what is pending of a run, if only a look at the index; False: not now."""
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
            return folders  # to commit them says what is wrong

    def commit_apart(self, folders: list[Path]) -> Report | None:
        """Commit in a process of its own; None if that cannot be had, or does not come to its end."""
        asked = {
            "runs": str(self.ledger.root.absolute()),
            "folders": [str(folder.absolute()) for folder in folders],
            "person": self.person,
            "logs": self.logs,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", _PROGRAM, _PACKAGES],
                input=json.dumps(asked).encode(),
                capture_output=True,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
                start_new_session=True,  # a Ctrl-C is not meant for it
                timeout=APART_SECONDS,
                check=True,
            )
            found = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        back = {str(folder.absolute()): folder for folder in folders}
        return Report([back[one] for one in found["left"]], found["lines"])


def main() -> None:
    """Commit for another process: what it asks is on standard input, the report goes to standard output."""
    asked = json.load(sys.stdin)
    batch = Batch(Ledger(Path(asked["runs"])), tuple(asked["person"]), logs=asked["logs"])
    report = batch.commit([Path(folder) for folder in asked["folders"]])
    json.dump({"left": [str(folder) for folder in report.left], "lines": report.lines}, sys.stdout)
