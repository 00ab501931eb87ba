"""Values for tests: a_step(), a_plan(), facts(), and a tiny pure world that carries out actions."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentfs.core import actions as acts
from agentfs.core.actions import Action, Wait
from agentfs.core.decide import decide
from agentfs.core.documents import read_json
from agentfs.core.each import gather_items
from agentfs.core.facts import ASK, Attempt, Facts, GoalFile, PlanFile, PlannerCall, Talk, cut_word, gate_word
from agentfs.core.hashing import render_plan, sha256_bytes
from agentfs.core.outcome import outcome_of
from agentfs.core.plan_changes import changes
from agentfs.core.plan_check import check_plan
from agentfs.core.plan_merge import HandEditHistory, HandEdits, plan_without_edits, propose
from agentfs.core.planner_calls import waiting_answer
from agentfs.core.records import (
    Answer,
    Author,
    Call,
    CheckResult,
    Failure,
    GoalChecks,
    Limits,
    Models,
    Order,
    Plan,
    Result,
    ResultStatus,
    Revision,
    Run,
    Step,
)
from agentfs.core.run_state import Means, RunState, derive
from agentfs.core.steps import StepView, condition_sha256
from agentfs.core.tool_spec import Catalogue
from agentfs.tools.registry import specs

NOW = "2026-11-16T10:00:00.000000Z"
LATER = "2026-11-16T10:00:10.000000Z"
RUN = "2026-11-16/goal"
GOAL = "a" * 64
TOOLS = {"note": True, "shell": False, "read_file": True}


def a_step(name: str = "a", **fields: Any) -> Step:
    """A step that does nothing in particular; repeatable unless it says otherwise."""
    given = {"id": name, "tool": "note", "input": {"text": name}, **fields}
    return Step.model_validate_json(json.dumps(given))


def a_plan(*steps: Step, status: str = "approved", **fields: Any) -> Plan:
    """A plan of these steps, approved."""
    values = [step.model_dump(mode="json", by_alias=True, exclude_none=True) for step in steps or (a_step(),)]
    return Plan.model_validate_json(json.dumps({"status": status, "steps": values, **fields}))


PLANS: dict[str, Plan] = {}  # every plan that a test has hashed: what `revisions/` is to a run
CATALOGUE = Catalogue(specs(), frozenset(specs()), network=True, model=True)


def plan_sha(plan: Plan) -> str:
    digest = sha256_bytes(render_plan(plan.model_dump(mode="json", by_alias=True, exclude_none=True)))
    PLANS[digest] = plan
    return digest


def judged(given: Facts) -> Facts:
    """The facts with what a waiting answer comes to, as the reader of a run adds it."""
    one = waiting_answer(given)
    if one is None or one.call is None:
        return replace(given, proposal=None)
    current = given.revisions[-1].plan_sha256 if given.revisions else None
    base = PLANS[str(one.call.base_sha256)] if one.call.base_sha256 != current else None
    history = [(revision, PLANS[revision.plan_sha256]) for revision in given.revisions]
    if given.goal.has_steps and one.call.trigger == "goal_changed":
        base = plan_without_edits(history)
    hand_edits = hand_edited_fields(history)
    found = propose(one, given, base, hand_edits, lambda source: check_plan(read_json(source), CATALOGUE))
    return given if given.proposal == found else replace(given, proposal=found)


def a_run(**limits: Any) -> Run:
    return Run(
        run=RUN,
        mode="auto",
        approve="never",
        replan="on_trigger",
        split_over=5,
        workdir="files",
        limits=Limits(**limits),
        tools=("note", "shell"),
        network=False,
        sandbox="auto",
        read=(),
        env=(),
        models=Models(),
        source="text",
        started_at=NOW,
    )


def a_revision(number: int, plan: Plan, before: Plan | None = None, **fields: Any) -> Revision:
    given: dict[str, Any] = {
        "revision": number,
        "call": number if number == 1 else None,
        "by": Author(role="runbook", name="goal"),
        "trigger": "first" if number == 1 else "edited",
        "step": None,
        "detail": "",
        "evidence": (),
        "base_sha256": plan_sha(before) if before else None,
        "plan_sha256": plan_sha(plan),
        "changes": changes(before, plan),
        "at": NOW,
        **fields,
    }
    return Revision(**given)


def facts(
    plan: Plan | None = None, *, has_steps: bool = True, limits: Mapping[str, Any] | None = None, **more: Any
) -> Facts:
    """The facts of a run whose plan is its first revision."""
    goal = GoalFile(GOAL, "the goal", "the goal", has_steps=has_steps)
    given = Facts(run=a_run(**(limits or {})), goal=goal)
    if plan is not None:
        call = PlannerCall(1, a_call(1), Answer(call=1, verdict="plan", plan={}, duration_s=0.0))
        given = replace(
            given,
            plan=plan,
            plan_file=PlanFile(plan_sha(plan), plan),
            revisions=(a_revision(1, plan),),
            calls=(call,),
        )
    return replace(given, **more)


def a_call(number: int, **fields: Any) -> Call:
    given: dict[str, Any] = {
        "call": number,
        "revision": 0,
        "trigger": "first",
        "step": None,
        "detail": "",
        "evidence": (),
        "goal_sha256": GOAL,
        "base_sha256": None,
        **fields,
    }
    return Call(**given)


def a_result(view: StepView, status: ResultStatus, number: int | None = None, **fields: Any) -> Result:
    """A result of this step as it is now."""
    error = None if status == "done" else Failure(kind="exit", message=f"it was {status}")
    given: dict[str, Any] = {
        "run": RUN,
        "step": view.id,
        "attempt": number or view.next,
        "revision": 1,
        "key": view.key or "0" * 64,
        "after": dict(view.after),
        "status": status,
        "output": view.id if status == "done" else None,
        "error": error,
        "sandbox": "none",
        "started_at": NOW,
        "ended_at": NOW,
        "duration_s": 0.0,
        **fields,
    }
    return Result(**given)


def an_order(view: StepView, *, repeatable: bool = True, number: int | None = None) -> Order:
    """The order of this step as it is now."""
    return Order(
        run=RUN,
        step=view.id,
        attempt=number or view.next,
        revision=1,
        key=view.key or "0" * 64,
        after=dict(view.after),
        description=None,
        tool=view.step.tool,
        input={"text": ""},
        tools=None,
        model=None,
        success_condition=None,
        checks=(),
        expects=None,
        timeout_s=600,
        repeatable=repeatable,
        issued_at=NOW,
    )


def means(*, planner: bool = False) -> Means:
    return Means(planner=planner, repeatable=TOOLS)


def states(given: Facts, **more: Any) -> dict[str, str]:
    """Return every step's status."""
    return {name: view.status for name, view in derive(given, means(**more)).steps.items()}


