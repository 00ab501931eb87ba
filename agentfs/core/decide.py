"""Decide what a run does next. Pure: no files, no clock. Every decision says why; waiting is one too."""

from collections.abc import Iterator
from typing import Literal

from agentfs.core import paths
from agentfs.core.actions import (
    Action,
    AskAnswer,
    AskPerson,
    CallPlanner,
    EndRun,
    GatherItems,
    InstallPlan,
    IssueOrder,
    LookAtCondition,
    RecordReply,
    RecordRevision,
    RemoveNote,
    RunGoalChecks,
    StartAttempt,
    StopAttempt,
    TakeOutcome,
    Wait,
    WriteNote,
)
from agentfs.core.excerpts import check_words, join_messages, list_first, reason
from agentfs.core.facts import GATE_WORDS, RUN, Facts, PlannerCall, explain_uncounted, wanted_notes
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
from agentfs.core.run_state import RunState, Stray, goal_checks, last_change, may_be_repaired, next_step, why_unjudged
from agentfs.core.steps import UNREACHABLE, Move, StepView, no_words
from agentfs.core.underway import Slots, Underway, free_slots, left_to_do

SAVING = "plan.json is being saved"


def decide(state: RunState, places: int, now: str = "", underway: Underway | None = None) -> list[Action]:
    """Return what to do next, never nothing. `places` is how many attempts this process may run at once.

    `now` is the time as records write it: what waits for a later moment does not start. Without one, all of it waits.
    `underway` is what this process is doing already; None: it drives nothing, and looks at the files alone.
    """
    free = free_slots(state, places, underway)
    called_for = _find_called_for(state, free, now)
    return called_for if underway is None else left_to_do(called_for, state, free, underway)


def _find_called_for(state: RunState, slots: Slots, now: str) -> list[Action]:
    """Return what the files call for. `slots`: how many attempts may start, here and at each place."""
    if state.facts.outcome is not None:
        return [Wait("nothing", f"the run has ended: {state.facts.outcome.summary}")]
    if state.facts.broken:
        return [Wait("person", state.facts.broken[0])]
    if edit := _take_edit(state):
        return edit
    return _cancel(state) or _take_no(state) or [*_put_right(state), *_go_on(state, slots, now)]


def _take_edit(state: RunState) -> list[Action] | None:
    """plan.json comes first: whatever is there new and valid is a revision, no matter who wrote it."""
    file, revisions = state.facts.plan_file, state.facts.revisions
    if file.plan is None or (revisions and revisions[-1].plan_sha256 == file.sha256):
        return None
    for one in reversed(state.facts.calls):
        if file.sha256 in one.tries and not any(revision.call == one.number for revision in revisions):
            return [RecordRevision(one.number, f"the plan of call {one.number} is in place")]
    return [RecordRevision(None, "plan.json was edited")]


def _cancel(state: RunState) -> list[Action] | None:
    if (why := _why_cancelled(state)) is None:
        return None
    if ends := [*_take_outcomes(state)]:
        return ends
    open_ones = [*state.running, *(v for v in state.moving("person", "record_ask") if v.status == "running")]
    running = [*((v.id, v.attempt) for v in open_ones), *((s.step, s.attempt.number) for s in state.strays)]
    if not running and state.facts.plan_file.being_saved:  # it may say that the run goes on
        return [Wait("attempt", SAVING)]
    if not running:
        return [EndRun("cancelled", "cancelled", why)]
    return [
        *(StopAttempt(step, attempt, "cancelled", why) for step, attempt in running),
        Wait(_what_runs(state), "what runs is being ended"),
    ]


def _why_cancelled(state: RunState) -> str | None:
    """Return why the run is cancelled: its plan says so, or that of a run that it is in; None: it is not."""
    plan, parent = state.facts.plan, state.facts.run.parent
    if plan is not None and plan.status == "cancelled":
        return "the plan's status is cancelled"
    return f"{parent.run} is cancelled" if parent and state.facts.above == "cancelled" else None


def _take_outcomes(state: RunState) -> Iterator[Action]:
    """Runs that were steps of this one and have ended, also of steps that have left the plan."""
    for one in state.moving("record_child"):
        yield TakeOutcome(one.id, one.attempt, one.why)
    for stray in state.strays:
        if (child := stray.attempt.child) and child.is_over:
            yield TakeOutcome(stray.step, stray.attempt.number, f"the run {child.run} has ended")


