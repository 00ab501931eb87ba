"""When the planner is called although no step failed, who makes the first plan, and what a person's words do."""

from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.actions import Action, CallPlanner, EndRun, IssueOrder, Wait
from agentfs.core.continuation import Aside, find_unanswered, set_aside, to_set_aside
from agentfs.core.decide import decide, no_model_reached
from agentfs.core.facts import Facts, PlannerCall, Talk
from agentfs.core.planner_calls import starts_as_loop
from agentfs.core.records import Answer, Approve, Failure, Mode, Models, Plan, Usage
from agentfs.core.run_state import derive
from agentfs.core.steps import StepView
from tests.builders import a_call, a_plan, a_result, a_run, a_step, facts, judged, means, plan_sha

CHAIN = a_plan(a_step("a"), a_step("b"))
LOOP = a_plan(a_step("do", tool=None, input={"goal": "x"}, tools=["note"], max_attempts=1))


def planned(plan: Plan = CHAIN, *, mode: Mode = "split", **run: Any) -> Facts:
    """A run whose plan a model made."""
    given = facts(plan, has_steps=False)
    return replace(given, run=a_run().model_copy(update={"mode": mode, **run}))


def done(given: Facts, *steps: str, **fields: Any) -> Facts:
    return settled(given, "done", *steps, **fields)


def settled(given: Facts, status: Any, *steps: str, **fields: Any) -> Facts:
    for step in steps:
        view: StepView = derive(given, means(planner=True)).steps[step]
        result = a_result(view, status, **fields)
        given = given.with_attempt(step, replace(given.attempt(step, view.next), claimed=True, result=result))
    return given


def answered(given: Facts, number: int, verdict: Any, **fields: Any) -> Facts:
    """A call that was answered; `plan`: with that plan, not put into effect yet."""
    call_fields: dict[str, Any] = {
        name: fields.pop(name) for name in ("trigger", "evidence", "revision") if name in fields
    }
    reply = fields.pop("reply", None)
    plan: Plan | None = fields.pop("plan", None)
    value = plan.model_dump(mode="json", by_alias=True, exclude_none=True) if plan else None
    current = given.revisions[-1].plan_sha256 if given.revisions else None
    defaults: dict[str, Any] = {"revision": len(given.revisions), "base_sha256": current}
    call = a_call(number, **(defaults | call_fields))
    answer = Answer(call=number, verdict=verdict, plan=value, duration_s=0.0, **fields)
    one = replace(given.planner_call(number), call=call, answer=answer)
    given = judged(given.with_call(one))
    if reply is None or given.proposal is None:
        return given
    return judged(given.with_call(replace(one, talks=(Talk(key=given.proposal.bond, reply=reply),))))


def acts(given: Facts, *, planner: bool = True) -> list[Action]:
    return decide(derive(given, means(planner=planner)), 2)


def call_of(given: Facts) -> CallPlanner:
    (action,) = acts(given)
    assert isinstance(action, CallPlanner)
    return action


def triggers(given: Facts) -> list[tuple[str, str | None, tuple[str, ...]]]:
    return [(pending.trigger, pending.step, pending.evidence) for pending in call_of(given).pending]


# ── who makes the first plan ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mode", "approve", "executor", "loop"),
    [
        ("auto", "never", True, True),
        ("auto", "never", False, False),
        ("auto", "plan", True, False),
        ("auto", "always", True, False),
        ("single", "plan", True, True),
        ("scratchpad", "never", True, True),
        ("split", "never", True, False),
        ("stepwise", "never", True, False),
    ],
)
def test_who_makes_the_first_plan(mode: Mode, approve: Approve, executor: bool, loop: bool) -> None:
    run = a_run().model_copy(update={"mode": mode, "approve": approve})
    assert starts_as_loop(run, executor=executor) is loop


@pytest.mark.parametrize(("model", "loop"), [("small", True), (None, False)])
def test_an_agent_without_a_model_that_could_judge_it_does_what_a_planner_planned(
    model: str | None, loop: bool
) -> None:
    models = Models(planner="big", executor=model)
    run = a_run().model_copy(update={"mode": "auto", "approve": "never", "agent": "codex", "models": models})
    assert starts_as_loop(run, executor=True) is loop


# ── a person's words ──────────────────────────────────────────────────────────────────────────────────────


def test_replan_md_is_asked_about_with_its_words() -> None:
    given = replace(planned(), replan="use the other table\n")
    assert call_of(given).pending[0].detail == "use the other table"
    assert triggers(given) == [("asked", None, ("planning/2.asked.md",))]


def test_an_empty_replan_md_is_a_wish_too() -> None:
    assert call_of(replace(planned(), replan=" \n")).pending[0].detail == "a person asked for another plan"


