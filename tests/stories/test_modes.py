"""How a goal in words is driven, mode by mode, and the four ways in which one loop drifts and goes on as a split run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

PLANNER, EXECUTOR = "gpt-5", "gpt-5-mini"
GOAL = "Tidy the shop\n"
CHECKED = "---\nchecks:\n  - kind: file\n    path: report.md\n---\nWrite a report.\n"
FIX: dict[str, Any] = {
    "id": "fix",
    "description": "Write the report",
    "tool": "write_file",
    "input": {"path": "report.md", "content": "all is well"},
    "depends_on": [],
    "success_condition": "report.md says how things are",
}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    return place


def finish(output: str = "done", **more: Any) -> tuple[str, dict[str, Any]]:
    return "finish", {"ok": True, "output": output, "surprising": None, "blocked": None, "evidence": [], **more}


def asked(server: ScriptedServer) -> list[str]:
    return [request["model"] for request in server.requests]


def offered(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request["tools"]]


def messages_of(server: ScriptedServer, number: int) -> str:
    return "\n".join(str(message["content"]) for message in server.requests[number]["messages"])


def assert_drifted(place: Place, why: str, *, kind: str = "drift") -> None:
    """The loop's one step failed in these words, the planner was called for drift, and its plan was carried out."""
    error = place.read("steps/do.1.result.json")["error"]
    assert (error["kind"], error["message"]) == (kind, why)
    call = place.read("planning/2.json")
    assert (call["trigger"], call["step"], call["evidence"]) == ("drift", "do", ["steps/do.1.result.json"])
    assert [step["id"] for step in place.read("plan.json")["steps"]] == ["fix"]
    assert not (place.run_folder() / "steps" / "do.2.json").exists(), "one loop is not tried twice"
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "agentfs planner job: revision 2, after do drifted",
        "agentfs job: done, 1 of 1 steps",
    ]
    outcome = place.read("outcome.json")
    assert (outcome["steps"]["done"], outcome["steps"]["failed"]) == (["fix"], ["do"])


# ── one loop ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_short_goal_costs_no_call_of_the_planners_model(place: Place, server: ScriptedServer) -> None:
    server.calls(("list_files", {}))
    server.calls(finish("tidy"))
    assert place.agentfs("run", place.goal(GOAL)).stdout == "tidy\n"
    assert asked(server) == [EXECUTOR, EXECUTOR]
    assert "hand_over" in offered(server.requests[0])
    assert place.read("run.json")["mode"] == "auto"
    (step,) = place.read("plan.json")["steps"]
    assert (step["id"], step.get("tool"), step["max_attempts"]) == ("do", None, 1)
    assert place.read("outcome.json")["usage"]["planner"] is None
    assert place.log() == ["agentfs job: revision 1, the first plan", "agentfs job: done, 1 of 1 steps"]


def test_single_is_one_loop_with_one_model(place: Place, server: ScriptedServer) -> None:
    server.calls(("write_file", {"path": "a.txt", "content": "1"}))
    server.calls(finish("tidy"))
    assert place.agentfs("run", place.goal(GOAL), "--mode", "single").stdout == "tidy\n"
    assert asked(server) == [EXECUTOR, EXECUTOR]
    assert place.read("revisions/1.json")["by"]["role"] == "agentfs"


def test_a_loop_that_hands_over_goes_on_as_split(place: Place, server: ScriptedServer) -> None:
    server.calls(("hand_over", {"why": "it takes nine pieces of work"}), to=EXECUTOR)
    server.plan({"steps": [FIX]}, to=PLANNER)
    place.agentfs("run", place.goal(GOAL))
    assert asked(server) == [EXECUTOR, PLANNER]
    assert_drifted(place, "it takes nine pieces of work")
    server.done()


@pytest.mark.parametrize("mode", ["auto", "single"])
def test_a_loop_that_reaches_its_turn_limit(place: Place, server: ScriptedServer, mode: str) -> None:
    place.env["AGENTFS_EXECUTOR_MAX_TURNS"] = "3"
    for number in range(3):
        server.calls(("write_file", {"path": f"{number}.txt", "content": "x"}), to=EXECUTOR)
    server.plan({"steps": [FIX]}, to=PLANNER)
    place.agentfs("run", place.goal(GOAL), "--mode", mode)
    assert_drifted(place, "it took 3 turns and did not finish")
    server.done()


def test_a_loop_that_goes_in_circles(place: Place, server: ScriptedServer) -> None:
    for _ in range(5):
        server.calls(("list_files", {"path": "."}), to=EXECUTOR)
    server.plan({"steps": [FIX]}, to=PLANNER)
    place.agentfs("run", place.goal(GOAL))
    assert "same arguments" not in messages_of(server, 2)
    assert "3 times" in messages_of(server, 3), "it is warned first"
    why = "it went in circles: it called list_files with the same arguments 5 times, with the same result"
    assert_drifted(place, why)
    server.done()


