"""Take a turn of a run: read, derive, decide, perform. What an action writes is one function each, here.

files ──read──► facts ──derive──► state ──decide──► actions ──perform──► files
▲                                                        │
└──────────── own writes are learned at once ────────────┘
"""

import math
import os
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from agentfs.core import actions as acts
from agentfs.core import paths
from agentfs.core.each import gather_items, surprises
from agentfs.core.facts import CallAnswered, Facts, PlanFile, Proposal, Report, Talk, cut_word, words_below
from agentfs.core.hashing import sha256_bytes
from agentfs.core.outcome import outcome_of
from agentfs.core.plan_changes import changes
from agentfs.core.plan_diff import proposal_page
from agentfs.core.planner_calls import Pending, edit_in, rejections_in
from agentfs.core.records import Author, Call, Failure, Result, Revision, Trigger
from agentfs.core.run_state import RunState, minutes_reached, seconds_left, spent_on
from agentfs.core.steps import StepView, rejection
from agentfs.engine.attempts import (
    ask_gate,
    confine,
    cut_while_waiting,
    issue,
    look_at_condition,
    order_for,
    prepare_tools,
    start,
    step_context,
    take_answer,
)
from agentfs.engine.driver import Driver, Job
from agentfs.engine.goal_checks import check_goal, look_before
from agentfs.executor import questions
from agentfs.executor.attempt import Halt, render
from agentfs.models.base import LimitReached, ModelError, ModelSession, Unreachable
from agentfs.planner.prompt import context_page
from agentfs.planner.surroundings import look_around
from agentfs.storage.files import JsonLines, publish, read_output, read_whole
from agentfs.storage.files import replace as replace_view
from agentfs.storage.plan_files import forget_client, install, is_by_client
from agentfs.storage.workspace import goal_path
from agentfs.tools.output import value_result


def turn(driver: Driver, *, draining: bool = False) -> None:
    """Take a turn. Draining starts nothing new."""
    driver.read()
    driver.derive()
    for action in driver.decide(draining=draining):
        perform(action, driver)


def perform(action: acts.Action, driver: Driver) -> None:
    """Carry out one action."""
    match action:
        case acts.RecordRevision():
            _record_revision(action, driver)
        case acts.WriteNote(name=name, text=text):
            replace_view(driver.folder / name, text.encode())
            driver.update(notes={**driver.facts.notes, name: text})
        case acts.RemoveNote(name=name):
            (driver.folder / name).unlink(missing_ok=True)
            driver.update(notes={other: text for other, text in driver.facts.notes.items() if other != name})
        case acts.CallPlanner():
            _call_planner(action, driver)
        case acts.InstallPlan():
            _install(action, driver)
        case acts.AskAnswer():
            _ask_answer(action, driver)
        case acts.IssueOrder():
            issue(action.view, driver)
        case acts.GatherItems():
            gather(action.view, driver)
        case acts.LookAtCondition():
            look_at_condition(action.view, driver)
        case acts.StartAttempt():
            start(action.view, driver)
        case acts.StopAttempt():
            _stop(action, driver)
        case acts.TakeOutcome():
            driver.world.finish_child(action.step, action.attempt, driver)
        case acts.StopJobs(jobs=jobs):
            for key in jobs:
                driver.jobs[key].stop.halt()
        case acts.AskPerson():
            _ask(action, driver)
        case acts.RecordReply():
            _take_reply(action, driver)
        case acts.RunGoalChecks():
            check_goal(action, driver)
        case acts.EndRun():
            end(action, driver)
        case acts.Wait():
            pass
        case _:
            assert_never(action)


# ── the plan ──────────────────────────────────────────────────────────────────────────────────────────────


