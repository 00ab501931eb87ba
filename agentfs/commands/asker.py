"""Ask on the terminal what a run asks while it is driven there, and write the reply file that a person would write.

Theory of operation. The keyboard is read by a thread of its own; everything else happens here, in turns of the
driver's loop, which never waits for a person: what runs goes on. A question is shown, then listened for. An answer is
bound to the question that was shown, by its file (of a draft: by the bytes of plan.json): if that is no longer open
the prompt is withdrawn, and what is asked now is asked. The reply is a file like any other: the driver reads it back.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.commands.editing import MAX_REPLY, put_reply
from agentfs.core import paths
from agentfs.core.attention import OpenQuestion, open_questions
from agentfs.core.hashing import sha256_bytes
from agentfs.core.json_edit import set_value
from agentfs.core.run_state import RunState
from agentfs.core.text import first_line
from agentfs.engine.driver import Driver
from agentfs.engine.foreground import Stop
from agentfs.storage.files import read_whole
from agentfs.storage.plan_files import install
from agentfs.storage.safe_open import read_text
from agentfs.storage.timing import TIMING
from agentfs.ui.progress import Progress
from agentfs.ui.prompt import Keyboard, Typed, choices, draft_lines, fit_lines, meanings, question_lines, understand

YES = "approve\n"
MOST_ROWS = 60  # of a question, unless it is to be shown in full

Key = tuple[str, str]  # which question: its file; of a draft, the hash of plan.json


@dataclass(frozen=True, slots=True)
class Shown:
    """A question as it was shown."""

    number: int
    key: Key
    question: OpenQuestion
    source: bytes  # the question file; of a draft, plan.json


@dataclass(slots=True)
class Editing:
    """An editor that has the terminal, and the file it edits."""

    path: Path
    thread: threading.Thread
    popen: "subprocess.Popen[bytes] | None" = None
    is_reply: bool = False  # the path is a file of our own: what it holds in the end is the reply
    trouble: str = ""
    code: int | None = field(default=None)


class TerminalAsker:
    """Asks one question at a time, in the order in which a run lists them."""

    def __init__(self, driver: Driver, stop: Stop, progress: Progress, environment: Mapping[str, str]) -> None:
        self._driver, self._stop, self._progress, self._environment = driver, stop, progress, environment
        screen = progress.screen
        self._keyboard = Keyboard(
            sys.stdin.fileno(),
            sys.stderr.fileno(),
            draws=screen is not None,
            typed=screen.draw_now if screen else lambda: None,
            entered=stop.wake.set,
        )
        if screen:
            screen.suspended, screen.continued = self._keyboard.release, self._keyboard.take
        self._shown: Shown | None = None
        self._editing: Editing | None = None
        self._answered: Key | None = None  # the driver has yet to read the reply
        self._put_off: set[Key] = set()
        self._quiet_until = 0.0
        self._count = 0

    def has_news(self) -> bool:
        if self._editing is not None:
            return self._editing.code is not None
        return not self._keyboard.lines.empty() or 0 < self._quiet_until <= time.monotonic()

    def turn(self, driver: Driver, *, stopping: bool) -> bool:
        """Act on what was typed, withdraw what is no longer asked, ask what is; return whether a person is asked.

        Of several runs, one asks at a time.
        """
        if driver is not self._driver and not self._switch_to(driver):
            return False
        state = driver.state
        if self._editing is not None and self._editing.code is None:
            return True
        written = self._finish_editing(self._editing) if self._editing is not None else None
        asked = {} if stopping else _find_questions(state)
        if self._shown is not None and self._shown.key not in asked:
            self._withdraw(state, silent=stopping or state.facts.outcome is not None)
        if self._shown is not None and written is not None:
            self._answer(self._shown, written)
        while self._shown is not None and self._editing is None and not self._keyboard.lines.empty():
            number, line = self._keyboard.lines.get()
            if number == self._shown.number:
                self._take(self._shown, line)
        is_pending = self._answered in asked and (self._driver.reader.restless or self._driver.must_look)
        if not is_pending:
            self._answered = None  # it was read; if it is asked all the same, it is asked again
        if asked and time.monotonic() < self._quiet_until:
            return True
        self._quiet_until = 0.0
        if self._shown is None:
            self._ask_next([(key, one) for key, one in asked.items() if key != self._answered])
        return self._shown is not None or is_pending

    def _switch_to(self, driver: Driver) -> bool:
        """Ask for another run from now on, unless a question of the last is open; return whether it switched."""
        if self._editing is not None or self._answered is not None:
            return False
        if self._shown is not None:
            if self._driver.facts.outcome is None:
                return False
            self._close_prompt()
        self._driver = driver
        return True

    def close(self) -> None:
        if (editing := self._editing) is not None:
            if editing.popen is not None:
                editing.popen.terminate()
            editing.thread.join()
            self._finish_editing(editing, goes_on=False)
        self._close_prompt()
        self._keyboard.close()

    # ── a question ────────────────────────────────────────────────────────────────────────────────────────

    def _ask_next(self, asked: list[tuple[Key, OpenQuestion]]) -> None:
        for key, one in asked:
            if key not in self._put_off and (source := self._source(one)) is not None:
                if one.about == "draft" and sha256_bytes(source) != key[1]:
                    self._driver.look_again()  # it has changed since it was read
                    return
                self._count += 1
                self._shown = Shown(self._count, key, one, source)
                self._show(self._shown, full=False)
                self._listen(self._shown)
                return

    def _source(self, one: OpenQuestion) -> bytes | None:
        try:
            return read_whole(self._driver.folder / _file_of(one))
        except OSError:
            return None

    def _show(self, shown: Shown, *, full: bool) -> None:
        if shown.question.about == "draft":
            lines = list(draft_lines(shown.source, full=full))
        else:
            lines = list(question_lines(shown.source.decode("utf-8", "replace"), full=full))
        self._progress.tell(fit_lines(lines, _columns(), None if full else MOST_ROWS))

    def _listen(self, shown: Shown) -> None:
        self._keyboard.listen(shown.number)  # before it is seen: what a person types then counts
        self._progress.ask(choices(shown.question), lambda: self._keyboard.shown)

    def _close_prompt(self) -> None:
        self._shown = None
        self._keyboard.stop()
        self._progress.ask("")

    def _withdraw(self, state: RunState, *, silent: bool) -> None:
        shown = self._shown
        self._close_prompt()
        if shown is not None and not silent:
            self._progress.note(_withdrawn(shown, state, self._driver.folder))
            self._quiet_until = time.monotonic() + TIMING.withdrawn
            timer = threading.Timer(TIMING.withdrawn, self._stop.wake.set)
            timer.daemon = True
            timer.start()

    # ── an answer ─────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, shown: Shown, line: str | None) -> None:
        """Act on a line that was typed for this question; None is the end of input."""
        about = shown.question.about
        typed = Typed("later") if line is None else understand(about, line)
        match typed.wish if typed else "":
            case "later":
                self._put_off.add(shown.key)
                self._close_prompt()
                self._progress.note(f"{shown.question.name}: left open")
            case "show":
                self._show(shown, full=True)
            case "edit":
                self._edit(shown)
            case "reply" if typed:
                self._answer(shown, typed.reply)
            case _:
                self._progress.tell(fit_lines(["Type one of:", *meanings(about)], _columns()))
        if self._shown is not None and self._editing is None:
            self._progress.ask(choices(shown.question))

    def _answer(self, shown: Shown, reply: str) -> None:
        """Write the answer, unless the question has changed since it was shown."""
        one, facts = shown.question, self._driver.facts
        if one.about == "draft" and reply != YES and facts.goal.has_steps:
            self._progress.note(f"your own plan is changed, not rejected: edit, or: agentfs cancel {facts.run.run}")
            return
        if self._source(one) != shown.source:
            trouble = f"{_file_of(one)} has changed since it was shown"
        else:
            trouble = self._answer_draft(shown, reply) if one.about == "draft" else self._answer_question(one, reply)
        self._close_prompt()
        self._driver.look_again()
        if trouble:
            self._progress.note(f"{trouble}: your answer is not used")
        else:
            self._answered = shown.key

    def _answer_question(self, one: OpenQuestion, reply: str) -> str:
        path = self._driver.folder / one.reply_path
        if os.path.lexists(path) and _text(path) != one.reply:
            return f"{one.reply_path} was written elsewhere ({first_line(_text(path) or '')})"
        put_reply(path, reply)
        self._progress.note(f"{one.reply_path}: {first_line(reply)}")
        return ""

    def _answer_draft(self, shown: Shown, reply: str) -> str:
        if reply != YES:
            words = reply.partition("\n")[2].strip() or "The draft was rejected."
            put_reply(self._driver.folder / paths.REPLAN, f"{words}\n")
            self._progress.note(f"{paths.REPLAN}: {first_line(words)}")
            return ""
        new = set_value(shown.source, "/status", "approved")
        placed, displaced = install(self._driver.folder / paths.PLAN, new, shown.source)
        self._driver.displaced += [displaced] if displaced else []
        if not placed:
            return "plan.json has changed since it was shown"
        self._progress.note('plan.json: "status" is now "approved" (it was "draft")')
        return ""

    # ── an editor ─────────────────────────────────────────────────────────────────────────────────────────

    def _edit(self, shown: Shown) -> None:
        """Give the terminal to the person's editor: with plan.json, or with a reply, sent when it is closed."""
        words = shlex.split(self._environment.get("VISUAL") or self._environment.get("EDITOR") or "vi")
        if not words or shutil.which(words[0], path=self._environment.get("PATH")) is None:
            self._progress.note(f"there is no editor {' '.join(words)!r}: set VISUAL or EDITOR")
            return
        is_reply = shown.question.about in ("ask", "cut")
        path = self._driver.folder / paths.PLAN
        if is_reply:
            path = Path(os.path.realpath(tempfile.mkdtemp(prefix="agentfs-"))) / Path(shown.question.reply_path).name
            path.touch()
        self._keyboard.stop()
        self._progress.ask("")
        self._progress.lend()
        self._stop.lent = True
        thread = threading.Thread(target=self._run_editor, args=(words,), name="editor")
        self._editing = Editing(path, thread, is_reply=is_reply)
        self._editing.thread.start()

    def _run_editor(self, words: list[str]) -> None:
        editing = self._editing
        if editing is None:
            return
        code = 1
        try:
            editing.popen = subprocess.Popen([*words, str(editing.path)], stdout=sys.stderr.fileno())
            code = editing.popen.wait()
        except OSError as error:
            editing.trouble = f"{words[0]}: {error.strerror}"
        editing.code = code
        self._stop.wake.set()

    def _finish_editing(self, editing: Editing, *, goes_on: bool = True) -> str | None:
        """Take the terminal back; return the reply that was written, if it is one."""
        self._editing, self._stop.lent = None, False
        self._progress.take_back()
        reply = _text(editing.path) if editing.is_reply else None
        if editing.is_reply:
            shutil.rmtree(editing.path.parent, ignore_errors=True)
        if not goes_on or self._shown is None:
            return None
        self._driver.look_again()
        trouble = editing.trouble or ("the editor failed" if editing.code else "")
        if editing.is_reply and not trouble:
            trouble = _no_answer(self._shown.question, reply)
        if trouble:
            self._progress.note(f"{trouble}; nothing is sent" if editing.is_reply else trouble)
        self._listen(self._shown)
        return None if trouble else reply


