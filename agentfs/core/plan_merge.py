"""Two plans that grew from one, brought together: three-way, by step and field. Pure.

    base ──► mine      a person's, as it is now
       └───► theirs    what a planner answered to the base

A field that one side changed is taken from that side. One that both changed, each its own way, is a conflict; so is a
step that one side changed and the other removed, and one that both added under one id. There the merged plan has the
answer's side: it is what a person's yes puts into effect, and without a conflict it needs none. `status`,
`limits` and `tools` are the person's, always; the order of steps means nothing once each says what it waits for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentfs.core.facts import Conflict, Facts, PlannerCall, Proposal
from agentfs.core.hashing import (
    OVERRIDES,
    PLAN_SCHEMA,
    canonical,
    check_value,
    in_order,
    render_plan,
    sha256_of,
    spell_out,
)
from agentfs.core.plan_changes import StepDifference, changes, difference
from agentfs.core.plan_graph import find_referred
from agentfs.core.planner_calls import client_wishes, rejected_steps
from agentfs.core.problems import Rejected, in_words
from agentfs.core.records import Check, JsonObject, Plan, Record, Revision, Step

StepValue = dict[str, Any]
FIELDS = tuple(name for name in Step.model_fields if name != "id")


@dataclass(frozen=True, slots=True)
class Merged:
    """A plan of both sides, and where the answer's side was taken against the person's."""

    plan: JsonObject
    conflicts: tuple[Conflict, ...] = ()


def merge(base: Plan, mine: Plan, theirs: Plan, *, whole_steps: bool = False) -> Merged:
    """Return both sides' changes of a plan in one. `whole_steps`: a step that both changed is not divided."""
    was, own, new = (steps_of(plan) for plan in (base, mine, theirs))
    steps: dict[str, StepValue] = {}
    conflicts: list[Conflict] = []
    order = _order(own, new)
    for name in order:
        step, found = _merged_step(name, was.get(name), own.get(name), new.get(name), whole_steps)
        conflicts += found
        if step is not None:
            steps[name] = step
    conflicts += _put_right(steps, was, new)
    title = theirs.goal if mine.goal == base.goal else mine.goal
    checks = merge_checks(base.checks or (), mine.checks or (), theirs.checks or ())
    merged = [steps[name] for name in order if name in steps]
    return Merged(plan_value(mine, title, merged, checks), tuple(conflicts))


def merge_checks(base: Sequence[Check], mine: Sequence[Check], theirs: Sequence[Check]) -> tuple[Check, ...]:
    """Return a plan's own checks: the answer's, without those a person took out, and with those a person put in."""
    taken_out = [check for check in base if check not in mine]
    put_in = [check for check in mine if check not in base]
    kept = [check for check in theirs if check not in taken_out and check not in put_in]
    return (*kept, *put_in)


def plan_value(
    head: Plan, title: str | None, steps: Iterable[StepValue], checks: Sequence[Check] | None = None
) -> JsonObject:
    """Return a plan of these steps and checks under the status and overrides of another, in plan form."""
    value: dict[str, Any] = {"$schema": head.schema_ or PLAN_SCHEMA}
    if title is not None:
        value["goal"] = title
    value["status"] = head.status
    for name in OVERRIDES:
        if (own := getattr(head, name)) is not None:
            value[name] = _dump(own)
    if checks:
        value["checks"] = [check_value(check) for check in checks]
    return value | {"steps": [in_order(step) for step in steps]}


def steps_of(plan: Plan) -> dict[str, StepValue]:
    """Return the steps of a plan by id, each with its depends_on spelt out."""
    return {step["id"]: step for step in spell_out([_dump(step) for step in plan.steps])}


def _dump(record: Record) -> dict[str, Any]:
    """Return a record as a person would write it: nothing that is absent, and 5 seconds, not 5.0."""
    given = record.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: int(one) if isinstance(one, float) and one.is_integer() else one for name, one in given.items()}


def _order(own: Mapping[str, StepValue], new: Mapping[str, StepValue]) -> list[str]:
    """Return every id: the person's in their order, each of the answer's behind the one it follows there."""
    order = list(own)
    for before, name in zip([None, *new], new, strict=False):
        if name not in own:
            order.insert(order.index(before) + 1 if before is not None else 0, name)
    return order


# ── one step ──────────────────────────────────────────────────────────────────────────────────────────────


def _merged_step(
    name: str, was: StepValue | None, own: StepValue | None, new: StepValue | None, whole: bool
) -> tuple[StepValue | None, list[Conflict]]:
    """Return a step as it is merged, None if it leaves the plan, and what is in conflict about it."""
    if own is not None and new is not None:
        return _merged_fields(name, was, own, new, whole)
    left, mine = (own, True) if own is not None else (new, False)
    if was is None:  # one side has added it
        return left, []
    if left is None or not _differing(was, left):  # one side has removed it, and the other let it be
        return None, []
    if mine:
        return None, [Conflict(name, None, None, "changed", "removed")]
    return left, [Conflict(name, None, None, "removed", "changed")]


