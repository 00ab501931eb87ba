"""A calm live table of one run on a terminal. `turn` only keeps the state; the screen draws it at its own pace."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, TextIO

from agentfs.core import names
from agentfs.core.decide import Action, Wait
from agentfs.core.phase import reason
from agentfs.core.state import RunState
from agentfs.core.steps import StepView
from agentfs.core.tally import left_steps, tally
from agentfs.engine import Driver
from agentfs.ui.closing import closing_words
from agentfs.ui.prompt import typed_line
from agentfs.ui.screen import Screen, knows_signs, wants_colours
from agentfs.ui.table import BAD, BOLD, DIM, GOOD, WRONG, Cell, line_of, mark_of, painted, wrong_first
from agentfs.ui.text import counted, cut, duration, first_line, inert, left_words, padded

AROUND = 7  # lines that are no step: two of heading, the rest of the steps, bar, what it waits for, blanks
OVER = frozenset(("done", "skipped"))
PRESSING = WRONG | {"interrupted", "gated"}
STATE_WIDTH, TRY_WIDTH, TIME_WIDTH = 12, 5, 8


class Live:
    """Shows a run while it is driven, and leaves the last table on the screen."""

    def __init__(self, driver: Driver, stream: TextIO) -> None:
        self._driver, self._stream = driver, stream
        self._state, self._waits = driver.state, ""
        self._began = driver.world.clock.monotonic()
        self._colours, self._plain = wants_colours(os.environ), not knows_signs(stream)
        self._prompt = ""
        self._typed: Callable[[], tuple[str, int]] = lambda: ("", 0)
        self.screen = Screen(stream, self._draw)

    def __enter__(self) -> Self:
        self.screen.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.screen.close(keep=True)

    def turn(self, state: RunState, actions: list[Action]) -> None:
        """Keep the latest state: drawing happens elsewhere, at its own pace."""
        self._state = state
        last = actions[-1]
        self._waits = last.why if isinstance(last, Wait) and last.on in ("person", "planner") else ""
        self.screen.changed()

    def note(self, words: str) -> None:
        """Say something above the table."""
        self.screen.say(inert(words))

    def tell(self, lines: Sequence[str]) -> None:
        """Say several lines above the table, the first of them so that it stands out."""
        head, *more = map(inert, lines)
        self.screen.say("", painted(head, BOLD, colours=self._colours), *more, "")

    def ask(self, prompt: str, typed: Callable[[], tuple[str, int]] | None = None) -> None:
        """Show a prompt below the table, and what is typed there; an empty one takes it away."""
        self._prompt, self._typed = prompt, typed or self._typed
        self.screen.draw_now()

    def lend(self) -> None:
        """Leave the terminal to another program."""
        self.screen.lend()

    def take_back(self) -> None:
        self.screen.take_back()

    def end(self, rest: Wait | None) -> None:
        """Draw for the last time, then say how it ended."""
        self._state, self._waits = self._driver.state, ""
        self.screen.close(keep=True)
        for line in closing_words(self._driver, rest):
            print(inert(line), file=self._stream, flush=True)

    def _draw(self, width: int, height: int) -> list[str]:
        state, run = self._state, self._driver.facts.run
        where = inert(str(self._driver.folder.resolve() / run.workdir))
        everything = all_steps(state)
        prompt = self._prompt_lines(width)
        chosen = choose(everything, max(1, height - AROUND - len(prompt)))
        shown = {view.id for view in chosen}
        left_out = [view for view in everything if view.id not in shown]
        now = "" if state.facts.outcome else first_line(self._waits or reason(state)) + self._coming(state)
        now += f" (in {duration(due)})" if now and (due := self._driver.due_in()) is not None else ""
        more: list[list[Cell]] = [[(f"  and {rest_words(left_out)}", DIM)]] if left_out else []
        last: list[list[Cell]] = [[(now, DIM)]] if now else []
        rows: list[list[Cell]] = [
            [(run.run, BOLD), ("  works in ", DIM), (where, None)],
            [],
            *self._rows(state, chosen, width),
            *more,
            [],
            self._bar(state, width),
            *last,
        ]
        lines = [line_of(cells, width, colours=self._colours) for cells in rows]
        return [*lines, *prompt][-height:] if prompt else lines

    def _prompt_lines(self, width: int) -> list[str]:
        if not self._prompt:
            return []
        head = line_of([(self._prompt, mark_of("gated").colour)], width, colours=self._colours)
        return ["", head, typed_line(self._typed(), width, colours=self._colours)]

    def _coming(self, state: RunState) -> str:
        """Return how much of the planner's reply has come, while it comes."""
        one = state.calls.open
        characters = self._driver.heard.get(names.call_conversation(one.number), 0) if one else 0
        return f": {counted(characters, 'character')} so far" if characters else ""

    def _writing(self, view: StepView) -> str:
        """Return the same of the model that does a step."""
        characters = self._driver.heard.get(names.conversation(view.id, view.attempt), 0)
        return f"  ({counted(characters, 'character')} so far)" if characters and view.status == "running" else ""

    def _bar(self, state: RunState, width: int) -> list[Cell]:
        counts = tally(state)
        elapsed = duration(self._driver.world.clock.monotonic() - self._began)
        long = min(40, max(8, width - 40))
        wrong = -(-long * counts.failed // max(1, counts.total))  # rounded up: one of a hundred is seen too
        full = min(long - wrong, long * counts.done // max(1, counts.total))
        outcome = state.facts.outcome
        colour = GOOD if outcome is None or outcome.status == "done" else BAD
        bar, rest = ("#", "-") if self._plain else ("━", "─")
        failed = bar if self._colours and not self._plain else "x"
        words = f"  {counts.done} of {counts.total} steps{counts.more}" if counts.total else "  no plan yet"
        return [
            (failed * wrong, BAD),
            (bar * full, colour),
            (rest * (long - wrong - full), DIM),
            (words, None),
            (f"  {elapsed}", DIM),
        ]

    def _rows(self, state: RunState, chosen: list[StepView], width: int) -> list[list[Cell]]:
        id_width = min(max((len(view.id) for view in chosen), default=0), max(8, width // 3))
        return [self._row(state, view, id_width) for view in chosen]

    def _row(self, state: RunState, view: StepView, id_width: int) -> list[Cell]:
        mark = mark_of(view.status)
        colour, quiet = mark.colour or DIM, DIM if mark.colour is None else None
        return [
            (f"{mark.plain if self._plain else mark.sign} ", colour),
            (padded(cut(view.id, id_width), id_width + 2), quiet),
            (padded("running" if view.status == "ordered" else view.status, STATE_WIDTH), colour),
            (padded(tries(state, view), TRY_WIDTH), DIM),
            (padded(self._time(state, view), TIME_WIDTH), DIM),
            (about(view) + self._writing(view), colour if view.status in PRESSING else DIM),
        ]

    def _time(self, state: RunState, view: StepView) -> str:
        if view.status in ("ordered", "running"):
            order = state.facts.attempt(view.id, view.attempt).order
            return self._since(order.issued_at) if order else ""
        return duration(view.result.duration_s) if view.result and view.result.started_at else ""

    def _since(self, timestamp: str) -> str:
        passed = self._driver.world.clock.wall() - datetime.fromisoformat(timestamp)
        return duration(max(0.0, passed.total_seconds()))


def all_steps(state: RunState) -> list[StepView]:
    """Return the steps of a run as people are shown them, those that have left the plan included."""
    return wrong_first([*state.steps.values(), *left_steps(state)], lambda view: view.status)


def tries(state: RunState, view: StepView) -> str:
    """Return which attempt of how many; nothing for a step that has not begun."""
    allowed = state.around.allowed(view.step) if state.around else 1
    begun = view.attempt and (view.status != "waiting" or view.not_before is not None)
    return f"{view.attempt}/{max(allowed, view.attempt)}" if begun else ""


def about(view: StepView) -> str:
    """Return the most telling line about a step: why it failed or waits, else what it does."""
    return f"{_about(view)}{left_words(view.left)}"


def _about(view: StepView) -> str:
    result = view.result
    if view.status in ("done", "ordered", "running"):
        surprising = result is not None and result.surprising and view.status == "done"
        return first_line(view.why if surprising else view.step.description or "")
    if result is not None and result.error is not None and view.status in ("ready", "failed", "blocked", "rejected"):
        again = "tried again: " if view.status == "ready" else ""
        return again + first_line(result.error.message)
    return first_line(view.why)


def choose(views: list[StepView], room: int) -> list[StepView]:
    """Return the steps to show, in plan order: what runs, what went wrong, then those around the front line."""
    if len(views) <= room:
        return views
    front = next((n for n, view in enumerate(views) if view.status not in OVER | PRESSING), len(views) - 1)

    def rank(place: int) -> tuple[int, int]:
        status = views[place].status
        pressing = 0 if status in ("ordered", "running") else 1 if status in PRESSING else 2
        return pressing, abs(place - front)

    return [views[place] for place in sorted(sorted(range(len(views)), key=rank)[:room])]


def rest_words(views: list[StepView]) -> str:
    """Return how many steps are not shown, by state."""
    by_state = Counter(view.status for view in views)
    return f"{len(views)} more: " + ", ".join(f"{count} {status}" for status, count in by_state.most_common())
