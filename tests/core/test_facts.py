"""Telling what changed between two readings of a run, and what was used."""

from dataclasses import replace

from agentfs.core.actions import EndRun
from agentfs.core.facts import Attempt, words_below
from agentfs.core.outcome import outcome_of, steps_by_end
from agentfs.core.plan_graph import dependencies
from agentfs.core.records import Answer, Usage
from agentfs.core.run_state import (
    Reached,
    Spent,
    derive,
    find_reached,
    merge_span,
    seconds_left,
    spent_of,
    spent_on_calls,
)
from tests.builders import NOW, a_call, a_plan, a_result, a_step, facts, means


def test_what_was_touched_is_found_by_the_trail_or_by_comparing() -> None:
    first = facts(a_plan(a_step("a"), a_step("b")))
    second = first.with_attempt("a", Attempt(1))
    assert second.touched_since(first) == frozenset({"a"})
    assert second.touched_since(second) == frozenset()
    read_again = replace(second, origin=object(), trail=())
    assert read_again.touched_since(second) == frozenset()
    assert read_again.touched_since(first) == frozenset({"a"})
    branch = first.with_attempt("b", Attempt(1))
    assert branch.touched_since(second) == frozenset({"a", "b"})
    assert replace(second, calls=()).touched_since(first) is None


def test_spans_are_merged_and_counted_once() -> None:
    spans: tuple[tuple[float, float], ...] = ()
    total = 0.0
    for new in [(0.0, 2.0), (5.0, 6.0), (1.0, 3.0), (2.5, 5.5), (10.0, 10.0), (0.0, 20.0)]:
        spans, added = merge_span(spans, new)
        total += added
    assert (spans, total) == (((0.0, 20.0),), 20.0)


def test_usage_is_counted_and_an_unknown_cost_stays_unknown() -> None:
    given = facts(a_plan(a_step("a"), a_step("b")))
    usage = Usage(
        role="executor", model="m", requests=1, input_tokens=2, cached_tokens=1, output_tokens=3, cost_usd=None
    )
    paid = usage.model_copy(update={"cost_usd": 0.5, "model": "n"})
    views = derive(given, means()).steps
    for step, used in (("a", usage), ("b", paid)):
        given = given.with_attempt(
            step, Attempt(1, claimed=True, result=a_result(views[step], "done", 1, usage=used))
        )
    call = Answer(
        call=2, verdict="finished", answer="42", usage=paid.model_copy(update={"role": "planner"}), duration_s=0.0
    )
    given = given.with_call(replace(given.planner_call(2), call=a_call(2), answer=call))
    spent = spent_of(given.attempts)
    assert (spent.requests, spent.tokens, spent.cost_usd) == (2, 10, 0.5)
    assert spent_on_calls(given).cost_usd == 0.5
    assert spent_of(given.attempts, given.attempts, Spent(requests=7)).requests == 7
    outcome = outcome_of(derive(given, means()), EndRun("done", "steps_done", "so"), NOW)
    assert outcome.answer == "42"
    assert outcome.usage.executor is not None
    assert (outcome.usage.executor.cost_usd, outcome.usage.executor.model) == (None, None)
    assert outcome.usage.planner is not None
    assert outcome.usage.planner.cost_usd == 0.5


def test_minutes_count_attempts_and_calls_of_a_model_once() -> None:
    given = facts(a_plan(a_step("a")))
    view = derive(given, means()).steps["a"]
    ran = a_result(view, "done", 1).model_copy(update={"started_at": NOW, "duration_s": 60.0})
    given = given.with_attempt("a", Attempt(1, claimed=True, result=ran))
    for number, (second, duration) in enumerate([(30, 60.0), (45, 5.0), (0, 0.0)], start=2):
        started = NOW.replace("00.000000Z", f"{second:02}.000000Z") if second else None
        answer = Answer(call=number, verdict="keep", started_at=started, duration_s=duration)
        given = given.with_call(replace(given.planner_call(number), call=a_call(number), answer=answer))
    state = derive(given, means())
    assert seconds_left(replace(state.bounds, minutes=2), state.spent, state.calls_spent) == 30.0
    assert find_reached(replace(state.bounds, minutes=1.5), state.spent, state.calls_spent) == Reached(
        "minutes", "1.5 minutes"
    )


def test_an_attempt_that_was_cut_off_counts_among_the_failed() -> None:
    given = facts(a_plan(a_step("a", repeatable=False), a_step("b", depends_on=[])))
    view = derive(given, means()).steps["a"]
    given = given.with_attempt("a", Attempt(1, claimed=True, result=a_result(view, "interrupted", 1)))
    ends = steps_by_end(derive(given, means()))
    assert (ends.failed, ends.not_reached) == (("a",), ("b",))


def test_dependencies_are_the_declared_the_step_before_and_the_referenced() -> None:
    plan = a_plan(
        a_step("a"),
        a_step("b"),
        a_step("c", depends_on=["a"], input={"text": "{{steps.b.output}}"}),
        a_step("d", depends_on=[]),
    )
    assert dependencies(plan) == {"a": (), "b": ("a",), "c": ("a", "b"), "d": ()}


def test_words_below_the_deciding_line() -> None:
    assert words_below("done\n\nall of it\n") == "all of it"
    assert words_below("done") == ""


def test_a_step_far_from_a_change_keeps_its_ancestors() -> None:
    state = derive(facts(a_plan(a_step("a"), a_step("b"), a_step("c", depends_on=["a", "b"]))), means())
    assert state.graph is not None
    assert state.graph.ancestors("c") == {"a", "b"}