def _take_no(state: RunState) -> list[Action]:
    """A person's no is on record before anything else is decided: no answer slips in beside it."""
    return [RecordReply(one, "gate", one.why) for one in state.moving("reject")]


def _put_right(state: RunState) -> Iterator[Action]:
    """What may be done whatever else holds the run up."""
    for name, text in wanted_notes(state.facts).items():
        if text is not None and text != state.facts.notes.get(name):
            yield WriteNote(name, text, f"{text.splitlines()[0].strip('# ')}: see {name}")
        if text is None and name in state.facts.notes and not _is_unread(name, state.facts):
            yield RemoveNote(name, f"what {name} reported is fixed")
    yield from _take_outcomes(state)
    for one in state.moving("gather"):
        yield GatherItems(one, "every item has ended")
    for one in state.moving("stop"):
        yield StopAttempt(one.id, one.attempt, "superseded", one.why)
    for stray in state.strays:
        if _may_stop(stray):
            yield StopAttempt(stray.step, stray.attempt.number, "superseded", f"{stray.step} has left the plan")


def _is_unread(note: str, facts: Facts) -> bool:
    """Whether the file that a note is about is still being saved: what it holds is not known yet."""
    return note == paths.PLAN_ERROR and facts.plan_file.being_saved


def _may_stop(stray: Stray) -> bool:
    order = stray.attempt.order
    if stray.attempt.child:
        return not stray.attempt.child.begun  # one that has begun runs out
    return order is None or order.repeatable or not stray.attempt.claimed or stray.attempt.asks is not None


def _go_on(state: RunState, slots: Slots, now: str) -> list[Action]:
    """The main line: an answer to install, a hold-up, a call to make, an end, or steps to start."""
    if state.calls.unapplied:
        return _apply(state, state.calls.unapplied)
    if state.calls.open:
        return [Wait("planner", "the planner is thinking")]
    if state.facts.asking:
        return [Wait("attempt", f"{paths.REPLAN} is being saved")]
    if unanswered := _wait_for_answer(state):
        return [unanswered]
    if held := _wait_while_held(state):
        return [*_ask_people(state), held]
    if ending := _find_ending(state):
        return [ending] if not _busy(state) else [Wait(_what_runs(state), f"{ending.why}; what runs finishes first")]
    if state.pending:
        return [_call(state, next_call(state.facts), state.pending)]
    return _start(state, slots, now) or [_rest(state, now)]


def _wait_for_answer(state: RunState) -> Wait | None:
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
        own = state.facts.plan is None and state.limit_reached.name != "day_usd"
        fix = "raise it in agentfs.toml, and start the goal again" if own else state.limit_reached.fix
        return Wait(_what_runs(state), f"{state.limit_reached}: {fix}")
    role: Literal["planner", "executor"] = "executor" if may_be_repaired(state, pending) else "planner"
    return CallPlanner(number, pending, pending[0].detail, role)


def _apply(state: RunState, one: PlannerCall) -> list[Action]:
    if hindered := _wait_for_hindrance(state):
        return [hindered]  # an exchange now would only be taken back
    approved, asked = decision(one, state.facts) == "approve", question_of(one, state.facts)
    proposal = proposal_of(one, state.facts)
    if not approved and needs_yes(one, state.facts):
        if asked is None:
            return [AskAnswer(one.number, _why_ask(one))]
        why = (
            explain_uncounted(asked.reply, GATE_WORDS)
            or f"the planner's answer needs approval: {_question(one, asked.count)}"
        )
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
    return paths.call_path(one.number, "question", count)


def _wait_for_hindrance(state: RunState) -> Wait | None:
    """Return what is the matter with plan.json itself."""
    if state.facts.plan_file.being_saved:
        return Wait("attempt", SAVING)
    if state.facts.plan_file.problems:
        return Wait("person", "plan.json is not valid: see plan.error.md")
    return None


def _wait_while_held(state: RunState) -> Wait | None:
    """Return what keeps anything new from starting, or the run from ending, while the plan itself may be fine."""
    if hindered := _wait_for_hindrance(state):
        return hindered
    plan = state.facts.plan
    if plan is not None and plan.status == "draft" and _concerns_the_draft(state):
        return None
    if plan is not None and plan.status in ("draft", "paused"):
        words = "is a draft: approve it" if plan.status == "draft" else "is paused: resume it"
        return Wait(_what_runs(state), f"the plan {words}")
    if state.facts.above == "paused" and (parent := state.facts.run.parent):
        return Wait(_what_runs(state), f"{parent.run}, which began it, is held: agentfs resume {parent.run}")
    return None


