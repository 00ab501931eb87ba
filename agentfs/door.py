"""The door of a daemon: goals/, held for as long as it works, and the goals in it let in or turned away."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from agentfs.errors import AgentfsError, BadFile
from agentfs.holding import HeldFolder
from agentfs.inbox import Inbox
from agentfs.moving import StillChanging
from agentfs.views.watching import Teller

AT_ONCE = 4  # goals taken before the drivers have their turn
RESTLESS_SECONDS = 0.05  # how often to look while something there is being written
DEAF_SECONDS = 1.0  # after a file has left a folder watchdog holds back for a while whatever else happens there


class Door:
    """Lets goals in, a few at a time. `due`: when to look again though nothing is heard."""

    def __init__(self, inbox: Inbox, teller: Teller) -> None:
        self.inbox, self.teller = inbox, teller
        self.folder = HeldFolder(inbox.folder)
        self.due = 0.0
        self._deaf = 0.0  # until when events may be late
        self.waiting: deque[Path] = deque()  # goals that were complete when they were looked at

    def look_again(self) -> None:
        self.due = 0.0

    def let_in(self, pause: float) -> Iterator[tuple[Path, ExitStack]]:
        """Yield the folders of new runs, each with its lock held; look at goals/ again after `pause` seconds."""
        now = time.monotonic()
        if not self.waiting and now >= self.due:
            self._look(now, pause)
        for _ in range(min(AT_ONCE, len(self.waiting))):
            path = self.waiting.popleft()
            if not self.inbox.still.is_complete(path):
                self.due = now + RESTLESS_SECONDS
            elif begun := self._take(path):
                yield begun

    def _look(self, now: float, pause: float) -> None:
        found = self.inbox.look()
        self.waiting.extend(found.complete)
        for name, words in found.left:
            self.teller.tell("left", f"goals/{name} is left alone: {words}", goal=name)
        for path, problem in found.wrong:
            self._refuse(path, BadFile(path.name, [problem]))
        self.due = now + (RESTLESS_SECONDS if found.restless or now < self._deaf else pause)

    def _take(self, path: Path) -> tuple[Path, ExitStack] | None:
        hold = ExitStack()
        self._expect_silence()
        try:
            folder = hold.enter_context(self.inbox.taking(path))
        except StillChanging:
            self.look_again()
        except AgentfsError as error:
            self._refuse(path, error)
        except OSError as error:
            self.inbox.later(path.name)
            self.teller.once(f"goals/{path.name} cannot be taken now, and is tried again: {error.strerror}")
        else:
            self.teller.tell(
                "taken", f"took goals/{path.name}", f"{folder.parent.name}/{folder.name}", goal=path.name
            )
            return folder, hold
        return None

    def _expect_silence(self) -> None:
        self._deaf = time.monotonic() + DEAF_SECONDS
        self.due = min(self.due, time.monotonic() + RESTLESS_SECONDS)

    def _refuse(self, path: Path, error: AgentfsError) -> None:
        self._expect_silence()
        refused = self.inbox.reject(path, error)
        first, *more = refused.words.splitlines()
        count = f" (and {len(more)} more)" if isinstance(error, BadFile) and more else ""
        words = f"rejected: {first.removesuffix(':')}{count}"  # what follows a colon stands in the file
        beside = refused.error and refused.error.relative_to(self.inbox.workspace.root)
        self.teller.tell(
            "rejected",
            f"{words}; see {beside}" if beside else words,
            goal=refused.name,
            error=str(beside) if beside else None,
        )
