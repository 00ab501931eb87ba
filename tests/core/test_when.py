"""`when`: a condition that skips a step. Given these files, then this state; and every small world with one."""

import itertools
from typing import Any

import pytest

from agentfs.core.actions import EndRun, IssueOrder, Wait
from agentfs.core.decide import decide
from agentfs.core.facts import Attempt, Facts, Talk
from agentfs.core.records import CheckResult, Step
from agentfs.core.run_state import derive
from agentfs.core.steps import StepView, condition_sha256
from tests.builders import PureWorld, a_plan, a_result, a_step, an_order, facts, means

WHEN = {"kind": "command", "run": "test -f migrate.sql"}
OTHER = {"kind": "file", "path": "migrate.sql"}


def the_plan(*more: Step, **fields: Any) -> Facts:
    return facts(a_plan(a_step("a", **{"when": WHEN, **fields}), *more))


def view_of(given: Facts, step: str = "a") -> StepView:
    return derive(given, means()).steps[step]


def skipped(given: Facts, step: str = "a", **more: Any) -> Facts:
    view = view_of(given, step)
    assert view.condition is not None
    found = CheckResult(kind="command", ok=False, detail="exit code 1", run="test -f migrate.sql")
    fields = {"checks": (found,), "error": None, "started_at": None, **more}
    result = a_result(view, "skipped", when_sha256=condition_sha256(view.condition), **fields)
    return given.with_attempt(step, Attempt(view.next, result=result))


def test_a_condition_is_looked_at_before_the_order() -> None:
    view = view_of(the_plan())
    assert (view.status, view.move, view.condition) == ("ready", "order", view.resolved and view.resolved.when)
    assert view_of(facts(a_plan(a_step("a")))).condition is None


def test_a_step_whose_condition_does_not_hold_is_skipped_and_says_why() -> None:
    view = view_of(skipped(the_plan()))
    why = "its condition does not hold: `test -f migrate.sql`: exit code 1"
    assert (view.status, view.why, view.satisfied, view.conditional) == ("skipped", why, True, True)


def test_what_comes_after_goes_on_and_what_uses_its_output_is_skipped_too() -> None:
    uses = a_step("c", depends_on=["a"], input={"text": "{{steps.a.output}}"})
    given = skipped(the_plan(a_step("b", depends_on=["a"]), uses))
    assert view_of(given, "b").status == "ready"
    after = view_of(given, "c")
    assert (after.status, after.conditional) == ("skipped", True)
    assert after.why == "uses the output of a, which has none"


def test_the_condition_is_no_part_of_the_key() -> None:
    assert view_of(the_plan()).key == view_of(facts(a_plan(a_step("a")))).key


@pytest.mark.parametrize("changed", [{"when": OTHER}, {"when": None}, {"input": {"text": "other"}}])
def test_an_edit_of_condition_or_step_has_it_looked_at_again(changed: dict[str, Any]) -> None:
    attempts = skipped(the_plan()).attempts["a"]
    edited = facts(a_plan(a_step("a", **{"when": WHEN, **changed})), attempts={"a": attempts})
    view = view_of(edited)
    assert (view.status, view.move) == ("ready", "order")
    assert (view.condition is None) == (changed.get("when", WHEN) is None)


def test_a_result_counts_when_a_condition_is_added_or_taken_out_later() -> None:
    done = facts(a_plan(a_step("a")))
    done = done.with_attempt("a", Attempt(1, claimed=True, result=a_result(view_of(done), "done")))
    assert view_of(facts(a_plan(a_step("a", when=WHEN)), attempts=done.attempts)).status == "done"


def test_a_dependency_that_ran_again_has_it_looked_at_again() -> None:
    first = a_step("first")
    given = facts(a_plan(first, a_step("a", when=WHEN)))
    given = given.with_attempt("first", Attempt(1, result=a_result(view_of(given, "first"), "done")))
    given = skipped(given)
    assert view_of(given).status == "skipped"
    given = given.with_attempt("first", Attempt(2, result=a_result(view_of(given, "first"), "done", 2)))
    assert view_of(given).condition is not None


