"""The steps of a run as people count them: those of the plan, and those that have left it. Pure.

A step that another has replaced does not count: the other does. Where the goal was given up, or the run did not end
well, nothing made up for a failure, and every step counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agentfs.core.excerpts import reason
from agentfs.core.facts import Attempt, Facts
from agentfs.core.plan_changes import REMOVED
from agentfs.core.records import Revision, Step, StepsByEnd
from agentfs.core.run_state import RunState, last_change
from agentfs.core.steps import StepView


@dataclass(frozen=True, slots=True)
class Tally:
    """How many steps a run has, and how many of them are done, failed or skipped."""

    done: int
    failed: int
    skipped: int
    total: int

    @property
    def words(self) -> str:
        """`2 of 5 steps done, 2 failed, 1 skipped`."""
        return f"{self.done} of {self.total} steps done{self.more}"

    @property
    def more(self) -> str:
        """What follows the number of steps that are done."""
        parts = ((self.failed, "failed"), (self.skipped, "skipped"))
        return "".join(f", {count} {word}" for count, word in parts if count)

    def as_json(self) -> dict[str, int]:
        return {"done": self.done, "failed": self.failed, "skipped": self.skipped, "total": self.total}


def tally(state: RunState, status: str | None = None) -> Tally:
    """Return how many steps a run has, and how they are. `status`: how it ends, before that is on disk."""
    ends, outcome = steps_by_end(state), state.facts.outcome
    status = status or (outcome.status if outcome else None)
    if state.doomed or status in ("failed", "cancelled"):
        total = sum(map(len, (ends.done, ends.failed, ends.skipped, ends.not_reached)))
        return Tally(len(ends.done), len(ends.failed), len(ends.skipped), total)
    failed = sum(step in state.steps for step in ends.failed)
    return Tally(len(ends.done), failed, len(ends.skipped), len(state.steps))


def steps_by_end(state: RunState) -> StepsByEnd:
    """Sort the steps by how they ended; those that have left the plan are not forgotten."""
    ends: dict[str, list[str]] = {"done": [], "failed": [], "skipped": [], "not_reached": []}
    given_up = _given_up_with(state)
    for view in state.steps.values():
        ends[_end_of(view)].append(view.id)
    for view in left_steps(state):
        if _end_of(view) == "failed" and view.status != "interrupted":
            ends["failed"].append(view.id)
        elif view.id in given_up and view.status != "done":
            ends["not_reached"].append(view.id)
    return StepsByEnd(**{end: tuple(ids) for end, ids in ends.items()})


def _end_of(view: StepView) -> str:
    match view.status:
        case "done" | "failed" | "skipped":
            return view.status
        case "blocked" | "rejected" | "interrupted" if view.result is not None and view.result.started_at:
            return "failed"
        case _:
            return "not_reached"


def left_steps(state: RunState) -> tuple[StepView, ...]:
    """Return the steps that have left the plan as what they were: tried, or not reached when it was given up."""
    return tuple(_left(state)) if state.graph else ()


def _left(state: RunState) -> Iterator[StepView]:
    facts, given_up = state.facts, _given_up_with(state)
    tried = [step for step, attempts in facts.attempts.items() if any(a.result or a.is_unfinished for a in attempts)]
    for step in dict.fromkeys([*tried, *given_up]):
        if step not in state.steps:
            yield _as_it_was(step, facts)


def _as_it_was(name: str, facts: Facts) -> StepView:
    attempts = facts.attempts.get(name, ())
    last = _last(attempts)
    gone = next((one.revision for one in reversed(facts.revisions) if _removes(one, name)), 0)
    if last is None:
        return StepView(Step(id=name), "waiting", "it was not reached", left=gone)
    if last.result is None:
        return StepView(_step(name, last), "running", "it still runs", last.number, left=gone)
    error = last.result.error
    why = reason(error.message) if error else f"attempt {last.number} succeeded"
    return StepView(_step(name, last), last.result.status, why, last.number, result=last.result, left=gone)


def _last(attempts: tuple[Attempt, ...]) -> Attempt | None:
    """Return the attempt that says most of what became of a step: one that was only cut off says little."""
    made = [one for one in attempts if one.result or one.is_unfinished]
    ended = [one for one in made if one.result is None or one.result.status != "interrupted"]
    return next(reversed(ended or made), None)


def _step(name: str, attempt: Attempt) -> Step:
    if (order := attempt.order) is None:
        return Step(id=name)
    return Step(id=name, description=order.description, tool=order.tool, input=order.input)


def _given_up_with(state: RunState) -> tuple[str, ...]:
    """Return the steps that left the plan in the revision that only cleans up."""
    last = last_change(state.facts) if state.doomed else None
    return tuple(one.step for one in last.changes if one.what == REMOVED and one.step) if last else ()


def _removes(revision: Revision, step: str) -> bool:
    return any(change.step == step and change.what == REMOVED for change in revision.changes)
