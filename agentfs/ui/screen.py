"""The last lines of a terminal, drawn again whenever they change; what is printed for good scrolls away above them.

Theory of operation. Between two frames the cursor stays hidden at the start of the first line. So a frame needs to
know nothing of the one before: it writes its lines from where the cursor is, clears what is left below, and goes back
up. When a terminal becomes narrower it breaks long lines again and keeps the cursor on the text it stood on, which is
why that place is right after a resize too. Lines are drawn with wrapping off: one line is one row, even where the
terminal and we disagree about how wide a character is. A thread draws, so that a slow terminal holds up nobody else.
"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from agentfs.storage.timing import TIMING

USUAL = os.terminal_size((80, 24))
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
TOGETHER, SHOWN = "\x1b[?2026h", "\x1b[?2026l"  # terminals that know it show what is between in one go
CLEAR_LINE, CLEAR_BELOW = "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class Look:
    """What a terminal is able to show, and the moment at which it does."""

    width: int
    height: int
    now: datetime  # in local time
    colours: bool = False
    plain: bool = False  # ASCII only


Frame = Callable[[Look], list[str]]  # -> lines that fit


def can_draw(stream: TextIO, term: str) -> bool:
    """Whether a stream is a terminal that can draw over what it has drawn, and that is ours to draw on."""
    return stream.isatty() and can_move_the_cursor(term) and not is_in_background(stream.fileno())


def can_move_the_cursor(term: str) -> bool:
    """Whether a terminal of this kind can draw over what it has drawn."""
    return term not in ("", "dumb", "unknown")


class Screen:
    """The live view: shows frames from `start` to `close`. What they show is made from values at hand."""

    def __init__(self, stream: TextIO, frame: Frame, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._stream, self._frame, self._now = stream, frame, now
        self.colours = not os.environ.get("NO_COLOR")
        self._plain = not stream.encoding.lower().replace("-", "").startswith("utf")  # ASCII only
        self._lines_above: deque[str] = deque()
        self._drawn: tuple[os.terminal_size, list[str]] | None = None  # None: not there, or no longer as it was
        self._changed, self._due = True, 0.0
        self._catches_suspension, self._lent = False, False
        self.suspended: Callable[[], None] = lambda: None  # called before the shell gets the terminal
        self.continued: Callable[[], None] = lambda: None  # and when we have it back
        self._drawing, self._closing = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep_drawing, name="screen", daemon=True)

    def start(self) -> None:
        self._stream.flush()
        self._show_cursor_while_suspended()
        self._thread.start()

    def changed(self) -> None:
        """Say that the next frame will look different."""
        self._changed = True

    def draw_now(self) -> None:
        """Draw without waiting for the next frame's time: a person sees what they type."""
        self._changed = True
        self._draw()

    def lend(self) -> None:
        """Leave the terminal to another program; what is printed meanwhile is written when it is back."""
        with self._drawing:
            self._lent = True
            self._write(f"\r{CLEAR_BELOW}{SHOW}")

    def take_back(self) -> None:
        with self._drawing:
            self._lent, self._drawn = False, None
        self.draw_now()

    def say(self, *lines: str) -> None:
        """Have lines written above for good; they are as long as they are."""
        self._lines_above.extend(lines)

    def close(self, *, keep: bool) -> None:
        """Draw no more. `keep`: the last frame stays, and what comes next is written below it."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join()
        self._draw(last=True, keep=keep)
        if self._catches_suspension:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _keep_drawing(self) -> None:
        while not self._closing.is_set():
            self._draw()
            self._closing.wait(TIMING.frame)

    def _draw(self, *, last: bool = False, keep: bool = True) -> None:
        """Draw a frame if there is a reason to."""
        with self._drawing:
            if self._lent and not last:
                return
            size, now = self._size(), time.monotonic()
            known = self._drawn is not None and self._drawn[0] == size
            if known and not (last or self._changed or self._lines_above or now >= self._due):
                return
            self._changed, self._due = False, now + TIMING.frame_stale
            above = [self._lines_above.popleft() for _ in range(len(self._lines_above))]
            if is_in_background(self._stream.fileno()):
                self._drawn = None
                self._write("".join(f"{line}\r\n" for line in above))
                return
            look = Look(size.columns - 1, size.lines - 1, self._now(), colours=self.colours, plain=self._plain)
            lines = self._frame(look)[: max(1, size.lines - 1)] if keep else []
            if last or above or self._drawn != (size, lines):
                fresh = bool(above) or self._drawn is None
                self._drawn = (size, lines)
                self._write(painted_frame(above, lines, fresh=fresh, last=last))

    def _size(self) -> os.terminal_size:
        try:
            found = os.get_terminal_size(self._stream.fileno())
        except OSError:
            return USUAL
        return found if found.columns > 0 and found.lines > 0 else USUAL

    def _write(self, text: str) -> None:
        """Write in one go, past every buffer; a terminal that is gone is no trouble."""
        left = text.encode(self._stream.encoding, "replace")
        with suppress(OSError, ValueError):
            while left:
                left = left[os.write(self._stream.fileno(), left) :]

    def _show_cursor_while_suspended(self) -> None:
        """Ctrl-Z gives the terminal to the shell: show its cursor there, and draw again when we are back."""
        if not hasattr(signal, "SIGTSTP"):
            return  # Windows suspends nothing
        in_main_thread = threading.current_thread() is threading.main_thread()  # signals are set there only
        self._catches_suspension = in_main_thread and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        if self._catches_suspension:
            signal.signal(signal.SIGTSTP, self._suspend)

    def _suspend(self, *_: object) -> None:
        if not self._lent:
            self._write(f"\r{CLEAR_BELOW}{SHOW}")
        self.suspended()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)  # we stop here until `fg`
        self._drawn = None
        self.continued()
        signal.signal(signal.SIGTSTP, self._suspend)


def painted_frame(above: list[str], lines: list[str], *, fresh: bool, last: bool) -> str:
    """Return what draws a frame, with lines that stay above it. `fresh`: what is there is not the frame before."""
    # not from the first column: some terminals take that for "clear all", and keep a copy in their scrollback
    parts = [TOGETHER, HIDE, "\r", f" {CLEAR_BELOW}\r" if fresh else ""]
    parts += [f"{line}\r\n" for line in above]
    parts += [WRAP_OFF, "\r\n".join(f"{line}{CLEAR_LINE}" for line in lines), CLEAR_BELOW, WRAP_ON]
    if last:
        parts += ["\r\n" if lines else "", SHOW]
    else:
        parts += [f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else "", "\r"]
    return "".join([*parts, SHOWN])


def is_in_background(terminal: int) -> bool:
    """Whether a terminal belongs to another job, as with `agentfs watch &`."""
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except (OSError, AttributeError):  # AttributeError: Windows has no jobs
        return False  # not the terminal of our session: nobody else draws on it
