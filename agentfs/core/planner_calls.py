"""The calls of the planner: how a run is driven, what the calls so far amount to, why there is another. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from agentfs.core import paths
from agentfs.core.facts import Facts, GateWord, PlannerCall, Proposal, Talk, gate_word, words_below
from agentfs.core.plan_graph import PlanGraph, StepTable
from agentfs.core.records import Answer, Call, Mode, Plan, Result, Run, Trigger, Verdict
from agentfs.core.steps import LIMIT, MAX_INTERRUPTIONS, result_path
from agentfs.core.text import one_line

DO = "do"  # the one step of the plan that code writes: a loop that does the goal as a whole
LOOPS: tuple[Mode, ...] = ("single", "scratchpad")
FIRST_CALL = 1


def starts_as_loop(run: Run, *, executor: bool) -> bool:
    """Whether code writes the first plan, of one step; a person who reviews plans gets one worth reviewing.

    An agent needs a model beside it, which writes checks for the goal and judges: without one, the planner plans.
    """
    if run.mode == "auto":
        has_checks = run.agent is None or run.models.executor is not None
        return executor and has_checks and run.approve == "never"
    return run.mode in LOOPS


def is_loop(plan: Plan | None) -> bool:
    """Whether a plan is the one that code writes."""
    return plan is not None and [step.id for step in plan.steps] == [DO] and plan.steps[0].tool is None


def loops(facts: Facts) -> bool:
    """Whether the run is still the one loop it began as."""
    return not facts.goal.has_steps and facts.run.mode in ("auto", *LOOPS) and is_loop(facts.plan)


def is_stepwise(facts: Facts) -> bool:
    return facts.run.mode == "stepwise" and not facts.goal.has_steps


def asks_after_every_step(facts: Facts) -> bool:
    """Whether the planner looks at each result; one loop has no planner, and stepwise calls it anyway."""
    model_plans = not facts.goal.has_steps and not is_stepwise(facts) and not loops(facts)
    return facts.run.replan == "every_step" and model_plans


# ── the calls so far ─────────────────────────────────────────────────────────────────────────────────────


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
            if one.again and one.number not in applied:  # a person set it aside: what it was about is asked again
                interrupted = 0
                continue
            interrupted = interrupted + 1 if one.answer and _was_cut_off(one.answer) else 0
            found = found.after(one, one.call, facts, one.number in applied, interrupted)
        return found

    def after(self, one: PlannerCall, call: Call, facts: Facts, applied: bool, interrupted: int) -> "CallsSummary":
        """Return this summary with the next call taken into account."""
        by_planner = call.role == "planner"
        replans = self.replans + (call.trigger in COUNTED and by_planner)
        if one.answer is None:
            return replace(self, open=one, replans=replans)
        if not by_planner and one.answer.verdict != "plan":
            return self  # nothing was repaired: the planner is called for the same
        if one.answer.verdict == "failed" or interrupted >= MAX_INTERRUPTIONS:
            return replace(self, failed=one, replans=replans)
        if not applied and _leaves_the_plan(one, facts):
            return self._spend_on(one, call, "keep", replans)
        if one.answer.verdict == "interrupted" or (not applied and not can_be_used(one, facts)):
            return self
        if not applied and (rejection(one) or needs_yes(one, facts)) and decision(one, facts) != "approve":
            return replace(self._hold_up(one, facts), replans=replans)
        unapplied = one if one.answer.plan is not None and not applied else None
        return replace(self._spend_on(one, call, one.answer.verdict, replans), unapplied=unapplied)

    def _spend_on(self, one: PlannerCall, call: Call, verdict: Verdict, replans: int) -> "CallsSummary":
        """Return this summary with a call that has answered what it was about."""
        return CallsSummary(
            spent={**self.spent, **dict.fromkeys(call.evidence, verdict)},
            rejected=self.rejected,
            latest=one,
            replans=replans,
            goal_sha256=call.goal_sha256,
        )

    def _hold_up(self, one: PlannerCall, facts: Facts) -> "CallsSummary":
        """Return this summary with an answer that has no yes: it waits, or a person said no."""
        if rejection(one) is None:
            return replace(self, unapplied=one)
        if facts.goal.has_steps:
            return replace(self, refused=one)
        return replace(self, rejected=(*self.rejected, one))

    @property
    def finished(self) -> bool:
        """Whether the planner's last word is that nothing is left to do."""
        return self.latest is not None and self.latest.answer is not None and self.latest.answer.verdict == "finished"


