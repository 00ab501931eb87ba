"""What a fork takes along: pure tables."""

from dataclasses import replace

import pytest

from agentfs.core.continuation import Carried, find_carried, first_call, takes_plan_along
from agentfs.core.paths import fork_source
from agentfs.core.planner_calls import is_forks_own
from agentfs.core.records import Mode
from tests.builders import PureWorld, a_plan, a_run, a_step, facts, means

PLAN = a_plan(a_step("a"), a_step("b", depends_on=["a"]), a_step("c", depends_on=[]))
LOOP = a_plan(a_step("do", tool=None, tools=["note"]))


def test_what_counts_goes_along_and_what_does_not_is_left() -> None:
    played, _ = PureWorld().play(facts(PLAN))
    other = a_plan(a_step("a", input={"text": "else"}), a_step("b", depends_on=["a"]), a_step("c", depends_on=[]))
    assert find_carried(played, means(), PLAN) == Carried({"a": 1, "b": 1, "c": 1}, (), ())
    assert find_carried(played, means(), other) == Carried({"c": 1}, (), ("a", "b"))


def test_a_failure_that_holds_nothing_up_goes_along() -> None:
    plan = a_plan(a_step("a", on_failure="continue", max_attempts=1), a_step("b", depends_on=["a"]))
    played, _ = PureWorld(fate=lambda step, _: "failed" if step == "a" else "done").play(facts(plan))
    assert find_carried(played, means(), plan).attempts == {"a": 1, "b": 1}


def test_a_surprise_that_a_planner_has_seen_stays_seen_but_a_runbook_asks_again() -> None:
    world = PureWorld(planner=True, surprising=frozenset({"a"}))
    played, _ = world.play(facts(PLAN, has_steps=False))
    assert played.plan is not None
    assert "steps/a.1.result.json" in find_carried(played, means(planner=True), played.plan).evidence
    own = replace(played, goal=replace(played.goal, has_steps=True))
    assert find_carried(own, means(planner=True), played.plan).evidence == ()


@pytest.mark.parametrize(
    ("mode", "plan", "along"),
    [
        (None, PLAN, True),
        ("auto", LOOP, True),
        ("split", PLAN, True),
        ("split", LOOP, False),
        ("single", PLAN, False),
        ("scratchpad", LOOP, False),
    ],
)
def test_one_loop_and_several_steps_are_no_continuation_of_each_other(mode: Mode, plan: object, along: bool) -> None:
    chosen = LOOP if plan is LOOP else PLAN
    assert takes_plan_along(facts(chosen, has_steps=False), chosen, mode) is along
    assert takes_plan_along(facts(chosen), chosen, mode)


def test_only_the_call_a_fork_was_made_with_is_its_own() -> None:
    source = fork_source("2026-11-16/job", 3)
    call, answer = first_call("0" * 64, source, {"steps": []}, ())
    forked = a_run().model_copy(update={"source": source})
    assert (answer.call, answer.verdict) == (1, "plan")
    assert is_forks_own(call, forked)
    assert not is_forks_own(call.model_copy(update={"call": 2}), forked)
    assert not is_forks_own(call.model_copy(update={"detail": "there is no plan yet"}), forked)
    assert not is_forks_own(call, a_run())
