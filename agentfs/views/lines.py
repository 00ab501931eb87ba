"""Progress as plain lines: one per thing that happened."""

from typing import TextIO

from agentfs.core import decide as acts
from agentfs.core.decide import Action, Wait
from agentfs.core.state import RunState
from agentfs.core.steps import StepView
from agentfs.engine import Driver
from agentfs.views.words import duration, waiting_words

MARKS = {"done": "done", "failed": "FAILED", "blocked": "BLOCKED", "rejected": "rejected", "interrupted": "cut off"}


class Lines:
    """Writes a line for every action worth one, and for every result."""

    def __init__(self, driver: Driver, stream: TextIO) -> None:
        self._driver, self._stream = driver, stream
        self._settled = {
            (step, a.number) for step, attempts in driver.facts.attempts.items() for a in attempts if a.result
        }
        run = driver.facts.run
        self._say(f"{run.run}: working in {(driver.folder / run.workdir).resolve()} (choose another with --workdir)")

    def turn(self, state: RunState, actions: list[Action]) -> None:
        for view in state.steps.values():
            if view.result is not None and (view.id, view.result.attempt) not in self._settled:
                self._settled.add((view.id, view.result.attempt))
                self._say(_settled_line(view))
        for action in actions:
            if words := action_line(action):
                self._say(words)

    def end(self, rest: Wait | None) -> None:
        for line in waiting_words(self._driver, rest):
            self._say(line)

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def _settled_line(view: StepView) -> str:
    if view.result is None:
        return ""
    words = f"{view.id}: {MARKS[view.result.status]} in {duration(view.result.duration_s)}"
    if view.result.error:
        return f"{words}: {view.result.error.message.splitlines()[0]}"
    return f"{words}, surprising: {view.result.surprise}" if view.result.surprising else words


def action_line(action: Action) -> str | None:
    """Return what an action is worth telling; None if it tells itself."""
    match action:
        case acts.IssueOrder(view=view) | acts.StartAttempt(view=view):
            again = f" (attempt {view.next})" if view.next > 1 else ""
            return f"{view.id}: started{again}"
        case acts.RecordRevision() | acts.AskAnswer() | acts.ExplainPlan() | acts.ClearExplanation():
            return action.why
        case acts.CallPlanner():
            return f"planner: {action.why}"
        case acts.AskPerson(view=view):
            return f"{view.id}: {action.why}"
        case acts.StopAttempt(step=step):
            return f"{step}: stopped, {action.why}"
        case acts.RunGoalChecks():
            return "the goal's own checks run"
        case acts.EndRun():
            return f"{action.status}: {action.why}"
        case _:
            return None