# ── words and files ───────────────────────────────────────────────────────────────────────────────────────


def _find_questions(state: RunState) -> dict[Key, OpenQuestion]:
    """Return the questions a person can answer now: none while something else holds the run up."""
    facts = state.facts
    if facts.outcome is not None or facts.broken or facts.plan_file.problems:
        return {}
    if facts.plan is not None and facts.plan.status in ("paused", "cancelled"):
        return {}
    another = state.calls.open or state.calls.failed or state.pending or facts.replan is not None or facts.asking
    found = [one for one in open_questions(state) if one.about != "draft" or not another]
    return {_key(one, state): one for one in found}


def _key(one: OpenQuestion, state: RunState) -> Key:
    if one.about == "draft":
        return one.about, state.facts.revisions[-1].plan_sha256
    return f"{one.about} of {state.facts.run.run}", one.question_path


def _file_of(one: OpenQuestion) -> str:
    """Return the file that shows a question, relative to the run's folder."""
    return paths.PLAN if one.about == "draft" else one.question_path


def _withdrawn(shown: Shown, state: RunState, folder: Path) -> str:
    """Return why a question is no longer asked."""
    one, plan = shown.question, state.facts.plan
    if one.about == "draft":
        if plan is None or plan.status == "draft":
            return "plan.json has changed"
        return f'plan.json: "status" was set to "{plan.status}" elsewhere'
    reply = _text(folder / one.reply_path)
    if reply is not None:
        return f"{one.name} was answered elsewhere ({one.reply_path}: {first_line(reply)})"
    return f"{one.name}: what was asked has changed"


def _columns() -> int:
    """Return how many columns of the terminal a line may take."""
    try:
        return max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
    except OSError:
        return 79


def _text(path: Path) -> str | None:
    """Return the text of a file; None if it cannot be read."""
    with suppress(OSError):
        return read_text(path, MAX_REPLY)
    return None


def _no_answer(one: OpenQuestion, reply: str | None) -> str:
    """Return why a reply is no answer; empty if it is one."""
    if reply is not None and one.accepts(reply):
        return ""
    if reply is None or not reply.strip():
        return "the reply is empty"
    return f"the first line must be one of: {', '.join(one.words)}"
