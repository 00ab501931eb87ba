"""One step's state from its files, read as a table: given these files, then this state, for this reason."""

from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.facts import Attempt, Facts, Talk
from agentfs.core.records import Result
from agentfs.core.run_state import derive
from agentfs.core.steps import StepView
from tests.builders import a_plan, a_result, a_step, an_order, facts, means, states


def _view(given: Facts, step: str = "a", **more: bool) -> StepView:
    return derive(given, means(**more)).steps[step]


def _with(given: Facts, step: str, *statuses: str, **fields: object) -> Facts:
    """Add one settled attempt per status to a step."""
    for status in statuses:
        view = _view(given, step)
        result = a_result(view, status, **fields)  # type: ignore[arg-type]
        given = given.with_attempt(step, Attempt(result.attempt, order=an_order(view), claimed=True, result=result))
    return given


CHAIN = a_plan(a_step("a"), a_step("b"), a_step("c"))


def test_a_fresh_chain_waits_for_its_first_step() -> None:
    assert states(facts(CHAIN)) == {"a": "ready", "b": "waiting", "c": "waiting"}
    assert _view(facts(CHAIN), "c").why == "waits for b"


def test_an_order_makes_it_ordered_and_a_claim_running() -> None:
    given = facts(CHAIN)
    ordered = given.with_attempt("a", Attempt(1, order=an_order(_view(given))))
    assert (_view(ordered).status, _view(ordered).move) == ("ordered", "start")
    running = given.with_attempt("a", Attempt(1, order=an_order(_view(given)), claimed=True))
    assert (_view(running).status, _view(running).move) == ("running", None)


def test_a_result_counts_while_key_and_dependencies_hold() -> None:
    done = _with(_with(facts(CHAIN), "a", "done"), "b", "done")
    assert states(done) == {"a": "done", "b": "done", "c": "ready"}
    again = _with(done.with_attempt("a", replace(done.attempt("a", 1), again=True)), "a", "done")
    assert states(again) == {"a": "done", "b": "stale", "c": "waiting"}
    assert _view(again, "b").why == "the step, or one before it, has changed"


def test_an_edit_reruns_that_step_and_what_depends_on_it_and_nothing_else() -> None:
    plan = a_plan(a_step("a"), a_step("b", depends_on=[]), a_step("c", depends_on=["b"]))
    done = _with(_with(_with(facts(plan), "a", "done"), "b", "done"), "c", "done")
    edited = a_plan(a_step("a"), a_step("b", depends_on=[], input={"text": "new"}), a_step("c", depends_on=["b"]))
    assert states(replace(done, plan=edited)) == {"a": "done", "b": "stale", "c": "stale"}


def test_words_that_change_nothing_rerun_nothing() -> None:
    done = _with(facts(a_plan(a_step("a"))), "a", "done")
    edited = a_plan(a_step("a", description="other words", why="because", timeout_s=5, max_attempts=9))
    assert states(replace(done, plan=edited)) == {"a": "done"}


@pytest.mark.parametrize(
    ("statuses", "state", "move", "trigger"),
    [
        (("failed",), "ready", "order", None),
        (("failed", "failed"), "failed", "halt", "repeated_failure"),
        (("interrupted",), "ready", "order", None),
        (("interrupted",) * 2, "ready", "order", None),
        (("interrupted",) * 3, "ready", "order", None),
        (("interrupted",) * 4, "failed", "halt", "repeated_failure"),
        (("interrupted", "interrupted", "interrupted", "failed"), "failed", "halt", "repeated_failure"),
        (("failed", "interrupted"), "ready", "order", None),
    ],
)
def test_failures_and_interruptions_are_counted(
    statuses: tuple[str, ...], state: str, move: str, trigger: str | None
) -> None:
    view = _view(_with(facts(a_plan(a_step("a"))), "a", *statuses))
    assert (view.status, view.move, view.trigger) == (state, move, trigger)


@pytest.mark.parametrize(
    ("fields", "tries"),
    [
        ({"tool": "note"}, 3),  # it has no effect: another try does no harm
        ({"tool": "shell"}, 1),
        ({"tool": "shell", "repeatable": True}, 3),
        ({"tool": "note", "repeatable": False}, 1),
        ({"tool": "shell", "max_attempts": 2}, 2),
        ({"tool": "note", "repeatable": False, "max_attempts": 2}, 2),
        ({"tool": None, "tools": ["shell"]}, 3),  # a model sees what went wrong
        ({"tool": None, "tools": ["read_file"]}, 3),
        ({"tool": None, "tools": ["read_file"], "repeatable": False}, 1),
    ],
)
def test_how_often_a_step_is_tried(fields: dict[str, Any], tries: int) -> None:
    given = facts(a_plan(a_step("a", **fields)), limits={"attempts": 3})
    seen = 0
    while _view(given).move == "order":
        given, seen = _with(given, "a", "failed"), seen + 1
    assert (seen, _view(given).status) == (tries, "failed")