def test_a_loop_that_claims_to_be_done_against_a_failing_check(place: Place, server: ScriptedServer) -> None:
    server.calls(("list_files", {}), to=EXECUTOR)
    for _ in range(4):  # it is sent back three times
        server.calls(finish("I wrote report.md"), to=EXECUTOR)
    server.plan({"steps": [FIX]}, to=PLANNER)
    place.agentfs("run", place.goal(CHECKED))
    missing = "there is no report.md in the working folder"
    assert_drifted(place, f"it claimed to be done against a failing check: file: {missing}")
    assert missing in messages_of(server, 2), "the prompt of the loop names what is missing"
    assert missing in messages_of(server, 5), "the planner sees which check failed"
    server.done()


def test_without_a_planner_a_loop_that_drifts_has_failed(place: Place, server: ScriptedServer) -> None:
    """Only the executor has an endpoint: what the loop cannot do nobody can plan."""
    place.env |= {"AGENTFS_EXECUTOR_BASE_URL": server.url}
    del place.env["OPENAI_BASE_URL"], place.env["OPENAI_API_KEY"]
    server.calls(("hand_over", {"why": "too much"}))
    assert "do failed: too much" in place.agentfs("run", place.goal(GOAL), code=1).stderr
    assert place.read("outcome.json")["reason"] == "step_failed"
    assert asked(server) == [EXECUTOR]


# ── a scratchpad ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_scratchpad_is_written_first_and_shown_every_turn(place: Place, server: ScriptedServer) -> None:
    server.calls(("list_files", {"path": "."}))
    server.calls(("write_file", {"path": "PLAN.md", "content": "- [ ] sweep the floor\n"}))
    server.calls(("write_file", {"path": "PLAN.md", "content": "- [x] sweep the floor\n"}))
    server.calls(finish("swept"))
    place.agentfs("run", place.goal(GOAL), "--mode", "scratchpad", "--workdir", ".")
    assert asked(server) == [EXECUTOR] * 4
    assert (place.run_folder() / "files" / "PLAN.md").read_text() == "- [x] sweep the floor\n"
    assert "PLAN.md" in messages_of(server, 1).splitlines()[-1], "nothing else is done before there is a plan"
    shown = [str(request["messages"][-1]["content"]) for request in server.requests[2:]]
    assert ["- [ ] sweep" in shown[0], "- [x] sweep" in shown[1], "- [ ] sweep" in shown[1]] == [True, True, False]


def test_a_scratchpad_drifts_too(place: Place, server: ScriptedServer) -> None:
    place.env["AGENTFS_EXECUTOR_MAX_TURNS"] = "2"
    server.calls(("write_file", {"path": "PLAN.md", "content": "- [ ] think\n"}), to=EXECUTOR)
    server.says("I think.", to=EXECUTOR)
    server.plan({"steps": [FIX]}, to=PLANNER)
    place.agentfs("run", place.goal(GOAL), "--mode", "scratchpad")
    assert_drifted(place, "it took 2 turns and did not finish")


# ── a planner from the beginning ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [("--mode", "split"), ("--approve", "plan"), ("--approve", "always")])
def test_the_planner_is_asked_first(place: Place, server: ScriptedServer, words: tuple[str, ...]) -> None:
    """In split, and in auto where a person reviews plans: they get one worth reviewing."""
    server.plan({"steps": [FIX]})
    reviewed = "--approve" in words
    place.agentfs("run", place.goal(GOAL), *words, code=3 if reviewed else 0)
    assert asked(server) == [PLANNER]
    assert place.read("plan.json")["status"] == ("draft" if reviewed else "approved")
    if reviewed:
        place.agentfs("approve", "job")
        place.agentfs("run", "--resume", "job")
    assert place.read("outcome.json")["steps"]["done"] == ["fix"]


def test_stepwise_stops_at_its_number_of_steps(place: Place, server: ScriptedServer) -> None:
    goal = "---\nlimits:\n  steps: 2\n---\nCount.\n"
    for number in (1, 2):
        name = f"count-{number}"
        server.plan({"steps": [{**FIX, "id": name, "input": {"path": f"{name}.txt", "content": name}}]})
    done = place.agentfs("run", place.goal(goal), "--mode", "stepwise", code=3)
    assert "the limit of 2 steps is reached" in done.stderr
    assert asked(server) == [PLANNER, PLANNER]
    assert sorted(path.name for path in place.run_folder().glob("steps/*.1.result.json")) == [
        "count-1.1.result.json",
        "count-2.1.result.json",
    ]
