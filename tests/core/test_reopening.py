"""What a run waits for, and what takes it up again once it has ended."""

from dataclasses import replace

import pytest

from agentfs.core.actions import CallPlanner, EndRun, Wait
from agentfs.core.attention import OpenQuestion, find_answered, open_questions, ways_on
from agentfs.core.continuation import Aside, in_force, set_aside, still_ends, to_set_aside
from agentfs.core.decide import decide
from agentfs.core.facts import Attempt, Facts, PlanFile, PlannerCall, Talk
from agentfs.core.problems import Problem
from agentfs.core.records import Answer, CommandCheck, Failure, Usage, Verdict
from agentfs.core.run_state import derive
from tests.builders import PureWorld, a_call, a_plan, a_result, a_step, facts, means, plan_sha

CUT = a_step("a", tool="shell", input={"command": "x"}, repeatable=False)


def ended(given: Facts, world: PureWorld) -> Facts:
    return replace(world.play(given)[0], outcome=None)


def test_a_draft_is_open() -> None:
    state = derive(facts(a_plan(status="draft")), means())
    assert open_questions(state) == (OpenQuestion("draft"),)


def test_a_gate_is_open_until_it_is_answered() -> None:
    given = PureWorld().play(facts(a_plan(a_step("a", gate=True))))[0]
    state = derive(given, means())
    (gate,) = open_questions(state)
    assert gate == OpenQuestion("gate", "a", 1)
    assert (gate.question_path, gate.reply_path) == ("steps/a.1.question.md", "steps/a.1.reply.md")
    assert [gate.accepts(text) for text in ("approve", "Reject\nno", "novel", "")] == [True, True, False, False]
    attempt = given.attempt("a", 1)
    for reply in ("approve", "reject"):
        talk = replace(attempt.talks[0], reply=reply)
        state = derive(given.with_attempt("a", replace(attempt, talks=(talk,))), means())
        assert open_questions(state) == ()
        assert find_answered(state, "a") == OpenQuestion("gate", "a", 1, reply=reply)


def test_an_attempt_that_was_cut_off_is_open() -> None:
    given = facts(a_plan(CUT))
    result = a_result(derive(given, means()).steps["a"], "interrupted")
    for reply, open_ones in (("perhaps", 1), ("done", 0)):
        cut = given.with_attempt("a", Attempt(1, claimed=True, result=result, talks=(Talk(reply=reply),)))
        state = derive(cut, means())
        opening = OpenQuestion("cut", "a", 1, reply=reply)
        assert open_questions(state) == (opening,) * open_ones
        assert find_answered(state, "a") == (None if open_ones else opening)
        assert opening.words == ("again", "done", "failed")
        assert [opening.accepts(text) for text in ("again", "approve")] == [True, False]


def limited(name: str) -> Facts:
    given = facts(a_plan(a_step("a"), a_step("b")), limits={name: 2})
    usage = Usage(
        role="executor", model="m", requests=2, input_tokens=2, cached_tokens=0, output_tokens=0, cost_usd=2.0
    )
    result = a_result(derive(given, means()).steps["a"], "done", usage=usage)
    return given.with_attempt("a", Attempt(1, result=result))


def unanswered() -> Facts:
    given, error = facts(a_plan(a_step("a"))), Failure(kind="model", message="no answer")
    answer = Answer(call=2, verdict="failed", error=error, duration_s=0.0)
    return given.with_call(PlannerCall(2, a_call(2, trigger="asked"), answer))


@pytest.mark.parametrize(
    ("given", "ways"),
    [
        (facts(a_plan()), ()),
        (facts(a_plan(status="draft")), ("agentfs approve x",)),
        (facts(a_plan(status="paused")), ("agentfs resume x",)),
        (unanswered(), ("agentfs resume x",)),
        (limited("cost_usd"), ("agentfs resume x --add-cost USD",)),
        (limited("requests"), ("agentfs resume x --add-requests N",)),
        (replace(facts(a_plan(status="paused")), broken=("run.json is torn",)), ()),
        (
            replace(facts(a_plan()), plan_file=PlanFile("f" * 64, None, (Problem("bad"),))),
            ("fix runs/2026-11-16/goal/plan.json: plan.error.md beside it says how",),
        ),
    ],
)
def test_a_person_is_shown_what_to_do_next(given: Facts, ways: tuple[str, ...]) -> None:
    assert ways_on(derive(given, means()), "x") == ways