def _record_revision(action: acts.RecordRevision, driver: Driver) -> None:
    """Give what is in plan.json a number, and keep its exact bytes."""
    facts, number = driver.facts, len(driver.facts.revisions) + 1
    source, plan = _bytes_to_record(action, driver), facts.plan_file.plan
    if plan is None or sha256_bytes(source) != facts.plan_file.sha256:
        driver.look_again()  # it has changed under our hands: look, then decide again
        return
    folder = driver.folder / paths.REVISIONS
    copy = folder / paths.revision_plan_file(number)
    if copy.exists() and read_whole(copy) != source:
        copy.unlink()  # left by a driver that died before the number was given
    if not copy.exists():
        publish(copy, source, durable=True)
    revision = _revision(action, driver, number, sha256_bytes(source))
    publish(folder / paths.revision_file(number), render(revision), durable=True)
    if is_by_client(driver.folder, revision.base_sha256, revision.plan_sha256):
        forget_client(driver.folder)
    driver.update(revisions=(*facts.revisions, revision), plan=plan)
    driver.facts = driver.reader.judge.with_answers(driver.facts)
    driver.world.committer.note(driver.folder)


def _bytes_to_record(action: acts.RecordRevision, driver: Driver) -> bytes:
    """Return what is recorded: what a call put in place, though a person may have saved over it; or plan.json."""
    facts = driver.facts
    tries = facts.planner_call(action.call).tries if action.call else ()
    if facts.plan_file.sha256 not in tries:
        return read_whole(driver.folder / paths.PLAN)
    name = paths.call_file(action.call or 0, "plan", tries.index(facts.plan_file.sha256) + 1)
    return read_whole(driver.folder / paths.PLANNING / name)


def _revision(action: acts.RecordRevision, driver: Driver, number: int, digest: str) -> Revision:
    facts = driver.facts
    call = facts.planner_call(action.call).call if action.call else None
    if call is None:
        by = _editor(driver, digest)
        trigger: Trigger = "edited"
    else:
        by, trigger = driver.planner.author(call, facts), call.trigger
    if facts.plan_file.plan is None:
        raise RuntimeError("a revision is recorded of a valid plan only")
    return Revision(
        revision=number,
        call=action.call,
        by=by,
        trigger=trigger,
        step=call.step if call else None,
        rejected=next((no.step for no in rejections_in(call, facts)), None),
        detail=call.detail if call else action.why,
        evidence=call.evidence if call else (),
        base_sha256=facts.revisions[-1].plan_sha256 if facts.revisions else None,
        plan_sha256=digest,
        changes=changes(facts.plan, facts.plan_file.plan),
        at=driver.world.clock.stamp(),
    )


def _editor(driver: Driver, digest: str) -> Author:
    """Return who edited plan.json: a person, or a client that they let in."""
    revisions, name = driver.facts.revisions, driver.world.person[0]
    if is_by_client(driver.folder, revisions[-1].plan_sha256 if revisions else None, digest):
        name = f"a client of agentfs mcp, for {name}"
    return Author(role="person", name=name)


def _call_planner(action: acts.CallPlanner, driver: Driver) -> None:
    """Write the call, and have it answered."""
    facts, first, decided = driver.facts, action.pending[0], driver.world.clock.stamp()
    edit = edit_in(first, facts)
    call = Call(
        call=action.call,
        revision=len(facts.revisions),
        trigger=first.trigger,
        step=first.step,
        detail="; ".join(dict.fromkeys(_detail(pending, driver) for pending in action.pending)),
        evidence=tuple(dict.fromkeys(path for pending in action.pending for path in pending.evidence)),
        goal_sha256=facts.goal.sha256,
        base_sha256=facts.revisions[-1].plan_sha256 if facts.revisions else None,
        role=action.role,
        edit_by=edit.by if edit else None,
    )
    folder = driver.folder / paths.PLANNING
    words = _take_replan(action.call, driver)
    _keep_goal_before(driver)
    _keep_context(driver)
    publish(folder / paths.call_file(action.call, "call"), render(call), durable=True)
    driver.facts = facts.with_call(replace(facts.planner_call(action.call), call=call, words=words))
    driver.update(replan=None)
    state, takes_time = driver.state, driver.planner.takes_time(call, facts)
    driver.submit(
        acts.JobKey("call", "", action.call),
        partial(_answer_call, call, decided if takes_time else None, state, driver),
        at_once=not takes_time,
        pool=driver.world.calls,
    )


