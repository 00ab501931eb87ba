"""What a run does next, read as a table: given these files, then these actions."""

from dataclasses import replace
from typing import Any

import pytest

from agentfs.core import actions as acts
from agentfs.core.actions import Action, Wait
from agentfs.core.attention import phase, reason
from agentfs.core.continuation import record_rejections
from agentfs.core.decide import decide
from agentfs.core.facts import Attempt, Facts, PlanFile, PlannerCall, Talk, plan_error
from agentfs.core.outcome import outcome_of
from agentfs.core.planner_calls import Pending, rejected_steps
from agentfs.core.problems import Problem
from agentfs.core.records import Answer, Failure, Plan, Usage
from agentfs.core.run_state import derive
from agentfs.core.steps import retry_wait
from tests.builders import (
    LATER,
    NOW,
    PureWorld,
    a_call,
    a_plan,
    a_result,
    a_revision,
    a_step,
    an_order,
    facts,
    judged,
    means,
    plan_sha,
)


def _decide(given: Facts, slots: int = 4, **more: bool) -> list[Action]:
    return decide(derive(given, means(**more)), slots)


def _kinds(actions: list[Action]) -> list[tuple[str, Any]]:
    """Return each action's kind, and the step or number it speaks of."""
    found: list[tuple[str, Any]] = []
    for action in actions:
        match action:
            case acts.IssueOrder(view=view) | acts.StartAttempt(view=view) | acts.AskPerson(view=view):
                found.append((type(action).__name__, view.id))
            case acts.Wait(on=on):
                found.append(("Wait", on))
            case acts.EndRun(reason=reason):
                found.append(("EndRun", reason))
            case acts.StopAttempt(step=step):
                found.append(("StopAttempt", step))
            case acts.CallPlanner(call=call) | acts.InstallPlan(call=call) | acts.RecordRevision(call=call):
                found.append((type(action).__name__, call))
            case _:
                found.append((type(action).__name__, None))
    return found


WIDE = a_plan(*(a_step(name, depends_on=[]) for name in "abcd"))


def test_a_run_begins_with_a_call() -> None:
    assert _kinds(_decide(facts())) == [("CallPlanner", 1)]


@pytest.mark.parametrize(("slots", "parallel", "started"), [(4, 4, 4), (2, 4, 2), (4, 3, 3), (0, 4, 0)])
def test_steps_start_as_many_as_there_is_room_for(slots: int, parallel: int, started: int) -> None:
    found = _kinds(_decide(facts(WIDE, limits={"parallel": parallel}), slots))
    expected = [("IssueOrder", name) for name in "abcd"][:started]
    assert found == (expected or [("Wait", "attempt")])


def test_what_runs_takes_room() -> None:
    given = facts(WIDE, limits={"parallel": 2})
    view = derive(given, means()).steps["a"]
    given = given.with_attempt("a", Attempt(1, order=an_order(view), claimed=True))
    assert _kinds(_decide(given)) == [("IssueOrder", "b")]


@pytest.mark.parametrize("status", ["draft", "paused"])
def test_nothing_new_starts_in_a_draft_or_a_paused_plan(status: str) -> None:
    given = facts(a_plan(a_step("a"), status=status))
    assert _kinds(_decide(given)) == [("Wait", "person")]
    view = derive(given, means()).steps["a"]
    running = given.with_attempt("a", Attempt(1, order=an_order(view), claimed=True))
    assert _kinds(_decide(running)) == [("Wait", "attempt")]


def test_a_cancelled_plan_ends_what_runs_and_then_the_run() -> None:
    given = facts(a_plan(a_step("a"), status="cancelled"))
    assert _kinds(_decide(given)) == [("EndRun", "cancelled")]
    saving = replace(given, plan_file=replace(given.plan_file, being_saved=True))
    assert _kinds(_decide(saving)) == [("Wait", "attempt")]  # it may say that the run goes on
    view = derive(given, means()).steps["a"]
    running = given.with_attempt("a", Attempt(1, order=an_order(view), claimed=True))
    assert _kinds(_decide(running)) == [("StopAttempt", "a"), ("Wait", "attempt")]


def test_an_edit_comes_before_everything_else() -> None:
    given, edited = facts(WIDE), a_plan(a_step("z"))
    file = PlanFile(plan_sha(edited), edited)
    assert _decide(replace(given, plan_file=file)) == [acts.RecordRevision(None, "plan.json was edited")]
    tried = given.with_call(replace(given.planner_call(2), call=a_call(2), tries=(plan_sha(edited),)))
    assert _kinds(_decide(replace(tried, plan_file=file))) == [("RecordRevision", 2)]


