"""Decide what a run does next. Pure: no files, no clock. Every decision says why; standing still is one too."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agentfs.core import paths
from agentfs.core.excerpts import check_words, joined, reason
from agentfs.core.facts import GATE_WORDS, PlannerCall, uncounted, wanted_notes
from agentfs.core.planner_calls import (
    COUNTED,
    Pending,
    decision,
    is_stepwise,
    loops,
    needs_yes,
    next_call,
    proposal_of,
    question_of,
    rejections_in,
)
from agentfs.core.proof import acceptance_checks, is_enough, proof_of, required_level, shed_in, steps_to_check
from agentfs.core.records import Failure, GoalChecks, Reason
from agentfs.core.run_state import RunState, Stray, goal_checks, last_change, may_be_repaired, next_step, unjudged
from agentfs.core.steps import UNREACHABLE, StepView, no_words


@dataclass(frozen=True, slots=True)
class RecordRevision:
    """plan.json holds something new: give it a number. `call` is the one that wrote it; None: a person."""

    call: int | None
    why: str


@dataclass(frozen=True, slots=True)
class WriteNote:
    """A file that a person edits is not valid: say what, where and how to mend it."""

    name: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class RemoveNote:
    """What a note was about has been mended."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class CallPlanner:
    """Ask the planner; one call takes every pending trigger."""

    call: int
    pending: tuple[Pending, ...]
    why: str
    role: Literal["planner", "executor"] = "planner"  # executor: to repair the input of one step, before the planner


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """Put the plan of an answer into plan.json."""

    call: int
    why: str


@dataclass(frozen=True, slots=True)
class AskAnswer:
    """An answer needs a person's yes: ask for it."""

    call: int
    why: str


@dataclass(frozen=True, slots=True)
class IssueOrder:
    """Hand a step to the executor."""

    view: StepView
    why: str


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """An order stands that nobody has taken."""

    view: StepView
    why: str


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End an attempt that no longer counts, or is no longer wanted."""

    step: str
    attempt: int
    kind: Literal["superseded", "cancelled", "interrupted"]
    why: str


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Write the question of a gate, or of an attempt that was cut off."""

    view: StepView
    about: Literal["gate", "cut"]
    why: str


@dataclass(frozen=True, slots=True)
class SettleReply:
    """Turn a person's words into a result."""

    view: StepView
    about: Literal["gate", "cut", "ask"]
    why: str


@dataclass(frozen=True, slots=True)
class RunGoalChecks:
    """Every step is done: see whether the goal's own checks hold."""

    call: int
    why: str


@dataclass(frozen=True, slots=True)
class EndRun:
    """The run has ended."""

    status: Literal["done", "failed", "cancelled"]
    reason: Reason
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now; what for, and why."""

    on: Literal["attempt", "planner", "person", "time", "nothing"]
    why: str


Action = (
    RecordRevision
    | WriteNote
    | RemoveNote
    | CallPlanner
    | InstallPlan
    | AskAnswer
    | IssueOrder
    | StartAttempt
    | StopAttempt
    | AskPerson
    | SettleReply
    | RunGoalChecks
    | EndRun
    | Wait
)


SAVING = "plan.json is being saved"


def decide(state: RunState, slots: int, now: str = "") -> list[Action]:
    """Return what to do next, never nothing. `slots` is how many more attempts this process can run now.

    `now` is the time as records write it: what waits for a later moment does not start. Without one, all of it waits.
    """
    if state.facts.outcome is not None:
        return [Wait("nothing", f"the run has ended: {state.facts.outcome.summary}")]
    if state.facts.broken:
        return [Wait("person", state.facts.broken[0])]
    if edit := _take_edit(state):
        return edit
    return _cancel(state) or _take_no(state) or [*_put_right(state), *_go_on(state, slots, now)]


def abandoned(state: RunState, actions: list[Action]) -> list[Action]:
    """Return how to go on where nothing is under way, and all that was decided is to wait for what is.

    A driver died between an order and its claim, and now nothing may start. The order is settled: on its own it would
    keep the run from resting, or from ending, for ever.
    """
    if not all(isinstance(action, Wait) and action.on == "attempt" for action in actions):
        return actions
    why = "it was ordered, but agentfs ended before it began"
    return [StopAttempt(one.id, one.attempt, "interrupted", why) for one in state.moving("start")] or actions


def _take_edit(state: RunState) -> list[Action] | None:
    """plan.json comes first: whatever stands there new and valid is a revision, no matter who wrote it."""
    file, revisions = state.facts.plan_file, state.facts.revisions
    if file.plan is None or (revisions and revisions[-1].plan_sha256 == file.sha256):
        return None
    for one in reversed(state.facts.calls):
        if file.sha256 in one.tries and not any(revision.call == one.number for revision in revisions):
            return [RecordRevision(one.number, f"the plan of call {one.number} is in place")]
    return [RecordRevision(None, "plan.json was edited")]


def _cancel(state: RunState) -> list[Action] | None:
    if state.facts.plan is None or state.facts.plan.status != "cancelled":
        return None
    open_ones = [*state.running, *(v for v in state.moving("person", "settle_ask") if v.status == "running")]
    running = [*((v.id, v.attempt) for v in open_ones), *((s.step, s.attempt.number) for s in state.strays)]
    if not running and state.facts.plan_file.being_saved:  # it may say that the run goes on
        return [Wait("attempt", SAVING)]
    if not running:
        return [EndRun("cancelled", "cancelled", "the plan's status is cancelled")]
    return [
        *(StopAttempt(step, attempt, "cancelled", "the plan's status is cancelled") for step, attempt in running),
        Wait("attempt", "what runs is being ended"),
    ]


def _take_no(state: RunState) -> list[Action]:
    """A person's no is on record before anything else is decided: no answer slips in beside it."""
    return [SettleReply(one, "gate", one.why) for one in state.moving("reject")]


