"""Keep the ledger in step with the runs: whatever revision or outcome has no commit yet gets one.

Commits are derived from files, so nothing is queued that could be lost: `note` only says which run to look at.
A lock that a person holds delays the commit, never the run.
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from agentfs.core import paths
from agentfs.disk import read_whole
from agentfs.ledger import Ledger, LedgerBroken, LedgerBusy
from agentfs.owed import blob_sha
from agentfs.settling import Debts, run_id, settle, settled_apart
from agentfs.tools.starting import Starter

RETRY_SECONDS = 0.5
AT_ONCE = 100  # runs
APART_FROM = 24  # runs whose commits are worth a process of their own: this one has others to drive
PAUSE_SECONDS = 0.5  # the steps that begin with a plan go first, and what happens meanwhile needs no look of its own
MORE_SECONDS = 0.7  # that a run waits for others, while more of them keep coming: together they cost less


class Keeper:
    """Commits in the background: whatever is owed when something is due, in one go."""

    def __init__(
        self, ledger: Ledger, person: tuple[str, str], say: Callable[[str], None], *, commit_logs: bool = False
    ) -> None:
        self._debts, self._say = Debts(ledger, person, logs=commit_logs), say
        self._due: dict[Path, float] = {}  # run folder -> not before this moment
        self._unsure: list[Path] = []  # ended runs: does the ledger have their end?
        self._turn = threading.Condition()
        self._busy = False
        self._closing = False
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        Starter().start(self._thread.start)

    def note(self, folder: Path) -> None:
        """Say that a run may owe a commit."""
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
            for folder in self._without_end(unsure):
                self.note(folder)
            with self._turn:
                self._busy = False
                self._turn.notify_all()
        return []

    def _when(self) -> float | None:
        """Return when to settle: once no more runs come, or the first of them has waited long enough."""
        if not self._due:
            return None
        moments = self._due.values()
        return min(max(moments), min(moments) + MORE_SECONDS)

    def _without_end(self, folders: list[Path]) -> list[Path]:
        """Return those of these runs whose outcome the ledger has not, or its index."""
        ledger = self._debts.ledger
        try:
            held = ledger.held([run_id(folder) for folder in folders], paths.OUTCOME)
            behind = ledger.behind()
            return [
                one
                for one in folders
                if run_id(one) in behind or held[run_id(one)] != blob_sha(read_whole(one / paths.OUTCOME))
            ]
        except (LedgerBusy, LedgerBroken, OSError):
            return folders  # settling them says what is wrong

    def _settle(self, folders: list[Path]) -> list[Path]:
        """Commit what these runs owe; return those for which it has to be tried again."""
        apart = settled_apart(self._debts, folders) if len(folders) >= APART_FROM else None
        settled = apart or settle(self._debts, folders)
        for words in settled.said:
            self._tell(words)
        return settled.left

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._say(words)
