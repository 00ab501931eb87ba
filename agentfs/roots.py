"""goals/ and runs/ of a daemon: somebody may move, delete or replace one, and no event tells of that."""

import os
from pathlib import Path

from agentfs.holding import HeldFolder
from agentfs.ledger import Ledger
from agentfs.ui.progress import Teller

Mark = tuple[int, int]


class Roots:
    """Holds goals/, knows runs/, and says when one of them is another folder by now."""

    def __init__(self, goals: Path, runs: Path, teller: Teller) -> None:
        self.goals, self.runs, self.teller = HeldFolder(goals), runs, teller
        self._mark: Mark | None = None
        self._runs_are_there = True

    def take(self) -> None:
        """Hold goals/; raises UserError if somebody else does."""
        self.goals.take()
        self._mark = _mark(self.runs)

    def release(self) -> None:
        self.goals.release()

    def goals_are_new(self) -> bool:
        """Whether goals/ is another folder now, which is held then, made anew if there is none; raises UserError."""
        if self.goals.is_there():
            return False
        self.goals.take()
        self.teller.note("goals/ was moved or deleted: the folder that is there now is the one being watched")
        return True

    def runs_are_new(self) -> bool:
        """Whether runs/ is another folder now. It gets its ledger; raises LedgerError if it cannot have one."""
        found = _mark(self.runs)
        if found is None and self._runs_are_there:
            self.teller.note("runs/ was moved or deleted, so its runs are not driven; the next goal makes a new one")
        self._runs_are_there = found is not None
        if found is None or found == self._mark:
            return False
        Ledger.create(self.runs)
        self._mark = found
        self.teller.note("runs/ is another folder now: the runs in it are driven, and it has a ledger of its own")
        return True


def _mark(folder: Path) -> Mark | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)
