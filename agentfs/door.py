"""The door of a daemon: the goals in goals/ are let in, a few at a time, or turned away."""

import errno
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from agentfs.bursts import Together
from agentfs.core.paths import run_name
from agentfs.errors import AgentfsError, BadFile, UserError
from agentfs.inbox import AGAIN_SECONDS, Inbox, Refused
from agentfs.moving import ON_ITS_WAY, StillChanging
from agentfs.setaside import FULL, in_words
from agentfs.ui.progress import Teller

AT_ONCE = 4  # goals taken before the drivers have their turn
RESTLESS_SECONDS = 0.05  # how often to look while something there is being written
DEAF_SECONDS = 1.0  # after a file has left a folder watchdog holds back for a while whatever else happens there
Begun = tuple[Path, ExitStack]  # a run's folder, and what holds its lock
_NOT_THIS_GOALS_FAULT = (*FULL, errno.EROFS, errno.EMFILE, errno.ENFILE)


class Door:
    """Lets goals in. `due`: when to look again though nothing is heard."""

    def __init__(self, inbox: Inbox, teller: Teller, saw: Callable[[set[str]], None]) -> None:
        self.inbox, self.teller, self._saw = inbox, teller, saw
        self.due = 0.0
        self._deaf = 0.0  # until when events may be late
        self._waiting: deque[Path] = deque()  # goals that were complete when they were looked at
        self._finish_at: float | None = None  # when to see to an intake that was, or may have been, cut off
        self._trouble: dict[str, str] = {}  # goals that could not be taken, and what was said of it; "" is goals/

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def open(self) -> None:
        """Begin with a folder that is held now."""
        self._finish_intakes()  # before a run is driven: its lock is needed
        try:
            self.inbox.bring_back()
        except OSError as error:
            words = (
                f"goals/{ON_ITS_WAY}: what an earlier watch was about to take cannot be settled: {in_words(error)}"
            )
            self._say(ON_ITS_WAY, words)
        self.look_again()

    def _finish_intakes(self) -> None:
        """Finish what was being taken when an intake was cut off; again later, as far as that cannot be now."""
        try:
            refused, finished = self.inbox.finish_intakes()
        except OSError as error:
            refused, finished = [], False
            self._say("", f"what an earlier watch was about to take cannot be settled: {in_words(error)}")
        self._finish_at = None if finished else time.monotonic() + AGAIN_SECONDS
        for one in refused:
            self._tell_refused(one)

    def look_again(self) -> None:
        self.due = 0.0

    def let_in(self, pause: float, together: Together, most: int = AT_ONCE) -> list[Begun]:
        """Return the folders of new runs, each with its lock held; look at goals/ again after `pause` seconds."""
        now = time.monotonic()
        if not self._waiting and now >= self.due:
            self._look(now, pause)
        paths = [path for path in self._next(most) if self._is_complete(path, now)]
        if paths:
            self._expect_silence()
        taken = together.each(self._taken, paths)
        return [begun for path, came in zip(paths, taken, strict=True) if (begun := self._heard(path, came))]

    def _next(self, most: int) -> list[Path]:
        """Return the goals to take now: a few, no two of which would have the same name as runs."""
        found: dict[str, Path] = {}
        while self._waiting and len(found) < most and (name := run_name(self._waiting[0].stem)) not in found:
            found[name] = self._waiting.popleft()
        return list(found.values())

    def _is_complete(self, path: Path, now: float) -> bool:
        if self.inbox.still.is_complete(path):
            return True
        self.due = now + RESTLESS_SECONDS
        return False

    def _look(self, now: float, pause: float) -> None:
        self.due = now + pause
        if self._finish_at is not None and now >= self._finish_at:
            self._finish_intakes()
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

    def _taken(self, path: Path) -> Begun | Exception:
        """Make a goal a run, or return what is in the way. Other goals are being taken at the same time."""
        hold = ExitStack()
        try:
            return hold.enter_context(self.inbox.taking(path)), hold
        except Exception as error:  # noqa: BLE001 - one goal must not take the daemon from all others
            return error

    def _heard(self, path: Path, came: Begun | Exception) -> Begun | None:
        """Tell what came of a goal."""
        match came:
            case StillChanging():
                self.look_again()
            case AgentfsError():
                self._refuse(path, came)
            case OSError():
                self._put_off(path, came)
            case Exception():
                self._refuse(path, UserError(f"{path.name}: agentfs stumbled over it, which is a bug: {came!r}"))
            case (folder, _):
                self._trouble.pop(path.name, None)
                if self._trouble.pop("", None):
                    self.teller.note("goals are taken again")
                run = f"{folder.parent.name}/{folder.name}"
                self.teller.tell("taken", f"took goals/{path.name}", run, goal=path.name)
                return came
        return None

    def _put_off(self, path: Path, error: OSError) -> None:
        """Try a goal again later; all of them, if it is no fault of this one."""
        self._finish_at = time.monotonic() + AGAIN_SECONDS
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
        self._tell_refused(self.inbox.reject(path, error), is_file=isinstance(error, BadFile))

    def _tell_refused(self, refused: Refused, *, is_file: bool = True) -> None:
        first, *more = refused.words.splitlines()
        count = f" (and {len(more)} more)" if is_file and more else ""
        words = f"rejected: {first.removesuffix(':')}{count}"  # what follows a colon stands in the file
        if refused.error is None:
            self._say(refused.name, words)
            return
        beside = refused.error.relative_to(self.inbox.workspace.root)
        self._trouble.pop(refused.name, None)
        self.teller.tell("rejected", f"{words}; see {beside}", goal=refused.name, error=str(beside))