def _concerns_the_draft(state: RunState) -> bool:
    """Whether a person wants another draft: they edited the goal, or said what is wrong with this one."""
    return any(pending.trigger in ("goal_changed", "asked") for pending in state.pending)


def no_model_reached(state: RunState) -> bool:
    """Whether the run waits because no model could be reached, or none is configured."""
    failed, checked = state.calls.failed, goal_checks(state)
    errors = (failed.answer.error if failed and failed.answer else None, why_unjudged(checked))
    return bool(state.moving("reach")) or any(error is not None and error.kind == UNREACHABLE for error in errors)


def _busy(state: RunState) -> bool:
    return bool(state.running or state.strays or state.moving("gather"))


def _what_runs(state: RunState) -> Literal["attempt", "child", "person"]:
    """Return what has to end before anything else happens: an attempt, or runs of their own; else a person acts."""
    running = [*(one.step.tool for one in state.running), *(_tool_of(stray) for stray in state.strays)]
    if any(tool != RUN for tool in running) or state.moving("gather"):
        return "attempt"
    return "child" if running else "person"


def _tool_of(stray: Stray) -> str | None:
    return RUN if stray.attempt.child else None


def _find_ending(state: RunState) -> EndRun | None:
    """Return the end that is already certain, if there is one."""
    if state.calls.refused:
        step = state.calls.refused.call.step if state.calls.refused.call else None
        return EndRun("failed", "step_failed", f"a person rejected the result of {step}")
    if (last := find_given_up(state)) and last.answer:
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


def find_given_up(state: RunState) -> PlannerCall | None:
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


def _ask_people(state: RunState) -> Iterator[Action]:
    """Questions cost nothing and change nothing: they are put even while the run is held up."""
    for one in state.moving("ask_cut"):
        yield AskPerson(one, "cut", one.why)
    for one in state.moving("record_cut"):
        yield RecordReply(one, "cut", one.why)
    for one in state.moving("record_ask"):
        yield RecordReply(one, "ask", one.why)


def _start(state: RunState, slots: Slots, now: str) -> list[Action]:
    """Return the steps to ask about, to record and to start, as many as there is room for."""
    found: list[Action] = list(_ask_people(state))
    if state.limit_reached:
        return found
    here = [v for v in state.running if v.status == "running" and state.place_of(v.step) is None]
    running = sum(v.step.tool != RUN for v in here)  # a run of its own takes no place
    left = slots.copy()
    left.left[None] = max(0, min(slots.left[None], state.bounds.parallel - running))
    started = [StartAttempt(one, one.why) for one in _admit("start", state, left)]
    asked: list[AskPerson | LookAtCondition] = [
        *(AskPerson(one, "gate", one.why) for one in state.moving("ask")),
        *(LookAtCondition(one, one.why) for one in state.moving("look")),
    ]
    checked = [one for one in asked if needs_place(one) and left.admit(one.view, None)]
    found += [*(one for one in asked if not needs_place(one)), *checked, *started]
    orders = [*_admit("order", state, left), *(one for one in due_retries(state, now) if _has_slot(one, state, left))]
    return [*found, *(IssueOrder(one, one.why) for one in orders)]


def _admit(move: Move, state: RunState, left: Slots) -> list[StepView]:
    """Return the steps that call for a move and may start now, where they are to run."""
    most = None if state.uses_places or state.means.isolated else left.left[None]
    return [one for one in state.moving(move, most=most) if _has_slot(one, state, left)]


def _has_slot(view: StepView, state: RunState, left: Slots) -> bool:
    return left.admit(view, state.place_of(view.step))


def due_retries(state: RunState, now: str) -> list[StepView]:
    """Return the steps that failed, had to wait before another try, and need not any longer."""
    return [one for one in state.moving("retry") if one.not_before is not None and one.not_before <= now]


def next_retry(state: RunState, now: str) -> StepView | None:
    """Return the step whose next try comes first, of those that have to wait for it."""
    waiting = [one for one in state.moving("retry") if one.not_before is not None and one.not_before > now]
    return min(waiting, key=lambda one: one.not_before or "", default=None)


