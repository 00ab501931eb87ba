"""The folder of an isolated run: given who uses it, then who may start."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.actions import Action, IssueOrder, JobKey, Wait
from agentfs.core.decide import decide
from agentfs.core.facts import Attempt, Facts, Talk
from agentfs.core.records import Step
from agentfs.core.run_state import Means, derive
from agentfs.core.underway import Underway, use_of
from agentfs.engine.means import means_with
from agentfs.tools.registry import specs
from tests.builders import NOW, a_plan, a_result, a_step, an_order, facts

ISOLATED = replace(means_with(specs()), isolated=True, executor=True)
COMMAND, FILE, OUTPUT = (
    {"kind": "command", "run": "true"},
    {"kind": "file", "path": "a"},
    {"kind": "output", "schema": {}},
)


def free(name: str, tool: str | None = "note", **fields: Any) -> Step:
    given = {"shell": {"command": "true"}, "read_file": {"path": "a"}, "note": {"text": name}, None: None}
    return a_step(name, tool=tool, **{"input": given.get(tool), "depends_on": [], **fields})


def started(given: Facts, underway: Underway | None = None, means: Means = ISOLATED) -> list[str]:
    found = decide(derive(given, means), 8, NOW, underway)
    return [one.view.id for one in found if isinstance(one, IssueOrder)]


def under_way(given: Facts, step: str, **more: Any) -> Facts:
    order = an_order(derive(given, ISOLATED).steps[step])
    return given.with_attempt(step, Attempt(1, order=order, claimed=True, **more))


@pytest.mark.parametrize(
    ("step", "use"),
    [
        (free("a", "note"), "apart"),
        (free("a", "http_get", input={"url": "http://x"}), "apart"),
        (free("a", "read_file"), "reads"),
        (free("a", "note", checks=[FILE]), "reads"),
        (free("a", "note", checks=[OUTPUT]), "apart"),
        (free("a", "note", checks=[COMMAND]), "writes"),
        (free("a", "note", needs=[COMMAND]), "writes"),
        (free("a", "note", when=COMMAND), "writes"),
        (free("a", "write_file", input={"path": "a", "content": ""}), "writes"),
        (free("a", "shell"), "writes"),
        (free("a", "a-tool-that-is-gone", input={}), "writes"),
        (free("a", None, tools=["read_file", "ask"]), "reads"),
        (free("a", None, tools=["read_file", "edit_file"]), "writes"),
        (free("a", None), "writes"),
        (free("a", None, agent="codex"), "writes"),
    ],
)
def test_how_a_step_uses_the_folder(step: Step, use: str) -> None:
    assert use_of(step, ISOLATED) == use


def test_steps_without_a_tool_write_where_an_agent_does_them() -> None:
    assert use_of(free("a", None, tools=["read_file"]), replace(ISOLATED, agent=True)) == "writes"


ALL = facts(a_plan(free("w", "shell"), free("x", "shell"), free("r", "read_file"), free("s", "read_file"), free("n")))


@pytest.mark.parametrize(
    ("running", "more"),
    [("", "wn"), ("w", "n"), ("r", "sn"), ("rs", "n"), ("n", "w")],
)
def test_one_that_may_write_is_alone_and_those_that_read_are_together(running: str, more: str) -> None:
    given = ALL
    for step in running:
        given = under_way(given, step)
    assert started(given) == [*more]


def test_in_a_run_that_is_not_isolated_all_start() -> None:
    assert started(ALL, means=replace(ISOLATED, isolated=False)) == [*"wxrs"]  # limits.parallel


def test_what_a_process_is_doing_counts_before_there_is_a_file() -> None:
    """The needs of x are being looked at: there is no order yet, and w comes first in the plan."""
    assert started(ALL, Underway({JobKey("attempt", "x", 1): False})) == ["n"]
    assert started(ALL, Underway({JobKey("checks", "", 2): False})) == ["n"]


def test_an_attempt_that_waits_with_a_question_keeps_the_folder_and_the_run_rests() -> None:
    loop = free("l", None, description="do it", tools=["write_file", "ask"], checks=[OUTPUT])
    given = facts(a_plan(loop, free("w", "shell"), free("n")))
    asking = under_way(given, "l", talks=(Talk(1),))
    assert started(asking) == ["n"]
    view = derive(asking, ISOLATED).steps["n"]
    done = asking.with_attempt("n", Attempt(1, claimed=True, result=a_result(view, "done")))
    assert decided(done) == [Wait("person", "l: waits for a person's answer")]


def decided(given: Facts) -> list[Action]:
    return decide(derive(given, ISOLATED), 8, NOW, Underway())


def test_a_question_by_itself_keeps_nobody_out() -> None:
    ask = free("q", "ask", input={"question": "?"}, checks=[COMMAND])
    given = facts(a_plan(ask, free("w", "shell")))
    assert started(under_way(given, "q", talks=(Talk(1),))) == ["w"]


def test_an_attempt_of_a_step_that_left_the_plan_keeps_the_folder() -> None:
    gone = under_way(facts(a_plan(free("old", "shell"), free("w", "shell"))), "old")
    order = gone.attempt("old", 1).order
    assert order is not None
    assert json.loads(order.model_dump_json())["tool"] == "shell"
    left = facts(a_plan(free("w", "shell"), free("n"))).with_attempt("old", gone.attempt("old", 1))
    assert started(left) == ["n"]
