"""Whatever a person does to a run of three steps, twice in a row: it ends, or waits with a reason, and never loops.

By default a sample of such pairs; every one with `./test --full`.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.actions import Wait
from agentfs.core.facts import Attempt, Facts, PlanFile, Talk
from agentfs.core.problems import Problem
from agentfs.core.records import Plan, Step
from agentfs.core.run_state import derive
from tests.builders import PureWorld, a_plan, a_step, facts, means, plan_sha
from tests.sweeps import some

Act = Callable[[Facts], Facts]


def _saved(change: Callable[[list[Step]], list[Step]] = lambda steps: steps, **fields: Any) -> Act:
    """A save of plan.json with other steps, another status or other limits."""

    def act(given: Facts) -> Facts:
        if given.plan is None:
            return given
        steps = change(list(given.plan.steps))
        keep = {"status": given.plan.status, "limits": given.plan.limits and given.plan.limits.model_dump()}
        plan: Plan = a_plan(*steps, **{**keep, **fields})
        return replace(given, plan_file=PlanFile(plan_sha(plan), plan))

    return act


def _with_b(**fields: Any) -> Callable[[list[Step]], list[Step]]:
    return lambda steps: [step.model_copy(update=fields) if step.id == "b" else step for step in steps]


def _without_b(steps: list[Step]) -> list[Step]:
    left = [step for step in steps if step.id != "b"]
    return [
        step.model_copy(update={"depends_on": tuple(d for d in step.depends_on or () if d != "b")}) for step in left
    ]


def _reply(words: str) -> Act:
    """The same reply to every open question."""

    def act(given: Facts) -> Facts:
        for step, attempts in given.attempts.items():
            last: Attempt = attempts[-1]
            if last.talks and last.talks[-1].reply is None:
                talks = (*last.talks[:-1], replace(last.talks[-1], reply=words))
                given = given.with_attempt(step, replace(last, talks=talks))
        for one in given.calls:
            if one.talks and one.talks[-1].reply is None:
                talks = (*one.talks[:-1], replace(one.talks[-1], reply=words))
                given = given.with_call(replace(one, talks=talks))
        return given

    return act


def _again(step: str) -> Act:
    """Set the latest attempt of a step aside, and reopen the run if it has ended: that is `retry`."""

    def act(given: Facts) -> Facts:
        if attempts := given.attempts.get(step):
            given = given.with_attempt(step, replace(attempts[-1], again=True))
        return replace(given, outcome=None)

    return act


def _resume(given: Facts) -> Facts:
    for step, attempts in given.attempts.items():
        if (result := attempts[-1].result) and result.status in ("failed", "blocked", "rejected"):
            given = given.with_attempt(step, replace(attempts[-1], again=True))
    return replace(_saved(status="approved")(given), outcome=None)


ACTS: dict[str, Act] = {
    "edit b": _saved(_with_b(input={"text": "new"})),
    "add d": _saved(lambda steps: [*steps, a_step("d", depends_on=["a"])]),
    "remove b": _saved(_without_b),
    "skip b": _saved(_with_b(skip="not today")),
    "gate b": _saved(_with_b(gate=True)),
    "free b": _saved(_with_b(gate=None, skip=None)),
    "draft": _saved(status="draft"),
    "pause": _saved(status="paused"),
    "approve": _saved(status="approved"),
    "cancel": _saved(status="cancelled"),
    "top up": _saved(limits={"replans": 9, "minutes": 99}),
    "spoil": lambda given: replace(given, plan_file=PlanFile("f" * 64, None, (Problem("bad"),))),
    "fix": lambda given: replace(given, plan_file=PlanFile(given.revisions[-1].plan_sha256, given.plan)),
    "say approve": _reply("approve"),
    "say reject": _reply("reject\nno"),
    "say again": _reply("again"),
    "say done": _reply("done\nit is"),
    "say failed": _reply("failed"),
    "say novel": _reply("novel"),
    "retry a": _again("a"),
    "retry b": _again("b"),
    "resume": _resume,
    "reopen": lambda given: replace(given, outcome=None),
}
POLICIES: list[dict[str, Any]] = [
    {},
    {"gate": True},
    {"repeatable": False},
    {"repeatable": False, "gate": True},
    {"on_failure": "continue"},
    {"on_failure": "stop", "max_attempts": 1},
    {"tool": "ask", "input": {"question": "?"}},
    {"retry_wait_s": 10, "gate": True},
]
SHAPES = {"chain": {"a": [], "b": ["a"], "c": ["b"]}, "fan in": {"a": [], "b": [], "c": ["a", "b"]}}


@pytest.mark.parametrize("policy", range(len(POLICIES)))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fate", ["done", "failed", "interrupted"])
def test_two_acts_of_a_person_always_come_to_rest(shape: str, policy: int, fate: Any) -> None:
    steps = [
        a_step(n, depends_on=after, **(POLICIES[policy] if n == "b" else {})) for n, after in SHAPES[shape].items()
    ]
    world = PureWorld(fate=lambda step, number: fate if step == "b" and number < 3 else "done")
    start, _ = world.play(facts(a_plan(*steps)))
    for first, second in some([*itertools.product(ACTS, ACTS)], 50, about=f"{shape} {policy} {fate}"):
        middle, _ = world.play(ACTS[first](start))
        end, actions = world.play(ACTS[second](middle))
        waits = [action for action in actions if isinstance(action, Wait)]
        assert waits, (first, second)
        assert (end.outcome is not None) == (waits[0].on == "nothing"), (first, second, actions)


def test_an_ended_run_stays_ended_whatever_is_edited_until_it_is_reopened() -> None:
    done, _ = PureWorld().play(facts(a_plan(a_step("a"), a_step("b"))))
    assert done.outcome is not None
    edited, _ = PureWorld().play(ACTS["edit b"](done))
    assert edited.outcome == done.outcome
    reopened, _ = PureWorld().play(replace(edited, outcome=None))
    assert reopened.outcome is not None
    assert [len(reopened.attempts[step]) for step in "ab"] == [1, 2]
    assert len(reopened.revisions) == 2


def test_a_question_of_an_ask_takes_no_place_and_any_words() -> None:
    plan = a_plan(a_step("who", tool="ask", input={"question": "?"}, depends_on=[]), a_step("b", depends_on=[]))
    start, actions = PureWorld(slots=1).play(facts(plan))
    assert actions == [Wait("person", "who: waits for a person's answer")]
    assert derive(start, means()).steps["b"].status == "done"
    answered = start.with_attempt("who", replace(start.attempt("who", 1), talks=(Talk(reply="Ada"),)))
    end, _ = PureWorld().play(answered)
    assert end.outcome is not None
    assert end.outcome.status == "done"
