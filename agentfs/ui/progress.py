"""What is printed of a run while it is driven, and at its end: how it ended, or what it waits for and what to do."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from agentfs.core.actions import Action, Wait
from agentfs.core.run_state import RunState
from agentfs.core.text import inert
from agentfs.engine.report import Resting, closing_words, finished_attempts, opening_line, reply_lines, turn_news
from agentfs.ui.screen import Screen, can_draw

if TYPE_CHECKING:
    from agentfs.engine.driver import Driver


class Progress(Protocol):
    """What follows a run: every turn, and the end."""

    def turn(self, state: RunState, actions: list[Action]) -> None: ...

    def note(self, words: str) -> None: ...

    def tell(self, lines: Sequence[str]) -> None: ...

    def ask(self, prompt: str, typed: Callable[[], tuple[str, int]] | None = None) -> None: ...

    def lend(self) -> None: ...

    def take_back(self) -> None: ...

    def end(self, rest: Wait | None, below: Resting = ()) -> None: ...

    @property
    def screen(self) -> Screen | None: ...


@contextmanager
def progress_for(driver: "Driver", stream: TextIO) -> Iterator[Progress]:
    """Yield the progress that suits the stream."""
    if not can_draw(stream, os.environ.get("TERM", "")):
        yield Lines(driver, stream)
        return
    from agentfs.ui.live import LiveRun

    with LiveRun(driver, stream) as live:
        yield live


# ── one run, as plain lines ───────────────────────────────────────────────────────────────────────────────


class Lines:
    """Writes a line for every action worth one, and for every result."""

    screen = None

    def __init__(self, driver: "Driver", stream: TextIO) -> None:
        self._driver, self._stream, self._prompt = driver, stream, ""
        self._lent: list[str] | None = None  # what was printed while another program had the terminal
        self._reported = finished_attempts(driver.facts)
        self._replies: set[str] = set()  # that do not count, and were pointed out
        self._say(opening_line(driver))

    def turn(self, state: RunState, actions: list[Action]) -> None:
        lines = [words for _, words, _ in turn_news(state, actions, self._reported)]
        self._say(*lines, *(reply_lines(state, self._replies) if self._driver.jobs else ()))

    def note(self, words: str) -> None:
        self._say(words)

    def tell(self, lines: Sequence[str]) -> None:
        self._say("", *lines)

    def ask(self, prompt: str, typed: Callable[[], tuple[str, int]] | None = None) -> None:  # noqa: ARG002
        """Write a prompt; the terminal itself shows what is typed there."""
        had, self._prompt = bool(self._prompt), ""
        if prompt:
            self._say(prompt)
            self._prompt = prompt
            self._write("> ")
        elif had:
            self._write("\n")

    def lend(self) -> None:
        """Leave the terminal to another program; what is printed meanwhile is written when it is back."""
        self._lent = []

    def take_back(self) -> None:
        held, self._lent = self._lent or [], None
        self._say(*held)

    def end(self, rest: Wait | None, below: Resting = ()) -> None:
        for line in closing_words(self._driver, rest, below):
            print(inert(line), file=self._stream, flush=True)

    def _say(self, *lines: str) -> None:
        """Write lines in one go: a stream may be slow, and a turn is short."""
        if self._lent is not None:
            self._lent += lines
        elif lines:
            text = "".join(f"{inert(line)}\n" for line in lines)
            self._write(f"\n{text}> " if self._prompt else text)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class ChildLines:
    """Says what happens in a run that is a step of another, where that one's progress is shown."""

    def __init__(self, driver: "Driver", above: Progress) -> None:
        self._name, self._above = driver.folder.name, above
        self._reported = finished_attempts(driver.facts)
        above.note(opening_line(driver))

    def turn(self, state: RunState, actions: list[Action]) -> None:
        for _, words, _ in turn_news(state, actions, self._reported):
            self._above.note(f"{self._name}: {words}")

    def note(self, words: str) -> None:
        self._above.note(f"{self._name}: {words}")
