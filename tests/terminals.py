"""A terminal of our own: what a person would see of what a program writes, and a program that has been given one."""

import codecs
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import warm
from tests.workspaces import DEADLINE, wait_for

_PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\x00-\x1f])|([^\x00-\x1f])", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(\[[?0-9;]*)?\Z")


class Terminal:
    """Understands what we write, and nothing else: a sequence it does not know fails the test."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        self.scrolled: list[str] = []  # lines that have left the screen at its top
        self.colours = False
        self._cursor_shown = True
        self._grid = [[""] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._wraps, self._rest = True, ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        if unfinished := _UNFINISHED.search(text):
            self._rest, text = unfinished[0], text[: unfinished.start()]
        else:
            self._rest = ""
        for arguments, command, control, character in _PIECE.findall(text):
            if command:
                self._obey(arguments, command)
            elif control:
                self._control(control)
            else:
                self._put(character)

    @property
    def screen(self) -> list[str]:
        """The lines of the screen down to the last one that is not blank."""
        lines = ["".join(cell or " " for cell in row if cell != "\0").rstrip() for row in self._grid]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def everything(self) -> list[str]:
        return [*self.scrolled, *self.screen]

    def shows_cursor(self) -> bool:
        return self._cursor_shown

    def _obey(self, arguments: str, command: str) -> None:
        match arguments, command:
            case ("?25", "h" | "l"):
                self._cursor_shown = command == "h"
            case ("?7", "h" | "l"):
                self._wraps = command == "h"
            case ("?2026" | "?2004", "h" | "l"):
                pass
            case (_, "m"):
                self.colours = True
            case (count, "A"):
                self._row = max(0, self._row - int(count or 1))
            case ("", "K"):
                self._grid[self._row][min(self._column, self.columns - 1) :] = [""] * max(
                    1, self.columns - self._column
                )
            case ("", "J"):
                self._obey("", "K")
                for row in range(self._row + 1, self.rows):
                    self._grid[row] = [""] * self.columns
            case _:
                message = f"an unknown sequence: ESC [ {arguments} {command}"
                raise AssertionError(message)

    def _control(self, control: str) -> None:
        match control:
            case "\r":
                self._column = 0
            case "\n":
                self._down()
            case _:
                message = f"a control character: {control!r}"
                raise AssertionError(message)

    def _put(self, character: str) -> None:
        wide = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self._column + wide > self.columns:
            if self._wraps:
                self._column = 0
                self._down()
            else:
                self._column = self.columns - wide
        self._grid[self._row][self._column : self._column + wide] = [character, "\0"][:wide]
        self._column += wide

    def _down(self) -> None:
        if self._row + 1 < self.rows:
            self._row += 1
            return
        self.scrolled.append("".join(cell or " " for cell in self._grid.pop(0) if cell != "\0").rstrip())
        self._grid.append([""] * self.columns)


class OnTerminal:
    """A command of agentfs whose stderr is a terminal, `stdout` too if asked for, for as long as the block runs.

    `keyboard`: stdin too, and it is the terminal of the command's session: what is typed there is read, Ctrl-C is a
    signal.
    """

    def __init__(
        self,
        words: list[str],
        folder: Path,
        environment: Mapping[str, str],
        columns: int = 80,
        rows: int = 24,
        *,
        stdout: bool = False,
        keyboard: bool = False,
    ) -> None:
        self._stdout, self._keyboard = stdout, keyboard
        self.terminal = Terminal(columns, rows)
        self._words, self._folder, self._environment = words, folder, {"TERM": "xterm", **environment}
        self._bytes, self._lock = bytearray(), threading.Lock()
        self._trouble: list[BaseException] = []
        self.echoes = True  # whether the terminal was left as a shell needs it

    def __enter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (self.terminal.rows, self.terminal.columns))
        self.popen = self._begin_warm(theirs) if warm.can_start(self._environment) else self._begin(theirs)
        self._theirs = theirs if self._keyboard else None  # as a shell would have it: its modes can be looked at
        if not self._keyboard:
            os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def _begin(self, theirs: int) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "agentfs", *self._words]
        return subprocess.Popen(
            ["setsid", "--ctty", *command] if self._keyboard else command,
            cwd=self._folder,
            env=self._environment,
            stdin=theirs if self._keyboard else subprocess.DEVNULL,
            stdout=theirs if self._stdout else subprocess.PIPE,
            stderr=theirs,
            text=True,
            start_new_session=not self._keyboard,
        )

    def _begin_warm(self, theirs: int) -> warm.Command:
        end, out = (-1, os.dup(theirs)) if self._stdout else os.pipe()
        with open(os.devnull, "rb") as nothing:
            streams = (theirs if self._keyboard else nothing.fileno(), out, theirs)
            begun = warm.Command(self._words, self._folder, self._environment, streams, keyboard=self._keyboard)
        os.close(out)
        begun.stdout = None if self._stdout else os.fdopen(end, encoding="utf-8")
        return begun

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        self.wait()
        os.close(self._ours)
        assert not self._trouble, self._trouble

    @property
    def raw(self) -> str:
        """Everything that was written there."""
        with self._lock:
            return bytes(self._bytes).decode("utf-8", "replace")

    def wait(self) -> tuple[int, str]:
        """Wait for the end; return the exit code, and what it wrote to stdout."""
        out, output = self.popen.stdout, ""
        try:
            if out and not out.closed:
                output, _ = self.popen.communicate(timeout=DEADLINE)
            code = self.popen.wait(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise AssertionError("it does not end; the screen shows:\n" + "\n".join(self.screen)) from None
        if self._theirs is not None:
            self.echoes = bool(termios.tcgetattr(self._theirs)[3] & termios.ECHO)
            os.close(self._theirs)  # the last one: the reader finds the end
            self._theirs = None
        self._reader.join(DEADLINE)
        return code, output

    def wait_to_see(self, *words: str) -> list[str]:
        """Wait until all of these stand on the screen at once; return its lines."""
        return self.wait_until(lambda screen: all(word in "\n".join(screen) for word in words), repr(words))

    def wait_until(self, condition: Callable[[list[str]], bool], what: str) -> list[str]:
        try:
            wait_for(lambda: condition(self.screen) or self.popen.poll() is not None, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen shows:\n" + "\n".join(self.screen)) from None
        assert condition(self.screen), self.terminal.everything
        return self.screen

    @property
    def screen(self) -> list[str]:
        with self._lock:
            return self.terminal.screen

    def resize(self, columns: int, rows: int) -> None:
        """Become another size, and forget what was shown."""
        with self._lock:
            termios.tcsetwinsize(self._ours, (rows, columns))
            self.terminal = Terminal(columns, rows)

    @property
    def path(self) -> str:
        """Where the terminal is among the devices, while the command has it as its keyboard."""
        return os.ttyname(self._theirs) if self._theirs is not None else ""

    def type(self, keys: str) -> None:
        """Press keys; Enter is a carriage return."""
        os.write(self._ours, keys.encode("utf-8"))

    def enter(self, line: str) -> None:
        self.type(f"{line}\r")

    def press_control_c(self) -> None:
        self.popen.send_signal(signal.SIGINT)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()  # a character may come in two pieces
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:
                return  # the other side is closed
            with self._lock:
                self._bytes += piece
                try:
                    self.terminal.feed(decoder.decode(piece))
                except AssertionError as error:
                    self._trouble.append(error)
