"""The last words of a run that rests: how it ended, or what it waits for and exactly what to do."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentfs.core.decide import Wait
from agentfs.core.failures import hints_of
from agentfs.core.openings import openings, ways_on
from agentfs.core.records import Failure, Outcome
from agentfs.core.state import RunState, goal_checks
from agentfs.core.steps import StepView
from agentfs.holding import is_watched
from agentfs.ui.text import first_line, inert

if TYPE_CHECKING:
    from agentfs.engine import Driver


_YES_OR_NO = ": approve or reject, on its first line"
_WORDS = {
    "gate": _YES_OR_NO,
    "answer": _YES_OR_NO,
    "cut": ": again, done or failed, on its first line",
    "ask": "",  # it takes any words
}
NOTHING_DRIVES = "nothing drives it; go on with: "
SHOWN = 5  # failed steps told at the end: all are in `agentfs show`


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
    """Return how a run ended, and its summary; a summary that begins with the status says both."""
    summary = outcome.summary
    return summary if summary.startswith(outcome.status) else f"{outcome.status}, {summary}"


def _files(folder: Path) -> Iterator[str]:
    """Yield where the files are that the steps made; nothing where there are none."""
    with suppress(OSError):
        if next(folder.iterdir(), None) is not None:
            yield f"its files: {inert(str(folder))}"


def who_goes_on(run: str, workspace: Path, else_type: str) -> str:
    """Return that a watch goes on with a run that nobody drives; else, behind these words, what to type."""
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
    run, found = state.facts.run.run, openings(state)
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
        lines.append(f"  or type: {opening.command(run, alone=len(found) == 1)}")
    plan = state.facts.plan
    if plan is not None and plan.status == "paused":
        lines.append(f'  look at {inert(str(folder))}/plan.json; set "status" to "approved" to go on')
    return lines or [f"  type: {way}" for way in ways_on(state, run)]