def _leaves_the_plan(one: PlannerCall, facts: Facts) -> bool:
    """Whether a person said no to what this goal would make of their edits: the plan stays as it is."""
    if one.call is not None and one.call.edit_by is not None:
        return rejection(one) is not None
    asked_about = facts.goal.has_steps and one.call is not None and one.call.goal_sha256 == facts.goal.sha256
    return asked_about and rejection(one) is not None and not _has_surprise(one, facts)


def _was_cut_off(answer: Answer) -> bool:
    """Whether an answer counts towards the interruptions that are one too many; a limit is nobody's failure."""
    return answer.verdict == "interrupted" and not (answer.error and answer.error.kind == LIMIT)


def can_be_used(one: PlannerCall, facts: Facts) -> bool:
    """Whether an answer that is not in effect may still be: what it was about is there, or what grew from it.

    A goal's own steps cost nothing to ask again, and then speak of what is there now.
    """
    if one.call is None or one.answer is None or one.call.goal_sha256 != facts.goal.sha256:
        return False
    if one.answer.plan is None:
        return True
    current = facts.revisions[-1].plan_sha256 if facts.revisions else None
    grown = one.call.base_sha256 is not None and not facts.goal.has_steps
    return (one.call.base_sha256 == current or grown) and (rejection(one) is not None or _is_last(one, facts))


def _is_last(one: PlannerCall, facts: Facts) -> bool:
    """Whether no call was made since. Where one was, this answer had been given up for good."""
    return not any(later.call for later in facts.calls if later.number > one.number)


def waiting_answer(facts: Facts) -> PlannerCall | None:
    """Return the call whose plan is neither in effect nor given up."""
    one = next((one for one in reversed(facts.calls) if one.call is not None), None)
    if one is None or one.again or one.answer is None or one.answer.plan is None or rejection(one):
        return None
    applied = any(revision.call == one.number for revision in facts.revisions)
    return one if not applied and can_be_used(one, facts) else None


def needs_yes(one: PlannerCall, facts: Facts) -> bool:
    """Whether an answer that is not in effect waits for a person.

    A runbook has no answer of its own to a surprise. A plan says itself why, once it is laid over the one in force;
    where that has yet to be done, it waits. A first plan is approved in the file.
    """
    if facts.goal.has_steps and _has_surprise(one, facts):
        return True
    if one.answer is None or one.answer.plan is None:
        return False
    proposal = proposal_of(one, facts)
    return proposal is None or bool(proposal.reasons)


def proposal_of(one: PlannerCall, facts: Facts) -> Proposal | None:
    """Return what an answer comes to; None: it has yet to be laid over the plan in force."""
    found = facts.proposal
    return found if found and (found.call, found.revision) == (one.number, len(facts.revisions)) else None


# ── a person's word about an answer ───────────────────────────────────────────────────────────────────────


def rejection(one: PlannerCall) -> Talk | None:
    """Return the question about an answer that a person said no to. A no holds whatever became of the plan."""
    return next((talk for talk in reversed(one.talks) if gate_word(talk.reply) == "reject"), None)


def question_of(one: PlannerCall, facts: Facts) -> Talk | None:
    """Return the question about an answer that still holds; one that showed other changes does not."""
    last, proposal = one.talks[-1] if one.talks else None, proposal_of(one, facts)
    if last is None or (facts.goal.has_steps and last.key is None):  # it is about a result, which does not change
        return last
    return last if proposal is not None and last.key == proposal.bond else None