def test_what_is_open_is_settled_by_its_name() -> None:
    named = [
        OpenQuestion("draft"),
        OpenQuestion("gate", "a", 1),
        OpenQuestion("answer", None, 4),
        OpenQuestion("cut", "a", 1),
    ]
    assert [one.commands("x") for one in named] == [
        ("agentfs approve x plan.json",),
        ("agentfs approve x a",),
        ("agentfs approve x planning/4",),
        ("agentfs reply x a again", "agentfs reply x a done", "agentfs reply x a failed"),
    ]
    assert OpenQuestion("gate", "a", 1).commands("x", "reject", alone=True) == ("agentfs reject x",)
    assert OpenQuestion("ask", "a", 1).commands("x", alone=True) == ("agentfs reply x a TEXT",)


def test_any_words_answer_a_question() -> None:
    ask = OpenQuestion("ask", "a", 2, count=3)
    assert (ask.reply_path, ask.words) == ("steps/a.2.reply-3.md", ())
    assert [ask.accepts(text) for text in ("anything", " \n")] == [True, False]
    assert OpenQuestion("answer", None, 4).question_path == "planning/4.question.md"
    assert OpenQuestion("answer", None, 4).words == ("approve", "reject")


def test_failed_steps_are_set_aside_and_the_run_goes_on() -> None:
    given = ended(facts(a_plan(a_step("a", max_attempts=1), a_step("b"))), PureWorld(fate=lambda *_: "failed"))
    end = still_ends(given, means())
    assert end is not None
    assert end.status == "failed"
    aside = to_set_aside(derive(given, means()))
    assert aside == Aside((("a", 1),))
    assert still_ends(set_aside(given, aside), means()) is None


def test_what_failed_under_continue_is_retried_only_if_nothing_else_holds_the_run_up() -> None:
    step = a_step("a", max_attempts=1, on_failure="continue")
    world = PureWorld(fate=lambda *_: "failed")
    alone = ended(facts(a_plan(step)), world)
    assert to_set_aside(derive(alone, means())) == Aside((("a", 1),))
    both = ended(facts(a_plan(step, a_step("b", max_attempts=1, depends_on=[]))), world)
    assert to_set_aside(derive(both, means())) == Aside((("b", 1),))


def test_goal_checks_that_failed_are_set_aside() -> None:
    given = facts(a_plan(a_step("a")))
    given = replace(given, goal=replace(given.goal, checks=(CommandCheck(kind="command", run="x"),)))
    failed = ended(given, PureWorld(goal_holds=False))
    aside = to_set_aside(derive(failed, means()))
    assert aside == Aside((), (2,))
    assert still_ends(failed, means()) is not None
    assert still_ends(set_aside(failed, aside), means()) is None
    held = ended(given, PureWorld())
    assert to_set_aside(derive(held, means())) == Aside()


@pytest.mark.parametrize(("verdict", "calls"), [("failed", 1), ("interrupted", 3)])
def test_a_call_that_came_to_nothing_is_made_again(verdict: Verdict, calls: int) -> None:
    given = facts(None, has_steps=False)
    for number in range(1, calls + 1):
        error = Failure(kind="model", message="no answer")
        answer = Answer(call=number, verdict=verdict, error=error, duration_s=0.0)
        given = given.with_call(PlannerCall(number, a_call(number), answer))
    state = derive(given, means(planner=True))
    assert isinstance(decide(state, 1)[0], Wait)
    aside = to_set_aside(state)
    assert aside == Aside((), (calls,))
    again = decide(derive(set_aside(given, aside), means(planner=True)), 1)[0]
    assert isinstance(again, CallPlanner)
    assert again.call == calls + 1


def test_what_the_file_says_is_in_force_ended_or_not() -> None:
    given = ended(facts(a_plan(a_step("a", max_attempts=1))), PureWorld(fate=lambda *_: "failed"))
    new = a_plan(a_step("a", max_attempts=1, skip="no"), a_step("b"))
    edited = replace(given, plan_file=PlanFile(plan_sha(new), new))
    state = in_force(derive(edited, means()))
    assert (state.facts.plan, len(state.facts.revisions)) == (new, 2)
    assert state.facts.revisions[-1].by.role == "person"
    assert still_ends(edited, means()) is None
    cancelled = a_plan(status="cancelled")
    assert still_ends(replace(given, plan_file=PlanFile(plan_sha(cancelled), cancelled)), means()) == EndRun(
        "cancelled", "cancelled", "the plan's status is cancelled"
    )
