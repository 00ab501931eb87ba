"""What an answer that is not in effect comes to on top of the plan as it stands, and why a person is asked. Pure.

One value serves all: what is installed, what the question shows, what `diff --question` prints.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from agentfs.core.facts import Conflict, Facts, PlannerCall
from agentfs.core.hashing import render_plan, sha256_of
from agentfs.core.plan_changes import Rewired, StepDifference, changes, difference
from agentfs.core.plan_merge import HandEdits, merge, plan_value, steps_of
from agentfs.core.planner_calls import rejected_steps
from agentfs.core.problems import Rejected, in_words
from agentfs.core.records import JsonObject, Plan

ALWAYS = 'every answer that changes steps is looked at (approve = "always")'
GOAL_EDITED = 'the goal was edited after its plan was approved (approve = "{}")'
Judged = Callable[[bytes], Plan]  # raises Rejected
Candidate = tuple[JsonObject, tuple[Conflict, ...]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that waits to be put into effect."""

    call: int
    revision: int  # the one it was laid over; 0: there was none
    bond: str  # what a yes is bound to: the changes of steps that it makes; empty where none is needed
    source: bytes  # the plan to install
    plan: Plan | None  # the same, read; None: it does not pass the check, and cannot be installed
    conflicts: tuple[Conflict, ...] = ()  # where it has the answer's side against a person's
    touched: tuple[str, ...] = ()  # what a person set by hand, and it changes or drops
    reasons: tuple[str, ...] = ()  # why a person is asked; none: it needs no yes
    changes_nothing: bool = False  # it is what stands there already


def propose(one: PlannerCall, facts: Facts, base: Plan | None, pins: HandEdits, judged: Judged) -> Proposal:
    """Return what an answer comes to. `base`: the plan that it grew from, if that is not the one in force."""
    problems: list[str] = []
    for value, conflicts in _candidates(one, facts, base):
        source = render_plan(value)
        try:
            plan = judged(source)
        except Rejected as rejected:
            problems += [in_words(problem, value) for problem in rejected.problems[:1]]
            continue
        touched = () if facts.goal.has_steps or not pins else tuple(_touched(facts.plan, plan, pins, conflicts))
        reasons = tuple(_reasons(one, facts, plan, conflicts, touched, problems))
        nothing = facts.plan is not None and not changes(facts.plan, plan)
        bond, number = _bond(facts.plan, plan, conflicts) if reasons else "", len(facts.revisions)
        return Proposal(one.number, number, bond, source, plan, conflicts, touched, reasons, nothing)
    why = f"it cannot be put into effect: {problems[-1]}"
    return Proposal(one.number, len(facts.revisions), sha256_of(why), source, None, reasons=(why,))


def _bond(old: Plan | None, new: Plan, conflicts: tuple[Conflict, ...]) -> str:
    """Return the hash of what a question shows: what becomes of which step. What is left alone may change."""
    steps = [asdict(change) for change in difference(old, new).steps]
    return sha256_of([steps, [asdict(conflict) for conflict in conflicts]])


def _candidates(one: PlannerCall, facts: Facts, base: Plan | None) -> Iterator[Candidate]:
    """Yield the plans an answer may come to: what keeps most of a person's edits first, the answer alone last."""
    if one.answer is None or one.answer.plan is None:
        raise ValueError("an answer without a plan comes to nothing")
    if base is None or facts.plan is None:
        yield one.answer.plan, ()
        return
    theirs = Plan.model_validate_json(render_plan(one.answer.plan))
    for whole in (False, True):
        merged = merge(base, facts.plan, theirs, whole_steps=whole)
        yield merged.plan, merged.conflicts
    yield plan_value(facts.plan, theirs.goal, steps_of(theirs).values(), theirs.checks), ()


# ── why a person is asked ─────────────────────────────────────────────────────────────────────────────────


def _reasons(
    one: PlannerCall,
    facts: Facts,
    plan: Plan,
    conflicts: tuple[Conflict, ...],
    touched: tuple[str, ...],
    problems: list[str],
) -> Iterator[str]:
    by_model = not facts.goal.has_steps  # a runbook is a person's own word, but not their last
    if by_model and (rejected := rejected_steps(facts)):
        yield f"you rejected {_listed(iter(rejected))}: look at what is planned instead"
    gone = {step.id for step in (facts.plan.steps if facts.plan else ()) if step.gate} - {s.id for s in plan.steps}
    if by_model and gone:
        yield f"it drops what you were to approve: {_listed(iter(sorted(gone)))}"
    if conflicts:
        yield f"you and the answer changed the same: {_listed(conflict.place for conflict in conflicts)}"
    if touched:
        yield f"it changes what you set by hand: {_listed(iter(touched))}"
    if problems:
        yield f"your edits and the answer do not go together: {problems[0]}"
    if _is_edit_of_approved(one, facts):
        yield GOAL_EDITED.format(facts.run.approve)
    first = one.call is not None and one.call.trigger == "first"
    if by_model and facts.run.approve == "always" and not first and difference(facts.plan, plan).steps:
        yield ALWAYS


def _is_edit_of_approved(one: PlannerCall, facts: Facts) -> bool:
    """Whether the goal is another than the plan in force answers, in a run whose plans a person approves.

    Whatever it changes: a fallback that is not in the plan yet would run without a question later. A draft is not
    approved yet.
    """
    applied = {revision.call for revision in facts.revisions}
    answered = [other.call.goal_sha256 for other in facts.calls if other.call and other.number in applied]
    is_edited = one.call is not None and bool(answered) and one.call.goal_sha256 != answered[-1]
    return is_edited and facts.run.approve != "never" and facts.plan is not None and facts.plan.status != "draft"


def _listed(places: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(places))


def _touched(old: Plan | None, new: Plan, pins: HandEdits, conflicts: tuple[Conflict, ...]) -> Iterator[str]:
    """Yield what a person set by hand and the new plan changes, but for what is in conflict anyway."""
    told = {conflict.place for conflict in conflicts}
    gone = {step.id for step in old.steps} - {step.id for step in new.steps} if old else set()
    for change in difference(old, new).steps:
        mine = pins.get(change.step, frozenset())
        if not mine or change.step in told:
            continue
        if change.kind == "removed":
            yield change.step
        fields = (f"{change.step}.{field}" for field in changed_fields(change, gone) if field in mine)
        yield from (place for place in fields if place not in told)


def changed_fields(change: StepDifference, gone: set[str]) -> list[str]:
    """Return the fields of a step that are not what they were; that it no longer waits for what left is no change."""
    fields = [field.field.partition(".")[0] for field in change.fields]
    return list(dict.fromkeys([*fields, *(["depends_on"] if _is_rewired(change.after, gone) else [])]))


def _is_rewired(after: Rewired | None, gone: set[str]) -> bool:
    return after is not None and set(after.old) - gone != set(after.new)