def test_it_is_looked_at_once() -> None:
    """An order was written, or a person asked about one: it held. A retry by a person looks again."""
    given = the_plan()
    view = view_of(given)
    failed = Attempt(1, order=an_order(view), claimed=True, result=a_result(view, "failed"))
    again = view_of(given.with_attempt("a", failed))
    assert (again.move, again.condition) == ("order", None)
    aside = Attempt(1, order=an_order(view), claimed=True, result=a_result(view, "failed"), again=True)
    assert view_of(given.with_attempt("a", aside)).condition is not None
    gated = the_plan(gate=True)
    assert view_of(gated).condition is not None
    asked = gated.with_attempt("a", Attempt(1, talks=(Talk(key=view_of(gated).key, reply="approve"),)))
    assert (view_of(asked).move, view_of(asked).condition) == ("order", None)


def test_a_reference_in_a_condition_is_a_dependency_and_part_of_its_hash() -> None:
    first = a_step("first", depends_on=[])
    when = {"kind": "command", "run": "test {{steps.first.output}} = yes"}
    given = facts(a_plan(first, a_step("a", depends_on=[], when=when)))
    assert view_of(given).status == "waiting"
    given = given.with_attempt("first", Attempt(1, result=a_result(view_of(given, "first"), "done", output="no")))
    assert view_of(skipped(given)).status == "skipped"


def test_a_last_step_that_is_skipped_is_enough_for_done() -> None:
    assert [type(one) for one in decide(derive(skipped(the_plan()), means()), 1)] == [EndRun]
    end, _ = PureWorld(false=frozenset("a")).play(the_plan())
    assert end.outcome is not None
    assert (end.outcome.status, end.outcome.steps.skipped) == ("done", ("a",))


def test_a_step_left_out_by_hand_alone_is_not() -> None:
    end, _ = PureWorld().play(facts(a_plan(a_step("a", skip="not today"))))
    assert end.outcome is not None
    assert (end.outcome.status, end.outcome.reason) == ("failed", "step_failed")


SHAPES: dict[str, dict[str, list[str]]] = {
    "chain": {"a": [], "b": ["a"], "c": ["b"]},
    "independent": {"a": [], "b": [], "c": []},
    "fan in": {"a": [], "b": [], "c": ["a", "b"]},
}
POLICIES: list[dict[str, Any]] = [
    {},
    {"gate": True},
    {"on_failure": "continue"},
    {"needs": [WHEN]},
    {"repeatable": False},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", range(len(POLICIES)))
def test_every_small_world_with_conditions_comes_to_rest(shape: str, policy: int) -> None:
    """Whatever holds and whatever fails, it ends or waits for a person, and a step runs iff its condition holds."""
    for false, fate, uses in itertools.product(
        itertools.chain.from_iterable(itertools.combinations("abc", size) for size in range(4)),
        ("done", "failed", "interrupted"),
        (False, True),
    ):
        steps = [
            a_step(
                name,
                depends_on=after,
                when=WHEN,
                **(POLICIES[policy] if name == "b" else {}),
                **({"input": {"text": "".join(f"{{{{steps.{one}.output}}}}" for one in after)}} if uses else {}),
            )
            for name, after in SHAPES[shape].items()
        ]
        fates: dict[str, Any] = {"b": fate}
        world = PureWorld(lambda step, _number, fates=fates: fates.get(step, "done"), false=frozenset(false))  # type: ignore[misc]
        end, actions = world.play(facts(a_plan(*steps)))
        (wait,) = actions
        assert isinstance(wait, Wait)
        assert (end.outcome is not None) == (wait.on == "nothing"), (false, fate, uses)
        for name in false:
            assert all(one.result and one.result.status == "skipped" for one in end.attempts.get(name, ()))
        if end.outcome and end.outcome.status == "done":
            ends = end.outcome.steps
            assert {*ends.done, *ends.skipped, *ends.failed} == set("abc")
            assert set(false) <= {*ends.skipped}


def test_a_place_is_taken_while_a_gates_condition_is_looked_at() -> None:
    plan = a_plan(a_step("a", depends_on=[], gate=True, when=WHEN), a_step("b", depends_on=[]))
    actions = decide(derive(facts(plan), means()), 1)
    assert [type(one).__name__ for one in actions] == ["AskPerson"]
    assert not any(isinstance(one, IssueOrder) for one in actions)