# ── a world that carries actions out ──────────────────────────────────────────────────────────────────────

Verdict = Literal["plan", "keep", "impossible"]
Fate = Callable[[str, int], ResultStatus]  # what becomes of attempt N of a step


@dataclass(frozen=True)
class PureWorld:
    """Carries out actions on facts alone, so that whole runs can be played without a file."""

    fate: Fate = lambda _step, _number: "done"
    surprising: frozenset[str] = frozenset()
    verdict: Verdict = "keep"
    goal_holds: bool = True
    planner: bool = False
    slots: int = 2
    false: frozenset[str] = frozenset()  # steps whose condition does not hold
    yes: bool = False  # every gate is approved as soon as it asks

    def play(self, given: Facts, turns: int = 60) -> tuple[Facts, list[Action]]:
        """Play until the run ends or waits for a person; return where, and the last actions. Fails if it never does."""
        state: RunState | None = None
        with_these, now = means(planner=self.planner), NOW
        for turn in range(turns):
            given = judged(given)
            state = derive(given, with_these, state)
            actions = decide(state, self.slots, now)
            now = LATER if any(isinstance(action, Wait) and action.on == "time" for action in actions) else NOW
            if turn % 4 == 3:
                assert state.steps == derive(given, with_these).steps, "from scratch it is the same"
            assert actions, "every state yields an action"
            assert all(action.why for action in actions), "every action says why"
            if all(isinstance(action, Wait) and action.on in ("person", "nothing") for action in actions):
                return given, actions
            for action in actions:
                given = self.perform(action, given, state)
        message = f"it never ends: {actions}"
        raise AssertionError(message)

    def perform(self, action: Action, given: Facts, state: RunState) -> Facts:
        match action:
            case acts.IssueOrder(view=view) if view.step.tool == ASK and not self._is_skipped(view):
                asked = Attempt(view.next, order=an_order(view), claimed=True, talks=(Talk(),))
                return given.with_attempt(view.id, asked)
            case (
                acts.IssueOrder(view=view) | acts.AskPerson(view=view, about="gate") | acts.LookAtCondition(view=view)
            ) if self._is_skipped(view):
                condition = view.condition and condition_sha256(view.condition)
                result = a_result(view, "skipped", started_at=None, error=None, when_sha256=condition)
                return given.with_attempt(view.id, replace(given.attempt(view.id, view.next), result=result))
            case acts.IssueOrder(view=view):
                _assert_permitted(given, view)
                return self._settle(given, view, view.next)
            case acts.LookAtCondition(view=view):
                return replace(given, held=given.held | {(view.id, str(view.key))})
            case acts.GatherItems(view=view):
                return _gathered(given, view)
            case acts.StartAttempt(view=view):
                return self._settle(given, view, view.attempt)
            case acts.Wait(on="attempt"):
                return self._finish_running(given, state)
            case acts.StopAttempt(step=step, attempt=number):
                return _stopped(given, step, number, action.why)
            case acts.CallPlanner():
                return self._answered(action, given)
            case acts.InstallPlan(call=number):
                return _installed(given, number)
            case acts.RecordRevision(call=number):
                return _recorded(given, number)
            case acts.AskAnswer(call=number):
                one = given.planner_call(number)
                talk = Talk(len(one.talks) + 1, given.proposal.bond if given.proposal else None)
                return given.with_call(replace(one, talks=(*one.talks, talk)))
            case acts.AskPerson(view=view, about=about):
                number = view.next if about == "gate" else view.attempt
                attempt = given.attempt(view.id, number)
                reply = "approve" if self.yes and about == "gate" else None
                talk = Talk(len(attempt.talks) + 1, view.key if about == "gate" else None, reply)
                return given.with_attempt(view.id, replace(attempt, talks=(*attempt.talks, talk)))
            case acts.RecordReply(view=view, about="ask"):
                result = a_result(view, "done", view.attempt)
                return given.with_attempt(view.id, replace(given.attempt(view.id, view.attempt), result=result))
            case acts.RecordReply(view=view, about=about):
                status: ResultStatus = "rejected" if about == "gate" else "done"
                result = a_result(view, status, view.next, started_at=None)
                return given.with_attempt(view.id, replace(given.attempt(view.id, view.next), result=result))
            case acts.RunGoalChecks(call=number):
                return self._goal_checked(given, state, number)
            case acts.EndRun():
                return replace(given, outcome=outcome_of(state, action, NOW))
            case acts.WriteNote(name=name, text=text):
                return replace(given, notes={**given.notes, name: text})
            case acts.RemoveNote(name=name):
                return replace(given, notes={other: text for other, text in given.notes.items() if other != name})
            case _:
                return given

    def _is_skipped(self, view: StepView) -> bool:
        return view.condition is not None and view.id in self.false

    def _settle(self, given: Facts, view: StepView, number: int) -> Facts:
        status = self.fate(view.id, number)
        surprise = status == "done" and view.id in self.surprising
        retry_at = LATER if status == "failed" and view.step.retry_wait_s else None
        more = {"surprising": surprise, "surprise": "odd" if surprise else None, "retry_at": retry_at}
        result = a_result(view, status, number, **more)
        return given.with_attempt(view.id, replace(given.attempt(view.id, number), claimed=True, result=result))

    def _finish_running(self, given: Facts, state: RunState) -> Facts:
        for view in state.running:
            order = given.attempt(view.id, view.attempt).order
            result = a_result(view, self.fate(view.id, view.attempt), view.attempt)
            if order is not None:
                result = result.model_copy(update={"key": order.key, "after": order.after})
            given = given.with_attempt(view.id, replace(given.attempt(view.id, view.attempt), result=result))
        for stray in state.strays:
            given = _stopped(given, stray.step, stray.attempt.number, "it ran out")
        return given

    def _answered(self, action: acts.CallPlanner, given: Facts) -> Facts:
        first = action.pending[0]
        call = a_call(
            action.call,
            revision=len(given.revisions),
            trigger=first.trigger,
            step=first.step,
            evidence=tuple(path for pending in action.pending for path in pending.evidence),
            base_sha256=given.revisions[-1].plan_sha256 if given.revisions else None,
        )
        plan = None
        if self.verdict == "plan" and given.plan is not None and first.step is not None:
            renamed = [_renewed(step, first.step, f"{first.step}-{action.call}") for step in given.plan.steps]
            plan = a_plan(*renamed).model_dump(mode="json", by_alias=True, exclude_none=True)
        verdict = self.verdict if plan is not None or self.verdict != "plan" else "keep"
        answer = Answer(call=action.call, verdict=verdict, plan=plan, duration_s=0.0)
        return given.with_call(replace(given.planner_call(action.call), call=call, answer=answer))

    def _goal_checked(self, given: Facts, state: RunState, number: int) -> Facts:
        check = CheckResult(kind="command", ok=self.goal_holds, detail="the goal's check")
        after = {name: view.attempt for name, view in state.steps.items()}
        record = GoalChecks(revision=len(given.revisions), after=after, checks=(check,))
        return given.with_call(replace(given.planner_call(number), checks=record))


