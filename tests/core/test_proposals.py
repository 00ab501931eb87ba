"""What an answer comes to on top of the current plan, why a person is asked, and what their reply does."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.actions import Action, CallPlanner, Wait
from agentfs.core.attention import phase
from agentfs.core.decide import decide
from agentfs.core.facts import Facts, PlanFile, Proposal, Talk
from agentfs.core.plan_merge import ALWAYS, propose, steps_of
from agentfs.core.planner_calls import decision, question_of, rejection
from agentfs.core.records import Answer, Author, Plan, Step
from agentfs.core.run_state import derive
from tests.builders import (
    PLANS,
    PureWorld,
    a_call,
    a_plan,
    a_revision,
    a_step,
    facts,
    hand_edited_fields,
    judged,
    means,
    plan_sha,
)
from tests.core.test_people_in_small_worlds import ACTS
from tests.sweeps import some

A, B = a_step("a", depends_on=[]), a_step("b", depends_on=["a"])
BASE = a_plan(A, B)
ADA = Author(role="person", name="Ada")


def edited(given: Facts, plan: Plan) -> Facts:
    """The next revision, by a person."""
    revision = a_revision(len(given.revisions) + 1, plan, given.plan, by=ADA)
    file = PlanFile(plan_sha(plan), plan)
    return judged(replace(given, plan=plan, plan_file=file, revisions=(*given.revisions, revision)))


def answered(given: Facts, plan: Plan, base: Plan = BASE, **fields: Any) -> Facts:
    """Call 2 was about the base, and has been answered."""
    value = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    call = a_call(2, **{"revision": 1, "trigger": "asked", "base_sha256": plan_sha(base), **fields})
    answer = Answer(call=2, verdict="plan", plan=value, duration_s=0.0)
    return judged(given.with_call(replace(given.planner_call(2), call=call, answer=answer)))


def planned(**run: Any) -> Facts:
    given = facts(BASE, has_steps=False)
    return replace(given, run=given.run.model_copy(update=run))


def proposal(given: Facts) -> Proposal:
    assert given.proposal is not None
    return given.proposal


def acts(given: Facts) -> list[tuple[str, str]]:
    return [(type(action).__name__, action.why) for action in decide(derive(given, means(planner=True)), 2)]


def replied_to(given: Facts, *replies: str | None) -> Facts:
    """Questions were put about the changes as they are, and answered."""
    key = proposal(given).bond
    talks = tuple(Talk(count, key, reply) for count, reply in enumerate(replies, start=1))
    return judged(given.with_call(replace(given.planner_call(2), talks=talks)))


def test_a_condition_that_a_planner_puts_on_a_gated_step_is_a_question() -> None:
    gated = a_step("b", depends_on=["a"], gate=True)
    base = a_plan(A, gated)
    skips = a_step("b", depends_on=["a"], gate=True, when={"kind": "command", "run": "false"})
    given = answered(facts(base, has_steps=False), a_plan(A, skips), base)
    assert proposal(given).reasons == ("it puts a condition on what you were to approve: b",)


# ── why a person is asked ─────────────────────────────────────────────────────────────────────────────────


def test_nobody_is_asked_where_the_sides_do_not_touch() -> None:
    mine = a_plan(A, a_step("b", depends_on=["a"], why="mine"))
    given = edited(answered(planned(), a_plan(a_step("a", depends_on=[], why="theirs"), B)), mine)
    assert (proposal(given).reasons, proposal(given).conflicts, proposal(given).touched) == ((), (), ())
    assert acts(given) == [("InstallPlan", "call 2 answered with a plan")]
    assert proposal(given).plan == a_plan(
        a_step("a", depends_on=[], why="theirs"),
        a_step("b", depends_on=["a"], why="mine"),
        **{"$schema": "../../../schemas/plan.schema.json"},
    )


@pytest.mark.parametrize(
    ("mine", "theirs", "reasons"),
    [
        (
            a_plan(A, a_step("b", depends_on=["a"], why="mine", gate=True)),
            a_plan(A, a_step("b", depends_on=["a"], why="theirs")),
            ("you and the answer changed the same: b.why",),
        ),
        (
            a_plan(A, a_step("b", depends_on=["a"], why="mine")),
            a_plan(A),
            ("you and the answer changed the same: b",),
        ),
        (
            a_plan(A, a_step("b", depends_on=["a"], tool="read_file", input={"path": "x"})),
            a_plan(A, a_step("b", depends_on=["a"], input={"text": "theirs"})),
            (
                "you and the answer changed the same: b.tool, b.input",
                "your edits and the answer do not go together: step 'b', input: the field 'path' is missing",
            ),
        ),
        (
            a_plan(A, B, a_step("c", depends_on=[], input={"text": "{{steps.b.output}}"})),
            a_plan(A),
            (
                "it changes what you set by hand: c",
                "your edits and the answer do not go together: step 'c', input.text: {{steps.b.output}} refers to",
            ),
        ),
        (
            a_plan(a_step("a", depends_on=["c"]), B, a_step("c", depends_on=[])),
            a_plan(A, a_step("b", depends_on=["a"], why="theirs"), a_step("c", depends_on=["b"])),
            (
                "it changes what you set by hand: a.depends_on, c.depends_on",
                "your edits and the answer do not go together: step 'a', depends_on.0: these steps wait for each other",
            ),
        ),
    ],
)
def test_a_person_is_asked_where_they_do(mine: Plan, theirs: Plan, reasons: tuple[str, ...]) -> None:
    given = edited(answered(planned(), theirs), mine)
    found = proposal(given)
    assert [actual.startswith(reason) for actual, reason in zip(found.reasons, reasons, strict=True)] == [True] * len(
        reasons
    ), found.reasons
    assert found.plan is not None
    assert acts(given) == [("AskAnswer", "the answer of call 2 needs a person's yes")]


def test_fields_that_do_not_go_together_are_taken_as_one_step() -> None:
    by_model: dict[str, Any] = {"depends_on": ["a"], "tool": None, "input": None, "tools": ["note"]}
    base = a_plan(A, a_step("b", **by_model))
    mine = a_plan(A, a_step("b", depends_on=["a"], tool="note", input={"text": "x"}), a_step("m", depends_on=[]))
    theirs = a_plan(A, a_step("b", **by_model, model="other"))
    given = edited(answered(facts(base, has_steps=False), theirs, base), mine)
    found = proposal(given)
    assert [conflict.place for conflict in found.conflicts] == ["b.tool", "b.input", "b.model", "b.tools"]
    assert "do not go together: step 'b', model: 'model' means nothing beside 'tool'" in found.reasons[-1]
    assert found.plan is not None
    assert [step.id for step in found.plan.steps] == ["a", "b", "m"], "the step that was added stays"


def test_every_answer_that_changes_steps_is_asked_about_where_that_is_wanted() -> None:
    given = planned(approve="always")
    assert proposal(answered(given, a_plan(A))).reasons == (ALWAYS,)
    assert proposal(answered(given, a_plan(A, B, goal="another title"))).reasons == ()
    assert proposal(answered(given, a_plan(A), trigger="first")).reasons == ()


def test_what_a_person_set_is_asked_about_even_if_nothing_changed_since() -> None:
    mine = a_plan(A, a_step("b", depends_on=["a"], why="mine"), a_step("c", depends_on=["a", "b"]))
    given = edited(planned(), mine)
    other = answered(given, a_plan(A, a_step("b", depends_on=["a"], why="theirs")), mine, revision=2)
    assert proposal(other).reasons == ("it changes what you set by hand: c, b.why",)
    assert proposal(other).conflicts == ()
    left = answered(given, a_plan(A, a_step("c", depends_on=["a"])), mine, revision=2)
    assert proposal(left).touched == ("b",), "that c no longer waits for what left is no change of c"
    moved = answered(
        given,
        a_plan(A, a_step("b", depends_on=["a"], why="mine"), a_step("c", depends_on=["b"])),
        mine,
        revision=2,
    )
    assert proposal(moved).touched == ("c.depends_on",)
    free = answered(given, a_plan(a_step("a", depends_on=[], why="theirs"), *mine.steps[1:]), mine, revision=2)
    assert proposal(free).reasons == ()


def test_an_answer_that_cannot_be_put_into_effect_waits_to_be_rejected() -> None:
    given = answered(planned(), a_plan(a_step("x", tool="gone")))
    why = "it cannot be put into effect: step 'x', tool: there is no tool 'gone'"
    assert proposal(given).reasons[0].startswith(why)
    assert proposal(given).plan is None
    assert acts(given) == [("AskAnswer", "the answer of call 2 needs a person's yes")]
    (wait,) = acts(replied_to(given, "approve"))
    assert wait[1].startswith(f"the answer of call 2 was approved, but {why}")
    assert wait[1].endswith(": reject it")
    assert isinstance(decide(derive(replied_to(given, "reject"), means(planner=True)), 2)[0], CallPlanner)


def test_a_runbooks_answer_to_a_failure_is_a_persons_own_word() -> None:
    mine = a_plan(A, a_step("b", depends_on=["a"], why="mine"))
    given = edited(facts(BASE), mine)
    given = answered(given, a_plan(A, a_step("b", depends_on=["a"], why="theirs")), mine, revision=2)
    assert proposal(given).reasons == ()
    assert acts(given) == [("InstallPlan", "call 2 answered with a plan")]


def goal_edited(mine: Plan, theirs: Plan) -> Facts:
    """A runbook's plan that a person edited, and what its goal says since they edited that too."""
    return answered(edited(facts(BASE), mine), theirs, mine, revision=2, trigger="goal_changed")