def decision(one: PlannerCall, facts: Facts) -> GateWord | None:
    """Return what a person said to an answer; None: nothing that counts."""
    if rejection(one):
        return "reject"
    asked = question_of(one, facts)
    return gate_word(asked.reply) if asked else None


def _has_surprise(one: PlannerCall, facts: Facts) -> bool:
    return any(_is_surprise(path, facts) for path in (one.call.evidence if one.call else ()))


def _is_surprise(path: str, facts: Facts) -> bool:
    result = _result_at(path, facts)
    return result is not None and result.status == "done" and result.surprising


def _result_at(path: str, facts: Facts) -> Result | None:
    """Return the result that a path in a call's evidence leads to."""
    file = paths.parse_step_file(path.removeprefix(f"{paths.STEPS}/"))
    return facts.attempt(file.step, file.attempt).result if file and file.kind == "result" else None


def rejections_in(call: Call | None, facts: Facts) -> tuple[Result, ...]:
    """Return the steps that a person said no to among what a call was about."""
    found = (_result_at(path, facts) for path in (call.evidence if call else ()))
    return tuple(result for result in found if result is not None and result.status == "rejected")


def rejected_steps(facts: Facts) -> tuple[str, ...]:
    """Return the steps that a person said no to, and that no answer in effect has taken up."""
    applied = {revision.call for revision in facts.revisions}
    taken_up = {path for one in facts.calls if one.call and one.number in applied for path in one.call.evidence}
    latest = {step: attempts[-1] for step, attempts in facts.attempts.items()}
    return tuple(
        step
        for step, attempt in latest.items()
        if attempt.result is not None and attempt.result.status == "rejected" and not attempt.again
        if paths.step_path(step, attempt.number, "result") not in taken_up
    )


def is_forks_own(call: Call, run: Run) -> bool:
    """Whether a call is the one that a fork was made with: code answered it."""
    return call.call == FIRST_CALL and call.detail == run.source and paths.is_fork_source(run.source)


def next_call(facts: Facts) -> int:
    """Return the number a new call gets."""
    return max((one.number for one in facts.calls), default=0) + 1


# ── what another program wants of a plan: an edit, or another plan in words ───────────────────────────────
#
# Both are a wish (`replan.md`), and what comes of them is a question to a person. An edit brings its own answer to
# the trigger `asked`, held to a planner's rules.


