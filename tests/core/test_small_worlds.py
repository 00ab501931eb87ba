"""Every world of three steps: whatever the files say, the run ends, or waits for a person with a reason, and never loops.

By default a sample of them; every one with `./test --full`.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.actions import Wait
from agentfs.core.facts import Attempt, Facts, Talk
from agentfs.core.run_state import derive
from agentfs.core.steps import StepView
from tests.builders import LATER, PureWorld, Verdict, a_plan, a_result, a_step, an_order, facts, means
from tests.sweeps import some

SHAPES: dict[str, dict[str, list[str]]] = {
    "chain": {"a": [], "b": ["a"], "c": ["b"]},
    "independent": {"a": [], "b": [], "c": []},
    "fan out": {"a": [], "b": ["a"], "c": ["a"]},
    "fan in": {"a": [], "b": [], "c": ["a", "b"]},
}

# What the files of one step can say, given its view while it is fresh: the fields of its attempts.
Condition = Callable[[StepView], tuple[Attempt, ...]]


def _result(view: StepView, status: Any, **fields: Any) -> tuple[Attempt, ...]:
    return (Attempt(1, order=an_order(view), claimed=True, result=a_result(view, status, 1, **fields)),)


CONDITIONS: dict[str, Condition] = {
    "fresh": lambda _view: (),
    "ordered": lambda view: (Attempt(1, order=an_order(view)),),
    "ordered for another plan": lambda view: (Attempt(1, order=an_order(view).model_copy(update={"key": "1" * 64})),),
    "running": lambda view: (Attempt(1, order=an_order(view), claimed=True),),
    "done": lambda view: _result(view, "done"),
    "done for another plan": lambda view: _result(view, "done", key="1" * 64),
    "done, set aside": lambda view: (replace(_result(view, "done")[0], again=True),),
    "surprising": lambda view: _result(view, "done", surprising=True, surprise="odd"),
    "failed once": lambda view: _result(view, "failed"),
    "failed, later again": lambda view: _result(view, "failed", retry_at=LATER),
    "failed twice": lambda view: (
        *_result(view, "failed"),
        Attempt(2, order=an_order(view, number=2), claimed=True, result=a_result(view, "failed", 2)),
    ),
    "blocked": lambda view: (Attempt(1, result=a_result(view, "blocked", 1, started_at=None)),),
    "rejected": lambda view: (
        Attempt(1, talks=(Talk(key=view.key, reply="reject"),), result=a_result(view, "rejected", 1)),
    ),
    "cut off": lambda view: _result(view, "interrupted"),
    "cut off, again": lambda view: (replace(_result(view, "interrupted")[0], talks=(Talk(reply="again"),)),),
    "cut off, done": lambda view: (replace(_result(view, "interrupted")[0], talks=(Talk(reply="Done\nit is"),)),),
    "cut off, nonsense": lambda view: (replace(_result(view, "interrupted")[0], talks=(Talk(reply="maybe"),)),),
    "asked": lambda view: (Attempt(1, talks=(Talk(key=view.key),)),),
    "approved": lambda view: (Attempt(1, talks=(Talk(key=view.key, reply=" APPROVE \n"),)),),
    "refused": lambda view: (Attempt(1, talks=(Talk(key=view.key, reply="reject\nno"),)),),
    "approved for another order": lambda _view: (Attempt(1, talks=(Talk(key="1" * 64, reply="approve"),)),),
}

POLICIES: list[dict[str, Any]] = [
    {},
    {"gate": True},
    {"repeatable": False},
    {"on_failure": "continue"},
    {"on_failure": "stop", "max_attempts": 1},
    {"skip": "not today"},
    {"retry_wait_s": 10, "max_attempts": 3},
]


def _world(shape: dict[str, list[str]], policy: dict[str, Any], conditions: tuple[str, ...], **more: Any) -> Facts:
    """Three steps, the second with a policy of its own, each with its files in some condition."""
    steps = [a_step(name, depends_on=after, **(policy if name == "b" else {})) for name, after in shape.items()]
    given = facts(a_plan(*steps), **more)
    for name, condition in zip(shape, conditions, strict=True):
        view = derive(given, means()).steps[name]
        if files := CONDITIONS[condition](view):
            for attempt in files:
                given = given.with_attempt(name, attempt)
    return given


def _rests(given: Facts, world: PureWorld) -> None:
    """The run ends with an outcome, or a person is shown what it waits for."""
    end, actions = world.play(given)
    waits = [action for action in actions if isinstance(action, Wait)]
    assert waits
    assert waits[0].why
    assert (end.outcome is not None) == (waits[0].on == "nothing")


FEWER = [
    "fresh",
    "ordered",
    "running",
    "done",
    "done for another plan",
    "surprising",
    "failed once",
    "failed twice",
    "blocked",
    "cut off",
    "asked",
    "approved",
]


@pytest.mark.parametrize("first", CONDITIONS)
def test_every_chain_of_three_steps_comes_to_rest(first: str) -> None:
    for others in some([*itertools.product(CONDITIONS, repeat=2)], 40, about=first):
        conditions = (first, *others)
        policy = POLICIES[sum(map(len, conditions)) % len(POLICIES)]
        _rests(_world(SHAPES["chain"], policy, conditions), PureWorld())


@pytest.mark.parametrize("shape", ["independent", "fan out", "fan in"])
def test_every_shape_of_three_steps_comes_to_rest(shape: str) -> None:
    for conditions in some([*itertools.product(FEWER, repeat=3)], 120, about=shape):
        policy = POLICIES[sum(map(len, conditions)) % len(POLICIES)]
        _rests(_world(SHAPES[shape], policy, conditions), PureWorld())


@pytest.mark.parametrize("policy", range(len(POLICIES)))
@pytest.mark.parametrize("fate", ["done", "failed", "interrupted", "blocked"])
@pytest.mark.parametrize("budget", [0, 1])
def test_every_condition_meets_every_policy_fate_and_budget(policy: int, fate: Any, budget: int) -> None:
    verdicts: tuple[Verdict, ...] = ("plan", "keep", "impossible")
    cases = [*itertools.product(SHAPES, verdicts, (True, False), CONDITIONS)]
    for shape, verdict, planner, condition in some(cases, 40, about=f"{policy} {fate} {budget}"):
        before = "done" if shape != "independent" else "fresh"
        given = _world(
            SHAPES[shape],
            POLICIES[policy],
            (before, condition, "fresh"),
            has_steps=not planner,
            limits={"replans": budget, "attempts": 2},
        )
        world = PureWorld(
            fate=lambda step, _number: fate if step.startswith("b") else "done",
            surprising=frozenset({"a", "b"}) if fate == "done" else frozenset(),
            verdict=verdict,
            planner=planner,
        )
        _rests(given, world)


@pytest.mark.parametrize("reply", [None, "approve", "reject", "novel", "", "yes", "approved", "approve it", "no"])
def test_a_surprise_without_a_planner_waits_for_exactly_one_word(reply: str | None) -> None:
    given = facts(a_plan(a_step("a"), a_step("b")))
    world = PureWorld(surprising=frozenset({"a"}))
    asked, actions = world.play(given)
    assert actions == [Wait("person", "the planner's answer needs approval: planning/2.question.md")]
    answered = asked.with_call(replace(asked.planner_call(2), talks=(Talk(reply=reply),)))
    end, _ = world.play(answered)
    status = end.outcome.status if end.outcome else "waiting"
    assert status == {"approve": "done", "reject": "failed"}.get(reply or "", "waiting")


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("planner", [True, False])
@pytest.mark.parametrize("budget", [0, 1, 3])
def test_the_goals_checks_decide_the_end(holds: bool, planner: bool, budget: int) -> None:
    from agentfs.core.records import CommandCheck

    given = facts(a_plan(a_step("a")), has_steps=not planner, limits={"replans": budget})
    given = replace(given, goal=replace(given.goal, checks=(CommandCheck(kind="command", run="true"),)))
    end, _ = PureWorld(goal_holds=holds, planner=planner).play(given)
    assert end.outcome is not None
    expected = ("done", "steps_done")
    if not holds:
        exhausted = planner and budget == 0
        expected = ("failed", "replan_budget_exhausted" if exhausted else "goal_checks_failed")
    assert (end.outcome.status, end.outcome.reason) == expected