def _assert_permitted(given: Facts, view: StepView) -> None:
    """A gate opens only by a yes to this very order; what may not be repeated is not, without a word."""
    asked = given.attempt(view.id, view.next).talks
    if view.step.gate:
        assert asked, f"{view.id} was never asked about"
        assert (asked[-1].key, gate_word(asked[-1].reply)) == (view.key, "approve")
    latest = given.attempt(view.id, view.attempt)
    if latest.result and not latest.again and view.step.repeatable is False and latest.result.key == view.key:
        if latest.result.status == "interrupted" and latest.result.started_at:
            assert [cut_word(talk.reply) for talk in latest.talks] == ["again"]
        assert latest.result.status != "done" or dict(latest.result.after) != dict(view.after)


def _renewed(step: Step, old: str, new: str) -> Step:
    depends = tuple(new if name == old else name for name in step.depends_on or ())
    return step.model_copy(update={"id": new if step.id == old else step.id, "depends_on": depends})


def _gathered(given: Facts, view: StepView) -> Facts:
    """Write the result of a step whose items have ended."""
    is_done, _ = gather_items(view)
    items = {one.id.partition("~")[2]: one.attempt for one in view.items}
    outputs = [one.result.output if one.result else None for one in view.items] if is_done else None
    result = a_result(view, "done" if is_done else "failed", items=items, output=outputs)
    return given.with_attempt(view.id, replace(given.attempt(view.id, view.next), result=result))


