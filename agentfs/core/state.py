"""Derive what a run's files mean. Pure: same files, same state, always."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agentfs.core import names
from agentfs.core.facts import Attempt, Facts, PlannerCall
from agentfs.core.limits import Bounds, Spent, bounds_of, reached, spent_of, spent_on_calls
from agentfs.core.records import Call, Step, Trigger, Verdict
from agentfs.core.scheme import Scheme
from agentfs.core.steps import MAX_INTERRUPTIONS, Around, StepView, is_repeatable, view

TRIGGER_ORDER: tuple[Trigger, ...] = (
    "first",
    "goal_changed",
    "asked",
    "step_unreachable",
    "repeated_failure",
    "step_failed",
    "unexpected_state",
    "goal_checks_failed",
    "drift",
    "next_step",
    "every_step",
)
COUNTED: frozenset[Trigger] = frozenset(
    ("step_unreachable", "repeated_failure", "step_failed", "unexpected_state", "goal_checks_failed")
)
SPENDING: frozenset[Verdict] = frozenset(("plan", "keep", "finished", "impossible"))


@dataclass(frozen=True, slots=True)
class Means:
    """What this process has to work with, beside the files: a planner, and tools that may be repeated or not."""

    planner: bool = False
    repeatable: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pending:
    """A reason to call the planner."""

    trigger: Trigger
    step: str | None
    detail: str
    evidence: tuple[str, ...]


FIRST = Pending("first", None, "there is no plan yet", ())


@dataclass(frozen=True, slots=True)
class Stray:
    """An unsettled attempt of a step that has left the plan."""

    step: str
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run's files mean at one moment."""

    facts: Facts
    means: Means
    bounds: Bounds
    spent: Spent
    calls_spent: Spent
    scheme: Scheme | None = None
    steps: Mapping[str, StepView] = field(default_factory=dict)
    strays: tuple[Stray, ...] = ()
    pending: tuple[Pending, ...] = ()
    open_call: PlannerCall | None = None  # asked, not answered
    unapplied: PlannerCall | None = None  # answered, not yet in effect
    refused: PlannerCall | None = None  # answered, and a person said no
    failed_call: PlannerCall | None = None  # the planner could not answer
    replans: int = 0  # calls that count against limits.replans
    doomed: bool = False  # the current plan only cleans up: the run will end failed
    around: Around | None = None

    @property
    def running(self) -> tuple[StepView, ...]:
        return tuple(v for v in self.steps.values() if v.status in ("ordered", "running"))

    @property
    def limit_reached(self) -> str | None:
        return reached(self.bounds, self.spent, self.calls_spent)

    def moving(self, *moves: str) -> tuple[StepView, ...]:
        return tuple(v for v in self.steps.values() if v.move in moves)


def derive(facts: Facts, means: Means, before: RunState | None = None) -> RunState:
    """Return the state these files mean. `before`, a state of the same run, saves work and changes nothing."""
    bounds = bounds_of(facts)
    calls = CallsSummary.of(facts)
    if facts.plan is None:
        state = RunState(facts, means, bounds, Spent(), spent_on_calls(facts), pending=(FIRST,))
        return _with_calls(state, calls)
    same_plan = before is not None and before.scheme is not None and before.facts.plan is facts.plan
    scheme = before.scheme if same_plan and before and before.scheme else Scheme.of(facts.plan)
    around = _around(facts, means, bounds, calls, scheme)
    steps = _steps(facts, scheme, around, before if same_plan else None)
    state = RunState(
        facts,
        means,
        bounds,
        spent_of(facts, (before.facts, before.spent) if before else None),
        spent_on_calls(facts),
        scheme=scheme,
        steps=steps,
        strays=_strays(facts, scheme),
        pending=_pending(facts, steps.values(), calls),
        doomed=_doomed(facts),
        around=around,
    )
    return _with_calls(state, calls)