def test_words_that_a_call_took_are_pending_until_it_is_answered() -> None:
    taken = planned().with_call(PlannerCall(2, words="faster"))
    assert triggers(taken) == [("asked", None, ("planning/2.asked.md",))]
    spent = answered(taken, 2, "keep", trigger="asked", evidence=("planning/2.asked.md",))
    assert [type(action) for action in acts(spent)] == [IssueOrder]


def test_one_call_takes_every_pending_trigger_the_most_pressing_first() -> None:
    failed = settled(replace(planned(), replan="look"), "failed", "a", "a")
    result = ("steps/a.1.result.json", "steps/a.2.result.json")
    assert triggers(failed) == [
        ("asked", None, ("planning/2.asked.md",)),
        ("repeated_failure", "a", result),
    ]


def test_a_draft_is_planned_again_when_a_person_asks_or_edits_the_goal() -> None:
    draft = planned(a_plan(a_step("a"), status="draft"))
    assert acts(draft) == [Wait("person", "the plan is a draft: approve it")]
    assert triggers(replace(draft, replan="shorter")) == [("asked", None, ("planning/2.asked.md",))]
    edited = replace(draft, goal=replace(draft.goal, sha256="b" * 64))
    assert triggers(edited) == [("goal_changed", None, ())]


def test_a_rejected_answer_is_asked_about_with_the_persons_words() -> None:
    given = settled(planned(approve="always"), "failed", "a", "a")
    evidence = ("steps/a.1.result.json", "steps/a.2.result.json")
    other = a_plan(a_step("c"))
    fields: dict[str, Any] = {"trigger": "repeated_failure", "evidence": evidence, "plan": other}
    waits = answered(given, 2, "plan", **fields)
    assert [type(action).__name__ for action in acts(waits)] == ["AskAnswer"]
    rejected = answered(given, 2, "plan", reply="reject\nnot that one", **fields)
    assert call_of(rejected).pending[0].detail == "not that one"
    assert triggers(rejected) == [
        ("asked", None, ("planning/2.reply.md",)),
        ("repeated_failure", "a", evidence),
    ]
    silent = answered(given, 2, "plan", reply="Reject", **fields)
    assert call_of(silent).pending[0].detail == "the answer of call 2 was rejected"
    approved = answered(given, 2, "plan", reply="approve", **fields)
    assert [type(action).__name__ for action in acts(approved)] == ["InstallPlan"]
    again = answered(rejected, 3, "keep", trigger="asked", evidence=("planning/2.reply.md", *evidence))
    assert [type(action) for action in acts(again)] == [IssueOrder]


def test_an_answer_that_changes_no_step_needs_no_yes() -> None:
    given = planned(approve="always")
    same = answered(given, 2, "plan", trigger="asked", plan=a_plan(*CHAIN.steps, goal="another title"))
    assert [type(action).__name__ for action in acts(same)] == ["InstallPlan"]
    kept = answered(given, 2, "keep", trigger="asked")
    assert [type(action) for action in acts(kept)] == [IssueOrder]


# ── stepwise, every step ──────────────────────────────────────────────────────────────────────────────────


def test_stepwise_asks_for_one_more_step_until_the_planner_has_finished() -> None:
    given = planned(a_plan(a_step("a")), mode="stepwise")
    assert [type(action) for action in acts(given)] == [IssueOrder]
    one = done(given, "a")
    assert triggers(one) == [("next_step", "a", ("steps/a.1.result.json",))]
    assert call_of(one).why == "a has ended: what is next?"
    finished = answered(one, 2, "finished", trigger="next_step", evidence=("steps/a.1.result.json",), answer="53")
    assert acts(finished) == [EndRun("done", "steps_done", "every step is done")]


def test_stepwise_has_a_limit_of_steps() -> None:
    given = done(planned(a_plan(a_step("a"), limits={"steps": 1}), mode="stepwise"), "a")
    assert acts(given) == [Wait("person", "the limit of 1 steps is reached (limits.steps): raise it")]


def test_after_every_step_the_planner_looks_at_the_new_results() -> None:
    given = done(planned(replan="every_step"), "a")
    assert triggers(given) == [("every_step", "a", ("steps/a.1.result.json",))]
    kept = answered(given, 2, "keep", trigger="every_step", evidence=("steps/a.1.result.json",))
    assert [type(action) for action in acts(kept)] == [IssueOrder]
    assert triggers(done(kept, "b")) == [("every_step", "b", ("steps/b.1.result.json",))]


@pytest.mark.parametrize(
    "given",
    [
        done(replace(facts(CHAIN), run=a_run().model_copy(update={"replan": "every_step"})), "a"),  # a runbook
        done(planned(LOOP, mode="single", replan="every_step"), "do"),  # one loop
    ],
)
def test_where_no_model_plans_it_is_not_asked_after_every_step(given: Facts) -> None:
    assert not any(isinstance(action, CallPlanner) for action in acts(given))


