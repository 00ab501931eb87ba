"""How a run ended, told from its state: what was done, what was not, and why. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from pydantic import JsonValue

from agentfs.core.decide import EndRun
from agentfs.core.outcome import steps_by_end, tally
from agentfs.core.proof import blame_for, proof_of, proof_words
from agentfs.core.records import Outcome, ProofOfDone, StepsByEnd, Usage, UsageByRole
from agentfs.core.run_state import RunState, goal_checks


def outcome_of(state: RunState, end: EndRun, ended_at: str) -> Outcome:
    """Return the record of a run's end."""
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
            planner=_total("planner", _planner_usage(state)), executor=_total("executor", _executor_usage(state))
        ),
        proof=proof,
        blame=blame_for(state, end.reason) if shown else None,
        started_at=state.facts.run.started_at,
        ended_at=ended_at,
    )


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


def _total(role: Literal["planner", "executor"], usages: Iterable[Usage]) -> Usage | None:
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