def test_one_attempt_only_is_a_plain_failure() -> None:
    view = _view(_with(facts(a_plan(a_step("a", max_attempts=1))), "a", "failed"))
    assert (view.status, view.trigger, view.evidence) == ("failed", "step_failed", ("steps/a.1.result.json",))


@pytest.mark.parametrize(
    ("on_failure", "planner", "move", "satisfied"),
    [
        (None, False, "halt", False),
        (None, True, "call", False),
        ("replan", True, "call", False),
        ("stop", True, "halt", False),
        ("continue", True, None, True),
    ],
)
def test_on_failure(on_failure: str | None, planner: bool, move: str | None, satisfied: bool) -> None:
    given = facts(a_plan(a_step("a", max_attempts=1, on_failure=on_failure)), has_steps=False)
    view = _view(_with(given, "a", "failed"), planner=planner)
    assert (view.move, view.satisfied) == (move, satisfied)


def test_a_runbook_answers_only_what_it_has_an_answer_to() -> None:
    given = _with(facts(a_plan(a_step("a", max_attempts=1))), "a", "failed")
    assert _view(given, planner=True).move == "halt"
    assert _view(replace(given, answerable=frozenset({"a"}))).move == "call"


def test_what_refers_to_a_step_that_failed_under_continue_is_skipped() -> None:
    uses = {"input": {"text": "{{steps.a.output}}"}}
    plan = a_plan(
        a_step("a", max_attempts=1, on_failure="continue"),
        a_step("b", depends_on=["a"]),
        a_step("c", depends_on=[], **uses),
        a_step("d", depends_on=[], input={"text": "{{steps.c.output}}"}),
    )
    given = _with(facts(plan), "a", "failed")
    assert states(given) == {"a": "failed", "b": "ready", "c": "skipped", "d": "skipped"}
    assert _view(given, "c").why == "uses the output of a, which has none"


def test_what_refers_to_a_step_left_out_by_hand_cannot_be_reached() -> None:
    plan = a_plan(a_step("a", skip="no"), a_step("b", input={"text": "{{steps.a.output}}"}))
    view = _view(facts(plan), "b")
    assert (view.status, view.move, view.trigger) == ("blocked", "halt", "step_unreachable")
    assert view.evidence == ("revisions/1.json",)


def test_an_output_that_is_not_there_is_unreachable_with_its_result_as_evidence() -> None:
    plan = a_plan(a_step("a"), a_step("b", input={"text": "{{steps.a.output.rows}}"}))
    given = _with(facts(plan, has_steps=False), "a", "done", output={"lines": 3})
    view = _view(given, "b", planner=True)
    assert (view.status, view.move, view.evidence) == ("blocked", "call", ("steps/a.1.result.json",))
    assert "lines" in view.why


@pytest.mark.parametrize("status", ["blocked", "rejected"])
def test_what_was_turned_away_goes_to_the_planner_or_ends_the_run(status: str) -> None:
    given = _with(facts(a_plan(a_step("a")), has_steps=False), "a", status, started_at=None)
    assert (_view(given, planner=True).status, _view(given, planner=True).move) == (status, "call")
    assert _view(given).move == "halt"
    assert states(replace(given, plan=a_plan(a_step("a", input={"text": "new"})))) == {"a": "ready"}


def test_an_attempt_that_no_longer_counts_is_stopped_if_it_may_be() -> None:
    given = facts(a_plan(a_step("a")))
    for repeatable, claimed, move in ((True, True, "stop"), (False, True, None), (False, False, "stop")):
        order = an_order(_view(given), repeatable=repeatable).model_copy(update={"key": "1" * 64})
        view = _view(given.with_attempt("a", Attempt(1, order=order, claimed=claimed)))
        assert (view.status, view.move) == ("running", move)


def test_a_torn_order_is_not_an_attempt_that_counts() -> None:
    view = _view(facts(a_plan(a_step("a"))).with_attempt("a", Attempt(1, torn=True)))
    assert (view.status, view.move) == ("running", "stop")


GATED = facts(a_plan(a_step("a", gate=True)))