# ── drift ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mode", "kind", "trigger"),
    [
        ("single", "drift", "drift"),
        ("auto", "check", "drift"),
        ("scratchpad", "check", "drift"),
        ("single", "model", "step_failed"),
        ("split", "check", "step_failed"),  # a step of a plan that merely is called `do`
    ],
)
def test_a_loop_that_went_astray_is_drift(mode: Mode, kind: str, trigger: str) -> None:
    error = Failure(kind=kind, message="no")
    given = settled(planned(LOOP, mode=mode), "failed", "do", error=error)
    assert triggers(given) == [(trigger, "do", ("steps/do.1.result.json",))]
    assert acts(given, planner=False) == [EndRun("failed", "step_failed", "do failed: no")]


# ── the planner's last word ───────────────────────────────────────────────────────────────────────────────


def test_impossible_ends_the_run_until_it_is_taken_up_again() -> None:
    failed = settled(planned(), "failed", "a", "a")
    evidence = ("steps/a.1.result.json", "steps/a.2.result.json")
    given = answered(
        failed, 2, "impossible", trigger="repeated_failure", evidence=evidence, answer="there is no table", revision=1
    )
    why = "the planner says that it is impossible: there is no table"
    assert acts(given) == [EndRun("failed", "impossible", why)]
    aside = to_set_aside(derive(given, means(planner=True)))
    assert aside == Aside(calls=(2,))
    assert triggers(set_aside(given, aside)) == [("repeated_failure", "a", evidence)]
    later = replace(given, revisions=(*given.revisions, given.revisions[0].model_copy(update={"revision": 2})))
    assert not isinstance(acts(later)[0], EndRun), "that was about another plan"


def test_impossible_after_a_new_wish_is_not_the_last_word() -> None:
    given = answered(planned(), 2, "impossible", trigger="asked", answer="no")
    assert triggers(replace(given, replan="try")) == [("asked", None, ("planning/3.asked.md",))]


# ── no answer ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_call_that_failed_waits_until_a_person_asks_again() -> None:
    error = Failure(kind="unreachable", message="wrong key")
    given = answered(planned(), 2, "failed", trigger="asked", error=error)
    assert acts(given) == [Wait("person", "the planner could not answer: wrong key")]
    assert no_model_reached(derive(given, means()))
    assert find_unanswered(derive(given, means())) == Aside(calls=(2,))
    assert triggers(replace(given, replan="now")) == [("asked", None, ("planning/3.asked.md",))]
    words = planned().with_call(PlannerCall(2, words="more"))
    own = answered(words, 2, "failed", trigger="asked", evidence=("planning/2.asked.md",), error=error)
    assert acts(own) == [Wait("person", "the planner could not answer: wrong key")]


def test_a_model_that_answers_nonsense_was_reached() -> None:
    given = answered(planned(), 2, "failed", trigger="asked", error=Failure(kind="model", message="no plan"))
    assert not no_model_reached(derive(given, means()))
    assert not no_model_reached(derive(planned(), means()))


def test_a_limit_is_no_interruption() -> None:
    given = planned()
    for number in (2, 3, 4):
        limit = Failure(kind="limit", message="the limit")
        given = answered(given, number, "interrupted", trigger="asked", error=limit)
    assert [type(action) for action in acts(given)] == [IssueOrder]


def test_where_a_limit_is_reached_the_planner_is_not_called() -> None:
    usage: dict[str, Any] = {"role": "executor", "model": "m", "requests": 3, "input_tokens": 0, "cached_tokens": 0}
    given = planned(a_plan(a_step("a"), limits={"requests": 3}), mode="stepwise")
    spent = done(given, "a", usage=Usage(**usage, output_tokens=0, cost_usd=None))
    words = "the limit of 3 requests is reached (limits.requests): raise it in plan.json"
    assert acts(spent) == [Wait("person", words)]


def test_a_step_whose_model_was_not_reached_waits_and_is_taken_up_again() -> None:
    error = Failure(kind="unreachable", message="nobody answers at http://localhost:1")
    given = settled(planned(), "interrupted", "a", error=error)
    assert acts(given) == [Wait("person", "a: nobody answers at http://localhost:1")]
    state = derive(given, means(planner=True))
    assert no_model_reached(state)
    assert find_unanswered(state) == to_set_aside(state) == Aside(attempts=(("a", 1),))
    assert [type(action) for action in acts(set_aside(given, find_unanswered(state)))] == [IssueOrder]


def test_attempts_that_a_limit_cut_off_do_not_count_as_cut_off() -> None:
    limit = Failure(kind="limit", message="the limit")
    given = settled(planned(), "interrupted", "a", "a", "a", "a", error=limit)
    (action,) = acts(given)
    assert isinstance(action, IssueOrder)
    assert action.why == "it is tried again; attempt 1 of 2"


def test_the_plan_sha_is_what_a_call_was_made_on() -> None:
    assert answered(planned(), 2, "keep").planner_call(2).call == a_call(2, revision=1, base_sha256=plan_sha(CHAIN))
