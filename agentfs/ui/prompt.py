"""A question on a terminal: how it reads, what may be typed and what that means, and the keyboard.

The keyboard is read by a thread of its own. Keys: arrows, Home, End, Delete, Backspace, Ctrl-A, -E, -K, -U, -W; Enter
ends the line; Ctrl-D on an empty line is the end of input. What is pasted is text: line breaks in it end nothing.
"""

import codecs
import json
import os
import queue
import re
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from agentfs.core.attention import About, OpenQuestion
from agentfs.core.text import block, columns, cut, cut_front, first_line, inert, paint, plural, wrap_line
from agentfs.executor.questions import ANSWER_LINE
from agentfs.storage.timing import TIMING
from agentfs.ui.screen import is_in_background

_ESCAPED = re.compile(r"\\([\\`*_\[\]<>|!#])")
_BEFORE_WORDS = re.compile(r" *(?:\S+ {2,}|- )?")  # the name in a list, and the gap after it
INVERSE = 7

_CHOICES = {
    "draft": "yes, no [why], show, edit, later",
    "gate": "yes, no [why], show, edit, later",
    "answer": "yes, no [why], show, edit, later",
    "cut": "again, done [output], failed [why], show, edit, later",
    "ask": "type the answer, or /show, /edit, /later",
}
_MEANINGS = {
    "yes": "go on as shown",
    "no": "do not; words after it say why",
    "again": "run it once more",
    "done": "it did its work; words after it are its output",
    "failed": "it did not; words after it say why",
    "show": "print the question in full",
    "later": "leave it open (Ctrl-D does the same)",
}
_EDITS = {
    "draft": "open plan.json in $EDITOR; a changed plan is asked about again",
    "gate": "open plan.json in $EDITOR; if what the step would do changes, it is asked about again",
    "answer": "open plan.json in $EDITOR; if what would change changes, it is asked about again",
    "cut": "write the reply in $EDITOR: again, done or failed on its first line, more below",
    "ask": "write the answer in $EDITOR",
}
_WORDS = {"yes": "approve", "no": "reject", "again": "again", "done": "done", "failed": "failed"}
_SAME = {"approve": "yes", "reject": "no", "?": "help"}


@dataclass(frozen=True, slots=True)
class Typed:
    """What a person wants with a question."""

    wish: Literal["reply", "show", "edit", "later", "help"]
    reply: str = ""  # what goes into the reply file


_WISHES = {"show": Typed("show"), "edit": Typed("edit"), "later": Typed("later"), "help": Typed("help")}


def choices(one: OpenQuestion) -> str:
    """Return what may be typed, in a line."""
    return f"{'plan.json' if one.about == 'draft' else one.name}: {_CHOICES[one.about]}"


def meanings(about: About) -> list[str]:
    """Return what each word does."""
    sign = "/" if about == "ask" else ""
    rows = [(word, _MEANINGS[word]) for word in _decisions(about)]
    rows += [(f"{sign}show", _MEANINGS["show"]), (f"{sign}edit", _EDITS[about]), (f"{sign}later", _MEANINGS["later"])]
    if about == "ask":
        rows.insert(0, ("TEXT", "all of it is the answer"))
    return [f"  {word:<8} {meaning}" for word, meaning in rows]


def _decisions(about: About) -> tuple[str, ...]:
    if about == "ask":
        return ()  # any words are an answer
    return ("again", "done", "failed") if about == "cut" else ("yes", "no")


def understand(about: About, line: str) -> Typed | None:
    """Return what a line means; None: nothing."""
    if about == "ask":
        return _understand_text(line)
    first, *rest = line.strip().split(maxsplit=1) or [""]
    first, words = first.casefold().rstrip(",:.").removeprefix("/"), "".join(rest).strip()
    known = _decisions(about)
    word = _whole_word(_SAME.get(first, first), (*known, "show", "edit", "later", "help"))
    if word in _WISHES:
        return None if words else _WISHES[word]
    if word not in known or (words and word in ("yes", "again")):
        return None  # a yes with conditions is none
    return Typed("reply", f"{_WORDS[word]}\n{words}\n" if words else f"{_WORDS[word]}\n")


def _understand_text(line: str) -> Typed | None:
    match line.strip():
        case "":
            return None
        case "/show" | "/edit" | "/later" | "/help" as wish:
            return _WISHES[wish[1:]]
        case _:
            return Typed("reply", f"{line}\n")


def _whole_word(typed: str, words: tuple[str, ...]) -> str:
    """Return the word that is meant: its first letters are enough where no other word has them."""
    found = [word for word in words if typed and word.startswith(typed)]
    return found[0] if len(found) == 1 else ""


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────


