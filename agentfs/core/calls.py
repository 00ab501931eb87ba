"""What the calls of the planner so far amount to. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentfs.core import names
from agentfs.core.facts import Facts, PlannerCall
from agentfs.core.records import Call, Trigger, Verdict
from agentfs.core.steps import MAX_INTERRUPTIONS

COUNTED: frozenset[Trigger] = frozenset(
    ("step_unreachable", "repeated_failure", "step_failed", "unexpected_state", "goal_checks_failed")
)


@dataclass(frozen=True, slots=True)
class CallsSummary:
    """What the calls so far amount to."""

    open: PlannerCall | None = None
    unapplied: PlannerCall | None = None
    refused: PlannerCall | None = None
    failed: PlannerCall | None = None
    spent: Mapping[str, Verdict] = field(default_factory=dict)
    replans: int = 0
    goal_sha256: str | None = None  # of the goal that the plan in force answers

    @staticmethod
    def of(facts: Facts) -> "CallsSummary":
        """Walk the calls in order; each either waits, spends its evidence, or came to nothing."""
        applied = {revision.call for revision in facts.revisions}
        found, interrupted = CallsSummary(), 0
        for one in facts.calls:
            if one.call is None:
                continue
            if one.again and one.number not in applied:  # a person set it aside: what it was about is asked anew
                interrupted = 0
                continue
            interrupted = interrupted + 1 if one.answer and one.answer.verdict == "interrupted" else 0
            found = found.after(one, one.call, facts, one.number in applied, interrupted)
        return found

    def after(self, one: PlannerCall, call: Call, facts: Facts, applied: bool, interrupted: int) -> "CallsSummary":
        """Return this summary with the next call taken into account."""
        replans = self.replans + (call.trigger in COUNTED)
        if one.answer is None:
            return replace(self, open=one, replans=replans)
        if one.answer.verdict == "failed" or interrupted >= MAX_INTERRUPTIONS:
            return replace(self, failed=one, replans=replans)
        if one.answer.verdict == "interrupted" or (not applied and _overtaken(one, call, facts)):
            return self
        if needs_yes(one, facts) and one.decision != "approve":
            waits = replace(self, refused=one) if one.decision == "reject" else replace(self, unapplied=one)
            return replace(waits, replans=replans)
        return CallsSummary(
            spent={**self.spent, **dict.fromkeys(call.evidence, one.answer.verdict)},
            unapplied=one if one.answer.plan is not None and not applied else None,
            replans=replans,
            goal_sha256=call.goal_sha256,
        )


def needs_yes(one: PlannerCall, facts: Facts) -> bool:
    """Whether an answer waits for a person: a runbook has none of its own to a surprise."""
    return facts.goal.has_steps and one.call is not None and any(_is_surprise(p, facts) for p in one.call.evidence)


def _is_surprise(path: str, facts: Facts) -> bool:
    file = names.parse_step_file(path.removeprefix(f"{names.STEPS}/"))
    result = facts.attempt(file.step, file.attempt).result if file and file.kind == "result" else None
    return result is not None and result.status == "done" and result.surprising


def _overtaken(one: PlannerCall, call: Call, facts: Facts) -> bool:
    """An answer that was never put into effect is not used once the goal or the plan it was about has changed."""
    if call.goal_sha256 != facts.goal.sha256:
        return True
    current = facts.revisions[-1].plan_sha256 if facts.revisions else None
    return one.answer is not None and one.answer.plan is not None and call.base_sha256 != current


def next_call(facts: Facts) -> int:
    """Return the number a new call gets."""
    return max((one.number for one in facts.calls), default=0) + 1