def test_an_invalid_plan_is_explained_and_nothing_new_starts() -> None:
    given = replace(facts(WIDE), plan_file=PlanFile("f" * 64, None, (Problem("bad"),)))
    assert _kinds(_decide(given)) == [("WriteNote", None), ("Wait", "person")]
    explained = replace(given, notes={"plan.error.md": plan_error((Problem("bad"),))})
    assert _kinds(_decide(explained)) == [("Wait", "person")]
    other = replace(explained, notes={"plan.error.md": "of another mistake"})
    assert _kinds(_decide(other))[0] == ("WriteNote", None)
    fixed = replace(facts(WIDE), notes={"plan.error.md": "bad"})
    assert _kinds(_decide(fixed))[0] == ("RemoveNote", None)
    unread = replace(fixed, plan_file=replace(fixed.plan_file, being_saved=True))
    assert "RemoveNote" not in [kind for kind, _ in _kinds(_decide(unread))]  # nobody has read it yet


def test_an_invalid_goal_is_explained_and_the_last_good_one_goes_on() -> None:
    given = facts(WIDE)
    spoilt = replace(given, goal=replace(given.goal, problems=(Problem("bad", "fix it"),)))
    note, *others = _decide(spoilt)
    assert isinstance(note, acts.WriteNote)
    assert (note.name, "the goal:1:1: bad (fix it)" in note.text) == ("goal.error.md", True)
    assert _kinds(others)[0] == ("IssueOrder", "a")


def test_a_broken_file_of_ours_holds_the_run_up_in_words() -> None:
    assert _decide(replace(facts(WIDE), broken=("run.json is not valid",))) == [
        Wait("person", "run.json is not valid")
    ]


def test_a_step_that_left_the_plan_is_stopped_if_it_may_be() -> None:
    given = facts(WIDE)
    view = derive(given, means()).steps["a"]
    for repeatable, expected in ((True, [("StopAttempt", "gone")]), (False, [])):
        order = an_order(view, repeatable=repeatable)
        stray = given.with_attempt("gone", Attempt(1, order=order, claimed=True))
        assert [kind for kind in _kinds(_decide(stray)) if kind[0] == "StopAttempt"] == expected


def test_an_order_of_another_hand_is_started() -> None:
    given = facts(WIDE)
    view = derive(given, means()).steps["b"]
    ordered = given.with_attempt("b", Attempt(1, order=an_order(view)))
    assert ("StartAttempt", "b") in _kinds(_decide(ordered))


def test_a_limit_reached_waits_for_a_top_up() -> None:
    given = facts(WIDE, limits={"minutes": 0.0})
    actions = _decide(given)
    assert _kinds(actions) == [("Wait", "person")]
    assert "limits.minutes" in actions[0].why
    topped = replace(given, plan=a_plan(*WIDE.steps, limits={"minutes": 5}))
    topped = replace(topped, plan_file=PlanFile(topped.revisions[0].plan_sha256, topped.plan))
    assert _kinds(_decide(topped))[0] == ("IssueOrder", "a")


@pytest.mark.parametrize(
    ("limit", "words"),
    [("requests", "2 requests"), ("tokens", "2 tokens"), ("cost_usd", "$2"), ("minutes", "2 minutes")],
)
def test_every_limit_counts_from_the_files(limit: str, words: str) -> None:
    given = facts(WIDE, limits={limit: 2.0 if limit in ("cost_usd", "minutes") else 2})
    view = derive(given, means()).steps["a"]
    usage = Usage(
        role="executor", model="m", requests=3, input_tokens=2, cached_tokens=0, output_tokens=1, cost_usd=3.0
    )
    result = a_result(view, "done", usage=usage, duration_s=180.0)
    given = given.with_attempt("a", Attempt(1, order=an_order(view), claimed=True, result=result))
    actions = _decide(given)
    assert _kinds(actions) == [("Wait", "person")]
    assert words in actions[0].why


def test_the_budget_of_replans_ends_the_run() -> None:
    given = facts(a_plan(a_step("a", max_attempts=1)), has_steps=False, limits={"replans": 1})
    end, _ = PureWorld(fate=lambda *_: "failed", planner=True, verdict="plan").play(given)
    assert end.outcome is not None
    assert (end.outcome.reason, end.outcome.calls) == ("replan_budget_exhausted", 2)