def _detail(pending: Pending, driver: Driver) -> str:
    """Return why the planner is called; the person who edited the goal is named, as for any other edit."""
    return f"{driver.world.person[0]} edited the goal" if pending.trigger == "goal_changed" else pending.detail


def _keep_goal_before(driver: Driver) -> None:
    """Keep the goal that the last call was given beside it, if a person has edited the goal since."""
    last = next((one.call for one in reversed(driver.facts.calls) if one.call), None)
    before = driver.reader.goals.get(last.goal_sha256) if last else None
    if last is None or before is None or last.goal_sha256 == driver.facts.goal.sha256:
        return
    name = paths.goal_before_file(last.call, goal_path(driver.folder).name)
    with suppress(FileExistsError):
        publish(driver.folder / paths.PLANNING / name, before, durable=True)


def _keep_context(driver: Driver) -> None:
    """Keep what planners are given to read as it is at the first call: a step could change it later."""
    facts, path = driver.facts, driver.folder / paths.PLANNING / paths.CONTEXT
    if facts.goal.has_steps or facts.run.proof is None or facts.calls:
        return
    context = driver.reader.judge.parsed(facts.goal.sha256).fields.context
    material, _ = look_around(driver.folder, facts.settings, driver.world.workspace, context)
    with suppress(FileExistsError):
        text = driver.world.mask.text(context_page(material))
        publish(path, text.encode("utf-8", "replace") + b"\n", durable=True)


def _take_replan(number: int, driver: Driver) -> str | None:
    """Move replan.md in beside the call that answers it: dropped again, it is asked again."""
    if driver.facts.replan is not None:
        with suppress(FileNotFoundError):  # taken back by its author: its words have been read
            taken = driver.folder / paths.PLANNING / paths.call_file(number, "asked")
            os.rename(driver.folder / paths.REPLAN, taken)
    return driver.facts.replan


def _answer_call(call: Call, decided: str | None, state: RunState, driver: Driver, job: Job) -> Report:
    """Have the planner answer, and write the answer. `decided`: when it was called, for the log of a conversation."""
    folder, mask = driver.folder / paths.PLANNING, driver.world.mask
    with JsonLines(folder / paths.call_file(call.call, "log"), mask, driver.world.clock) as log:
        if decided is not None:
            log.write("called", {"at": decided})  # a replay puts it in order with what ended meanwhile
        whose = paths.call_conversation(call.call)
        deadline, late = _deadline(state, driver) if decided else (math.inf, None)
        line = ModelSession(log.write, driver.budget, job.stop, deadline, driver.receives(whose), whose, late)
        started, began = driver.world.clock.stamp(), driver.world.clock.monotonic()
        answer = driver.planner.answer(call, state, driver.folder, line, partial(look_before, call.call, driver, job))
    took = round(driver.world.clock.monotonic() - began, 6)
    answer = answer.model_copy(update={"duration_s": took, "started_at": started if line.number else None})
    answer = mask.record(answer)
    publish(folder / paths.call_file(call.call, "answer"), render(answer), durable=True)
    return CallAnswered(answer)


def _deadline(state: RunState, driver: Driver) -> tuple[float, ModelError]:
    """Return when a call has to be answered, and what it means if it is not."""
    left = seconds_left(state.bounds, state.spent, state.calls_spent)
    now, most = time.monotonic(), driver.world.settings.planner.timeout_s
    if left < most:
        failure = Failure(kind="limit", message=str(minutes_reached(state.bounds)), hint="raise limits.minutes")
        return now + left, LimitReached(failure)
    message = f"the planner did not answer within {most:g} s"
    hint = "raise timeout_s under [planner] in agentfs.toml, or use another model"
    return now + most, Unreachable(Failure(kind="unreachable", message=message, hint=hint))


