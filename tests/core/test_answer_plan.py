"""An answer's steps become a whole plan; what a planner may not do is reported; its answer is evaluated."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfs.core.hashing import render_plan
from agentfs.core.planner_calls import Pending
from agentfs.core.records import Answer
from agentfs.core.run_state import derive
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.answer import PlanContext, kept_plan, merge_steps, plan_context, spell_out_steps
from agentfs.planner.evaluation import UNSHOWN, Evaluation, evaluate_answer
from tests.builders import a_call, a_plan, a_result, a_step, facts, means
from tests.core.planning_samples import (
    AROUND,
    CATALOGUE,
    a_plan_value,
    by_model,
    shell,
    standing,
    step,
    write,
)
from tests.sweeps import size

FIRST = PlanContext("Title")
A, B, C = (step(name, depends_on=[]) for name in "abc")
MIDWAY = standing(A, B, C, done=("a",))


def plan_from(*listed: Any, on: PlanContext = MIDWAY) -> Any:
    return merge_steps(spell_out_steps(list(listed), on, CATALOGUE), on)


def evaluate(answer: Any, on: PlanContext = MIDWAY, catalogue: Catalogue = CATALOGUE) -> Evaluation:
    return evaluate_answer(json.dumps(answer), on, catalogue, AROUND)


# ── how things stand ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("approve", "status"), [("never", "approved"), ("plan", "draft"), ("always", "draft")])
def test_a_first_plan_is_approved_where_nobody_reviews_it(approve: str, status: Any) -> None:
    given_facts = facts(has_steps=False)
    run = given_facts.run.model_copy(update={"approve": approve})
    state = derive(replace(given_facts, run=run), means(planner=True))
    assert plan_context(a_call(1), state, None) == PlanContext(
        "the goal",
        status,
        "auto",
        frozenset(("first",)),
        evidence="the goal",
    )


def test_later_context_follows_from_the_plan_and_its_results() -> None:
    plan = a_plan(a_step("a"), a_step("b"), status="paused", goal="Old title", limits={"replans": 9})
    state = derive(facts(plan), means(planner=True))
    done = derive(state.facts.with_attempt("a", _attempt(a_result(state.steps["a"], "done"))), means(planner=True))
    value = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    found = plan_context(a_call(2, trigger="asked"), done, value)
    assert (found.title, found.status, found.triggers, found.done) == (
        "Old title", "paused", frozenset(("asked",)), frozenset("a"),
    )  # fmt: skip
    assert [one["depends_on"] for one in found.steps] == [[], ["a"]]
    changed = replace(done, pending=(Pending("goal_changed", None, "", ()),))
    found = plan_context(a_call(2, trigger="asked"), changed, value)
    assert (found.title, found.triggers) == ("the goal", frozenset(("asked", "goal_changed")))
    untitled = {name: one for name, one in value.items() if name != "goal"}
    assert plan_context(a_call(2, trigger="asked"), done, untitled).title == "the goal"


def _attempt(result: Any) -> Any:
    from agentfs.core.facts import Attempt

    return Attempt(result.attempt, claimed=True, result=result)


# ── merging ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_first_plan_is_spelled_out() -> None:
    assert plan_from(
        {"id": 1, "tool": "none", "description": "think"}, step("b", why=None), on=FIRST
    ) == a_plan_value(
        {"id": "1", "description": "think", "tool": "note", "input": {"text": "think"}, "depends_on": []},
        step("b", depends_on=["1"]),
    )


def test_what_is_finished_stays_as_it_is_and_where_it_was() -> None:
    listed = (step("a", description="retold", gate=True), step("d"), step("b", depends_on=["d"]))
    assert plan_from(*listed) == a_plan_value(A, step("d", depends_on=["a"]), step("b", depends_on=["d"]))


def test_the_first_listed_step_follows_what_was_finished_last() -> None:
    on = standing(A, B, C, done=("a", "b"))
    assert [one["depends_on"] for one in plan_from(step("d"), step("e"), on=on)["steps"]] == [[], [], ["b"], ["d"]]
    assert plan_from(step("b"), step("d"), on=on)["steps"][2]["depends_on"] == ["b"]


def test_status_overrides_and_title_stay() -> None:
    on = standing(A, B, done=("a",), status="paused", plan={"limits": {"replans": 9}, "tools": {"network": True}})
    assert plan_from(step("c"), on=on) == {
        "$schema": "../../../schemas/plan.schema.json",
        "goal": "Title",
        "status": "paused",
        "limits": {"replans": 9},
        "tools": {"network": True},
        "steps": [A, step("c", depends_on=["a"])],
    }


def test_what_a_person_left_out_stays() -> None:
    on = standing(A, step("b", depends_on=["a"], skip="not today"), C, done=("a",))
    assert [one["id"] for one in plan_from(step("d"), on=on)["steps"]] == ["a", "b", "d"]


def test_a_finished_step_no_longer_waits_for_one_that_left() -> None:
    shaky = step("a", depends_on=[], on_failure="continue")
    on = standing(shaky, step("b", depends_on=["a"]), C, done=("b",))
    assert plan_from(step("d", depends_on=[]), on=on)["steps"] == [step("b", depends_on=[]), step("d", depends_on=[])]
    assert plan_from(shaky, on=on)["steps"][0]["depends_on"] == ["a"]


def test_finishing_drops_what_is_unfinished() -> None:
    assert kept_plan(MIDWAY) == a_plan_value(A)
    assert kept_plan(standing(A, done=("a",))) is None


def test_odd_steps_are_left_for_the_check() -> None:
    assert plan_from(1, {"id": ["x"]}, on=FIRST)["steps"] == [1, {"id": ["x"], "depends_on": []}]


# ── what a planner may not do ─────────────────────────────────────────────────────────────────────────────

NOT_REPEATABLE = "cannot be made repeatable: its tool may do something twice -> leave 'repeatable' out"
NOT_NAMED = "names the model \"gold\", which is not in [executor] models -> leave 'model' out, or name mini or nano"
GATED = standing(A, shell("rm", "rm -r x", gate=True, depends_on=[]), done=("a",))
AS_TEXT = 'write a JSON Schema, as text where the form wants text: "{\\"type\\": \\"array\\"}"'
NO_GATE = "the step 'rm' has a gate, which only a person may remove -> add \"gate\": true"


@pytest.mark.parametrize(
    ("on", "answer", "problems"),
    [
        (MIDWAY, {"keep": True, "status": "approved"}, ["status: 'status' is a person's to set -> leave it out"]),
        (FIRST, {"keep": True}, ["keep: 'keep' is no answer here: there is nothing to go on with -> answer with steps"]),
        (
            standing(A, triggers=frozenset(("drift", "asked"))),
            {"keep": True},
            ["keep: 'keep' is no answer here: there is nothing to go on with -> answer with steps"],
        ),
        (
            FIRST,
            {"finished": True, "answer": 4},
            ["finished: 'finished', but nothing has been done yet -> answer with the steps that reach the goal, if only one"],
        ),
        (
            MIDWAY,
            {"steps": [A]},
            ['steps: every step of this plan is finished: nothing would happen -> add what is still to be done under new ids, or answer {"finished": true, "answer": …}'],
        ),
        (
            standing(A, done=("a",), mode="stepwise", triggers=frozenset(("next_step",))),
            {"steps": [A, step("b"), step("c")]},
            ["steps: 2 steps, but this run takes one step at a time -> answer with the next one only; you are asked again when it is done"],
        ),
        (
            MIDWAY,
            {"steps": [step("a", tool="shell", input={"command": "ls"}), step("d")]},
            [
                "step 'a', tool: the step 'a' is finished: its 'tool' cannot change any more -> leave it out, or as it is; what is to be done again gets a new id",
                "step 'a', input: the step 'a' is finished: its 'input' cannot change any more -> leave it out, or as it is; what is to be done again gets a new id",
            ],
        ),
        (
            standing(by_model("a", depends_on=[]), done=("a",)),
            {"steps": [by_model("a", description="other"), step("d")]},
            ["step 'a', description: the step 'a' is finished: its 'description' cannot change any more -> leave it out, or as it is; what is to be done again gets a new id"],
        ),
        (MIDWAY, {"steps": [step("d", skip="boring")]}, ["step 'd', skip: 'skip' of 'd' is a person's to set -> leave the step out instead"]),
        (MIDWAY, {"steps": [shell("d", "ls", repeatable=True)]}, [f"step 'd', repeatable: 'd' {NOT_REPEATABLE}"]),
        (MIDWAY, {"steps": [by_model("d", tools=["note", "shell"], repeatable=True)]}, [f"step 'd', repeatable: 'd' {NOT_REPEATABLE}"]),
        (MIDWAY, {"steps": [by_model("d", tools=..., repeatable=True)]}, [
            f"step 'd', repeatable: 'd' {NOT_REPEATABLE}",
            "step 'd', tools: the step 'd' has no tool, and names no 'tools' for the model that does it -> name a tool, or list in 'tools' what the model may use ([] if it needs none)",
        ]),
        (
            MIDWAY,
            {"steps": [step("d", expects="a number", needs="x", checks=[{"kind": "output", "schema": "list of x"}, "test -s a"])]},
            [
                f"step 'd', expects: \"a number\" is no JSON Schema -> {AS_TEXT}",
                f"step 'd', checks.0.schema: \"list of x\" is no JSON Schema -> {AS_TEXT}",
                "step 'd', needs: 'needs' must be a list […], not text -> put it in a list: [\"x\"]",
            ],
        ),
        (MIDWAY, {"steps": [by_model("d", model="gold")]}, [f"step 'd', model: 'd' {NOT_NAMED}"]),
        (standing(by_model("d", model="gold")), {"steps": [by_model("e", model="gold")]}, [f"step 'e', model: 'e' {NOT_NAMED}"]),
        (MIDWAY, {"steps": [step("d", timeout_s=31_536_000)]}, ["step 'd', timeout_s: timeout_s of 'd' is more than 3600 seconds -> write at most 3600"]),
        (MIDWAY, {"steps": [step("d", timeout_s=3600.5)]}, ["step 'd', timeout_s: timeout_s of 'd' is more than 3600 seconds -> write at most 3600"]),
        (MIDWAY, {"steps": [step("d", place="moon")]}, ["step 'd', place: 'd' names the place \"moon\", which is not among those of the settings -> leave it out"]),
        (GATED, {"steps": [shell("rm", "rm -r y")]}, [f"step 'rm', gate: {NO_GATE}"]),
        (GATED, {"steps": [step("x"), shell("remove", "rm -r x", gate=False)]}, [f"step 'remove', gate: {NO_GATE}"]),
    ],
)  # fmt: skip
def test_a_planner_may_not(on: PlanContext, answer: Any, problems: list[str]) -> None:
    evaluation = evaluate(answer, on)
    assert list(evaluation.hard) == problems
    assert not evaluation.usable


@pytest.mark.parametrize(
    ("on", "answer"),
    [
        (MIDWAY, {"steps": [{"id": "a", "why": "again"}, step("d")]}),
        (MIDWAY, {"steps": [step("d", repeatable=True)]}),
        (MIDWAY, {"steps": [by_model("d", tools=["note"], repeatable=True)]}),
        (
            standing(A, shell("d", "ls", repeatable=True), done=("a",)),
            {"steps": [shell("d", "ls -l", repeatable=True)]},
        ),
        (MIDWAY, {"steps": [by_model("d", model="nano")]}),
        (MIDWAY, {"steps": [step("d", timeout_s=3600)]}),
        (
            standing(A, by_model("d", model="gold", timeout_s=9000), done=("a",)),  # set by a person
            {"steps": [by_model("d", model="gold", timeout_s=9000, description="other")]},
        ),
        (GATED, {"steps": [shell("rm", "rm -r y", gate=True)]}),
        (GATED, {"steps": [shell("look", "ls x", gate=True)]}),
        (standing(by_model("m", gate=True, input=...)), {"steps": [by_model("other", input=...)]}),
        (standing(A, done=("a",), mode="stepwise"), {"steps": [step("b")]}),
    ],
)
def test_a_planner_may(on: PlanContext, answer: Any) -> None:
    evaluation = evaluate(answer, on)
    assert (evaluation.verdict, evaluation.hard, evaluation.soft) == ("plan", (), ())


# ── weighing ──────────────────────────────────────────────────────────────────────────────────────────────


def test_verdicts() -> None:
    assert evaluate({"keep": True}) == Evaluation("keep")
    assert evaluate({"finished": True, "answer": 53}) == Evaluation("finished", a_plan_value(A), 53)
    assert evaluate({"finished": True, "answer": 53}, standing(A, done=("a",))) == Evaluation("finished", None, 53)
    assert evaluate({"impossible": "no"}, FIRST) == Evaluation("impossible", None, "no", soft=(UNSHOWN,))
    shown = replace(FIRST, evidence="Restart the database server\nsudo: a password is required")
    why = "there is no way: sudo says `a password is required`"
    assert evaluate({"impossible": why}, shown) == Evaluation("impossible", None, why)
    assert evaluate([step("d")]) == Evaluation("plan", a_plan_value(A, step("d", depends_on=["a"])))


def test_the_same_plan_again_keeps_it() -> None:
    assert evaluate([B, C]) == Evaluation("keep")
    assert evaluate([C, B]) == Evaluation("keep")  # the order means nothing where depends_on is spelled out


@pytest.mark.parametrize(
    ("trigger", "why"),
    [
        ("step_unreachable", "the step that cannot be reached would end the run"),
        ("goal_checks_failed", "the goal's checks still do not hold, and the run would end"),
        ("drift", "there is nothing to go on with"),
    ],
)
def test_the_same_plan_again_is_no_answer_where_keeping_it_is_none(trigger: Any, why: str) -> None:
    evaluation = evaluate([B, C], replace(MIDWAY, triggers=frozenset((trigger,))))
    assert evaluation.hard == (f"steps: this is the present plan: {why} -> change what has to change",)


def test_problems_name_the_step_and_the_field() -> None:
    answer = {
        "steps": [
            shell("x", "cat {{steps.nope.output}}"),
            {"tool": "note", "input": {"text": "t"}},
            step("y", tool="nope"),
            7,
        ]
    }
    assert evaluate(answer, FIRST).hard == (
        'the step {"tool": "note", "input": {"text": "t"}, "depends_on": ["…: the field \'id\' is missing -> add "id": stable across revisions: lower case letters, digits and -, at most 63',
        "the step 7: 'steps[3]' must be an object {…}, not a number -> write an object {…}",
        "step 'x', input.command: {{steps.nope.output}} refers to a step that is not in the plan -> the other steps are y",
        "step 'y', tool: there is no tool 'nope' -> did you mean 'note'?",
    )


def test_a_reply_that_does_not_parse_says_where() -> None:
    assert evaluate_answer('{"steps": [\n  {"id": "a",}\n]}', FIRST, CATALOGUE, AROUND).hard == (
        "line 2, column 14: a comma before } -> remove the comma",
    )
    assert evaluate_answer("no", FIRST, CATALOGUE, AROUND).hard == (
        "the reply holds no JSON that can be read -> answer with one JSON object and nothing else",
    )


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["a", "d", "note", "x y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "tool",
                    "input",
                    "text",
                    "depends_on",
                    "checks",
                    "kind",
                    "run",
                    "steps",
                    "gate",
                    "tools",
                    "schema",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
VALUES = JSON | st.lists(
    st.fixed_dictionaries({"id": st.sampled_from(["a", "b", "d", "e", 1])}, optional={
        "tool": st.sampled_from(["note", "shell", "nope", None, 3]), "input": JSON, "depends_on": JSON, "checks": JSON,
        "needs": JSON, "gate": JSON, "expects": JSON, "tools": JSON, "description": JSON, "success_condition": JSON,
        "skip": JSON, "repeatable": JSON, "timeout_s": JSON,
    }), max_size=4,
)  # fmt: skip


@settings(deadline=None, max_examples=size(75, 1500))
@given(VALUES, st.sampled_from([FIRST, MIDWAY, GATED]))
def test_any_value_is_evaluated(value: Any, on: PlanContext) -> None:
    evaluation = evaluate({"steps": value} if isinstance(value, list) else value, on)
    assert all(isinstance(one, str) for one in (*evaluation.hard, *evaluation.soft))
    if evaluation.usable:
        Answer(call=1, verdict=evaluation.verdict, plan=evaluation.plan, answer=evaluation.answer, duration_s=0.0)
        assert evaluation.plan is None or render_plan(evaluation.plan)


def test_a_whole_plan_of_good_steps_has_no_findings() -> None:
    good = [
        shell("count", "grep -c TODO src/x.py"),
        write("note-it", "todo.txt", "{{steps.count.output}}\n", checks=["grep -q '[0-9]' todo.txt"]),
        by_model("tell", tools=["read_file"], input={"material": "{{steps.count.output}}"}),
    ]
    evaluation = evaluate(good, FIRST)
    assert (evaluation.verdict, evaluation.hard, evaluation.soft) == ("plan", (), ())