def test_a_failure_lets_what_runs_finish_first() -> None:
    given = facts(a_plan(a_step("a", depends_on=[], max_attempts=1), a_step("b", depends_on=[])))
    views = derive(given, means()).steps
    given = given.with_attempt("a", Attempt(1, claimed=True, result=a_result(views["a"], "failed")))
    given = given.with_attempt("b", Attempt(1, order=an_order(views["b"]), claimed=True))
    assert _kinds(_decide(given)) == [("Wait", "attempt")]


def test_while_a_call_is_open_nothing_new_starts() -> None:
    given = facts(WIDE).with_call(replace(facts(WIDE).planner_call(2), call=a_call(2, trigger="asked")))
    assert _kinds(_decide(given)) == [("Wait", "planner")]


def test_a_call_that_failed_waits_for_a_person() -> None:
    call = replace(facts(WIDE).planner_call(2), call=a_call(2, trigger="asked"))
    error = Failure(kind="model", message="no answer")
    failed = replace(call, answer=Answer(call=2, verdict="failed", error=error, duration_s=0.0))
    actions = _decide(facts(WIDE).with_call(failed))
    assert actions == [Wait("person", "the planner could not answer: no answer")]


def test_the_third_interruption_of_a_call_counts_as_failed() -> None:
    given = facts()
    cut = Answer(call=1, verdict="interrupted", duration_s=0.0)
    for number in (1, 2, 3):
        assert _kinds(_decide(given)) == [("CallPlanner", number)]
        given = given.with_call(replace(given.planner_call(number), call=a_call(number), answer=cut))
    assert _kinds(_decide(given)) == [("Wait", "person")]


@pytest.mark.parametrize("since", ["the goal changed", "a person wrote the first plan", "it is a runbook's"])
def test_an_answer_that_cannot_be_used_any_more_is_set_aside_and_does_not_count(since: str) -> None:
    given = facts(a_plan(a_step("a", max_attempts=1)), has_steps=since == "it is a runbook's")
    view = derive(given, means()).steps["a"]
    given = given.with_attempt("a", Attempt(1, claimed=True, result=a_result(view, "failed")))
    given = replace(given, answerable=frozenset({"a"}))
    kinds: dict[str, dict[str, Any]] = {
        "the goal changed": {"goal_sha256": "b" * 64, "base_sha256": given.revisions[0].plan_sha256},
        "a person wrote the first plan": {"base_sha256": None},
        "it is a runbook's": {"base_sha256": "f" * 64},
    }
    call = a_call(2, trigger="step_failed", evidence=("steps/a.1.result.json",), **kinds[since])
    answer = Answer(call=2, verdict="plan", plan={"steps": []}, duration_s=0.0)
    given = given.with_call(replace(given.planner_call(2), call=call, answer=answer))
    state = derive(judged(given), means(planner=True))
    assert (state.calls.replans, _kinds(decide(state, 1))) == (0, [("CallPlanner", 3)])


def test_a_changed_goal_calls_again() -> None:
    given = facts(WIDE)
    edited = replace(given, goal=replace(given.goal, sha256="b" * 64))
    actions = _decide(edited)
    assert _kinds(actions) == [("CallPlanner", 2)]
    assert isinstance(actions[0], acts.CallPlanner)
    assert actions[0].pending[0].trigger == "goal_changed"


def test_several_triggers_are_one_call_the_most_pressing_first() -> None:
    plan = a_plan(a_step("a", depends_on=[]), a_step("b", depends_on=[], max_attempts=1))
    given = facts(plan, has_steps=False)
    views = derive(given, means()).steps
    given = given.with_attempt("a", Attempt(1, claimed=True, result=a_result(views["a"], "done", surprising=True)))
    given = given.with_attempt("b", Attempt(1, claimed=True, result=a_result(views["b"], "failed")))
    (action,) = _decide(given, planner=True)
    assert isinstance(action, acts.CallPlanner)
    assert [pending.trigger for pending in action.pending] == ["step_failed", "unexpected_state"]


def test_no_step_done_is_not_success() -> None:
    given = facts(a_plan(a_step("a", skip="no"), a_step("b", skip="no")))
    assert _kinds(_decide(given)) == [("EndRun", "step_failed")]


def test_gates_are_asked_about_side_by_side_with_what_starts() -> None:
    given = facts(a_plan(a_step("a", depends_on=[], gate=True), a_step("b", depends_on=[])))
    assert _kinds(_decide(given)) == [("AskPerson", "a"), ("IssueOrder", "b")]
    key = derive(given, means()).steps["a"].key
    refused = given.with_attempt("a", Attempt(1, talks=(Talk(key=key, reply="reject"),)))
    assert [kind for kind, _ in _kinds(_decide(refused))] == ["RecordReply"], "a no comes first"


