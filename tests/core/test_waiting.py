"""What a run waits for a person with, and when that is another thing."""

from dataclasses import replace
from typing import Any

from agentfs.core.attention import Waiting, list_waiting
from agentfs.core.decide import decide
from agentfs.core.facts import Facts, PlanFile
from agentfs.core.problems import Problem
from agentfs.core.records import Answer, Failure
from agentfs.core.run_state import derive
from agentfs.core.steps import UNREACHABLE
from tests.builders import RUN, PureWorld, a_call, a_plan, a_result, a_step, facts, means, plan_sha

A = a_step("a", depends_on=[])


def things(given: Facts, **more: Any) -> tuple[Waiting, ...]:
    state = derive(given, means(**more))
    return list_waiting(state, decide(state, 1)[-1])


def names(given: Facts, **more: Any) -> list[tuple[str, str, str]]:
    return [(one.thing, one.what, one.file) for one in things(given, **more)]


def test_a_gate_and_a_question_are_two_things() -> None:
    plan = a_plan(
        a_step("a", gate=True, depends_on=[]), a_step("b", tool="ask", input={"question": "Who?"}, depends_on=[])
    )
    given, _ = PureWorld().play(facts(plan))
    assert things(given) == (
        Waiting(
            "steps/a.1.question.md",
            "gate",
            "steps/a.1.question.md",
            "a: needs approval",
            f"agentfs approve {RUN} a",
        ),
        Waiting(
            "steps/b.1.question.md",
            "ask",
            "steps/b.1.question.md",
            "b: waits for a person's answer",
            f"agentfs reply {RUN} b TEXT",
        ),
    )


def test_a_draft_is_another_one_when_the_planner_made_another() -> None:
    given = facts(a_plan(A, status="draft"), has_steps=False)
    assert names(given) == [("draft of call 1", "draft", "plan.json")]
    edited = replace(given, plan=a_plan(A, a_step("b"), status="draft"))
    assert names(edited)[0][0] == "draft of call 1", "a person is there who edits it"
    assert names(replace(given, revisions=()))[0][0] == "draft of call 0"


def test_items_of_a_list_that_were_cut_off_are_one_thing() -> None:
    work = a_step("do", each=["x", "y", "z"], repeatable=False, depends_on=[], input={"text": "{{item}}"})
    given, _ = PureWorld(lambda step, _number: "interrupted" if step != "do~y" else "done", slots=3).play(
        facts(a_plan(work))
    )
    why = "do~x: it was cut off and is not repeatable: a person must say what became of it"
    assert things(given) == (
        Waiting(
            "steps/do~x.1.question.md",
            "cut",
            "steps/do~x.1.question.md",
            f"{why} (and 1 more of its items)",
            "\n".join(f"agentfs reply {RUN} do {word}" for word in ("again", "done", "failed")),
            ("steps/do~z.1.question.md",),
        ),
    )


def test_what_a_person_paused_waits_with_nothing() -> None:
    assert things(facts(a_plan(A, status="paused"))) == ()


def test_what_runs_or_has_ended_waits_with_nothing() -> None:
    ended, _ = PureWorld().play(facts(a_plan(A)))
    assert ended.outcome is not None
    assert (things(ended), things(facts(a_plan(A)))) == ((), ())


def test_a_plan_that_does_not_read_is_one_thing_until_the_next_revision() -> None:
    given = facts(a_plan(A))
    for sha in "01":
        broken = replace(given, plan_file=PlanFile(sha * 64, None, (Problem("no", "fix it"),)))
        assert names(broken) == [("plan.json after revision 1", "plan", "plan.error.md")]


def test_files_that_do_not_read() -> None:
    found = things(replace(facts(a_plan(A)), broken=("run.json is not valid",)))
    assert found == (Waiting("files: run.json is not valid", "files", "", "run.json is not valid", ""),)


def test_a_planner_that_could_not_answer() -> None:
    given = facts(a_plan(A), has_steps=False)
    error = Failure(kind="model", message="it is asleep")
    one = replace(
        given.planner_call(2),
        call=a_call(2, revision=1, trigger="asked", base_sha256=plan_sha(a_plan(A))),
        answer=Answer(call=2, verdict="failed", error=error, duration_s=0.0),
    )
    (found,) = things(given.with_call(one), planner=True)
    assert (found.thing, found.what, found.how) == ("planning/2.result.json", "planner", f"agentfs resume {RUN}")
    assert "it is asleep" in found.why


def test_a_limit_is_another_one_when_it_was_raised() -> None:
    done, _ = PureWorld().play(facts(a_plan(A, a_step("b"))))
    for minutes in (0.0, 0.5):
        given = replace(done, outcome=None, plan=a_plan(A, a_step("b"), a_step("c"), limits={"minutes": minutes}))
        spent = given.attempts["a"][0].result
        assert spent is not None
        longer = replace(given.attempts["a"][0], result=spent.model_copy(update={"duration_s": 60.0}))
        (found,) = things(given.with_attempt("a", longer))
        assert (found.thing, found.what) == (f"limits.minutes {minutes:g} minutes", "limit")
        assert found.how == f"agentfs resume {RUN} --add-minutes N"


def test_a_step_that_no_model_is_there_for() -> None:
    given = facts(a_plan(A))
    view = derive(given, means()).steps["a"]
    cut = a_result(view, "interrupted", error=Failure(kind=UNREACHABLE, message="no line"))
    given = given.with_attempt("a", replace(given.attempt("a", 1), claimed=True, result=cut))
    (found,) = things(given)
    assert (found.thing, found.what, found.why) == ("model for a.1", "model", "a: no line")


def test_an_answer_that_needs_a_yes() -> None:
    given = facts(a_plan(A), has_steps=False)
    given = replace(given, run=given.run.model_copy(update={"approve": "always"}))
    world = PureWorld(planner=True, verdict="plan", fate=lambda step, _: "failed" if step == "a" else "done")
    waits, _ = world.play(given)
    assert names(waits, planner=True) == [("planning/2.question.md", "answer", "planning/2.question.md")]


def test_anything_else_is_reported_by_its_reason() -> None:
    given = facts(a_plan(A), has_steps=False, limits={"steps": 1})
    given = replace(given, run=given.run.model_copy(update={"mode": "stepwise"}))
    waits, _ = PureWorld(planner=True).play(given)
    (found,) = things(waits, planner=True)
    assert (found.what, found.thing) == ("other", found.why)
