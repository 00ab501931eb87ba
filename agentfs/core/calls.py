"""What the calls of the planner so far amount to. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentfs.core import names
from agentfs.core.changes import changes
from agentfs.core.facts import Facts, PlannerCall
from agentfs.core.records import Answer, Call, JsonObject, Plan, Trigger, Verdict
from agentfs.core.steps import LIMIT, MAX_INTERRUPTIONS

COUNTED: frozenset[Trigger] = frozenset(
    ("step_unreachable", "repeated_failure", "step_failed", "unexpected_state", "goal_checks_failed")
)


@dataclass(frozen=True, slots=True)
class Pending:
    """A reason to call the planner."""

    trigger: Trigger
    step: str | None
    detail: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallsSummary:
    """What the calls so far amount to."""

    open: PlannerCall | None = None
    unapplied: PlannerCall | None = None
    refused: PlannerCall | None = None  # a runbook's: there is nobody else to ask
    rejected: tuple[PlannerCall, ...] = ()  # a model's: it is asked again
    failed: PlannerCall | None = None
    latest: PlannerCall | None = None  # the last whose answer took effect
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
            interrupted = interrupted + 1 if one.answer and _was_cut_off(one.answer) else 0
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
        if not applied and one.decision != "approve" and needs_yes(one, facts):
            return replace(self._held_up(one, facts), replans=replans)
        return CallsSummary(
            spent={**self.spent, **dict.fromkeys(call.evidence, one.answer.verdict)},
            unapplied=one if one.answer.plan is not None and not applied else None,
            rejected=self.rejected,
            latest=one,
            replans=replans,
            goal_sha256=call.goal_sha256,
        )

    def _held_up(self, one: PlannerCall, facts: Facts) -> "CallsSummary":
        """Return this summary with an answer that has no yes: it waits, or a person said no."""
        if one.decision is None:
            return replace(self, unapplied=one)
        if facts.goal.has_steps:
            return replace(self, refused=one)
        return replace(self, rejected=(*self.rejected, one))

    @property
    def finished(self) -> bool:
        """Whether the planner's last word is that nothing is left to do."""
        return self.latest is not None and self.latest.answer is not None and self.latest.answer.verdict == "finished"


def _was_cut_off(answer: Answer) -> bool:
    """Whether an answer counts towards the interruptions that are one too many; a limit is nobody's failure."""
    return answer.verdict == "interrupted" and not (answer.error and answer.error.kind == LIMIT)


def needs_yes(one: PlannerCall, facts: Facts) -> bool:
    """Whether an answer that is not in effect waits for a person.

    A runbook has no answer of its own to a surprise; of a model's answers, each that changes steps is looked at
    where `approve` is `always`. A first plan is approved in the file.
    """
    if one.call is None or one.answer is None:
        return False
    if facts.goal.has_steps:
        return any(_is_surprise(path, facts) for path in one.call.evidence)
    asks = facts.run.approve == "always" and one.call.trigger != "first"
    return asks and one.answer.plan is not None and _changes_steps(one.answer.plan, facts.plan)


def _changes_steps(answered: JsonObject, plan: Plan | None) -> bool:
    new = Plan.model_validate_json(json.dumps(answered))
    return any(change.step is not None for change in changes(plan, new))


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
