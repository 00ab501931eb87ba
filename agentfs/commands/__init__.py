"""The command line: parse, dispatch, turn errors into words and exit codes. Commands are imported when called.

The standard streams of a command are there, in UTF-8, and safe to print to whatever becomes of them:

- One that was closed before we began is opened again, so that no file of ours gets its number; writing to it fails.
- What cannot be written to stderr is dropped. The command goes on, and its exit code counts.
- What cannot be written to stdout raises `CannotPrint`.
"""

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from agentfs.core.text import inert


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if argv is None:
        _begin()
    words = list(sys.argv[1:] if argv is None else argv)
    _learn_names(words)
    try:
        return _run(words)
    except KeyboardInterrupt:
        return 130
    except CannotPrint as error:
        _drop_rest(1)
        if error.reader_left:  # `agentfs log | head`, which is no mistake
            return 0
        complain(str(error))
        return 2
    except Exception as error:  # noqa: BLE001 - the last stop: what is not ours is raised again
        return _report_failure(error)


def _run(words: list[str]) -> int:
    from agentfs.commands.parser import parse

    arguments = parse(words)
    code: int = arguments.command(arguments)
    sys.stdout.flush()
    return code


def _report_failure(error: Exception) -> int:
    """Report what a person or the machine did wrong in one line; a bug of ours keeps its traceback."""
    from agentfs.core.problems import Rejected
    from agentfs.errors import AgentfsError

    if isinstance(error, AgentfsError | Rejected):
        _complain(error)
        return error.code if isinstance(error, AgentfsError) else 2
    if isinstance(error, OSError) and error.errno is not None:
        complain(f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror))
        return 2
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        complain("no thread can be started: there are too many already (TasksMax=, ulimit -u)")
        return 2
    raise error


def _complain(error: Exception) -> None:
    """Print an error; of a wrong file, on a terminal, with the lines it is about."""
    from agentfs.errors import BadFile

    if isinstance(error, BadFile) and sys.stderr.isatty():
        from agentfs.commands.common import problem_lines_for, say

        say("\n".join(problem_lines_for(sys.stderr, error.file, error.problems, error.source)), colours=True)
        if error.advice:
            say(error.advice)
        return
    complain(str(error))


# ── the streams ───────────────────────────────────────────────────────────────────────────────────────────


_COLOURS = re.compile(r"(\x1b\[(?:0|1|2|7|27|3[1-6])m)")  # ours: see core/text.py


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
        _drop_rest(2)
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            _drop_rest(2)


def _begin() -> None:
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


def _drop_rest(number: int) -> None:
    """Let whatever is still written to a stream go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def complain(words: str) -> None:
    """Print an error. Problems of files, one per line, need no `agentfs:` before them."""
    words = harmless(words)
    print(words if "\n" in words else f"agentfs: {words}", file=sys.stderr, flush=True)


_odd: dict[str, str] = {}  # parts of names that a terminal would obey -> how they are shown


def _learn_names(words: list[str]) -> None:
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