def _merged_fields(
    name: str, was: StepValue | None, own: StepValue, new: StepValue, whole: bool
) -> tuple[StepValue, list[Conflict]]:
    """Return a step that both sides have. One that both have added is in conflict wherever they differ."""
    mine, theirs = (_differing(was or {}, side) for side in (own, new))
    apart = [field for field in FIELDS if not same(field, own.get(field), new.get(field))]
    if was is not None and not (whole and mine and theirs):
        apart = [field for field in apart if field in mine and field in theirs]
    taken = {*theirs, *apart}  # where both changed it to the same, either will do
    step = {"id": name} | {
        field: value for field in FIELDS if (value := (new if field in taken else own).get(field)) is not None
    }
    before = was or {}
    return step, [Conflict(name, field, before.get(field), own.get(field), new.get(field)) for field in apart]


def _differing(one: StepValue, other: StepValue) -> list[str]:
    return [field for field in FIELDS if not same(field, one.get(field), other.get(field))]


def same(field: str, one: Any, other: Any) -> bool:
    """Whether two values of a field mean the same; what a step waits for has no order."""
    if field == "depends_on" and one is not None and other is not None:
        return set(one) == set(other)
    return (one is None and other is None) or canonical(one) == canonical(other)


# ── what is needed and gone ───────────────────────────────────────────────────────────────────────────────


def _put_right(
    steps: dict[str, StepValue], was: Mapping[str, StepValue], new: Mapping[str, StepValue]
) -> Iterator[Conflict]:
    """Let no step wait for one that has gone: what the answer needs comes back, what it dropped is not waited for.

    A reference to what the answer dropped cannot be put right here; the check of the plan names it.
    """
    ahead = list(steps)
    while ahead:
        name = ahead.pop(0)
        for gone in [one for one in _find_needed(steps[name]) if one not in steps]:
            if gone in new:
                steps[gone] = new[gone]
                ahead.append(gone)
                yield Conflict(gone, None, None, "removed", f"needed by {name}")
            elif gone in (waits := steps[name]["depends_on"]):
                left = [one for one in waits if one != gone]
                steps[name] = steps[name] | {"depends_on": left}
                yield Conflict(name, "depends_on", was.get(name, {}).get("depends_on"), waits, left)


def _find_needed(step: StepValue) -> list[str]:
    used = find_referred(Step.model_validate_json(canonical(step)))
    return list(dict.fromkeys([*step["depends_on"], *sorted(used)]))


# ── which fields a person set by hand ────────────────────────────────────────────────────────────────────


HandEdits = Mapping[str, frozenset[str]]  # step -> the names of its fields that are a person's


@dataclass(frozen=True, slots=True)
class HandEditHistory:
    """What is a person's after some revisions; the next ones are taken up one by one."""

    revisions: int = 0
    plan: Plan | None = None
    hand_edits: HandEdits = field(default_factory=dict)

    def after(self, revision: Revision, plan: Plan) -> "HandEditHistory":
        """Return what is a person's once this revision has been made, too."""
        hand_edits = dict(self.hand_edits)
        for one in difference(self.plan, plan).steps:
            fields = {*one.names, *(["depends_on"] if one.after else [])}
            mine = frozenset() if one.kind == "added" else hand_edits.get(one.step, frozenset())
            hand_edits[one.step] = mine | fields if revision.trigger == "edited" else mine - fields
            if one.kind == "removed" or not hand_edits[one.step]:
                del hand_edits[one.step]  # a step of the same name would be another step
        return HandEditHistory(self.revisions + 1, plan, hand_edits)


def plan_without_edits(history: Iterable[tuple[Revision, Plan]]) -> Plan | None:
    """Return the plan as it would be had no person edited it: every other revision's changes, and no others.

    An edited goal is laid over what people made of the plan with this as the base, so that only what the goal itself
    says otherwise is taken for a change.
    """
    before: dict[str, StepValue] = {}
    own: dict[str, StepValue] = {}
    last: Plan | None = None
    checks: tuple[Check, ...] = ()
    for revision, plan in history:
        after, by_hand = steps_of(plan), revision.trigger == "edited" and last is not None
        if not by_hand:
            _take_changes(own, before, after, of_edits=not _is_fallback(revision))
            checks = merge_checks((last.checks if last else None) or (), checks, plan.checks or ())
        before, last = after, plan
    if last is None or not own:
        return last
    return Plan.model_validate_json(render_plan(plan_value(last, last.goal, own.values(), checks)))


def _is_fallback(revision: Revision) -> bool:
    """Whether a runbook answered to a failure: that rewires what is there, and is no word about what it says."""
    return revision.by.role == "runbook" and revision.trigger != "goal_changed"