def step_b(**fields: Any) -> Step:
    return a_step("b", depends_on=["a"], **fields)


@pytest.mark.parametrize(
    ("mine", "theirs", "merged"),
    [
        (a_plan(A, step_b(why="mine")), BASE, a_plan(A, step_b(why="mine"))),
        (a_plan(A, step_b(why="mine")), a_plan(A, step_b(timeout_s=9)), a_plan(A, step_b(why="mine", timeout_s=9))),
        (a_plan(A, step_b(why="same")), a_plan(A, step_b(why="same")), a_plan(A, step_b(why="same"))),
        (a_plan(A), BASE, a_plan(A)),  # a step that a person removed stays away
        (a_plan(A, B, a_step("c", depends_on=["b"])), BASE, a_plan(A, B, a_step("c", depends_on=["b"]))),
        (a_plan(A, B, status="paused"), BASE, a_plan(A, B, status="paused")),
    ],
)
def test_an_edited_goal_keeps_what_a_person_set_by_hand(mine: Plan, theirs: Plan, merged: Plan) -> None:
    given = goal_edited(mine, theirs)
    found = proposal(given).plan
    assert found is not None
    assert (found.status, found.steps, proposal(given).reasons) == (merged.status, merged.steps, ())


@pytest.mark.parametrize(
    ("mine", "theirs", "why"),
    [
        (
            a_plan(A, step_b(why="mine")),
            a_plan(A, step_b(why="theirs")),
            "you and the answer changed the same: b.why",
        ),
        (a_plan(A, step_b(why="mine")), a_plan(A), "you and the answer changed the same: b"),
        (a_plan(A), a_plan(A, step_b(why="theirs")), "you and the answer changed the same: b"),
    ],
)
def test_an_edited_goal_that_says_otherwise_is_asked_about(mine: Plan, theirs: Plan, why: str) -> None:
    given = goal_edited(mine, theirs)
    assert proposal(given).reasons == (why,)
    assert acts(given) == [("AskAnswer", "the answer of call 2 needs a person's yes")]
    assert acts(replied_to(given, None)) == [("Wait", "the planner's answer needs approval: planning/2.question.md")]
    assert acts(replied_to(given, "approve")) == [("InstallPlan", "call 2 answered with a plan")]


