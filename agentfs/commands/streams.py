"""The standard streams of a command: there, in UTF-8, and safe to print to whatever becomes of them.

- One that was closed before we began is opened again, so that no file of ours gets its number; writing to it fails.
- What cannot be written to stderr is dropped. The command goes on, and its exit code counts.
- What cannot be written to stdout raises `CannotPrint`.
"""

import errno
import io
import os
import re
import sys
from contextlib import suppress
from typing import TextIO

from agentfs.core.text import inert

_COLOURS = re.compile(r"(\x1b\[(?:0|1|2|7|27|3[1-6])m)")  # ours: see core/table.py and core/plan_diff.py


class CannotPrint(OSError):
    """What was to be printed on stdout cannot be."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror)
        self.reader_left = error.errno == errno.EPIPE

    def __str__(self) -> str:
        return f"cannot write to stdout: {self.strerror}"


class _Stdout(io.TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise CannotPrint(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise CannotPrint(error) from None


class _Stderr(io.TextIOWrapper):
    def write(self, text: str) -> int:
        with suppress(OSError):
            return super().write(text)
        drop_rest(2)
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            drop_rest(2)


def begin() -> None:
    """Make the streams of this process fit to print on; start it again where names of files are not UTF-8 to it."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - ourselves
    for number in (0, 1, 2):
        _be_there(number)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", errors="replace")  # noqa: SIM115 - until the end
    sys.stdout = _again(sys.stdout, _Stdout, 1)
    sys.stderr = _again(sys.stderr, _Stderr, 2)


def _be_there(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)  # it gets the lowest number that is free: this one
        os.set_inheritable(number, True)


def _again(stream: TextIO | None, kind: type[io.TextIOWrapper], number: int) -> io.TextIOWrapper:
    """Return a stream of our kind in the place of another; None: it was closed."""
    buffer = open(number, "wb", closefd=False)  # noqa: SIM115 - until the end
    at_once = number == 2 or os.isatty(number)
    return kind(buffer, stream.encoding if stream else "utf-8", "backslashreplace", line_buffering=at_once)


def drop_rest(number: int) -> None:
    """Let whatever is still written to a stream go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def complain(words: str) -> None:
    """Print an error. Problems of files, one per line, need no `agentfs:` before them."""
    words = harmless(words)
    print(words if "\n" in words else f"agentfs: {words}", file=sys.stderr, flush=True)


_odd: dict[str, str] = {}  # parts of names that a terminal would obey -> how they are shown


def learn_names(words: list[str]) -> None:
    """Remember names that messages may quote: what was typed, where that leads to, and the current folder."""
    with suppress(OSError):
        words = [*words, os.getcwd(), *(os.path.realpath(word) for word in words if "\0" not in word)]
    _odd.clear()
    _odd.update({part: inert(part) for word in words for part in word.split("/") if not part.isprintable()})


def harmless(text: str, *, colours: bool = False) -> str:
    """Return a message that no terminal obeys; the line breaks in it are ours, those in names are not."""
    if text.isprintable():
        return text
    for part in sorted(_odd, key=len, reverse=True):
        text = text.replace(part, _odd[part])
    return "\n".join(_line(line, colours=colours) for line in text.split("\n"))


def _line(line: str, *, colours: bool) -> str:
    if not colours:
        return inert(line)
    return "".join(part if place % 2 else inert(part) for place, part in enumerate(_COLOURS.split(line)))