def _put_right(state: RunState) -> Iterator[Action]:
    """What may be done whatever else holds the run up."""
    for name, text in wanted_notes(state.facts).items():
        if text is not None and text != state.facts.notes.get(name):
            yield WriteNote(name, text, f"{text.splitlines()[0].strip('# ')}: see {name}")
        if text is None and name in state.facts.notes:
            yield RemoveNote(name, f"what {name} reported is fixed")
    for one in state.moving("stop"):
        yield StopAttempt(one.id, one.attempt, "superseded", one.why)
    for stray in state.strays:
        if _may_stop(stray):
            yield StopAttempt(stray.step, stray.attempt.number, "superseded", f"{stray.step} has left the plan")


def _may_stop(stray: Stray) -> bool:
    order = stray.attempt.order
    return order is None or order.repeatable or not stray.attempt.claimed or stray.attempt.asks is not None


def _go_on(state: RunState, slots: int, now: str) -> list[Action]:
    """The main line: an answer to install, a hold-up, a call to make, an end, or steps to start."""
    if state.calls.unapplied:
        return _apply(state, state.calls.unapplied)
    if state.calls.open:
        return [Wait("planner", "the planner is thinking")]
    if state.facts.asking:
        return [Wait("attempt", f"{paths.REPLAN} is being saved")]
    if unanswered := _unanswered(state):
        return [unanswered]
    if held := _held(state):
        return [*_asking(state), held]
    if ending := _ending(state):
        return [ending] if not _busy(state) else [Wait("attempt", f"{ending.why}; what runs finishes first")]
    if state.pending:
        return [_call(state, next_call(state.facts), state.pending)]
    return _start(state, slots, now) or [_rest(state, now)]


def _unanswered(state: RunState) -> Wait | None:
    """A call that came to nothing holds the run up, until a person has something to say about it."""
    failed = state.calls.failed
    if failed is None or failed.answer is None or failed.call is None:
        return None
    if any(
        pending.trigger == "asked" and not set(pending.evidence) <= set(failed.call.evidence)
        for pending in state.pending
    ):
        return None
    error = failed.answer.error
    why = reason(error.message) if error else "it was cut off"
    fix = f" ({error.hint})" if error and error.hint else ""
    return Wait("person", f"the planner could not answer: {why}{fix}")


def _call(state: RunState, number: int, pending: tuple[Pending, ...]) -> CallPlanner | Wait:
    if state.limit_reached and not state.facts.goal.has_steps:  # a goal's own steps cost nothing to ask
        where = "in plan.json" if state.facts.plan else "in agentfs.toml, and start the goal anew"
        return Wait("attempt" if _busy(state) else "person", f"{state.limit_reached}: raise it {where}")
    role: Literal["planner", "executor"] = "executor" if may_be_repaired(state, pending) else "planner"
    return CallPlanner(number, pending, pending[0].detail, role)