def test_a_no_to_an_edited_goal_leaves_the_plan_as_it_is() -> None:
    mine = a_plan(A, step_b(why="mine"))
    given = goal_edited(mine, a_plan(A, step_b(why="theirs")))
    given = replace(given, goal=replace(given.goal, sha256="b" * 64))
    call = given.planner_call(2).call
    assert call is not None
    asked_about = call.model_copy(update={"goal_sha256": "b" * 64})
    given = replied_to(judged(given.with_call(replace(given.planner_call(2), call=asked_about))), "reject")
    state = derive(given, means())
    assert (state.calls.unapplied, state.pending) == (None, ())
    assert [type(action).__name__ for action in decide(state, 2)] == ["IssueOrder"]
    later = edited(given, a_plan(A, step_b(why="mine too")))
    assert derive(later, means()).pending == (), "the no holds, whatever becomes of the plan"
    again = derive(replace(given, goal=replace(given.goal, sha256="c" * 64)), means())
    assert [pending.trigger for pending in again.pending] == ["goal_changed"]


def test_an_answer_that_has_yet_to_be_laid_over_the_plan_is_not_put_into_effect() -> None:
    given = answered(planned(), a_plan(A))
    assert acts(given) == [("InstallPlan", "call 2 answered with a plan")]
    assert acts(replace(given, proposal=None)) == [("AskAnswer", "the answer of call 2 needs a person's yes")]
    other = replace(proposal(given), revision=7)
    assert acts(replace(given, proposal=other)) == [("AskAnswer", "the answer of call 2 needs a person's yes")]
    assert phase(derive(replace(given, proposal=None), means(planner=True))) == "waiting"
    saving = replace(given, plan_file=replace(given.plan_file, being_saved=True))
    assert acts(saving) == [("Wait", "plan.json is being saved")]