@pytest.mark.parametrize(
    ("reply", "move"),
    [
        (None, "person"),
        ("approve", "order"),
        ("  APPROVE  \nbecause", "order"),
        ("reject", "reject"),
        ("novel", "person"),
        ("no", "person"),
        ("yes", "person"),
        ("approve?", "person"),
        ("\napprove", "person"),
        ("", "person"),
    ],
)
def test_a_gate_opens_by_exactly_one_word(reply: str | None, move: str) -> None:
    key = _view(GATED).key
    view = _view(GATED.with_attempt("a", Attempt(1, talks=(Talk(key=key, reply=reply),))))
    assert (view.status, view.move, view.next) == ("gated", move, 1)


def test_a_gate_asks_about_every_attempt_and_every_change() -> None:
    assert (_view(GATED).status, _view(GATED).move, _view(GATED).next) == ("gated", "ask", 1)
    other = _view(GATED.with_attempt("a", Attempt(1, talks=(Talk(key="1" * 64, reply="approve"),))))
    assert (other.move, other.next) == ("ask", 2)
    failed = _with(GATED, "a", "failed")
    assert (_view(failed).move, _view(failed).next) == ("ask", 2)


CUT = facts(a_plan(a_step("a", repeatable=False)))


@pytest.mark.parametrize(
    ("talks", "state", "move"),
    [
        ((), "interrupted", "ask_cut"),
        ((Talk(key="0" * 64, reply="approve"),), "interrupted", "ask_cut"),
        ((Talk(),), "interrupted", "person"),
        ((Talk(reply="whatever"),), "interrupted", "person"),
        ((Talk(reply="AGAIN"),), "ready", "order"),
        ((Talk(reply="done\nyes"),), "interrupted", "record_cut"),
        ((Talk(reply="failed"),), "interrupted", "record_cut"),
    ],
)
def test_what_was_cut_off_and_may_not_be_repeated_is_asked_about(
    talks: tuple[Talk, ...], state: str, move: str
) -> None:
    given = _with(CUT, "a", "interrupted")
    view = _view(given.with_attempt("a", replace(given.attempt("a", 1), talks=talks)))
    assert (view.status, view.move) == (state, move)


def test_what_never_started_is_not_asked_about() -> None:
    assert _view(_with(CUT, "a", "interrupted", started_at=None)).move == "order"


def test_a_persons_word_that_it_failed_is_final() -> None:
    given = _with(CUT, "a", "interrupted")
    failed = a_result(_view(given), "failed", 2)
    error = failed.error.model_copy(update={"kind": "person"}) if failed.error else None
    result = Result.model_validate(failed.model_copy(update={"error": error}))
    view = _view(given.with_attempt("a", Attempt(2, result=result)))
    assert (view.status, view.move) == ("failed", "halt")


def test_what_may_not_be_repeated_is_gated_where_a_planner_made_it_stale() -> None:
    done = _with(CUT, "a", "done")
    edited = a_plan(a_step("a", repeatable=False, input={"text": "new"}))
    for role, move in (("person", "order"), ("planner", "ask")):
        from tests.builders import a_revision

        by = done.revisions[0].by.model_copy(update={"role": role})
        revision = a_revision(2, edited, done.plan, by=by)
        view = _view(replace(done, plan=edited, revisions=(*done.revisions, revision)))
        assert view.move == move


def test_a_surprise_calls_and_a_spent_one_does_not() -> None:
    given = _with(
        facts(a_plan(a_step("a"), a_step("b"))), "a", "done", surprising=True, surprise="ten times the rows"
    )
    view = _view(given)
    assert (view.status, view.move, view.trigger, view.why) == (
        "done", "call", "unexpected_state", "surprising: ten times the rows",
    )  # fmt: skip


def test_a_model_step_is_repeatable_if_all_its_tools_are() -> None:
    from agentfs.core.steps import is_repeatable

    tools = {"read_file": True, "shell": False}
    assert is_repeatable(a_step("a", tool=None, input=None, tools=["read_file"]), tools)
    assert not is_repeatable(a_step("a", tool=None, input=None, tools=["read_file", "shell"]), tools)
    assert not is_repeatable(a_step("a", tool="unknown"), tools)


def test_the_key_of_a_model_step_holds_its_words_model_and_tools() -> None:
    from agentfs.core.resolve import Resolved
    from agentfs.core.steps import key_of

    nothing = Resolved(input={}, needs=(), checks=(), files=())
    step = a_step("a", tool=None, input=None, tools=["note"], description="x")
    other = a_step("a", tool=None, input=None, tools=["note"], description="y")
    assert key_of(step, nothing) != key_of(other, nothing)
