"""In which phase a run is, and why, as people see it."""

from dataclasses import replace
from typing import Literal

import pytest

from agentfs.core.attention import phase, reason
from agentfs.core.facts import Attempt, Facts, PlanFile
from agentfs.core.problems import Problem
from agentfs.core.run_state import derive
from tests.builders import PureWorld, a_call, a_plan, a_step, an_order, facts, means, plan_sha

WIDE = a_plan(*(a_step(name, depends_on=[]) for name in "abcde"))


def _running(given: Facts, *steps: str) -> Facts:
    for step in steps:
        view = derive(given, means()).steps[step]
        given = given.with_attempt(step, Attempt(1, order=an_order(view), claimed=True))
    return given


def _asked() -> Facts:
    return PureWorld().play(facts(a_plan(a_step("a", gate=True))))[0]


def _edited(given: Facts, status: Literal["approved", "paused"]) -> Facts:
    """Return the facts after a person set the status in the file, before anything drives the run again."""
    plan = a_plan(a_step("a"), status=status)
    return replace(given, plan_file=PlanFile(plan_sha(plan), plan))


@pytest.mark.parametrize(
    ("given", "expected", "why"),
    [
        (facts(), "planning", "there is no plan yet"),
        (facts().with_call(replace(facts().planner_call(1), call=a_call(1))), "planning", "the planner is thinking"),
        (facts(WIDE), "running", "a is next"),
        (_running(facts(WIDE), "a"), "running", "a is running"),
        (_running(facts(WIDE), *"abcd"), "running", "a, b, c and 1 more are running"),
        (facts(a_plan(a_step("a"), status="draft")), "draft", "the plan is a draft: approve it"),
        (facts(a_plan(a_step("a"), status="paused")), "paused", "the plan is paused: resume it"),
        (_edited(facts(a_plan(a_step("a"))), "paused"), "paused", "plan.json was edited"),
        (_edited(facts(a_plan(a_step("a"), status="paused")), "approved"), "running", "plan.json was edited"),
        (_edited(facts(a_plan(a_step("a"), status="draft")), "approved"), "running", "plan.json was edited"),
        (_asked(), "waiting", "a: needs approval"),
        (
            replace(facts(WIDE), plan_file=PlanFile("f" * 64, None, (Problem("bad"),)), notes={"plan.error.md": "x"}),
            "waiting",
            "plan.json is not valid: see plan.error.md",
        ),
        (facts(a_plan(a_step("a", skip="no"))), "running", "it is about to end"),
        (PureWorld().play(facts(a_plan(a_step("a"))))[0], "done", "1 of 1 steps done"),
        (
            PureWorld().play(facts(a_plan(a_step("a"), status="cancelled")))[0],
            "cancelled",
            "cancelled; 0 of 1 steps done",
        ),
    ],
)
def test_phases(given: Facts, expected: str, why: str) -> None:
    state = derive(given, means())
    assert (phase(state), reason(state)) == (expected, why)