def _take_changes(
    own: dict[str, StepValue], before: Mapping[str, StepValue], after: Mapping[str, StepValue], *, of_edits: bool
) -> None:
    """Make the changes that led from one plan to another. `of_edits`: also where a person had set the field."""
    for name in before.keys() - after.keys():
        own.pop(name, None)
    for name, step in after.items():
        if name not in before:
            own[name] = step
        elif name in own:
            mine, theirs = (own[name], step) if of_edits else (step, own[name])  # the second has its way
            own[name], _ = _merged_fields(name, before[name], mine, theirs, whole=False)


# ── what an answer comes to on top of the present plan, and why a person is asked ──────────────────────


ALWAYS = 'every answer that changes steps is looked at (approve = "always")'
GOAL_EDITED = 'the goal was edited after its plan was approved (approve = "{}")'
Judged = Callable[[bytes], Plan]  # raises Rejected
Candidate = tuple[JsonObject, tuple[Conflict, ...]]


def propose(one: PlannerCall, facts: Facts, base: Plan | None, hand_edits: HandEdits, judged: Judged) -> Proposal:
    """Return what an answer comes to. `base`: the plan that it grew from, if that is not the one in force."""
    problems: list[str] = []
    for value, conflicts in _candidates(one, facts, base):
        source = render_plan(value)
        try:
            plan = judged(source)
        except Rejected as rejected:
            problems += [in_words(problem, value) for problem in rejected.problems[:1]]
            continue
        by_hand = {} if facts.goal.has_steps else hand_edits
        touched = tuple(_find_touched(facts.plan, plan, by_hand, conflicts)) if by_hand else ()
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
    is_edit = one.call is not None and one.call.edit_by is not None
    if one.call is not None and is_edit:
        yield one.call.detail
    if facts.plan is not None and facts.plan.status != "draft":  # a draft waits for a person's yes anyway
        yield from client_wishes(one, facts)
    by_model = not facts.goal.has_steps or is_edit  # a runbook is a person's own word, but not their last
    if by_model and (rejected := rejected_steps(facts)):
        yield f"you rejected {_list(iter(rejected))}: look at what is planned instead"
    gone = {step.id for step in (facts.plan.steps if facts.plan else ()) if step.gate} - {s.id for s in plan.steps}
    if by_model and gone:
        yield f"it drops what you were to approve: {_list(iter(sorted(gone)))}"
    if by_model and (skippable := _find_newly_conditional(facts.plan, plan)):
        yield f"it puts a condition on what you were to approve: {_list(iter(skippable))}"
    if conflicts:
        yield f"you and the answer changed the same: {_list(conflict.place for conflict in conflicts)}"
    if touched:
        yield f"it changes what you set by hand: {_list(iter(touched))}"
    if problems:
        yield f"your edits and the answer do not go together: {problems[0]}"
    if _is_edit_of_approved(one, facts):
        yield GOAL_EDITED.format(facts.run.approve)
    first = one.call is not None and one.call.trigger == "first"
    if by_model and facts.run.approve == "always" and not first and difference(facts.plan, plan).steps:
        yield ALWAYS


def _find_newly_conditional(old: Plan | None, new: Plan) -> list[str]:
    """Return the gated steps that a condition could skip which they did not have: no gate would ask about them."""
    gated = {step.id: step.when for step in (old.steps if old else ()) if step.gate}
    return [step.id for step in new.steps if step.id in gated and step.when not in (None, gated[step.id])]


def _is_edit_of_approved(one: PlannerCall, facts: Facts) -> bool:
    """Whether the goal is another than the plan in force answers, in a run whose plans a person approves.

    Whatever it changes: a fallback that is not in the plan yet would run without a question later. A draft is not
    approved yet.
    """
    applied = {revision.call for revision in facts.revisions}
    answered = [other.call.goal_sha256 for other in facts.calls if other.call and other.number in applied]
    is_edited = one.call is not None and bool(answered) and one.call.goal_sha256 != answered[-1]
    return is_edited and facts.run.approve != "never" and facts.plan is not None and facts.plan.status != "draft"


def _list(places: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(places))


def _find_touched(
    old: Plan | None, new: Plan, hand_edits: HandEdits, conflicts: tuple[Conflict, ...]
) -> Iterator[str]:
    """Yield what a person set by hand and the new plan changes, but for what is in conflict anyway."""
    reported = {conflict.place for conflict in conflicts}
    gone = {step.id for step in old.steps} - {step.id for step in new.steps} if old else set()
    for change in difference(old, new).steps:
        mine = hand_edits.get(change.step, frozenset())
        if not mine or change.step in reported:
            continue
        if change.kind == "removed":
            yield change.step
        fields = (f"{change.step}.{field}" for field in changed_fields(change, gone) if field in mine)
        yield from (place for place in fields if place not in reported)


def changed_fields(change: StepDifference, gone: set[str]) -> list[str]:
    """Return the fields of a step that are not what they were; that it no longer waits for what left is no change."""
    is_rewired = change.after is not None and set(change.after.old) - gone != set(change.after.new)
    return [*change.names, *(["depends_on"] if is_rewired else [])]