def needs_place(action: Action) -> bool:
    """Whether an action has something run: an attempt, or the checks of what a gated step needs."""
    match action:
        case IssueOrder() | StartAttempt() | LookAtCondition():
            return True
        case AskPerson(view=view, about="gate"):
            return view.condition is not None or (view.resolved is not None and bool(view.resolved.needs))
        case _:
            return False


def _rest(state: RunState, now: str) -> Action:
    """Return why nothing starts: something runs, a limit holds, it is too early, a person is asked, or it is over."""
    if (kind := _what_runs(state)) == "attempt":
        return Wait("attempt", busy_words(state))
    if state.limit_reached and state.moving("order", "start", "ask", "look", "retry"):  # to end costs nothing
        return Wait("person", f"{state.limit_reached}: {state.limit_reached.fix}")
    if next_one := next_retry(state, now):
        return Wait("time", f"{next_one.id}: {next_one.why}")
    if asked := state.moving("person", "reach"):
        return Wait("person", f"{asked[0].id}: {asked[0].why}")
    if state.moving("order", "start", "ask", "look", "retry"):
        return Wait("attempt", "every place for an attempt is taken")
    return Wait("child", busy_words(state)) if kind == "child" else _finish(state)


def busy_words(state: RunState) -> str:
    """Return what is under way."""
    if not (state.running or state.strays):
        return "the results of items are put together"
    running = [*dict.fromkeys(_name_running(v.id, state) for v in state.running), *(s.step for s in state.strays)]
    return f"{list_first(running)} {'is' if len(running) == 1 else 'are'} running"


def _name_running(running: str, state: RunState) -> str:
    """Return what runs: of an item, its step with how far that is."""
    step = paths.step_of(running)
    if step != running:
        return f"{step} ({state.steps[step].why})"
    attempts = state.facts.attempts.get(running, ())
    child = attempts[-1].child if attempts else None
    return f"{running} ({child.run})" if child else running


def _finish(state: RunState) -> Action:
    """Every step has ended: say how the run ends."""
    if state.doomed:
        return _end_after_cleanup(state)
    graph = state.graph
    if graph is None or not any(map(_is_reached, (state.steps[leaf] for leaf in graph.leaves))):
        return EndRun("failed", "step_failed", "none of the plan's last steps was done")
    if is_stepwise(state.facts) and not state.calls.finished:
        return _one_more(state)
    if not acceptance_checks(state.facts) and not steps_to_check(state):
        return _end_if_proven(state, None, "every step is done")
    checked = goal_checks(state)
    if checked is None or checked.checks is None:
        return RunGoalChecks(next_call(state.facts), "every step is done")
    found = checked.checks
    if found.error:
        return _wait_for_judge(found.error)
    if failed := [check for check in found.checks if not check.ok]:
        return _answer_failed_checks(state, checked, reason(join_messages(map(check_words, failed))))
    if (shed := [*shed_in(found)]) and (call := _ask_about_shed(state, checked, shed)):
        return call
    return _end_if_proven(state, found, "every step is done, and the goal's checks hold")


def _is_reached(leaf: StepView) -> bool:
    """Whether one of the last steps came to its end: it is done, or a condition says that it need not be."""
    return leaf.status == "done" or leaf.conditional


def _end_if_proven(state: RunState, found: GoalChecks | None, why: str) -> EndRun:
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


def _wait_for_judge(error: Failure) -> Wait:
    """A judge among the goal's checks could not be asked: that says nothing of the goal. A top-up asks again."""
    fix = f" ({error.hint})" if error.hint else ""
    return Wait("person", f"the goal's own checks could not be judged: {reason(error.message)}{fix}")


def _one_more(state: RunState) -> CallPlanner | Wait:
    """Stepwise: the planner adds steps one at a time, until it says that it is finished."""
    if len(state.steps) >= state.bounds.steps:
        return Wait("person", f"the limit of {state.bounds.steps} steps is reached (limits.steps): raise it")
    return _call(state, next_call(state.facts), (next_step(state),))


def _answer_failed_checks(state: RunState, checked: PlannerCall, detail: str) -> Action:
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
    return paths.call_path(checked.number, "checks")


def _end_after_cleanup(state: RunState) -> EndRun:
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