def question_lines(text: str, *, full: bool) -> Iterator[str]:
    """Yield a question file as a person reads it on a terminal; not `full`: only what comes before how to answer."""
    lines = [inert(line) for line in text.split("\n")]
    if not full:
        lines = lines[: _answer_part(lines)]
    fence = ""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    for line in lines:
        if fence:
            if line == fence:
                fence = ""
            else:
                yield f"    {line}".rstrip()
        elif line == "~~~" or line.startswith("```"):
            fence = line[:3]
        elif not line.startswith("<!--"):
            yield _ESCAPED.sub(r"\1", line.lstrip("#").lstrip() if line.startswith("#") else line)


def _answer_part(lines: list[str]) -> int:
    """Return where the part begins that says how to answer. The last one counts: what a step says comes before."""
    places = [place for place, line in enumerate(lines) if line.startswith(ANSWER_LINE)]
    place = places[-1] if places else len(lines)
    while place and (not lines[place - 1] or lines[place - 1].startswith("## ")):
        place -= 1
    return place


def draft_lines(source: bytes, *, full: bool) -> Iterator[str]:
    """Yield a draft as a person reads it on a terminal: each step and what it does."""
    from agentfs.core.plan_diff import plan_text

    plan = json.loads(source)
    steps = plan["steps"]
    yield f"May this plan be carried out? {plural(len(steps), 'step')}:"
    yield ""
    if full:
        yield from (f"  {line}".rstrip() for line in plan_text(source).splitlines())
        return
    widest = max((len(step["id"]) for step in steps), default=0)
    for step in steps:
        gate = "  (asks before it runs)" if step.get("gate") else ""
        about = first_line(str(step.get("description") or ""))
        yield f"  {inert(step['id']):<{widest}}  {about}{gate}".rstrip()
        does = list(_does(step))
        yield from (f"  {'':<{widest}}    {line}" for line in does)


def _does(step: dict[str, Any]) -> Iterator[str]:
    given = step.get("input")
    given = given if isinstance(given, dict) else {}
    text = given.get("command") or given.get("code")
    if isinstance(text, str):
        yield from block(text)
    elif step.get("tool"):
        yield f"{inert(str(step['tool']))} {inert(json.dumps(given, ensure_ascii=False)) if given else ''}".rstrip()


def fit_lines(lines: list[str], width: int, height: int | None = None) -> list[str]:
    """Return lines broken to a width; of more than there is room for, the first, and how many there are."""
    rows = [row for line in lines for row in (_wrap(line, width) if columns(line) > width else [line])]
    if height is None or len(rows) <= height:
        return rows
    kept = max(1, height - 1)
    return [*rows[:kept], f"… {plural(len(rows) - kept, 'more line')}: show"]


def _wrap(line: str, width: int) -> list[str]:
    """Return a line as several, each as far in as the words of the first."""
    match = _BEFORE_WORDS.match(line)
    begin = (match[0] if match else "")[: width // 2]
    first, *more = wrap_line(line[len(begin) :], max(1, width - len(begin)))
    return [f"{begin}{first}", *(f"{' ' * len(begin)}{part}" for part in more)]


# ── the line that is typed ────────────────────────────────────────────────────────────────────────────────


def typed_line(shown: tuple[str, int], width: int, *, colours: bool) -> str:
    """Return what has been typed so far with its cursor; of a long line, what is around the cursor."""
    text, cursor = shown
    before, after = inert(text[:cursor]), inert(text[cursor:])
    room = max(4, width - 3)  # the sign before it, and the cursor
    before = cut_front(before, room) if columns(after) < room // 2 else cut_front(before, room // 2)
    under, after = (after[:1], after[1:]) if colours else ("_", after)
    rest = cut(after, max(0, room - columns(before)))
    return f"> {before}{paint(under or ' ', INVERSE, colours=colours)}{rest}".rstrip()


# ── the keyboard ──────────────────────────────────────────────────────────────────────────────────────────


class Keyboard:
    """Reads lines from `start` to `close`, each with the number of the question it was typed for."""

    def __init__(
        self, descriptor: int, screen: int, *, draws: bool, typed: Callable[[], None], entered: Callable[[], None]
    ) -> None:
        self._descriptor, self._screen, self._draws = descriptor, screen, draws
        self._typed, self._entered = typed, entered  # called when the line has changed, and when one is complete
        self.lines: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
        self.shown = ("", 0)  # the line, and where its cursor is
        self._question: int | None = None  # what is listened for
        self._editor = LineEditor()
        self._modes: Any = None  # those of the terminal before they were changed
        self._lock, self._closed = threading.RLock(), False
        self._wake_up, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._read, name="keyboard", daemon=True)
        self._thread.start()

    def listen(self, question: int) -> None:
        """Take what is typed from now on for the answer to a question."""
        import termios

        with self._lock:
            self._question, self._editor, self.shown = question, LineEditor(), ("", 0)
            self.take()
            with suppress(termios.error):
                if not is_in_background(self._descriptor):
                    termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self._wake()

    def stop(self) -> None:
        """Listen no more; the terminal is as it was before."""
        with self._lock:
            self._question, self.shown = None, ("", 0)
            self.release()

    def close(self) -> None:
        self.stop()
        self._closed = True
        self._wake()
        self._thread.join()
        os.close(self._wake_up)
        os.close(self._waker)

    def take(self) -> None:
        """Have the terminal hand over every key, if it is listened to and ours."""
        import termios

        with self._lock, suppress(termios.error):
            if self._question is None or not self._draws or self._modes or is_in_background(self._descriptor):
                return
            before = termios.tcgetattr(self._descriptor)
            ours = [*before[:3], before[3] & ~(termios.ICANON | termios.ECHO), *before[4:]]
            ours[6] = [*before[6]]
            ours[6][termios.VMIN], ours[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._descriptor, termios.TCSANOW, ours)
            self._modes = before
            self._write(PASTE_ON)

    def release(self) -> None:
        """Give the terminal the modes back that it had: before another program uses it, or a shell."""
        import termios

        with self._lock, suppress(termios.error):
            modes, self._modes = self._modes, None
            if modes and not is_in_background(self._descriptor):
                self._write(PASTE_OFF)
                termios.tcsetattr(self._descriptor, termios.TCSANOW, modes)

    def _write(self, sequence: str) -> None:
        with suppress(OSError):
            os.write(self._screen, sequence.encode("ascii"))

    def _wake(self) -> None:
        os.write(self._waker, b".")

    def _read(self) -> None:
        while not self._closed:
            listens = self._question is not None
            watched = [self._wake_up, self._descriptor] if listens else [self._wake_up]
            ready = select.select(watched, [], [], TIMING.terminal_look if listens else None)[0]
            if self._wake_up in ready:
                os.read(self._wake_up, 4096)
            self.take()
            if self._descriptor in ready:
                self._read_keys()

    def _read_keys(self) -> None:
        if is_in_background(self._descriptor):
            select.select([self._wake_up], [], [], TIMING.terminal_look)  # the keys are for another program
            return
        with self._lock:
            question = self._question
            if question is None:
                return
            try:
                typed = os.read(self._descriptor, 65536)
            except OSError:
                typed = b""  # the terminal is gone
            found = self._editor.feed(typed) if typed else [None]
            self.shown = (self._editor.text, self._editor.cursor)
            for line in found:
                self.lines.put((question, line))
        self._typed()
        if found:
            self._entered()