REFUSED = a_plan(a_step("a", depends_on=[], gate=True, on_failure="continue"), a_step("b", depends_on=["a"]))


def _refused(**more: Any) -> Facts:
    """A run whose gate a person rejected, with a reason."""
    given = facts(REFUSED, **more)
    key = derive(given, means()).steps["a"].key
    return given.with_attempt("a", Attempt(1, talks=(Talk(key=key, reply="reject\nnot today"),)))


def test_a_no_ends_the_run_where_nobody_has_an_answer_to_it() -> None:
    given = replace(_refused(), answerable=frozenset({"a"}))  # an alternative is no answer to a no
    end, _ = PureWorld().play(given)
    assert end.outcome is not None
    assert (end.outcome.status, end.outcome.reason) == ("failed", "rejected")
    assert end.outcome.summary == "a was rejected: it was rejected; 0 of 2 steps done"
    assert end.outcome.steps.not_reached == ("a", "b")


@pytest.mark.parametrize("has_steps", [True, False])
def test_a_no_is_on_record_before_anybody_is_called_about_it(has_steps: bool) -> None:
    given = replace(_refused(has_steps=has_steps), cleanable=frozenset({"a"}))
    state = record_rejections(derive(given, means(planner=True)))
    (call,) = decide(state, 1)
    assert isinstance(call, acts.CallPlanner)
    assert call.pending == (Pending("step_unreachable", "a", "a: rejected: not today", ("steps/a.1.result.json",)),)
    assert rejected_steps(state.facts) == ("a",)


def test_no_answer_of_a_planner_slips_in_beside_a_no() -> None:
    given = facts(REFUSED, has_steps=False)
    kept = [step.model_copy(update={"on_failure": "stop"}) if step.gate else step for step in REFUSED.steps]
    new = a_plan(*kept, a_step("c")).model_dump(mode="json", by_alias=True, exclude_none=True)
    call = a_call(2, revision=1, trigger="asked", base_sha256=plan_sha(REFUSED))
    answer = Answer(call=2, verdict="plan", plan=new, duration_s=0.0)
    given = judged(given.with_call(PlannerCall(2, call, answer)))
    assert _kinds(_decide(given, planner=True)) == [("InstallPlan", 2)]
    no = given.with_attempt("a", _refused().attempt("a", 1))
    assert [kind for kind, _ in _kinds(_decide(no, planner=True))] == ["RecordReply"]
    settled = judged(record_rejections(derive(no, means(planner=True))).facts)
    (ask,) = _decide(settled, planner=True)
    assert ask == acts.AskAnswer(2, "the answer of call 2 needs a person's yes")


PAUSES = a_plan(a_step("a", depends_on=[], retry_wait_s=10, max_attempts=3), a_step("b", depends_on=[]))
WHY = "attempt 1 failed: it was failed; attempt 2 of 3 follows at 2026-11-16 10:00:10 UTC"


def _failed_once(plan: Plan = PAUSES, **fields: Any) -> Facts:
    given = facts(plan)
    view = derive(given, means()).steps["a"]
    result = a_result(view, "failed", retry_at=LATER)
    return given.with_attempt("a", Attempt(1, order=an_order(view), claimed=True, result=result, **fields))


def test_another_try_waits_for_its_time_and_nothing_else_does() -> None:
    given = _failed_once()
    view = derive(given, means()).steps["a"]
    assert (view.status, view.why, view.not_before) == ("waiting", WHY, LATER)
    assert _kinds(decide(derive(given, means()), 4, NOW)) == [("IssueOrder", "b")]
    both = [("IssueOrder", "b"), ("IssueOrder", "a")]
    assert _kinds(decide(derive(given, means()), 4, LATER)) == both
    assert _kinds(decide(derive(given, means()), 1, LATER)) == both[:1]


def test_a_run_that_only_waits_for_a_time_says_for_which_and_rests_for_nobody() -> None:
    state = derive(_failed_once(a_plan(PAUSES.steps[0], a_step("b", depends_on=[], gate=True))), means())
    asked = PureWorld().perform(decide(state, 1, NOW)[0], state.facts, state)
    state = derive(asked, means())
    assert decide(state, 1, NOW) == [Wait("time", f"a: {WHY}")], "though a person is asked, too"
    assert _kinds(decide(state, 1, LATER)) == [("IssueOrder", "a")]
    assert (phase(state), reason(state)) == ("running", f"a: {WHY}")