def _with_calls(state: RunState, calls: "CallsSummary") -> RunState:
    return replace(
        state,
        open_call=calls.open,
        unapplied=calls.unapplied,
        refused=calls.refused,
        failed_call=calls.failed,
        replans=calls.replans,
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


def _around(facts: Facts, means: Means, bounds: Bounds, calls: CallsSummary, scheme: Scheme) -> Around:
    def can_answer(step: str) -> bool:
        return step in facts.answerable if facts.goal.has_steps else means.planner

    def repeatable(step: Step) -> bool:
        return is_repeatable(step, means.repeatable)

    def planner_made_stale(step: str, since: int) -> bool:
        touched = scheme.ancestors(step) | {step}
        return any(
            revision.by.role == "planner" and any(change.step in touched for change in revision.changes)
            for revision in facts.revisions
            if revision.revision > since
        )

    return Around(
        goal=facts.goal.text,
        revision=len(facts.revisions),
        attempts=bounds.attempts,
        spent=calls.spent,
        can_answer=can_answer,
        repeatable=repeatable,
        planner_made_stale=planner_made_stale,
    )


def _steps(facts: Facts, scheme: Scheme, around: Around, before: RunState | None) -> dict[str, StepView]:
    """Return every step's view; with an earlier state, look only where something changed."""
    if before is None or before.around is None or not _same_surroundings(facts, before.facts):
        views: dict[str, StepView] = {}
        for step in scheme.order:
            views[step] = _view_of(step, scheme, views, facts, around)
        return {step: views[step] for step in scheme.steps}
    old = before.facts.attempts
    touched = {step for step in scheme.steps if old.get(step) is not facts.attempts.get(step)}
    views = dict(before.steps)
    while touched:
        step = min(touched, key=scheme.rank.__getitem__)
        touched.discard(step)
        new = _view_of(step, scheme, views, facts, around)
        if new != views[step]:
            touched.update(scheme.dependents[step])
        views[step] = new
    return views


def _same_surroundings(now: Facts, then: Facts) -> bool:
    """Whether nothing changed but attempts."""
    return (
        now.calls is then.calls
        and now.goal is then.goal
        and now.revisions is then.revisions
        and now.answerable == then.answerable
    )


def _view_of(step: str, scheme: Scheme, views: Mapping[str, StepView], facts: Facts, around: Around) -> StepView:
    before = {dependency: views[dependency] for dependency in scheme.needs[step]}
    return view(scheme.steps[step], before, facts.attempts.get(step, ()), around)


def _strays(facts: Facts, scheme: Scheme) -> tuple[Stray, ...]:
    return tuple(
        Stray(step, attempts[-1])
        for step, attempts in facts.attempts.items()
        if step not in scheme.steps and attempts and attempts[-1].unsettled
    )


def _pending(facts: Facts, views: Iterable[StepView], calls: CallsSummary) -> tuple[Pending, ...]:
    """Return every reason to call the planner, the most pressing first."""
    found = [
        Pending(v.trigger, v.id, f"{v.id}: {v.why}", v.evidence)
        for v in views
        if v.move == "call" and v.trigger is not None
    ]
    if calls.goal_sha256 not in (None, facts.goal.sha256):
        found.append(Pending("goal_changed", None, "the goal was edited", ()))
    return tuple(sorted(found, key=lambda p: TRIGGER_ORDER.index(p.trigger)))


def _doomed(facts: Facts) -> bool:
    """Whether the last revision that changed steps came from an answer of `impossible`."""
    for revision in reversed(facts.revisions):
        if any(change.step is not None for change in revision.changes):
            answer = facts.planner_call(revision.call).answer if revision.call else None
            return answer is not None and answer.verdict == "impossible"
    return False


def goal_checks(state: RunState) -> PlannerCall | None:
    """Return what the goal's checks found, if that still speaks of this plan and these attempts."""
    after = {step: view.attempt for step, view in state.steps.items()}
    for one in reversed(state.facts.calls):
        if one.checks and one.checks.revision == len(state.facts.revisions) and dict(one.checks.after) == after:
            return one
    return None


def next_call(facts: Facts) -> int:
    """Return the number a new call gets."""
    return max((one.number for one in facts.calls), default=0) + 1


def revision_path(revision: int) -> str:
    return f"{names.REVISIONS}/{names.revision_file(revision)}"
