"""Progress as plain lines: one for each thing that happens, of one run or of all that a daemon drives."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, TextIO

from agentfs.core import decide as acts
from agentfs.core.decide import Action, Wait
from agentfs.core.openings import openings
from agentfs.core.records import Result
from agentfs.core.state import RunState
from agentfs.core.steps import StepView
from agentfs.engine import Driver
from agentfs.ui.closing import closing_words, ended_words, failures, what_to_do
from agentfs.ui.screen import Screen, can_draw
from agentfs.ui.text import counted, duration, first_line, inert


class Progress(Protocol):
    """Told of every turn, and of the end."""

    def turn(self, state: RunState, actions: list[Action]) -> None: ...

    def note(self, words: str) -> None: ...

    def tell(self, lines: Sequence[str]) -> None: ...

    def ask(self, prompt: str, typed: Callable[[], tuple[str, int]] | None = None) -> None: ...

    def lend(self) -> None: ...

    def take_back(self) -> None: ...

    def end(self, rest: Wait | None) -> None: ...

    @property
    def screen(self) -> Screen | None: ...


@contextmanager
def progress_for(driver: Driver, stream: TextIO) -> Iterator[Progress]:
    """Yield the progress that suits the stream."""
    if not can_draw(stream, os.environ.get("TERM", "")):
        yield Lines(driver, stream)
        return
    from agentfs.ui.live import LiveRun

    with LiveRun(driver, stream) as live:
        yield live


# ── one run, as plain lines ───────────────────────────────────────────────────────────────────────────────


ENDS = {"done": "done", "failed": "FAILED", "blocked": "BLOCKED", "rejected": "rejected", "interrupted": "cut off"}
FAILURES = ("step_failed", "repeated_failure")  # triggers


class Lines:
    """Writes a line for every action worth one, and for every result."""

    screen = None

    def __init__(self, driver: Driver, stream: TextIO) -> None:
        self._driver, self._stream, self._prompt = driver, stream, ""
        self._lent: list[str] | None = None  # what was said while another program had the terminal
        self._settled = {
            (step, a.number) for step, attempts in driver.facts.attempts.items() for a in attempts if a.result
        }
        self._replies: set[str] = set()  # that do not count, and were pointed out
        self._say(opening_line(driver))

    def turn(self, state: RunState, actions: list[Action]) -> None:
        lines = [words for _, words, _ in turn_news(state, actions, self._settled)]
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
        """Leave the terminal to another program; what is said meanwhile is written when it is back."""
        self._lent = []

    def take_back(self) -> None:
        held, self._lent = self._lent or [], None
        self._say(*held)

    def end(self, rest: Wait | None) -> None:
        for line in closing_words(self._driver, rest):
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


# ── many runs, as plain lines or JSON ─────────────────────────────────────────────────────────────────────


class Teller:
    """Told of everything; writes a line for what is worth one. A stream that is gone is no trouble."""

    def __init__(self, stream: TextIO, stamp: Callable[[], str] | None = None) -> None:
        self._stream, self._stamp = stream, stamp  # with a stamp: JSON
        self._told: set[str] = set()
        self._replies: dict[str, set[str]] = {}  # by run: those that do not count, and were pointed out

    def tell(self, event: str, words: str, run: str | None = None, **more: Any) -> None:
        """Write one line."""
        if self._stamp is None:
            line = inert(f"{run}: {words}" if run else words)
        else:
            line = json.dumps({"at": self._stamp(), "event": event, "run": run, **more, "words": words})
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        """Go on without the stream; whoever reads the other one is told."""
        self._stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
        with contextlib.suppress(OSError, ValueError):
            print(f"agentfs: {error}; going on without it", file=sys.stderr, flush=True)

    def note(self, words: str) -> None:
        self.tell("note", words)

    def once(self, words: str, run: str | None = None) -> None:
        """Tell of trouble that may come again and again."""
        if (line := f"{run}: {words}") not in self._told:
            self._told.add(line)
            self.tell("trouble", words, run)

    def opened(self, driver: Driver) -> None:
        run = driver.facts.run
        self.tell("driving", f"working in {driver.folder.resolve() / run.workdir}", run.run)

    def turn(self, driver: Driver, actions: list[Action], settled: set[tuple[str, int]]) -> None:
        """Tell what a turn found settled and what it decided. `settled`: the attempts told before."""
        run = driver.facts.run.run
        for event, words, more in turn_news(driver.state, actions, settled):
            self.tell(event, words, run, **more)
        for words in reply_lines(driver.state, self._replies.setdefault(run, set())) if driver.jobs else ():
            self.tell("todo", words, run)  # at rest, `waits` says it

    def waits(self, driver: Driver, rest: Wait) -> None:
        run = driver.facts.run.run
        self.tell("waiting", f"waits: {rest.why}", run)
        for line in what_to_do(driver.folder, driver.state):
            self.tell("todo", line.strip(), run)

    def ended(self, driver: Driver) -> None:
        outcome, run = driver.facts.outcome, driver.facts.run.run
        self._replies.pop(run, None)
        if outcome is None:
            return
        self.tell("ended", ended_words(outcome), run, status=outcome.status, reason=outcome.reason)
        if outcome.status == "failed":
            for line in failures(driver.state):
                self.tell("todo", line.strip(), run)

    def let_go(self, run: str) -> None:
        """Hear that a run is no longer driven though it has not ended; why was told."""
        self._replies.pop(run, None)


# ── what there is to say ──────────────────────────────────────────────────────────────────────────────────

News = tuple[str, str, dict[str, Any]]  # event, words, what it is about


def turn_news(state: RunState, actions: Sequence[Action], settled: set[tuple[str, int]]) -> Iterator[News]:
    """Yield what a turn found finished and what it decided. `settled`: the attempts reported before."""
    for view in (state.steps[step] for step in state.board.changed):
        result = view.result
        if result is not None and (view.id, result.attempt) not in settled:
            settled.add((view.id, result.attempt))
            about = {"step": view.id, "attempt": result.attempt, "status": result.status}
            yield "settled", settled_line(view), about
    for action in actions:
        if words := action_line(action, state):
            yield _event(action), words, _about(action)


def _event(action: Action) -> str:
    return "started" if isinstance(action, acts.IssueOrder | acts.StartAttempt) else "action"


def _about(action: Action) -> dict[str, Any]:
    match action:
        case acts.IssueOrder(view=view):
            return {"step": view.id, "attempt": view.next}
        case acts.StartAttempt(view=view):
            return {"step": view.id, "attempt": view.attempt}
        case acts.StopAttempt(step=step, attempt=attempt):
            return {"step": step, "attempt": attempt}
        case _:
            return {}


def reply_lines(state: RunState, told: set[str]) -> list[str]:
    """Return which replies do not count, and what would; none that was told before."""
    lines = [f"{one.name}: {one.uncounted}" for one in openings(state) if one.uncounted]
    new = [line for line in lines if line not in told]
    told.update(new)
    return new


def opening_line(driver: Driver) -> str:
    """Return which run this is, where it works, and for a new run how to choose another folder."""
    run = driver.facts.run
    hint = "" if driver.facts.revisions else " (choose another with --workdir)"
    return f"{run.run}: working in {driver.folder.resolve() / run.workdir}{hint}"


def settled_line(view: StepView) -> str:
    """Return how an attempt ended, why, and whether it is tried again."""
    result = view.result
    if result is None:
        return ""
    which = f" (attempt {result.attempt})" if result.status != "done" or result.attempt > 1 else ""
    words = f"{view.id}: {ENDS[result.status]} in {duration(result.duration_s)}{which}"
    again = _again_words(view, result) if result.status == "failed" else ""
    if result.error:
        return f"{words}: {first_line(result.error.message)}{again}"
    return f"{words}, but surprising: {first_line(result.surprise or '')}" if result.surprising else words


def _again_words(view: StepView, result: Result) -> str:
    """Return whether an attempt that failed is tried again, and when."""
    if view.move == "retry" and view.not_before is not None:
        pause = datetime.fromisoformat(view.not_before) - datetime.fromisoformat(result.ended_at)
        return f"; retrying in {duration(pause.total_seconds())}"
    return "; retrying" if view.move == "order" else ""


def action_line(action: Action, state: RunState) -> str | None:
    """Return what to print for an action decided in a state; None if it speaks for itself."""
    match action:
        case acts.IssueOrder(view=view):
            return f"{view.id}: started{f' (attempt {view.next})' if view.next > 1 else ''}"
        case acts.StartAttempt(view=view):
            return f"{view.id}: started{f' (attempt {view.attempt})' if view.attempt > 1 else ''}"
        case acts.RecordRevision():
            return _revision_line(action, state)
        case acts.AskAnswer() | acts.WriteNote() | acts.RemoveNote():
            return f"plan: {action.why}"
        case acts.CallPlanner():
            return _call_line(action)
        case acts.AskPerson(view=view) | acts.SettleReply(view=view):
            return f"{view.id}: {action.why}"
        case acts.StopAttempt(step=step):
            return f"{step}: stopped, {action.why}"
        case acts.RunGoalChecks():
            return "running the goal's checks"
        case _:
            return None


def _revision_line(action: acts.RecordRevision, state: RunState) -> str:
    """Return the number of a new revision and its size, and why it is there unless a call made it."""
    plan = state.facts.plan_file.plan
    size = counted(len(plan.steps) if plan else 0, "step")
    edited = f" ({action.why})" if action.call is None else ""
    return f"plan: revision {len(state.facts.revisions) + 1}, {size}{edited}"


def _call_line(action: acts.CallPlanner) -> str:
    """Return what the planner, or for a repair the executor's model, is asked for, and why."""
    first = action.pending[0]
    if first.trigger == "first":
        return "planning…"
    if first.trigger == "next_step":
        return "planning the next step…"
    doing = "repairing" if action.role == "executor" else "replanning"
    why = first_line(first.detail)
    if first.step and first.trigger in FAILURES:
        why = f"{first.step} failed ({why.removeprefix(f'{first.step}: ')})"
    return f"{doing}: {why}"