_FORM = re.compile(
    r"<!-- edit_plan base: ([0-9a-f]{64}) by: ([^\n<>]{1,80}) -->\n(.*?)\n```json\n(.*)\n```\n?\Z", re.DOTALL
)
_WISH = re.compile(r"<!-- replan by a client -->\n(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ProposedEdit:
    """Another plan, for one that was read."""

    base_sha256: str
    by: str
    why: str
    steps: Any  # as they were given

    @property
    def detail(self) -> str:
        return f"{self.by} proposes an edit: {self.why}"


def render_edit(edit: ProposedEdit) -> str:
    """Return the wish as a file: words and steps for people, and what tells it from a wish in words."""
    steps = json.dumps({"steps": edit.steps}, indent=2, ensure_ascii=False)
    by = re.sub(r"[<>\n-]+", " ", one_line(edit.by, 60)).strip() or "a client"
    return f"<!-- edit_plan base: {edit.base_sha256} by: {by} -->\n{edit.why.strip()}\n\n```json\n{steps}\n```\n"


def proposed_edit(words: str | None) -> ProposedEdit | None:
    """Return the edit that a wish brings; None where it is a wish in words."""
    match = _FORM.match(words or "")
    if match is None:
        return None
    try:
        steps = json.loads(match[4])["steps"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return ProposedEdit(match[1], match[2], one_line(match[3], 200) or "no reason was given", steps)


def render_wish(words: str) -> str:
    """Return a client's wish in words as a file, which tells it from a person's."""
    return f"<!-- replan by a client -->\n{words.strip()}\n"


def clients_wish(words: str | None) -> str | None:
    """Return what a client asked for in words; None where a person did, or it brings an edit."""
    match = _WISH.match(words or "")
    return f"a client asks for another plan: {match[1].strip() or 'it does not say why'}" if match else None


# ── every reason to call the planner ─────────────────────────────────────────────────────────────────────


TRIGGER_ORDER: tuple[Trigger, ...] = get_args(Trigger)  # the record lists them as they are answered
FIRST = Pending("first", None, "there is no plan yet", ())
WITHOUT_WORDS = "a person asked for another plan"


def pending_without_plan(facts: Facts, calls: CallsSummary) -> tuple[Pending, ...]:
    """Return why a planner is asked for a first plan, unless it said that there can be none and nobody asks again."""
    said = calls.latest.answer if calls.latest else None
    gave_up = said is not None and said.verdict == "impossible" and calls.goal_sha256 == facts.goal.sha256
    asked = tuple(_find_asked(facts, calls))
    return (FIRST, *asked) if asked or not gave_up else ()


def pending_in(facts: Facts, table: StepTable, graph: PlanGraph, calls: CallsSummary) -> tuple[Pending, ...]:
    """Return every reason to call the planner, the most pressing first."""
    found = [
        Pending(view.trigger, view.id, f"{view.id}: {view.why}", view.evidence)
        for view in table.moving(graph, "call")
        if view.trigger is not None
    ]
    if calls.goal_sha256 not in (None, facts.goal.sha256):
        found.append(Pending("goal_changed", None, "the goal was edited", ()))
    found += [*_find_asked(facts, calls), *_every_step(facts, table, calls)]
    return tuple(sorted(found, key=lambda pending: TRIGGER_ORDER.index(pending.trigger)))


def _find_asked(facts: Facts, calls: CallsSummary) -> Iterator[Pending]:
    """A person's own words: in replan.md, in one that a call has taken, or in a reply that rejects an answer."""
    if facts.replan is not None:
        evidence = paths.call_file(next_call(facts), "asked")
        yield Pending("asked", None, _reply_to(facts.replan), (f"{paths.PLANNING}/{evidence}",))
    for one in facts.calls:
        taken = paths.call_path(one.number, "asked")
        if one.words is not None and taken not in calls.spent:
            yield Pending("asked", None, _reply_to(one.words), (taken,))
    for one in calls.rejected:
        talk = rejection(one) or Talk()
        reply = paths.call_path(one.number, "reply", talk.count)
        if reply not in calls.spent:
            said = words_below(talk.reply or "") or f"the answer of call {one.number} was rejected"
            yield Pending("asked", None, said, (reply,))


def _reply_to(words: str) -> str:
    edit = proposed_edit(words)
    return edit.detail if edit else clients_wish(words) or words.strip() or WITHOUT_WORDS


def edit_in(pending: Pending, facts: Facts) -> ProposedEdit | None:
    """Return the edit that a wish brings; None where a person asked for something in words, or nobody did."""
    own = paths.call_path(next_call(facts), "asked")
    if own in pending.evidence:
        return proposed_edit(facts.replan)
    for one in facts.calls:
        taken = paths.call_path(one.number, "asked")
        if taken in pending.evidence and (edit := proposed_edit(one.words)):
            return edit
    return None


def client_wishes(one: PlannerCall, facts: Facts) -> Iterator[str]:
    """Yield what clients of `agentfs mcp` asked for in words that a call answers."""
    evidence = one.call.evidence if one.call is not None else ()
    for asked in facts.calls:
        wish = clients_wish(asked.words)
        if wish and paths.call_path(asked.number, "asked") in evidence:
            yield wish


def _every_step(facts: Facts, table: StepTable, calls: CallsSummary) -> Iterator[Pending]:
    if not asks_after_every_step(facts):
        return
    for view in table.views.values():
        path = result_path(view.id, view.attempt)
        if view.status == "done" and path not in calls.spent:
            yield Pending("every_step", view.id, f"{view.id} is done", (path,))
