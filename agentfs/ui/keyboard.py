"""The keyboard of a terminal, read by a thread of its own, and the line that is typed there.

Keys: arrows, Home, End, Delete, Backspace, Ctrl-A, -E, -K, -U, -W; Enter ends the line; Ctrl-D on an empty line is
the end of input. What is pasted is text: a line break in it does not end the line.
"""

import codecs
import os
import queue
import re
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from agentfs.ui.screen import is_in_background

LOOK_SECONDS = 0.5  # how soon we notice that the terminal is ours again


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
            ready = select.select(watched, [], [], LOOK_SECONDS if listens else None)[0]
            if self._wake_up in ready:
                os.read(self._wake_up, 4096)
            self.take()
            if self._descriptor in ready:
                self._read_keys()

    def _read_keys(self) -> None:
        if is_in_background(self._descriptor):
            self._pause()  # reading would stop us; the keys are for another program
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

    def _pause(self) -> None:
        select.select([self._wake_up], [], [], LOOK_SECONDS)


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
