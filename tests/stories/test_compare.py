"""`compare` from outside: two runs side by side."""

import json
import re

from agentfs.commands.cost import compare_lines
from agentfs.models.budget import Tokens
from tests.stories.test_cost import converse
from tests.workspaces import Place

ONE = "### a\n```sh\necho a\n```\n### b\n```sh\necho b\n```\n"
TWO = "### a\n```sh\necho A\n```\n### c\n```sh\nexit 3\n```\nretries: 0\n"


def test_two_runs_side_by_side(place: Place) -> None:
    place.agentfs("run", place.runbook(ONE, name="one.md"))
    place.agentfs("run", place.runbook(TWO, name="two.md"), code=1)
    day = place.run_folder("one").parent.name
    steps = place.run_folder("one") / "steps"
    converse(steps / "a.1.log.jsonl", ("executor", "gpt-5-mini", Tokens(1_000, 0, 50), 0.25))
    lines = place.agentfs("compare", "one", "two").stdout.splitlines()
    assert [re.split(r"\s{2,}", line) for line in lines if not line.startswith(("time", "start"))] == [
        ["", f"{day}/one", f"{day}/two"],
        ["state", "done", "failed"],
        ["", "2 of 2 steps done (claimed, not checked)", "c failed: exit code 3; 1 of 2 steps done, 1 failed"],
        ["mode", "auto", "auto"],
        ["planner", "no model asked", "no model asked"],
        ["executor", "gpt-5-mini", "no model asked"],
        ["steps done", "2 of 2", "1 of 2, 1 failed"],
        ["attempts", "2", "2"],
        ["revisions", "1", "1"],
        ["calls (replans)", "1 (0)", "1 (0)"],
        [""],
        ["executor: requests", "1", "-"],
        ["", "tokens in", "1,000", "-"],
        ["", "tokens out", "50", "-"],
        ["", "cost", "$0.2500", "-"],
        [""],
        ["total: requests", "1", "0"],
        ["", "tokens in", "1,000", "0"],
        ["", "tokens out", "50", "0"],
        ["", "cost", "$0.2500", "$0.00"],
        [""],
        ["they have different goals"],
        [""],
        [f"plans: {day}/one -> {day}/two"],
        [""],
        ["- b", "removed"],
        [""],
        ["~ a", "changed"],
        ["", "input.command: echo a -> echo A"],
        [""],
        ["+ c", "added"],
        ["", "after a"],
        ["", "tool: shell"],
        ["", "input.command: exit 3"],
        ["", "max_attempts: 1"],
    ]
    page = json.loads(place.agentfs("compare", "one", "two", "--json").stdout)
    assert [(side["planner"], side["executor"]) for side in page["runs"]] == [(None, "gpt-5-mini"), (None, None)]
    assert max(map(len, compare_lines(page, 40, colours=False)[:20])) <= 44
    assert max(map(len, compare_lines(page, 80, colours=False)[:20])) <= 80


def test_a_fork_beside_what_it_came_from_and_a_run_without_a_plan(place: Place) -> None:
    place.agentfs("run", place.runbook(ONE))
    day = place.run_folder().parent.name
    place.agentfs("fork", "job")
    assert "plans: there are not two to compare yet" in place.agentfs("compare", "job", "job-2").stdout
    place.agentfs("run", "--resume", "job-2")
    page = json.loads(place.agentfs("compare", "job", "job-2", "--json").stdout)
    assert (page["same_goal"], page["plan"], page["steps"]) == (True, [], [])
    assert [side["run"] for side in page["runs"]] == [f"{day}/job", f"{day}/job-2"]
    assert [side["steps"] for side in page["runs"]] == [{"done": 2, "failed": 0, "skipped": 0, "total": 2}] * 2
    shown = place.agentfs("compare", "job", "job-2").stdout
    assert f"{day}/job-2 is a fork of {day}/job@1:\n" in shown
    assert "  nothing differs by meaning" in shown
    assert "no run" in place.agentfs("compare", "job", "nothing-such", code=2).stderr
