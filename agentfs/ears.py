"""How a daemon hears of goals/ and of runs: by watchdog where events come, else by looking every second, saying so.

Once something is looked at instead of listened to, that stays so until the daemon is started again.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.ui.progress import Teller
from agentfs.watch import ARRIVED, Unwatched
from agentfs.watching import ManyFolders

PATIENCE_SECONDS = 3.0  # for news of a file that is there, while nothing else is heard either


@dataclass(slots=True)
class Evidence:
    """Finds out that events do not come: a file has come of which nothing was heard, nor of any other since."""

    clock: Callable[[], float] = time.monotonic
    _known: set[str] | None = None  # what was there, or was heard of; None: before the first look
    _since: float | None = None  # when something was there unheard

    def heard(self, name: str) -> None:
        self._since = None
        if self._known is not None:
            self._known.add(name)

    def saw(self, listed: set[str]) -> None:
        """Take in what a look has found."""
        if self._known is not None and self._since is None and listed - self._known:
            self._since = self.clock()
        self._known = listed

    def is_deaf(self) -> bool:
        return self._since is not None and self.clock() - self._since >= PATIENCE_SECONDS


@dataclass(slots=True)
class Ears:
    """Hears of folders through one observer; None: nothing is listened to, everything is looked at."""

    teller: Teller
    folders: ManyFolders | None = None
    deaf_to_goals: bool = True
    evidence: Evidence = field(default_factory=Evidence)
    _told: set[str] = field(default_factory=set)

    def begin(self, wake: Callable[[], None]) -> None:
        """Listen from now on."""
        try:
            self.folders = ManyFolders(wake)
        except Unwatched as why:
            self.tell_polling("everything is", str(why))

    def attend(self, goals: Path) -> None:
        """Listen to goals/, which may be another folder than before."""
        self.evidence = Evidence()
        if self.folders is None:
            return
        self.folders.remove(goals)
        try:
            self.folders.add(goals, ARRIVED)
            self.deaf_to_goals = False
        except Unwatched as why:
            self.deaf_to_goals = True
            self.tell_polling("goals/ is", str(why))

    def attend_run(self, run: Path, hold: ExitStack) -> bool:
        """Listen to a run for as long as `hold` is open; False: it has to be looked at."""
        if self.folders is None:
            return False
        hold.callback(self.folders.remove_run, run)
        try:
            self.folders.add_run(run)
        except Unwatched as why:
            self.tell_polling("some runs are", str(why))
            return False
        return True

    def tell_polling(self, what: str, why: str) -> None:
        """Say once what is looked at every second, and why."""
        if (words := f"{what} looked at every second: {why}") not in self._told:
            self._told.add(words)
            self.teller.tell("polling", words)

    def heard(self, goals: str) -> list[str]:
        """Return the paths of which something was heard."""
        paths = self.folders.seen() if self.folders else []
        for path in paths:
            folder, name = os.path.split(path)
            if folder == goals:
                self.evidence.heard(name)
        return paths

    def saw(self, goals: set[str]) -> None:
        """Take in what a look at goals/ has found."""
        self.evidence.saw(goals)

    @property
    def lost(self) -> bool:
        """Whether events were dropped, so that everything has to be looked at again."""
        return self.folders is not None and self.folders.lost

    def start_over(self) -> None:
        """Everything is about to be looked at."""
        if self.folders is not None and self.folders.lost:
            self.folders.lost = False
            self.evidence = Evidence()
            self.teller.note("more happened at once than could be heard: everything is looked at again")

    def check(self) -> bool:
        """Stop listening if it is proven that events do not come; return whether that was found out now."""
        if self.folders is None:
            return False
        deaf = not self.deaf_to_goals and self.evidence.is_deaf()
        why = (
            f"watchdog failed ({failed})" if (failed := self.folders.failed) else "a goal came of which no event told"
        )
        if not (failed or deaf):
            return False
        self.close()
        self.folders, self.deaf_to_goals = None, True
        self.tell_polling("everything is", why)
        return True

    def close(self) -> None:
        if self.folders is not None:
            self.folders.close()
