"""What a person types on the terminal while the view is drawn on it: read by a thread, line by line, while listening.

While it listens the terminal neither echoes nor collects lines: we edit the line, and the view shows it. On one
that cannot draw over what it has drawn (`draws=False`) its own line editing and echo stay. What was typed before it
listens is dropped: nobody has seen the question yet. Ctrl-C and Ctrl-Z are signals as ever.
"""

import os
import queue
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agentfs.views.line_editor import PASTE_OFF, PASTE_ON, LineEditor
from agentfs.views.screen import is_in_background

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