def _apply(state: RunState, one: PlannerCall) -> list[Action]:
    if hindered := _hindered(state):
        return [hindered]  # an exchange now would only be taken back
    approved, asked = decision(one, state.facts) == "approve", question_of(one, state.facts)
    proposal = proposal_of(one, state.facts)
    if not approved and needs_yes(one, state.facts):
        if asked is None:
            return [AskAnswer(one.number, _why_ask(one))]
        why = uncounted(asked.reply, GATE_WORDS) or f"{_question(one, asked.count)} waits for a reply"
        return [Wait("person", why)]
    if proposal is None or proposal.plan is None:
        why = proposal.reasons[0] if proposal else "it is yet to be looked at"
        return [Wait("person", f"the answer of call {one.number} was approved, but {why}: reject it")]
    if proposal.changes_nothing:
        return [RecordRevision(one.number, f"call {one.number} answered with the plan that is there")]
    return [InstallPlan(one.number, f"call {one.number} answered with a plan")]


def _why_ask(one: PlannerCall) -> str:
    if not one.talks:
        return f"the answer of call {one.number} needs a person's yes"
    return f"the plan has changed since {_question(one, one.talks[-1].count)} was asked: asking again"


def _question(one: PlannerCall, count: int) -> str:
    return f"{paths.PLANNING}/{paths.call_file(one.number, 'question', count)}"


def _hindered(state: RunState) -> Wait | None:
    """Return what is the matter with plan.json itself."""
    if state.facts.plan_file.being_saved:
        return Wait("attempt", SAVING)
    if state.facts.plan_file.problems:
        return Wait("person", "plan.json is not valid: see plan.error.md")
    return None


def _held(state: RunState) -> Wait | None:
    """Return what keeps anything new from starting, or the run from ending, while the plan itself may be fine."""
    if hindered := _hindered(state):
        return hindered
    plan = state.facts.plan
    if plan is not None and plan.status == "draft" and _concerns_the_draft(state):
        return None
    if plan is not None and plan.status in ("draft", "paused"):
        words = "is a draft: approve it" if plan.status == "draft" else "is paused: resume it"
        return Wait("attempt" if _busy(state) else "person", f"the plan {words}")
    return None


def _concerns_the_draft(state: RunState) -> bool:
    """Whether a person wants another draft: they edited the goal, or said what is wrong with this one."""
    return any(pending.trigger in ("goal_changed", "asked") for pending in state.pending)


def no_model_reached(state: RunState) -> bool:
    """Whether the run waits because no model could be reached, or none is configured."""
    failed, checked = state.calls.failed, goal_checks(state)
    errors = (failed.answer.error if failed and failed.answer else None, unjudged(checked))
    return bool(state.moving("reach")) or any(error is not None and error.kind == UNREACHABLE for error in errors)


def _busy(state: RunState) -> bool:
    return bool(state.running or state.strays)


def _ending(state: RunState) -> EndRun | None:
    """Return the end that is already certain, if there is one."""
    if state.calls.refused:
        step = state.calls.refused.call.step if state.calls.refused.call else None
        return EndRun("failed", "step_failed", f"a person rejected the result of {step}")
    if (last := given_up(state)) and last.answer:
        by = "the runbook gives up" if state.facts.goal.has_steps else "the planner says that it is impossible"
        return EndRun("failed", _doom(state, last), f"{by}: {last.answer.answer}")
    if halted := state.moving("halt"):
        one = next((one for one in halted if one.status == "rejected"), halted[0])  # a person's word comes first
        reason: Reason = "rejected" if one.status == "rejected" else "step_failed"
        return EndRun("failed", reason, f"{one.id} {_ended_words(one)}")
    counted = bool(state.pending) and state.pending[0].trigger in COUNTED
    if counted and state.calls.replans >= state.bounds.replans and not may_be_repaired(state, state.pending):
        return _out_of_replans(state, state.pending[0])
    return None


def _out_of_replans(state: RunState, pending: Pending) -> EndRun | None:
    """A person's no is not a failure: what a goal itself has to clean up after it is not a replan."""
    if no := next((one for one in state.moving("call") if one.status == "rejected"), None):
        return None if state.facts.goal.has_steps else EndRun("failed", "rejected", f"{no.id} {_ended_words(no)}")
    used = f"{state.calls.replans} of {state.bounds.replans} replans are used up"
    return EndRun("failed", "replan_budget_exhausted", f"{used}, and {pending.detail}")