def _install(action: acts.InstallPlan, driver: Driver) -> None:
    """Put the plan of an answer in the place of plan.json, unless a person has changed that meanwhile."""
    facts, one = driver.facts, driver.facts.planner_call(action.call)
    proposal = _proposal(action.call, driver)
    if proposal.plan:
        wanted = {step.tool for step in proposal.plan.steps if step.tool}
        prepare_tools(wanted, driver.world, confine(driver, ()))
    source = proposal.source
    digest, folder = sha256_bytes(source), driver.folder / paths.PLANNING
    if digest not in one.tries:
        publish(folder / paths.call_file(action.call, "plan", len(one.tries) + 1), source, durable=True)
        driver.facts = facts = facts.with_call(replace(one, tries=(*one.tries, digest)))
    placed, displaced = install(driver.folder / paths.PLAN, source, _last_plan(driver))
    if displaced is not None:
        driver.displaced.append(displaced)
    if placed:
        driver.placed = True
        driver.update(plan_file=PlanFile(digest, proposal.plan))
    else:
        driver.look_again()


def _proposal(call: int, driver: Driver) -> Proposal:
    proposal = driver.facts.proposal
    if proposal is None or proposal.call != call:
        raise RuntimeError(f"nothing is proposed by call {call}")
    return proposal


def _last_plan(driver: Driver) -> bytes | None:
    """Return what plan.json is expected to hold: the last revision's bytes."""
    if not driver.facts.revisions:
        return None
    number = driver.facts.revisions[-1].revision
    return read_whole(driver.folder / paths.REVISIONS / paths.revision_plan_file(number))


def _ask_answer(action: acts.AskAnswer, driver: Driver) -> None:
    """Write the question about an answer; the next one, if the steps have changed since the last."""
    facts, one = driver.facts, driver.facts.planner_call(action.call)
    if one.call is None or one.answer is None:
        raise RuntimeError("a question is asked about an answer")
    count = len(one.talks) + 1
    reply, words = paths.call_file(action.call, "reply", count), str(one.answer.answer or one.call.detail)
    words, proposal = driver.world.mask.text(words), facts.proposal
    if proposal is None or not proposal.reasons:  # it is about a result: a runbook has no answer to a surprise
        key, text = None, questions.surprise(one.call, words, reply)
    else:
        key, page = proposal.bond, proposal_page(facts.run.run, driver.state, proposal)
        by: questions.By = "runbook" if facts.goal.has_steps else "planner"
        text = questions.proposal(one.call, words, page, proposal.source, reply, key, by)
    path = driver.folder / paths.PLANNING / paths.call_file(action.call, "question", count)
    publish(path, text.encode("utf-8", "replace"), durable=True)
    driver.facts = facts.with_call(replace(one, talks=(*one.talks, Talk(count, key))))


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────


def _stop(action: acts.StopAttempt, driver: Driver) -> None:
    """End an attempt: ask its job to stop, or record at once what was never started."""
    if job := driver.jobs.get(acts.JobKey("attempt", action.step, action.attempt)):
        job.stop.halt(Failure(kind=action.kind, message=action.why))
        return
    attempt = driver.facts.attempt(action.step, action.attempt)
    if attempt.order is None:
        driver.learn(driver.publish(driver.cut_off(action.step, attempt)))
        return
    error = Failure(kind=action.kind, message=action.why)
    if attempt.child:
        if not attempt.child.begun:
            driver.learn(driver.publish(driver.unstarted(attempt.order, "failed", error)))
    elif attempt.asks:
        driver.learn(driver.publish(cut_while_waiting(attempt.order, error, driver)))
    else:
        driver.learn(driver.publish(driver.unstarted(attempt.order, "interrupted", error)))


def _ask(action: acts.AskPerson, driver: Driver) -> None:
    view = action.view
    if action.about == "gate":
        ask_gate(view, driver)
        return
    attempt = driver.facts.attempt(view.id, view.attempt)
    count = len(attempt.talks) + 1
    text = questions.cut_off(attempt.order, view.id, paths.step_file(view.id, view.attempt, "reply", count))
    driver.steps_folder.put(paths.step_file(view.id, view.attempt, "question", count), text.encode(), durable=True)
    driver.facts = driver.facts.with_attempt(view.id, replace(attempt, talks=(*attempt.talks, Talk(count))))


