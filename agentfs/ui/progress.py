"""What people see of runs while they are driven, and at their end: one run as lines or live, all of a watch live.

The live views keep the latest states; the screen's thread makes lines of them at its own pace, and reads no file.
What has to be read scrolls away above.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from agentfs.core.actions import Action, Wait, WriteNote
from agentfs.core.run_state import RunState
from agentfs.core.text import BOLD, inert, paint, plural
from agentfs.daemon.reporter import Reporter
from agentfs.engine.report import (
    Resting,
    action_news,
    closing_words,
    ended_words,
    failures,
    finished_attempts,
    opening_line,
    reply_lines,
    turn_news,
)
from agentfs.storage.clock import Clock
from agentfs.ui.overview import Overview, Row, RunView, ended_row, overview_lines, row_of, run_lines
from agentfs.ui.screen import Look, Screen, can_draw

if TYPE_CHECKING:
    from agentfs.engine.driver import Driver

STAYS = frozenset(("rejected", "left", "polling", "trouble", "note", "stopping"))  # whose words scroll away above
ENDED_SHOWN = 3
WAITING_SHOWN = 5  # runs that wait for a person, listed at the end


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

    def __init__(self, driver: "Driver", above: "Progress") -> None:
        self._name, self._above = driver.folder.name, above
        self._reported = finished_attempts(driver.facts)
        above.note(opening_line(driver))

    def turn(self, state: RunState, actions: list[Action]) -> None:
        for _, words, _ in turn_news(state, actions, self._reported):
            self._above.note(f"{self._name}: {words}")

    def note(self, words: str) -> None:
        self._above.note(f"{self._name}: {words}")


# ── one run, live ──────────────────────────────────────────────────────────────────────────────────────────


class LiveRun:
    """Shows a run while it is driven, and leaves the last frame on the screen."""

    def __init__(self, driver: "Driver", stream: TextIO) -> None:
        self._driver, self._stream = driver, stream
        self._state, self._waits = driver.state, ""
        self._clock = driver.world.clock
        self._began = self._clock.monotonic()
        self._prompt = ""
        self._typed: Callable[[], tuple[str, int]] = lambda: ("", 0)
        self.screen = Screen(stream, self._lines, self._clock.wall)

    def turn(self, state: RunState, actions: list[Action]) -> None:
        self._state, last = state, actions[-1]
        self._waits = last.why if isinstance(last, Wait) and last.on in ("person", "planner") else ""
        self.screen.changed()

    def note(self, words: str) -> None:
        """Say something above the frame."""
        self.screen.say(inert(words))

    def tell(self, lines: Sequence[str]) -> None:
        """Say several lines above the frame, the first of them so that it stands out."""
        head, *more = map(inert, lines)
        self.screen.say("", paint(head, BOLD, colours=self.screen.colours), *more, "")

    def ask(self, prompt: str, typed: Callable[[], tuple[str, int]] | None = None) -> None:
        """Show a prompt below the frame, and what is typed there; an empty one takes it away."""
        self._prompt, self._typed = prompt, typed or self._typed
        self.screen.draw_now()

    def lend(self) -> None:
        """Leave the terminal to another program."""
        self.screen.lend()

    def take_back(self) -> None:
        self.screen.take_back()

    def end(self, rest: Wait | None, below: Resting = ()) -> None:
        """Draw for the last time, then say how it ended."""
        self._state, self._waits = self._driver.state, ""
        self.screen.close(keep=True)
        for line in closing_words(self._driver, rest, below):
            print(inert(line), file=self._stream, flush=True)

    def _lines(self, look: Look) -> list[str]:
        driver = self._driver
        view = RunView(
            state=self._state,
            where=str(driver.folder.resolve() / driver.facts.run.workdir),
            waits=self._waits,
            due=driver.due_in(),
            received=driver.received,
            doing=driver.doing,
            elapsed=self._clock.monotonic() - self._began,
            prompt=self._prompt,
            typed=self._typed(),
        )
        return run_lines(view, look)


Progress = Lines | LiveRun


@contextmanager
def progress_for(driver: "Driver", stream: TextIO) -> Iterator[Progress]:
    """Yield the progress that suits the stream."""
    if not stream.isatty() or not can_draw(stream, os.environ.get("TERM", "")):
        yield Lines(driver, stream)
        return
    live = LiveRun(driver, stream)
    live.screen.start()
    try:
        yield live
    finally:
        live.screen.close(keep=True)


# ── all runs that a watch drives, live ─────────────────────────────────────────────────────────────────────


class LiveReporter(Reporter):
    """Shows all runs from the moment a daemon watches until it has stopped.

    A run that has ended stays in view for a while, then scrolls away above with the rest.
    """

    def __init__(self, stream: TextIO, workspace: Path, places: int, clock: Clock) -> None:
        super().__init__(stream)
        self._workspace, self._places, self._clock = workspace, places, clock
        self._since, self._polling = self._clock.local(), False
        self._lock = threading.Lock()  # over what both threads use
        self._drivers: dict[str, Driver] = {}
        self._rows: dict[str, tuple[RunState, str, Row]] = {}  # as last derived, from what, and on which day
        self._ended: deque[tuple[Row, list[str]]] = deque()  # in view, each with the lines that stay
        self._screen = Screen(stream, self._lines, clock.local)
        self._shows = False

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────

    def report(self, event: str, words: str, run: str | None = None, **more: Any) -> None:
        match event:
            case "watching":
                self._polling = bool(more.get("polling"))
                self._shows = True
                self._screen.start()
                if self._polling:
                    self._keep(words, run)
            case "stopped":
                self.leave_the_screen()
                for line in self._open_run_lines():
                    super().report("todo", line)
                super().report(event, words)
            case _ if not self._shows:
                super().report(event, words, run, **more)
            case _ if event in STAYS or more.get("status") == "interrupted":
                self._keep(words, run)

    def report_opened(self, driver: "Driver") -> None:
        with self._lock:
            self._drivers[driver.facts.run.run] = driver
        self._screen.changed()

    def report_turn(self, driver: "Driver", reported: set[tuple[str, int]]) -> None:
        super().report_turn(driver, reported)
        for action in driver.actions:
            if isinstance(action, WriteNote) and (news := action_news(action, driver.state)):
                self._keep(news[1], driver.facts.run.run)
        self._screen.changed()

    def report_end(self, driver: "Driver") -> None:
        outcome, run = driver.facts.outcome, driver.facts.run.run
        self.forget_run(run)
        if outcome is None:
            return
        lines = [self._line(ended_words(outcome), run)]
        lines += failures(driver.state) if outcome.status == "failed" else []
        with self._lock:
            self._ended.append((ended_row(driver.state, outcome, self._clock.day()), lines))
        self._scroll_away(ENDED_SHOWN)

    def forget_run(self, run: str) -> None:
        super().forget_run(run)
        with self._lock:
            self._drivers.pop(run, None)
            self._rows.pop(run, None)
        self._screen.changed()

    def _keep(self, words: str, run: str | None) -> None:
        """Print words above the view, after the runs that ended before them."""
        self._scroll_away(0)
        self._screen.say(self._line(words, run))

    def _scroll_away(self, shown: int) -> None:
        with self._lock:
            while len(self._ended) > shown:
                self._screen.say(*self._ended.popleft()[1])

    def _line(self, words: str, run: str | None) -> str:
        return f"{self._clock.local():%H:%M} {inert(f'{run}: {words}' if run else words)}"

    # ── what is shown ─────────────────────────────────────────────────────────────────────────────────────

    def _lines(self, look: Look) -> list[str]:
        with self._lock:
            drivers, ended = list(self._drivers.values()), [row for row, _ in self._ended]
            rows = [self._row(driver) for driver in drivers]
        view = Overview(
            workspace=str(self._workspace),
            since=self._since,
            used=sum(len(driver.jobs) for driver in drivers),
            places=self._places,
            how="looking every second" if self._polling else "",
            rows=rows,
            ended=ended,
        )
        return overview_lines(view, look)

    def _row(self, driver: "Driver") -> Row:
        """Return the line of a run, made again only if its state changed."""
        state, day = driver.state, self._clock.day()
        known = self._rows.get(state.facts.run.run)
        if known is None or known[0] is not state or known[1] != day:
            known = self._rows[state.facts.run.run] = (state, day, row_of(state, day))
        return known[2]

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────

    def leave_the_screen(self) -> None:
        """Close the view, after printing above it what is still shown as ended."""
        if not self._shows:
            return
        self._shows = False
        self._scroll_away(0)
        self._screen.close(keep=False)

    def _open_run_lines(self) -> Iterator[str]:
        """Yield how many runs are left open, and what those that wait for a person need."""
        rows = [self._row(driver) for driver in self._drivers.values()]
        asking = [row for row in rows if row.ways]
        if rows:
            yield f"{plural(len(rows), 'run')} {'is' if len(rows) == 1 else 'are'} left open"
        for row in asking[:WAITING_SHOWN]:
            yield f"  {row.name} waits for you: {row.ways[0]}"
        if len(asking) > WAITING_SHOWN:
            yield f"  and {len(asking) - WAITING_SHOWN} more wait for you: agentfs status"