def given_up(state: RunState) -> PlannerCall | None:
    """Return the call that gave this very plan up, if it is the planner's last word and there is no clean-up."""
    last = state.calls.latest
    if last is None or last.call is None or last.answer is None or last.call.revision != len(state.facts.revisions):
        return None
    gave_up = last.answer.verdict == "impossible" and last.answer.plan is None
    return last if gave_up and not state.pending else None


def _ended_words(halted: StepView) -> str:
    if halted.status == "failed":
        return halted.why if halted.trigger == "repeated_failure" else f"failed: {halted.why}"
    return f"was {halted.why}" if halted.status == "rejected" else f"cannot start: {halted.why}"


def _asking(state: RunState) -> Iterator[Action]:
    """Questions cost nothing and change nothing: they are put even while the run is held up."""
    for one in state.moving("ask_cut"):
        yield AskPerson(one, "cut", one.why)
    for one in state.moving("settle_cut"):
        yield SettleReply(one, "cut", one.why)
    for one in state.moving("settle_ask"):
        yield SettleReply(one, "ask", one.why)


def _start(state: RunState, slots: int, now: str) -> list[Action]:
    """Return the steps to ask about, to settle and to start, as many as there is room for."""
    found: list[Action] = list(_asking(state))
    if state.limit_reached:
        return found
    running = sum(1 for v in state.running if v.status == "running")
    room = max(0, min(slots, state.bounds.parallel - running))
    started = [StartAttempt(one, one.why) for one in state.moving("start", most=room)]
    asked = [AskPerson(one, "gate", one.why) for one in state.moving("ask")]
    checked = [one for one in asked if takes_place(one)][: room - len(started)]
    found += [*(one for one in asked if not takes_place(one)), *checked, *started]
    left = room - len(started) - len(checked)
    orders = [*state.moving("order", most=left), *due_retries(state, now)]
    found += [IssueOrder(one, one.why) for one in orders[:left]]
    return found


def due_retries(state: RunState, now: str) -> list[StepView]:
    """Return the steps that failed, had to wait before another try, and need not any longer."""
    return [one for one in state.moving("retry") if one.not_before is not None and one.not_before <= now]


def next_retry(state: RunState, now: str) -> StepView | None:
    """Return the step whose next try comes first, of those that have to wait for it."""
    waiting = [one for one in state.moving("retry") if one.not_before is not None and one.not_before > now]
    return min(waiting, key=lambda one: one.not_before or "", default=None)


def takes_place(action: Action) -> bool:
    """Whether an action has something run: an attempt, or the checks of what a gated step needs."""
    match action:
        case IssueOrder() | StartAttempt():
            return True
        case AskPerson(view=view, about="gate"):
            return view.resolved is not None and bool(view.resolved.needs)
        case _:
            return False


def _rest(state: RunState, now: str) -> Action:
    """Return why nothing starts: something runs, a limit holds, it is too early, a person is asked, or it is over."""
    if _busy(state):
        return Wait("attempt", _busy_words(state))
    if state.limit_reached and state.moving("order", "start", "ask", "retry"):  # to end costs nothing
        return Wait("person", f"{state.limit_reached}: raise it in plan.json")
    if next_one := next_retry(state, now):
        return Wait("time", f"{next_one.id}: {next_one.why}")
    if asked := state.moving("person", "reach"):
        return Wait("person", f"{asked[0].id}: {asked[0].why}")
    if state.moving("order", "start", "ask", "retry"):
        return Wait("attempt", "every place for an attempt is taken")
    return _finish(state)


def _busy_words(state: RunState) -> str:
    running = [*(v.id for v in state.running), *(s.step for s in state.strays)]
    shown = ", ".join(running[:3]) + (f" and {len(running) - 3} more" if len(running) > 3 else "")
    return f"{shown} {'is' if len(running) == 1 else 'are'} running"


def _finish(state: RunState) -> Action:
    """Every step has ended: say how the run ends."""
    if state.doomed:
        return _cleaned_up(state)
    scheme = state.graph
    if scheme is None or not any(state.steps[leaf].status == "done" for leaf in scheme.leaves):
        return EndRun("failed", "step_failed", "none of the plan's last steps was done")
    if is_stepwise(state.facts) and not state.calls.finished:
        return _one_more(state)
    if not acceptance_checks(state.facts) and not steps_to_check(state):
        return _proven(state, None, "every step is done")
    checked = goal_checks(state)
    if checked is None or checked.checks is None:
        return RunGoalChecks(next_call(state.facts), "every step is done")
    found = checked.checks
    if found.error:
        return _unjudged(found.error)
    if failed := [check for check in found.checks if not check.ok]:
        return _unmet(state, checked, reason(joined(map(check_words, failed))))
    if (shed := [*shed_in(found)]) and (call := _ask_about_shed(state, checked, shed)):
        return call
    return _proven(state, found, "every step is done, and the goal's checks hold")


