"""What is said of a run while it is driven, and when it rests: how it ended, or what it waits for and what to do."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from agentfs.core import decide as acts
from agentfs.core.attention import open_questions, ways_on
from agentfs.core.decide import Action, Wait
from agentfs.core.excerpts import hints_of
from agentfs.core.records import Failure, Outcome, Result
from agentfs.core.run_state import RunState, goal_checks
from agentfs.core.steps import StepView
from agentfs.core.text import counted, duration, first_line, inert, state_and_why
from agentfs.storage.locks import is_watched
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

    def end(self, rest: Wait | None) -> None: ...

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


ENDS = {"done": "done", "failed": "FAILED", "blocked": "BLOCKED", "rejected": "rejected", "interrupted": "cut off"}
FAILURES = ("step_failed", "repeated_failure")  # triggers


class Lines:
    """Writes a line for every action worth one, and for every result."""

    screen = None

    def __init__(self, driver: "Driver", stream: TextIO) -> None:
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
    """Follows many runs; writes a line for what is worth one. A stream that is gone is no trouble."""

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
        """Go on without the stream, and say so on the other one."""
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

    def opened(self, driver: "Driver") -> None:
        run = driver.facts.run
        self.tell("driving", f"working in {driver.folder.resolve() / run.workdir}", run.run)

    def turn(self, driver: "Driver", actions: list[Action], settled: set[tuple[str, int]]) -> None:
        """Report what a turn found finished and what it decided. `settled`: the attempts reported before."""
        run = driver.facts.run.run
        for event, words, more in turn_news(driver.state, actions, settled):
            self.tell(event, words, run, **more)
        for words in reply_lines(driver.state, self._replies.setdefault(run, set())) if driver.jobs else ():
            self.tell("todo", words, run)  # at rest, `waits` says it

    def waits(self, driver: "Driver", rest: Wait) -> None:
        run = driver.facts.run.run
        self.tell("waiting", f"waits: {rest.why}", run)
        for line in what_to_do(driver.folder, driver.state):
            self.tell("todo", line.strip(), run)

    def ended(self, driver: "Driver") -> None:
        outcome, run = driver.facts.outcome, driver.facts.run.run
        self._replies.pop(run, None)
        if outcome is None:
            return
        self.tell("ended", ended_words(outcome), run, status=outcome.status, reason=outcome.reason)
        if outcome.status == "failed":
            for line in failures(driver.state):
                self.tell("todo", line.strip(), run)

    def let_go(self, run: str) -> None:
        """Forget a run that is no longer driven though it has not ended; why was reported."""
        self._replies.pop(run, None)


# ── what there is to say ──────────────────────────────────────────────────────────────────────────────────

News = tuple[str, str, dict[str, Any]]  # event, words, what it is about


def turn_news(state: RunState, actions: Sequence[Action], settled: set[tuple[str, int]]) -> Iterator[News]:
    """Yield what a turn found finished and what it decided. `settled`: the attempts reported before."""
    for view in (state.steps[step] for step in state.table.changed):
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


def reply_lines(state: RunState, reported: set[str]) -> list[str]:
    """Return which replies do not count, and what would; none that was reported before."""
    lines = [f"{one.name}: {one.uncounted}" for one in open_questions(state) if one.uncounted]
    new = [line for line in lines if line not in reported]
    reported.update(new)
    return new


def opening_line(driver: "Driver") -> str:
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


# ── when a run rests ──────────────────────────────────────────────────────────────────────────────────────

_YES_OR_NO = ": approve or reject, on its first line"
_WORDS = {
    "gate": _YES_OR_NO,
    "answer": _YES_OR_NO,
    "cut": ": again, done or failed, on its first line",
    "ask": "",  # it takes any words
}
NOTHING_DRIVES = "nothing drives it; go on with: "
SHOWN = 5  # failed steps listed at the end: all are in `agentfs show`


def closing_words(driver: "Driver", rest: Wait | None) -> list[str]:
    """Return what a person has to know when a run rests."""
    outcome, run = driver.facts.outcome, driver.facts.run.run
    if outcome is None:
        if rest is None:
            return []
        todo, then = what_to_do(driver.folder, driver.state), who_goes_on(run, driver.world.workspace, "then: ")
        resumes = any(f"agentfs resume {run}" in line for line in todo)  # that is all there is to type
        return [f"{run} waits: {inert(rest.why)}", *todo, *([] if resumes else [then])]
    lines = [f"{run}: {inert(ended_words(outcome))}"]
    if outcome.status == "failed":
        lines += [*failures(driver.state), f"see what happened: agentfs show {run}"]
    return [*lines, *_files(driver.folder.resolve() / driver.facts.run.workdir)]


def ended_words(outcome: Outcome) -> str:
    """Return how a run ended, and its summary."""
    return state_and_why(outcome.status, outcome.summary)


def _files(folder: Path) -> Iterator[str]:
    """Yield where the files are that the steps made; nothing where there are none."""
    with suppress(OSError):
        if next(folder.iterdir(), None) is not None:
            yield f"its files: {inert(str(folder))}"


def who_goes_on(run: str, workspace: Path, else_type: str) -> str:
    """Return that a watch goes on with a run that no process drives; else, behind these words, what to type."""
    return "`agentfs watch` goes on with it" if is_watched(workspace) else f"{else_type}agentfs resume {run}"


def failures(state: RunState) -> Iterator[str]:
    """Yield the error of each failed step with its hint."""
    failed = [(step, error) for step, error in _errors(state) if error is not None]
    for step, error in failed[:SHOWN]:
        yield f"  {step}: {first_line(error.message)}"
        if error.hint:
            yield f"    hint: {first_line(error.hint)}"
    if len(failed) > SHOWN:
        yield f"  and {len(failed) - SHOWN} more"
    checked = goal_checks(state)
    if checked and checked.checks and (hint := hints_of(one for one in checked.checks.checks if not one.ok)):
        yield f"  hint: {first_line(hint)}"


def _errors(state: RunState) -> Iterator[tuple[str, Failure | None]]:
    for step, attempts in state.facts.attempts.items():
        result = attempts[-1].result
        if result is not None and result.status in ("failed", "blocked", "rejected"):
            yield step, result.error


def _went_wrong(view: StepView) -> bool:
    return view.result is not None and view.result.status != "done"


def what_to_do(folder: Path, state: RunState) -> list[str]:
    """Return the files that wait for a person, with the words that count, and what to type instead."""
    run, found = state.facts.run.run, open_questions(state)
    lines = []
    for opening in found:
        if opening.about == "draft":
            lines.append(f'  look at {inert(str(folder))}/plan.json; set "status" to "approved" to go on')
        else:
            if len(found) > 1 and opening.step is not None and _went_wrong(state.steps[opening.step]):
                lines.append(f"  {opening.step}: {first_line(state.steps[opening.step].why)}")
            lines.append(f"  read {inert(str(folder / opening.question_path))}")
            if opening.about == "answer" and state.facts.proposal and state.facts.proposal.reasons:
                lines.append(f"  see what it would change: agentfs diff {run} --question")
            lines.append(f"  answer in {inert(str(folder / opening.reply_path))}{_WORDS[opening.about]}")
            if opening.uncounted:
                lines.append(f"  {inert(opening.uncounted)}")
        lines += [f"  or type: {command}" for command in opening.commands(run, alone=len(found) == 1)]
    plan = state.facts.plan
    if plan is not None and plan.status == "paused":
        lines.append(f'  look at {inert(str(folder))}/plan.json; set "status" to "approved" to go on')
    return lines or [f"  type: {way}" for way in ways_on(state, run)]
