"""What there is to say of a run, in lines: what a turn found and decided, how it ended, what it waits for."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.core import actions as acts
from agentfs.core import paths
from agentfs.core.actions import Action, Wait
from agentfs.core.attention import OpenQuestion, by_step, command_for_items, open_questions, ways_on
from agentfs.core.excerpts import hints_of
from agentfs.core.facts import DEEPEST, Facts
from agentfs.core.records import Failure, Outcome, Result
from agentfs.core.run_state import RunState, goal_checks
from agentfs.core.steps import StepView, skipped_words
from agentfs.core.text import duration, first_line, inert, plural, state_and_why
from agentfs.engine.means import run_record
from agentfs.storage.locks import is_watched

if TYPE_CHECKING:
    from agentfs.engine.driver import Driver


ENDS = {
    "done": "done",
    "failed": "FAILED",
    "blocked": "BLOCKED",
    "rejected": "rejected",
    "interrupted": "cut off",
    "skipped": "skipped",
}
FAILURES = ("step_failed", "repeated_failure")  # triggers


# ── what there is to say ──────────────────────────────────────────────────────────────────────────────────

News = tuple[str, str, dict[str, Any]]  # event, words, what it is about


def turn_news(state: RunState, actions: Sequence[Action], reported: set[tuple[str, int]]) -> Iterator[News]:
    """Yield what a turn found finished and what it decided. `reported`: the attempts reported before."""
    for view in (view for step in state.table.changed if (view := state.view(step))):
        result = view.result
        if result is not None and (view.id, result.attempt) not in reported:
            reported.add((view.id, result.attempt))
            about = {"step": view.id, "attempt": result.attempt, "status": result.status}
            yield "settled", result_line(view), about
    for action in actions:
        if news := action_news(action, state):
            yield news


def finished_attempts(facts: Facts) -> set[tuple[str, int]]:
    """Return the attempts that have their result: what a view that begins now need not report."""
    return {(step, one.number) for step, attempts in facts.attempts.items() for one in attempts if one.result}


def reply_lines(state: RunState, reported: set[str]) -> list[str]:
    """Return which replies do not count, and what would; none that was reported before."""
    lines = [f"{one.name}: {one.uncounted}" for one in open_questions(state) if one.uncounted]
    new = [line for line in lines if line not in reported]
    reported.update(new)
    return new


def opening_line(driver: "Driver") -> str:
    """Return which run this is, where it works, and for a new run how to choose another folder."""
    run = driver.facts.run
    hint = "" if driver.facts.revisions or run.parent or run.isolation else " (choose another with --workdir)"
    return f"{run.run}: working in {driver.folder.resolve() / run.workdir}{hint}"


def result_line(view: StepView) -> str:
    """Return how an attempt ended, why, and whether it is tried again."""
    result = view.result
    if result is None:
        return ""
    if result.status == "skipped":
        return f"{view.id}: skipped: {skipped_words(result)}"
    which = f" (attempt {result.attempt})" if result.status != "done" or result.attempt > 1 else ""
    words = f"{view.id}: {ENDS[result.status]} in {duration(result.duration_s)}{which}"
    again = _again_words(view, result) if result.status == "failed" else ""
    if result.error:
        return f"{words}: {first_line(result.error.message)}{again}"
    if result.surprising:
        return f"{words}, but surprising: {first_line(result.surprise or '')}"
    return f"{words}: {view.why}" if result.items else words


def _again_words(view: StepView, result: Result) -> str:
    """Return whether an attempt that failed is tried again, and when."""
    if view.move == "retry" and view.not_before is not None:
        pause = datetime.fromisoformat(view.not_before) - datetime.fromisoformat(result.ended_at)
        return f"; retrying in {duration(pause.total_seconds())}"
    return "; retrying" if view.move == "order" else ""


def action_news(action: Action, state: RunState) -> News | None:
    """Return what there is to say of an action decided in a state; None if it speaks for itself."""
    match action:
        case acts.IssueOrder(view=view) if view.condition is not None:  # it may be skipped
            return "action", f"{view.id}: looking at its condition", {"step": view.id, "attempt": view.next}
        case acts.AskPerson(view=view) if view.condition is not None:
            return "action", f"{view.id}: looking at its condition", {}
        case acts.IssueOrder(view=view):
            return _started(view.id, view.next)
        case acts.StartAttempt(view=view):
            return _started(view.id, view.attempt)
        case acts.StopAttempt(step=step, attempt=attempt):
            return "action", f"{step}: stopped, {action.why}", {"step": step, "attempt": attempt}
        case acts.RecordRevision():
            words = _revision_line(action, state)
        case acts.AskAnswer() | acts.WriteNote() | acts.RemoveNote():
            words = f"plan: {action.why}"
        case acts.CallPlanner():
            words = _call_line(action)
        case acts.AskPerson(view=view) | acts.RecordReply(view=view):
            words = f"{view.id}: {action.why}"
        case acts.RunGoalChecks():
            words = "running the goal's checks"
        case _:
            return None
    return "action", words, {}


def _started(step: str, attempt: int) -> News:
    words = f"{step}: started{f' (attempt {attempt})' if attempt > 1 else ''}"
    return "started", words, {"step": step, "attempt": attempt}


def _revision_line(action: acts.RecordRevision, state: RunState) -> str:
    """Return the number of a new revision and its size, and why it is there unless a call made it."""
    plan = state.facts.plan_file.plan
    size = plural(len(plan.steps) if plan else 0, "step")
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


Resting = Sequence[tuple["Driver", Wait]]  # runs that are steps of another, and why they rest


def closing_words(driver: "Driver", rest: Wait | None, below: Resting = ()) -> list[str]:
    """Return what a person has to know when a run rests. `below`: the same of the runs that are steps of it."""
    outcome, run = driver.facts.outcome, driver.facts.run.run
    if outcome is None:
        if rest is None:
            return []
        if rest.on == "child" and (asked := [one for one in below if one[1].on != "child"]):
            return [line for one in asked for line in closing_words(*one)]
        todo, then = what_to_do(driver.folder, driver.state), who_goes_on(run, driver.world.workspace, "then: ")
        resumes = any(f"agentfs resume {run}" in line for line in todo)  # that is all there is to type
        return [f"{run} waits: {inert(rest.why)}", *todo, *([] if resumes else [then])]
    lines = [f"{run}: {inert(ended_words(outcome))}"]
    if outcome.status == "failed":
        lines += [*failures(driver.state), f"see what happened: agentfs show {run}"]
    return [*lines, *branch_words(outcome, run), *_files(driver.folder.resolve() / driver.facts.run.workdir)]


def branch_words(outcome: Outcome, run: str) -> Iterator[str]:
    """Yield where the commits of an isolated run are, and what to do with them."""
    if outcome.commits:
        words = f"agentfs changes {run}, agentfs apply {run}, agentfs discard {run}"
        yield f"on the branch {outcome.branch}: {words}"


def ended_words(outcome: Outcome) -> str:
    """Return how a run ended, and its summary."""
    return state_and_why(outcome.status, outcome.summary)


def _files(folder: Path) -> Iterator[str]:
    """Yield where the files are that the steps made; nothing where there are none."""
    with suppress(OSError):
        if next(folder.iterdir(), None) is not None:
            yield f"its files: {inert(str(folder))}"


def who_goes_on(run: str, workspace: Path, else_type: str) -> str:
    """Return that a watch goes on with a run that no process drives; else, behind these words, what to type.

    A run that is a step of another is driven with that one.
    """
    if is_watched(workspace):
        return "`agentfs watch` goes on with it"
    return f"{else_type}agentfs resume {topmost(run, workspace)}"


def topmost(run: str, workspace: Path) -> str:
    """Return the run that a run is in, at the top: itself, if it is no step of one that has not ended."""
    top = run
    for _ in range(DEEPEST):
        try:
            parent = run_record(workspace / "runs" / top).parent
        except (OSError, ValueError):
            break
        if parent is None or not paths.is_run_id(parent.run):
            break
        above = workspace / "runs" / parent.run
        if (above / paths.OUTCOME).exists() or not (above / paths.RUN).exists():
            break
        top = parent.run
    return top


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
    if state.facts.plan_file.problems and not state.facts.broken:
        lines.append(f"  fix {inert(str(folder / paths.PLAN))}: {paths.PLAN_ERROR} beside it says how")
    for opening, more in by_step(found):
        if opening.about == "draft":
            lines.append(f'  look at {inert(str(folder))}/plan.json; set "status" to "approved" to go on')
        else:
            if len(found) > 1 and opening.step is not None and _went_wrong(_view(opening.step, state)):
                lines.append(f"  {opening.step}: {first_line(_view(opening.step, state).why)}")
            lines.append(f"  read {inert(str(folder / opening.question_path))}")
            if opening.about == "answer" and state.facts.proposal and state.facts.proposal.reasons:
                lines.append(f"  see what it would change: agentfs diff {run} --question")
            lines.append(f"  answer in {inert(str(folder / opening.reply_path))}{_WORDS[opening.about]}")
            if opening.uncounted:
                lines.append(f"  {inert(opening.uncounted)}")
        lines += [f"  or type: {command}" for command in opening.commands(run, alone=len(found) == 1)]
        lines += _of_more_items(run, opening, more)
    plan = state.facts.plan
    if plan is not None and plan.status == "paused":
        lines.append(f'  look at {inert(str(folder))}/plan.json; set "status" to "approved" to go on')
    return lines or [f"  type: {way}" for way in ways_on(state, run)]


def _of_more_items(run: str, opening: OpenQuestion, more: Sequence[OpenQuestion]) -> Iterator[str]:
    if more:
        step = paths.step_of(opening.step or "")
        yield f"  {len(more)} more of {step} ask too (agentfs show {run} {step} lists its items)"
        yield f"  or type, for all of them: {command_for_items(run, opening)}"


def _view(step: str, state: RunState) -> StepView:
    view = state.view(step)
    if view is None:
        raise KeyError(step)
    return view
