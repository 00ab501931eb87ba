"""A step that is a run of its own, in every small world: nothing is begun twice, nothing ends before it."""

from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest

from agentfs.core import actions as acts
from agentfs.core.decide import decide
from agentfs.core.facts import RUN, Above, Attempt, Child, ChildNamed, Facts, apply
from agentfs.core.outcome import outcome_of
from agentfs.core.records import Parent
from agentfs.core.run_state import derive
from agentfs.core.underway import Underway
from tests.builders import NOW, a_plan, a_revision, a_step, an_order, facts, means

CHILD = "2026-11-16/goal-build"
USES = {"uses": "runbooks/build.md"}
BUILD = a_step("build", tool=RUN, input=USES, depends_on=[])
OTHER = a_step("other", depends_on=[])
ENDED = outcome_of(derive(facts(a_plan()), means()), acts.EndRun("done", "steps_done", "done"), NOW)
CHILDREN = {
    "named": Child(CHILD),
    "made": Child(CHILD, there=True),
    "begun": Child(CHILD, begun=True, there=True),
    "over": Child(CHILD, begun=True, there=True, outcome=ENDED),
    "deleted": Child(CHILD, begun=True),
}
STATUSES = ("approved", "paused", "draft", "cancelled")
NOW_PLANNED = {
    "same": (BUILD, OTHER),
    "changed": (a_step("build", tool=RUN, input=USES | {"params": {"a": 1}}, depends_on=[]), OTHER),
    "left": (OTHER,),
}
WORLDS = list(product(STATUSES, (None, *get_args(Above)), CHILDREN, NOW_PLANNED))


def world(status: str, above: Above | None, child: str, planned: str) -> Facts:
    first = a_plan(BUILD, OTHER)
    view = derive(facts(first), means()).steps["build"]
    order = an_order(view, repeatable=False)
    plan = a_plan(*NOW_PLANNED[planned], status=status)
    given = facts(first, attempts={"build": (Attempt(1, order=order, claimed=True, child=CHILDREN[child]),)})
    revisions = (*given.revisions, a_revision(2, plan, first))
    file = replace(given.plan_file, plan=plan, sha256=revisions[-1].plan_sha256)
    parent = Parent(run="2026-11-16/above", step="s", attempt=1) if above else None
    run = given.run.model_copy(update={"parent": parent})
    return replace(given, run=run, plan=plan, plan_file=file, revisions=revisions, above=above)


def decided(given: Facts) -> list[acts.Action]:
    return decide(derive(given, means()), 4, NOW, Underway())


@pytest.mark.parametrize(("status", "above", "child", "planned"), WORLDS)
def test_in_every_small_world(status: str, above: Above | None, child: str, planned: str) -> None:
    given = world(status, above, child, planned)
    found = decided(given)
    assert found, "every state yields an action"
    about = [one for one in found if getattr(one, "view", None) and one.view.id == "build"]  # type: ignore[union-attr]
    held, cancelled = status in ("paused", "draft") or above == "paused", "cancelled" in (status, above)
    over = child in ("over", "deleted")
    assert any(isinstance(one, acts.TakeOutcome) for one in found) == over, "its end is taken, whatever else holds"
    assert not any(isinstance(one, acts.EndRun) for one in found), "no run ends before those in it"
    assert not any(isinstance(one, acts.IssueOrder) for one in about), "nothing is begun twice"
    starts = [one for one in about if isinstance(one, acts.StartAttempt)]
    may_begin = child in ("named", "made") and planned == "same" and not held and not cancelled
    assert bool(starts) == may_begin
    stops = [one for one in found if isinstance(one, acts.StopAttempt)]
    assert bool(stops) == (child in ("named", "made") and (cancelled or planned != "same")), "what has begun runs out"
    if child == "begun":
        assert [one.on for one in found if isinstance(one, acts.Wait)] in (["child"], [], ["attempt"])


def test_it_takes_no_place() -> None:
    steps = [a_step(f"b{number}", tool=RUN, input=USES, depends_on=[]) for number in range(3)]
    given = facts(a_plan(*steps, OTHER), limits={"parallel": 1})
    for step in steps:
        order = an_order(derive(given, means()).steps[step.id], repeatable=False)
        given = apply(ChildNamed(order, f"2026-11-16/goal-{step.id}", begun=True), given)
    assert [type(one) for one in decided(given)] == [acts.IssueOrder]


@pytest.mark.parametrize(("has_steps", "move"), [(True, "order"), (False, "ask")])
def test_of_a_planners_plan_each_is_approved(has_steps: bool, move: str) -> None:
    fields: dict[str, Any] = {"has_steps": has_steps}
    assert derive(facts(a_plan(BUILD), **fields), means(planner=True)).steps["build"].move == move