def test_only_an_answer_with_a_plan_comes_to_something() -> None:
    given = answered(planned(), BASE)
    one = replace(given.planner_call(2), answer=None)
    with pytest.raises(ValueError, match="comes to nothing"):
        propose(one, given, None, {}, lambda _source: BASE)


def test_what_is_there_already_is_recorded_and_not_installed() -> None:
    theirs = a_plan(A, a_step("b", depends_on=["a"], why="theirs"))
    given = edited(answered(planned(), theirs), theirs)
    assert acts(given) == [("RecordRevision", "call 2 answered with the plan that is there")]


# ── a person's word ───────────────────────────────────────────────────────────────────────────────────────


def test_a_yes_is_for_the_steps_that_were_shown() -> None:
    mine = a_plan(A, a_step("b", depends_on=["a"], why="mine"))
    given = edited(answered(planned(), a_plan(A, a_step("b", depends_on=["a"], why="theirs"))), mine)
    asked = replied_to(given, None)
    assert acts(asked) == [("Wait", "the planner's answer needs approval: planning/2.question.md")]
    yes = replied_to(given, "approve")
    assert decision(yes.planner_call(2), yes) == "approve"
    assert acts(yes) == [("InstallPlan", "call 2 answered with a plan")]
    paused = edited(yes, a_plan(*mine.steps, status="paused"))
    assert acts(paused) == [("InstallPlan", "call 2 answered with a plan")]
    assert json.loads(proposal(paused).source)["status"] == "paused"
    elsewhere = edited(yes, a_plan(a_step("a", depends_on=[], why="mine"), *mine.steps[1:], a_step("x")))
    assert acts(elsewhere) == [("InstallPlan", "call 2 answered with a plan")], "what was shown is still what is done"
    again = edited(yes, a_plan(A, a_step("b", depends_on=["a"], why="mine, and mine")))
    assert question_of(again.planner_call(2), again) is None
    why = "the plan has changed since planning/2.question.md was asked: asking again"
    assert acts(again) == [("AskAnswer", why)]


def test_a_no_holds_whatever_became_of_the_plan() -> None:
    mine = a_plan(A, a_step("b", depends_on=["a"], why="mine"))
    given = edited(answered(planned(), a_plan(A, a_step("b", depends_on=["a"], why="theirs"))), mine)
    no = edited(replied_to(given, "maybe", "reject\nnot this"), a_plan(A, a_step("b", depends_on=["a"], why="other")))
    assert rejection(no.planner_call(2)) == Talk(2, proposal(given).bond, "reject\nnot this")
    (call,) = decide(derive(no, means(planner=True)), 2)
    assert isinstance(call, CallPlanner)
    assert (call.pending[0].detail, call.pending[0].evidence) == ("not this", ("planning/2.reply-2.md",))