def _take_reply(action: acts.RecordReply, driver: Driver) -> None:
    """Turn a person's words into a result."""
    view = action.view
    if action.about == "ask":
        take_answer(view, _reply(driver.facts, view.id, view.attempt), driver)
        return
    if action.about == "gate":
        reply = _reply(driver.facts, view.id, view.next)
        order = order_for(view, view.next, driver)
        error = rejection(words_below(reply))
        driver.learn(driver.publish(driver.unstarted(order, "rejected", error)))
        return
    driver.learn(driver.publish(_reported_result(view, _reply(driver.facts, view.id, view.attempt), driver)))


def _reported_result(view: StepView, reply: str, driver: Driver) -> Result:
    """Return the result that a person gave an attempt which was cut off: it counts as the next attempt's."""
    order = order_for(view, view.next, driver)
    words = words_below(reply)
    count = driver.facts.attempt(view.id, view.attempt).talks[-1].count
    evidence = (paths.step_path(view.id, view.attempt, "reply", count),)
    error = Failure(kind="person", message=words or "a person reports that it failed")
    failed = driver.unstarted(order, "failed", error).model_copy(update={"evidence": evidence})
    if cut_word(reply) == "failed":
        return failed
    return failed.model_copy(update={"status": "done", "error": None, "output": words})


def _reply(facts: Facts, step: str, number: int) -> str:
    talks = facts.attempt(step, number).talks
    return (talks[-1].reply if talks else None) or ""


def gather(view: StepView, driver: Driver) -> None:
    """Publish the step's own result: the items' outputs in the order of the list, null for one that failed."""
    order, (is_done, words) = order_for(view, view.next, driver), gather_items(view)
    context = step_context(driver, Halt(), paths.conversation(view.id, view.next))
    file = Path(context.steps_folder.path(view.id, view.next, "output"))
    with suppress(FileNotFoundError):
        file.unlink()  # left by a driver that died before the result was there
    outputs = [_output(one, driver) for one in view.items] if is_done else None
    given = value_result(outputs, replace(context, output_file=file))
    found, surprise = [one.result for one in view.items if one.result], "; ".join([*surprises(view)][:3])
    result = Result(
        **order.shared(),
        status="done" if is_done else "failed",
        output=given.output,
        cut=given.cut,
        surprising=bool(surprise) and is_done,
        surprise=surprise or None if is_done else None,
        error=None if is_done or words is None else Failure(kind="items", message=words),
        items={one.id.partition(paths.ITEM)[2]: one.attempt for one in view.items},
        sandbox=driver.world.sandbox,
        started_at=min((one.started_at for one in found if one.started_at), default=None),
        ended_at=driver.world.clock.stamp(),
        duration_s=round(spent_on(found).seconds, 6),  # items that ran at the same time count once
    )
    driver.learn(driver.publish(result))


def _output(item: StepView, driver: Driver) -> Any:
    """Return what an item gave back, whole; None if it failed."""
    if item.status != "done" or item.result is None:
        return None
    if not item.result.cut:
        return item.result.output
    path = driver.folder / paths.STEPS / paths.step_file(item.id, item.attempt, "output")
    try:
        return read_output(path)
    except OSError:
        return item.result.output


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────


def end(action: acts.EndRun, driver: Driver) -> None:
    """Write the outcome."""
    outcome = driver.world.mask.record(outcome_of(driver.state, action, driver.world.clock.stamp()))
    if driver.isolated and outcome.commits:
        patch = driver.isolated.worktree.patch(str(outcome.base), outcome.commits[-1])
        replace_view(driver.folder / paths.CHANGES, driver.world.mask.data(patch))
    on_end = None if driver.facts.run.parent else driver.world.on_end  # not for a run in a run
    if on_end:
        on_end.expect(driver.folder, outcome)
    publish(driver.folder / paths.OUTCOME, render(outcome), durable=True)
    driver.update(outcome=outcome)
    driver.world.toolbox.run_ended(driver.folder)
    if on_end:
        on_end.ended(driver.folder, outcome)
    driver.world.committer.note(driver.folder)
