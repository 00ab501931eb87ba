"""The door of a daemon: the goals in goals/ are let in, a few at a time, or turned away."""

import errno
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from agentfs.errors import AgentfsError, BadFile, UserError
from agentfs.inbox import AGAIN_SECONDS, Inbox
from agentfs.moving import StillChanging
from agentfs.setaside import FULL, in_words
from agentfs.views.watching import Teller

AT_ONCE = 4  # goals taken before the drivers have their turn
RESTLESS_SECONDS = 0.05  # how often to look while something there is being written
DEAF_SECONDS = 1.0  # after a file has left a folder watchdog holds back for a while whatever else happens there
_NOT_THIS_GOALS_FAULT = (*FULL, errno.EROFS, errno.EMFILE, errno.ENFILE)


class Door:
    """Lets goals in. `due`: when to look again though nothing is heard."""

    def __init__(self, inbox: Inbox, teller: Teller, saw: Callable[[set[str]], None]) -> None:
        self.inbox, self.teller, self._saw = inbox, teller, saw
        self.due = 0.0
        self._deaf = 0.0  # until when events may be late
        self._waiting: deque[Path] = deque()  # goals that were complete when they were looked at
        self._trouble: dict[str, str] = {}  # goals that could not be taken, and what was said of it; "" is goals/

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def open(self) -> None:
        """Begin with a folder that is held now."""
        try:
            self.inbox.bring_back()
        except OSError as error:
            self._say("", f"goals/: what an earlier watch was about to take cannot be settled: {in_words(error)}")
        self.look_again()

    def look_again(self) -> None:
        self.due = 0.0

    def let_in(self, pause: float) -> Iterator[tuple[Path, ExitStack]]:
        """Yield the folders of new runs, each with its lock held; look at goals/ again after `pause` seconds."""
        now = time.monotonic()
        if not self._waiting and now >= self.due:
            self._look(now, pause)
        for _ in range(min(AT_ONCE, len(self._waiting))):
            if not self._waiting:  # for now, nothing can be taken
                return
            path = self._waiting.popleft()
            if not self.inbox.still.is_complete(path):
                self.due = now + RESTLESS_SECONDS
            elif begun := self._take(path):
                yield begun

    def _look(self, now: float, pause: float) -> None:
        self.due = now + pause
        try:
            found = self.inbox.look()
        except OSError as error:
            self._say("", f"goals/ cannot be read: {in_words(error)}")
            return
        self._saw(found.there)
        self._waiting.extend(found.complete)
        for name, words in found.left:
            self.teller.tell("left", f"goals/{name} is left alone: {words}", goal=name)
        for path, problem in found.wrong:
            self._refuse(path, BadFile(path.name, [problem]))
        if found.restless or now < self._deaf:
            self.due = now + RESTLESS_SECONDS

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
            self._put_off(path, error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours: one goal must not take the daemon from all others
            self._refuse(path, UserError(f"{path.name}: agentfs stumbled over it, which is a bug: {error!r}"))
        else:
            run = f"{folder.parent.name}/{folder.name}"
            self._trouble.pop(path.name, None)
            if self._trouble.pop("", None):
                self.teller.note("goals are taken again")
            self.teller.tell("taken", f"took goals/{path.name}", run, goal=path.name)
            return folder, hold
        return None

    def _put_off(self, path: Path, error: OSError) -> None:
        """Try a goal again later; all of them, if it is no fault of this one."""
        if error.errno not in _NOT_THIS_GOALS_FAULT:
            self.inbox.later(path.name)
            self._say(path.name, f"goals/{path.name} cannot be taken now, and is tried again: {in_words(error)}")
            return
        self._waiting.clear()
        self.due = time.monotonic() + AGAIN_SECONDS
        self._say("", f"no goal can be taken now; they stay in goals/: {in_words(error)}")

    def _say(self, name: str, words: str) -> None:
        """Tell of trouble that comes again and again, until it is over."""
        if self._trouble.get(name) != words:
            self._trouble[name] = words
            self.teller.tell("trouble", words)

    def _expect_silence(self) -> None:
        self._deaf = time.monotonic() + DEAF_SECONDS
        self.due = min(self.due, time.monotonic() + RESTLESS_SECONDS)

    def _refuse(self, path: Path, error: AgentfsError) -> None:
        self._expect_silence()
        refused = self.inbox.reject(path, error)
        first, *more = refused.words.splitlines()
        count = f" (and {len(more)} more)" if isinstance(error, BadFile) and more else ""
        words = f"rejected: {first.removesuffix(':')}{count}"  # what follows a colon stands in the file
        if refused.error is None:
            self._say(path.name, words)
            return
        beside = refused.error.relative_to(self.inbox.workspace.root)
        self._trouble.pop(path.name, None)
        self.teller.tell("rejected", f"{words}; see {beside}", goal=refused.name, error=str(beside))
