"""How a run ended, from its state: what was done, what was not, and why. Pure.

Steps are counted as people count them: those of the plan, and those that have left it. A step that another has
replaced does not count: the other does. Where the goal was given up, or the run did not end well, nothing made up for
a failure, and every step counts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from agentfs.core import paths
from agentfs.core.actions import EndRun
from agentfs.core.excerpts import reason
from agentfs.core.facts import Attempt, Facts
from agentfs.core.plan_changes import REMOVED
from agentfs.core.proof import blame_for, proof_of, proof_words
from agentfs.core.records import Outcome, ProofOfDone, Revision, Step, StepsByEnd, Usage, UsageByRole
from agentfs.core.run_state import RunState, goal_checks, last_change
from agentfs.core.steps import StepView


def outcome_of(state: RunState, end: EndRun, ended_at: str) -> Outcome:
    """Return the record of a run's end."""
    isolation = state.facts.run.isolation
    by_end, shown = steps_by_end(state), state.facts.run.proof is not None  # else: a run of the first release
    proof = _proof(state) if shown and end.status == "done" else None
    return Outcome(
        run=state.facts.run.run,
        status=end.status,
        reason=end.reason,
        summary=_summary(state, end, by_end, proof),
        answer=answer_of(state) if end.status == "done" else None,
        steps=by_end,
        revisions=len(state.facts.revisions),
        calls=sum(1 for one in state.facts.calls if one.call),
        usage=UsageByRole(
            planner=total_usage("planner", _planner_usage(state)),
            executor=total_usage("executor", _executor_usage(state)),
        ),
        proof=proof,
        branch=isolation.branch if isolation else None,
        base=isolation.base if isolation else None,
        commits=commits_of(state.facts) if isolation else None,
        blame=blame_for(state, end.reason) if shown else None,
        started_at=state.facts.run.started_at,
        ended_at=ended_at,
    )


def commits_of(facts: Facts) -> tuple[str, ...]:
    """Return the commits that the results of a run name, oldest first."""
    results = [one.result for attempts in facts.attempts.values() for one in attempts if one.result]
    done = sorted((one for one in results if one.commit), key=lambda one: one.ended_at)
    return tuple(one.commit for one in done if one.commit)


def _proof(state: RunState) -> ProofOfDone:
    checked = goal_checks(state)
    return proof_of(state, checked.checks if checked else None)


def _summary(state: RunState, end: EndRun, by_end: StepsByEnd, proof: ProofOfDone | None) -> str:
    counted = tally(state, end.status)
    match end.status:
        case "done":
            done = replace(counted, failed=0).words + (f" ({proof_words(proof)})" if proof else "")
            return done if not by_end.failed else f"{done}; failed on the way: {', '.join(by_end.failed)}"
        case "cancelled":
            return f"cancelled; {counted.words}"
        case _:
            return f"{end.why}; {counted.words}"


def answer_of(state: RunState) -> JsonValue:
    """Return the planner's answer, else the output of the last done step nobody depends on."""
    for one in reversed(state.facts.calls):
        if one.answer and one.answer.verdict == "finished" and one.answer.answer is not None:
            return one.answer.answer
    done = [leaf for leaf in (state.graph.leaves if state.graph else ()) if state.steps[leaf].status == "done"]
    result = state.steps[done[-1]].result if done else None
    return result.output if result else None


def _planner_usage(state: RunState) -> list[Usage]:
    return [usage for usage in _of_calls(state) if usage.role == "planner"]


def _executor_usage(state: RunState) -> list[Usage]:
    results = (a.result for attempts in state.facts.attempts.values() for a in attempts if a.result)
    judged = (one.checks.usage for one in state.facts.calls if one.checks and one.checks.usage)
    by_executor = (usage for usage in _of_calls(state) if usage.role != "planner")
    return [*by_executor, *(result.usage for result in results if result.usage), *judged]


def _of_calls(state: RunState) -> list[Usage]:
    return [one.answer.usage for one in state.facts.calls if one.answer and one.answer.usage]


def total_usage(role: Literal["planner", "executor"], usages: Iterable[Usage]) -> Usage | None:
    """Return the sum; a cost that is unknown anywhere is unknown in the sum."""
    listed = list(usages)
    if not listed:
        return None
    costs = [usage.cost_usd for usage in listed]
    known = [cost for cost in costs if cost is not None]
    models = {usage.model for usage in listed}
    return Usage(
        role=role,
        model=models.pop() if len(models) == 1 else None,
        requests=sum(usage.requests for usage in listed),
        input_tokens=sum(usage.input_tokens for usage in listed),
        cached_tokens=sum(usage.cached_tokens for usage in listed),
        output_tokens=sum(usage.output_tokens for usage in listed),
        cost_usd=sum(known) if len(known) == len(costs) else None,
    )


# ── the steps, counted ───────────────────────────────────────────────────────────────────────────────────


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
        case "interrupted" if view.items:
            return "not_reached"  # it was cut off between its items: a result it has is of an earlier list
        case "blocked" | "rejected" | "interrupted" if view.result is not None and view.result.started_at:
            return "failed"
        case _:
            return "not_reached"


def left_steps(state: RunState) -> tuple[StepView, ...]:
    """Return the steps that have left the plan as what they were: tried, or not reached when it was given up."""
    return tuple(_find_left(state)) if state.graph else ()


def _find_left(state: RunState) -> Iterator[StepView]:
    facts, given_up = state.facts, _given_up_with(state)
    tried = [step for step, attempts in facts.attempts.items() if any(a.result or a.is_unfinished for a in attempts)]
    for step in dict.fromkeys([*tried, *given_up]):
        if step not in state.steps and paths.ITEM not in step:
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