# ── one line while a person types it ──────────────────────────────────────────────────────────────────────


PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"  # terminals that know it put marks around what is pasted
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|[^\[O])|[^\x1b]", re.DOTALL)
_ALIASES = {
    "\x1b[C": "\x06", "\x1bOC": "\x06",  # right
    "\x1b[D": "\x02", "\x1bOD": "\x02",  # left
    "\x1b[H": "\x01", "\x1bOH": "\x01", "\x1b[1~": "\x01",
    "\x1b[F": "\x05", "\x1bOF": "\x05", "\x1b[4~": "\x05",
    "\x1b[3~": "\x04", "\b": "\x7f", "\n": "\r",
}  # fmt: skip
_LAST_WORD = re.compile(r"\S+\s*\Z|\s+\Z")
_MOST = 1_000_000  # characters of a line: what comes beyond is dropped


@dataclass(slots=True)
class LineEditor:
    """A line, where its cursor is, and keys that are only half there."""

    text: str = ""
    cursor: int = 0
    _partial: str = ""
    _pasting: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def feed(self, typed: bytes) -> list[str | None]:
        """Take what was typed; return the lines it completes, None for each end of input."""
        keys, self._partial = self._partial + self._decoder.decode(typed), ""
        found: list[str | None] = []
        place = 0
        while place < len(keys):
            match = _KEY.match(keys, place)
            if match is None:
                self._partial = keys[place:]  # an escape sequence whose end is yet to come
                break
            place = match.end()
            self._press(match[0], found)
        return found

    def _press(self, key: str, found: list[str | None]) -> None:
        if key in (_PASTE_BEGINS, _PASTE_ENDS):
            self._pasting = key == _PASTE_BEGINS
        elif self._pasting:
            self._insert("\n" if key == "\r" else key)
        elif (key := _ALIASES.get(key, key)) == "\r":
            found.append(self.text)
            self.text, self.cursor = "", 0
        elif key == "\x04" and not self.text:
            found.append(None)
        elif key.isprintable():
            self._insert(key)
        else:
            self._edit(key)

    def _insert(self, text: str) -> None:
        if (text.isprintable() or text in "\n\t") and len(self.text) < _MOST:
            self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
            self.cursor += len(text)

    def _edit(self, key: str) -> None:
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        match key:
            case "\x06":
                before, after = before + after[:1], after[1:]
            case "\x02":
                before, after = before[:-1], before[-1:] + after
            case "\x01":
                before, after = "", before + after
            case "\x05":
                before, after = before + after, ""
            case "\x7f":
                before = before[:-1]
            case "\x04":
                after = after[1:]
            case "\x0b":
                after = ""
            case "\x15":
                before = ""
            case "\x17":
                before = _LAST_WORD.sub("", before)
        self.text, self.cursor = before + after, len(before)
