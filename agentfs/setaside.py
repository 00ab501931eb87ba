"""Runs that failed in a way of their own: each is left alone as it is, and tried again when it has changed."""

import errno
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.errors import AgentfsError
from agentfs.ui.progress import Teller
from agentfs.watching import Glance, glance

FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class _Case:
    seen: Glance  # as the run was
    time_may_help: bool
    words: str


@dataclass(slots=True)
class SetAside:
    """Knows which runs are left alone, and says why, once each time."""

    teller: Teller
    _cases: dict[Path, _Case] = field(default_factory=dict)

    def put(self, folder: Path, error: BaseException) -> None:
        """Leave a run alone until it has changed; or for a while, if the fault may be the machine's."""
        if (folder / paths.RUN).exists():
            words = f"set aside: {in_words(error)}"
        else:
            words = "its folder was moved or deleted; what ran in it is ended"
        known = self._cases.get(folder)
        self._cases[folder] = _Case(glance(folder), isinstance(error, OSError | MemoryError), words)
        run = f"{folder.parent.name}/{folder.name}"
        if known is None or known.words != words:
            self.teller.tell("trouble", words, run)
        self.teller.let_go(run)

    def may_be_tried(self, folder: Path) -> bool:
        case = self._cases.get(folder)
        return case is None or case.time_may_help or case.seen != glance(folder)

    def changed(self) -> list[Path]:
        """Return those that are not as they were."""
        return [folder for folder, case in self._cases.items() if case.seen != glance(folder)]

    def forget(self, folder: Path) -> None:
        """A run is driven again."""
        if self._cases.pop(folder, None):
            self.teller.tell("note", "goes on", f"{folder.parent.name}/{folder.name}")

    def keep_only(self, there: set[Path]) -> None:
        for folder in self._cases.keys() - there:
            del self._cases[folder]


def in_words(error: BaseException) -> str:
    """Return what a person should know of a fault."""
    if isinstance(error, OSError) and error.errno in FULL:
        return f"{error.strerror}; it goes on when there is room"
    if isinstance(error, MemoryError):
        return "there is not enough memory; it is tried again in a while"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error) if isinstance(error, AgentfsError) else f"{type(error).__name__}: {error}"