def _proven(state: RunState, found: GoalChecks | None, why: str) -> EndRun:
    """Return the end of a run whose steps are done and whose checks hold, if that is proof enough."""
    proof = proof_of(state, found)
    if is_enough(proof, state.facts):
        return EndRun("done", "steps_done", why)
    wanted = required_level(state.facts)
    return EndRun("failed", "unproven", f"{why}, but that is only {proof.level}, and proof.require is {wanted}")


def _ask_about_shed(state: RunState, checked: PlannerCall, shed: list[str]) -> CallPlanner | Wait | None:
    """Return a call about checks of earlier steps that no longer hold: once, and only while replans are left."""
    asked = any(one.call and one.call.trigger == "goal_checks_failed" for one in state.facts.calls)
    if asked or not state.means.planner or state.calls.replans >= state.bounds.replans:
        return None
    why = f"every step is done, but what an earlier step was checked for no longer holds: {'; '.join(shed[:3])}"
    return _call(state, checked.number, (Pending("goal_checks_failed", None, why, (_checks_path(checked),)),))


def _unjudged(error: Failure) -> Wait:
    """A judge among the goal's checks could not be asked: that says nothing of the goal. A top-up asks again."""
    fix = f" ({error.hint})" if error.hint else ""
    return Wait("person", f"the goal's own checks could not be judged: {reason(error.message)}{fix}")


def _one_more(state: RunState) -> CallPlanner | Wait:
    """Stepwise: the planner adds steps one at a time, until it says that it is finished."""
    if len(state.steps) >= state.bounds.steps:
        return Wait("person", f"the limit of {state.bounds.steps} steps is reached (limits.steps): raise it")
    return _call(state, next_call(state.facts), (next_step(state),))


def _unmet(state: RunState, checked: PlannerCall, detail: str) -> Action:
    """The goal's checks do not hold: the planner may know what is missing, within its budget."""
    why = f"every step is done, but the goal's checks do not hold: {detail}"
    evidence = _checks_path(checked)
    spent = state.around is not None and evidence in state.around.spent
    if spent or state.facts.goal.has_steps or not state.means.planner:
        return EndRun("failed", "goal_checks_failed", why)
    if loops(state.facts):  # one loop claimed it: from here on it is planned
        return _call(state, checked.number, (Pending("drift", None, why, (evidence,)),))
    if state.calls.replans >= state.bounds.replans:
        return EndRun("failed", "replan_budget_exhausted", why)
    return _call(state, checked.number, (Pending("goal_checks_failed", None, why, (evidence,)),))


def _checks_path(checked: PlannerCall) -> str:
    return f"{paths.PLANNING}/{paths.call_file(checked.number, 'checks')}"


def _cleaned_up(state: RunState) -> EndRun:
    """The plan that has been carried out was only what a call that gave up left to do."""
    last = last_change(state.facts)
    one = state.facts.planner_call((last.call if last else None) or 0)
    noes = [f"{no.step} was {no_words(no)}" for no in rejections_in(one.call, state.facts)]
    said = "; ".join(noes) or _given_up_words(state)
    return EndRun("failed", _doom(state, one), f"{said}; the clean-up is done")


def _doom(state: RunState, gave_up: PlannerCall) -> Reason:
    """Return the reason of a run that a call gave up: a goal's own steps give up for what became of a step."""
    if not state.facts.goal.has_steps:
        return "impossible"
    return "rejected" if rejections_in(gave_up.call, state.facts) else "step_failed"


def _given_up_words(state: RunState) -> str:
    """Return what became of the step for which the goal was given up."""
    last = last_change(state.facts)
    if last is None or last.step is None:
        return "the goal was given up"
    attempts = state.facts.attempts.get(last.step, ())
    result = next((one.result for one in reversed(attempts) if one.result), None)
    error = result.error if result else None
    what = {"rejected": "was rejected", "blocked": "could not start"}.get(result.status if result else "", "failed")
    return f"{last.step} {what}: {reason(error.message)}" if error else f"{last.step} {what}"