def test_an_answer_that_was_given_up_stays_given_up() -> None:
    """The goal was edited, another call was made, and then the goal was edited back."""
    given = answered(planned(), a_plan(A))
    later = a_call(3, revision=1, trigger="goal_changed", base_sha256=plan_sha(BASE), goal_sha256="c" * 64)
    keep = Answer(call=3, verdict="keep", duration_s=0.0)
    given = judged(given.with_call(replace(given.planner_call(3), call=later, answer=keep)))
    assert derive(given, means(planner=True)).calls.unapplied is None
    assert given.proposal is None


def test_a_plan_json_that_is_not_valid_is_not_exchanged() -> None:
    given = answered(planned(), a_plan(A))
    given = ACTS["spoil"](given)
    assert acts(given)[-1] == ("Wait", "plan.json is not valid: see plan.error.md")


# ── any two acts while the planner thinks ─────────────────────────────────────────────────────────────────

ANSWERS: dict[str, Plan] = {
    "rewrites b": a_plan(A, a_step("b", depends_on=["a"], input={"text": "theirs"}), a_step("c", depends_on=["b"])),
    "drops b": a_plan(A, a_step("c", depends_on=["a"])),
    "adds d": a_plan(A, B, a_step("c", depends_on=["b"]), a_step("d", depends_on=["c"], why="theirs")),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("approve", ["never", "always"])
def test_two_acts_while_a_planner_thinks_always_come_to_rest(answer: str, approve: Any) -> None:
    base = a_plan(A, B, a_step("c", depends_on=["b"]))
    given = facts(base, has_steps=False, limits={"replans": 1, "attempts": 1})
    given = replace(given, run=given.run.model_copy(update={"approve": approve}))
    world = PureWorld(fate=lambda step, number: "failed" if step == "b" and number < 2 else "done", planner=True)
    for first, second in some([*itertools.product(ACTS, ACTS)], 60, about=f"{answer} {approve}"):
        thinking = world.perform(call_of(given), given, derive(given, means(planner=True)))
        saved, _ = _recorded(world, ACTS[first](_unanswered(thinking)))
        come = answered(saved, ANSWERS[answer], base, trigger="asked")
        middle, _ = world.play(come)
        end, actions = world.play(ACTS[second](middle))
        waits = [action for action in actions if isinstance(action, Wait)]
        assert waits, (first, second)
        assert (end.outcome is not None) == (waits[0].on == "nothing"), (first, second, actions)
        _nothing_of_a_person_is_lost(end, (first, second))


def call_of(given: Facts) -> CallPlanner:
    asked = replace(given, replan="look")
    (action,) = decide(derive(asked, means(planner=True)), 2)
    assert isinstance(action, CallPlanner)
    return action


def _unanswered(given: Facts) -> Facts:
    return given.with_call(replace(given.planner_call(2), answer=None))


def _recorded(world: PureWorld, given: Facts) -> tuple[Facts, list[Action]]:
    """What a driver makes of a person's act while it waits for the planner."""
    state = derive(judged(given), means(planner=True))
    actions = decide(state, 2)
    for action in actions:
        given = world.perform(action, given, state)
    return given, actions


def _nothing_of_a_person_is_lost(end: Facts, acted: tuple[str, str]) -> None:
    """Without a yes no revision of the planner's changes what a person set."""
    history = [(revision, PLANS[revision.plan_sha256]) for revision in end.revisions]
    for place, (revision, plan) in enumerate(history):
        if revision.by.role != "planner" or "say approve" in acted:
            continue
        before, after = steps_of(history[place - 1][1]), steps_of(plan)
        for step, fields in hand_edited_fields(history[:place]).items():
            values = [(before[step].get(field), after[step].get(field)) for field in fields - {"depends_on"}]
            assert [old for old, _ in values] == [new for _, new in values], (acted, step)