def _stopped(given: Facts, step: str, number: int, why: str) -> Facts:
    attempt = given.attempt(step, number)
    key = attempt.order.key if attempt.order else "0" * 64
    result = Result(
        run=RUN,
        step=step,
        attempt=number,
        revision=1,
        key=key,
        after=attempt.order.after if attempt.order else {},
        status="interrupted",
        error=Failure(kind="superseded", message=why),
        sandbox="none",
        started_at=NOW if attempt.claimed else None,
        ended_at=NOW,
        duration_s=0.0,
    )
    return given.with_attempt(step, replace(attempt, result=result))


def _installed(given: Facts, number: int) -> Facts:
    one, proposal = given.planner_call(number), given.proposal
    assert proposal is not None
    assert proposal.call == number
    plan = proposal.plan
    assert plan is not None
    given = given.with_call(replace(one, tries=(*one.tries, plan_sha(plan))))
    return replace(given, plan_file=PlanFile(plan_sha(plan), plan))


def _recorded(given: Facts, number: int | None) -> Facts:
    plan = given.plan_file.plan
    assert plan is not None
    by = Author(role="planner" if number else "person", name="x")
    call = given.planner_call(number).call if number else None
    trigger = call.trigger if call else "edited"
    revision = a_revision(len(given.revisions) + 1, plan, given.plan, call=number, by=by, trigger=trigger)
    return replace(given, revisions=(*given.revisions, revision), plan=plan)


def hand_edited_fields(revisions: Iterable[tuple[Revision, Plan]]) -> HandEdits:
    """Return the fields that are a person's after these revisions, all of them in order."""
    held = HandEditHistory()
    for revision, plan in revisions:
        held = held.after(revision, plan)
    return held.hand_edits