@pytest.mark.parametrize(
    ("plan", "fields"),
    [
        (PAUSES, {"again": True}),  # a person asked for it now
        (a_plan(a_step("a", depends_on=[], max_attempts=3)), {}),  # or took the pause out of the plan
        (a_plan(a_step("a", depends_on=[], retry_wait_s=10, max_attempts=3, input={"text": "new"})), {}),
    ],
)
def test_what_a_person_changes_waits_for_nothing(plan: Plan, fields: dict[str, Any]) -> None:
    given = replace(_failed_once(**fields), plan=plan, plan_file=PlanFile(plan_sha(plan), plan))
    given = replace(given, revisions=(a_revision(1, plan),))
    assert ("IssueOrder", "a") in _kinds(decide(derive(given, means()), 4, NOW))


@pytest.mark.parametrize(("failures", "wait"), [(0, 10), (1, 20), (2, 40), (3, 0), (4, 0)])
def test_a_pause_doubles_and_none_follows_the_last_try(failures: int, wait: float) -> None:
    plan = a_plan(a_step("a", retry_wait_s=10, max_attempts=4))
    given = facts(plan)
    for number in range(1, failures + 1):
        view = derive(given, means()).steps["a"]
        given = given.with_attempt("a", Attempt(number, claimed=True, result=a_result(view, "failed", number)))
    state = derive(given, means())
    key = state.steps["a"].key
    assert state.around is not None
    assert key is not None
    assert retry_wait(plan.steps[0], key, given.attempts.get("a", ()), state.around) == wait
    endless = a_step("a", retry_wait_s=31_536_000, max_attempts=10**6)
    assert retry_wait(endless, key, given.attempts.get("a", ()), state.around) == 31_536_000


def test_an_ended_run_stays_ended() -> None:
    given = facts(a_plan(a_step("a", skip="no")))
    state = derive(given, means())
    (end,) = decide(state, 1)
    assert isinstance(end, acts.EndRun)
    over = replace(given, outcome=outcome_of(state, end, NOW))
    assert _kinds(_decide(over)) == [("Wait", "nothing")]


def test_the_outcome_of_a_run_that_stops_early_tells_what_was_not_done() -> None:
    given = facts(a_plan(a_step("a"), a_step("b", max_attempts=1), a_step("c")))
    end, _ = PureWorld(fate=lambda step, _: "failed" if step == "b" else "done").play(given)
    assert end.outcome is not None
    assert end.outcome.steps.model_dump() == {
        "done": ("a",), "failed": ("b",), "skipped": (), "not_reached": ("c",),
    }  # fmt: skip
    assert end.outcome.summary == "b failed: it was failed; 1 of 3 steps done, 1 failed"


@pytest.mark.parametrize(("role", "reason"), [("runbook", "step_failed"), ("planner", "impossible")])
def test_a_plan_that_only_cleans_up_ends_failed(role: str, reason: str) -> None:
    given = facts(a_plan(a_step("a")), has_steps=role == "runbook")
    clean = a_plan(a_step("clean"))
    answer = Answer(call=2, verdict="impossible", plan={}, duration_s=0.0)
    given = given.with_call(replace(given.planner_call(2), call=a_call(2, trigger="step_failed"), answer=answer))
    by = given.revisions[0].by.model_copy(update={"role": role})
    revision = a_revision(2, clean, given.plan, call=2, by=by)
    given = replace(
        given, plan=clean, plan_file=PlanFile(plan_sha(clean), clean), revisions=(*given.revisions, revision)
    )
    end, _ = PureWorld().play(given)
    assert end.outcome is not None
    assert (end.outcome.status, end.outcome.reason) == ("failed", reason)
    # a person's switch does not lift it; a person's own steps do
    paused = a_revision(3, a_plan(*clean.steps, status="paused"), clean)
    assert derive(replace(given, revisions=(*given.revisions, paused)), means()).doomed
    own = a_revision(3, a_plan(a_step("own")), clean)
    assert not derive(replace(given, revisions=(*given.revisions, own)), means()).doomed


def test_an_answer_to_an_old_goal_is_not_used() -> None:
    given = facts()
    answer = Answer(call=1, verdict="plan", plan={"steps": []}, duration_s=0.0)
    given = given.with_call(replace(given.planner_call(1), call=a_call(1, goal_sha256="b" * 64), answer=answer))
    assert _kinds(_decide(given)) == [("CallPlanner", 2)]
