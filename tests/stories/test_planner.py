"""A goal in words, a planner behind a real endpoint: when it is called, with what, and what becomes of its answers."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place, end, path_without, wait_for


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    return place


def shell(name: str, command: str, **fields: Any) -> dict[str, Any]:
    """A step as a planner writes one."""
    return {
        "id": name,
        "description": f"do {name}",
        "tool": "shell",
        "input": {"command": command},
        "success_condition": f"the command of {name} prints its file",
        "depends_on": [],
        **fields,
    }


def run(place: Place, *words: str, code: int = 0, goal: str = "Tidy the shop\n") -> Any:
    return place.agentfs("run", place.goal(goal), "--mode", "split", *words, code=code)


def asked(server: ScriptedServer, number: int = -1) -> str:
    """Return the text of a request to the planner."""
    return json.dumps(server.requests[number]["messages"])


def triggers(place: Place) -> list[tuple[str, str | None, list[str]]]:
    calls = sorted(place.run_folder().glob("planning/*.json"), key=lambda path: (len(path.name), path.name))
    found = [json.loads(path.read_text()) for path in calls if path.name.count(".") == 1]
    return [(call["trigger"], call["step"], call["evidence"]) for call in found]


def test_a_goal_in_words_becomes_a_plan_that_is_carried_out(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("count", "echo 3"), shell("tell", "echo {{steps.count.output}} rows")]})
    done = run(place)
    assert done.stdout == "3 rows\n"
    assert place.log() == ["agentfs planner job: revision 1, the first plan", "agentfs job: done, 2 of 2 steps"]
    assert place.read("plan.json")["status"] == "approved"
    assert place.read("planning/1.result.json")["verdict"] == "plan"
    assert place.read("revisions/1.json")["by"] == {"role": "planner", "name": "planner", "model": "gpt-5"}
    assert place.read("outcome.json")["usage"]["planner"]["requests"] == 1
    server.done()


def test_a_step_that_fails_is_planned_again_and_finished_work_is_kept(place: Place, server: ScriptedServer) -> None:
    read = shell("read", "cat nothing.txt", max_attempts=2, depends_on=["make"])
    server.plan({"steps": [shell("make", "echo made >> made.txt; echo ok"), read]})
    server.plan({"steps": [shell("read-it", "cat made.txt")]})
    assert run(place).stdout == "made\n"
    evidence = ["steps/read.1.result.json", "steps/read.2.result.json"]
    assert triggers(place) == [("first", None, []), ("repeated_failure", "read", evidence)]
    assert [step["id"] for step in place.read("plan.json")["steps"]] == ["make", "read-it"]
    assert (place.run_folder() / "files" / "made.txt").read_text() == "made\n", "it was not done twice"
    assert "nothing.txt" in asked(server), "the planner sees the error"
    assert place.log()[1] == "agentfs planner job: revision 2, after read failed twice"
    body = place.git("log", "-1", "--skip=1", "--format=%B")
    assert "Agentfs-Trigger: repeated_failure\nAgentfs-Step: read\n" in body
    assert place.read("outcome.json")["steps"]["failed"] == ["read"]
    server.done()


def test_a_surprise_goes_to_the_planner_which_may_keep_the_plan(place: Place, server: ScriptedServer) -> None:
    surprising = shell("count", "echo '{\"rows\": 0}'", expects={"properties": {"rows": {"minimum": 1}}})
    server.plan({"steps": [surprising, shell("tell", "echo fine", depends_on=["count"])]})
    server.plan({"keep": True})
    assert run(place).stdout == "fine\n"
    assert triggers(place)[1] == ("unexpected_state", "count", ["steps/count.1.result.json"])
    assert place.read("planning/2.result.json")["verdict"] == "keep"
    assert len(place.log()) == 2, "a plan that is kept is no revision"


@pytest.mark.parametrize("because", ["needs", "reference"])
def test_what_cannot_start_goes_to_the_planner(place: Place, server: ScriptedServer, because: str) -> None:
    if because == "needs":
        blocked = shell("use", "cat key.txt", needs=[{"kind": "file", "path": "key.txt"}])
    else:
        blocked = shell("use", "echo {{steps.give.output.missing}}")
    server.plan({"steps": [shell("give", "echo '{\"a\": 1}'"), {**blocked, "depends_on": ["give"]}]})
    server.plan({"impossible": "there is no key"})
    done = run(place, code=1)
    evidence = "steps/use.1.result.json" if because == "needs" else "steps/give.1.result.json"
    assert triggers(place)[1] == ("step_unreachable", "use", [evidence])
    assert place.read("outcome.json")["reason"] == "impossible"
    assert "there is no key" in done.stderr


def test_the_goals_own_checks_call_the_planner_until_they_hold(place: Place, server: ScriptedServer) -> None:
    goal = "---\nchecks:\n  - kind: file\n    path: report.md\n---\nWrite a report.\n"
    server.plan({"steps": [shell("think", "echo thought")]})
    server.plan({"steps": [shell("write", "echo text > report.md; echo written")]})
    assert run(place, goal=goal).stdout == "written\n"
    assert triggers(place)[1] == ("goal_checks_failed", None, ["planning/2.checks.json"])
    server.done()


def test_replans_have_a_budget_and_a_top_up_goes_on(place: Place, server: ScriptedServer) -> None:
    goal = "---\nlimits:\n  replans: 1\n  attempts: 1\n---\nTidy.\n"
    server.plan({"steps": [shell("one", "exit 1")]})
    server.plan({"steps": [shell("two", "exit 2")]})
    run(place, code=1, goal=goal)
    outcome = place.read("outcome.json")
    assert (outcome["reason"], outcome["steps"]["failed"]) == ("replan_budget_exhausted", ["two", "one"])
    server.plan({"steps": [shell("three", "echo 3")]})
    place.agentfs("resume", "job", "--add-replans", "1")
    assert place.agentfs("run", "--resume", "job").stdout == "3\n"
    assert place.read("plan.json")["limits"] == {"replans": 2}


def test_the_goal_edited_mid_run_is_planned_again(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("wait", "echo before"), shell("end", "echo old", depends_on=["wait"], gate=True)]})
    run(place, code=3)
    server.plan({"steps": [shell("end-well", "echo new")]})
    (place.run_folder() / "goal.md").write_text("Tidy the shop, and the cellar\n")
    place.agentfs("run", "--resume", "job", code=3)
    assert "it drops what you were to approve: end" in (place.run_folder() / "planning/2.question.md").read_text()
    place.agentfs("approve", "job", "planning/2")
    assert place.agentfs("run", "--resume", "job").stdout == "new\n"
    assert triggers(place)[1] == ("goal_changed", None, [])
    assert place.log()[1] == "agentfs planner job: revision 2, after the goal changed"
    assert "cellar" in asked(server)
    assert [step["id"] for step in place.read("plan.json")["steps"]] == ["wait", "end-well"]


def test_replan_md_and_the_command_ask_for_another_plan(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("old", "echo old", gate=True)]})
    run(place, code=3)
    server.plan({"steps": [shell("new", "echo new", gate=True)]})
    (place.run_folder() / "replan.md").write_text("use the new way\n")
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job", "planning/2")
    place.agentfs("run", "--resume", "job", code=3)
    assert (place.run_folder() / "planning" / "2.asked.md").read_text() == "use the new way\n"
    assert not (place.run_folder() / "replan.md").exists()
    assert triggers(place)[1] == ("asked", None, ["planning/2.asked.md"])
    assert "use the new way" in asked(server)
    server.plan({"steps": [shell("newest", "echo newest")]})
    output = place.agentfs("replan", "job", "--because", "newer still").stderr
    assert "agentfs resume" in output
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job", "planning/3")
    assert place.agentfs("run", "--resume", "job").stdout == "newest\n"
    assert place.log()[2] == "agentfs planner job: revision 3, as asked"
    output = place.agentfs("replan", "job").stderr
    assert "outcome.json: removed" in output


def test_a_draft_is_looked_at_and_may_be_rejected(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("rash", "echo rash")]})
    place.agentfs("plan", place.goal("Tidy\n"))
    assert place.read("plan.json")["status"] == "draft"
    place.agentfs("reject", "job", "--because", "too rash")
    assert (place.run_folder() / "replan.md").read_text() == "too rash\n"
    server.plan({"steps": [shell("calm", "echo calm")]})
    place.agentfs("run", "--resume", "job", code=3)
    assert "too rash" in asked(server)
    plan = place.read("plan.json")
    assert (plan["status"], [step["id"] for step in plan["steps"]]) == ("draft", ["calm"])
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "calm\n"


def test_a_draft_whose_planner_was_not_reached_is_planned_when_it_is(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("rash", "echo rash")]})
    place.agentfs("plan", place.goal("Tidy\n"))
    place.agentfs("reject", "job")
    server.fails(401, "Incorrect API key provided")
    place.agentfs("run", "--resume", "job", code=4)
    server.plan({"steps": [shell("calm", "echo calm")]})
    place.agentfs("run", "--resume", "job", code=3)
    plan = place.read("plan.json")
    assert (plan["status"], [step["id"] for step in plan["steps"]]) == ("draft", ["calm"])


def test_where_every_answer_is_approved_a_changed_plan_waits_for_a_yes(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("one", "exit 1", max_attempts=1)]})
    run(place, "--approve", "always", code=3)
    place.agentfs("approve", "job")
    server.plan({"steps": [shell("two", "echo two")]})
    place.agentfs("run", "--resume", "job", code=3)
    question = (place.run_folder() / "planning" / "2.question.md").read_text()
    assert '- every answer that changes steps is looked at (approve = "always")\n' in question
    assert "- one  removed\n\n+ two  added\n" in question
    server.plan({"steps": [shell("three", "echo three")]})
    place.agentfs("reject", "job", "--because", "not two")
    place.agentfs("run", "--resume", "job", code=3)
    assert triggers(place)[2] == ("asked", None, ["planning/2.reply.md", "steps/one.1.result.json"])
    assert "not two" in asked(server)
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "three\n"
    assert [step["id"] for step in place.read("plan.json")["steps"]] == ["three"]


def test_stepwise_one_step_at_a_time_until_it_is_finished(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("a", "echo 48")]})
    server.plan({"steps": [shell("b", "echo {{steps.a.output}} + 5", depends_on=["a"])]})
    server.plan({"finished": True, "answer": "53"})
    done = place.agentfs("run", place.goal("Reckon\n"), "--mode", "stepwise")
    assert done.stdout == "53\n"
    assert triggers(place) == [
        ("first", None, []),
        ("next_step", "a", ["steps/a.1.result.json"]),
        ("next_step", "b", ["steps/b.1.result.json"]),
    ]
    assert place.log() == [
        "agentfs planner job: revision 1, the first plan",
        "agentfs planner job: revision 2, the next step",
        "agentfs job: done, 2 of 2 steps",
    ]
    server.done()


def test_the_planner_may_look_after_every_step(place: Place, server: ScriptedServer) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('replan = "every_step"\n')
    server.plan({"steps": [shell("a", "echo 1"), shell("b", "echo 2", depends_on=["a"])]})
    server.plan({"keep": True})
    server.plan({"keep": True})
    assert run(place).stdout == "2\n"
    assert [trigger for trigger, _, _ in triggers(place)] == ["first", "every_step", "every_step"]
    assert place.read("outcome.json")["calls"] == 3


# ── no answer ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wrong_key_is_one_line_and_exit_4_and_the_run_goes_on_later(place: Place, server: ScriptedServer) -> None:
    server.fails(401, "Incorrect API key provided")
    done = run(place, code=4)
    assert "OPENAI_API_KEY" in done.stderr
    assert "sk-a-key-for-tests" not in done.stderr
    assert place.read("planning/1.result.json")["error"]["kind"] == "unreachable"
    server.plan({"steps": [shell("one", "echo 1")]})
    assert place.agentfs("run", "--resume", "job").stdout == "1\n"
    assert triggers(place) == [("first", None, []), ("first", None, [])]


def test_a_goal_that_is_impossible_from_the_start_ends_and_may_be_asked_for_again(
    place: Place, server: ScriptedServer
) -> None:
    server.plan({"impossible": "there is no shop"})
    server.plan({"impossible": "there is no shop"})  # nothing shows it, so it is asked once more
    done = run(place, code=1)
    assert "there is no shop" in done.stderr
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"], outcome["revisions"]) == ("failed", "impossible", 0)
    assert place.git("log", "--format=%an %s").splitlines() == ["agentfs job: failed, 0 of 0 steps"]
    server.plan({"steps": [shell("one", "echo 1")]})
    place.agentfs("replan", "job", "--because", "there is one now")
    assert place.agentfs("run", "--resume", "job").stdout == "1\n"
    assert "there is one now" in asked(server)
    server.done()


def test_without_any_model_nothing_begins(place: Place) -> None:
    place.env.pop("OPENAI_API_KEY")
    place.env.pop("OPENAI_BASE_URL")
    done = place.agentfs("run", "Tidy the shop", code=4)
    assert "no model is configured" in done.stderr
    assert not list(place.runs.glob("????-??-??"))


def test_a_planner_that_never_makes_sense_waits_for_a_person(place: Place, server: ScriptedServer) -> None:
    for _ in range(3):
        server.plan({"steps": [shell("a", "echo {{steps.nowhere.output}}")]})
    done = run(place, code=3)
    assert "the planner could not answer" in done.stderr
    answer = place.read("planning/1.result.json")
    assert (answer["verdict"], answer["error"]["kind"], answer["usage"]["requests"]) == ("failed", "model", 3)
    assert "nowhere" in asked(server), "the repair quotes the problem"
    server.plan({"steps": [shell("a", "echo sense")]})
    place.agentfs("resume", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "sense\n"


def test_killed_while_the_planner_thinks_it_is_asked_again_and_every_request_counts(
    place: Place, server: ScriptedServer
) -> None:
    goal = "---\nlimits:\n  requests: 2\n---\nTidy.\n"
    server.plan({"steps": [shell("never", "echo never")]}, pause_s=60)
    process = place.begin("run", place.goal(goal), "--mode", "split")
    wait_for(lambda: len(server.requests) == 1, "the request")
    end(process, signal.SIGKILL)
    server.plan({"steps": [shell("one", "exit 1", max_attempts=1)]})
    done = place.agentfs("run", "--resume", "job", code=3)
    assert place.read("planning/1.result.json")["usage"]["requests"] == 1
    assert "the limit of 2 requests is reached" in done.stderr
    assert len(server.requests) == 2
    server.plan({"steps": [shell("two", "echo 2")]})
    place.agentfs("resume", "job", "--add-requests", "2")
    assert place.agentfs("run", "--resume", "job").stdout == "2\n"


def test_ctrl_c_while_the_planner_thinks(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("never", "echo never")]}, pause_s=60)
    process = place.begin("run", place.goal("Tidy\n"), "--mode", "split")
    wait_for(lambda: len(server.requests) == 1, "the request")
    code, _, err = end(process, signal.SIGTERM)
    assert (code, "go on with: agentfs resume" in err) == (130, True)
    assert place.read("planning/1.result.json")["verdict"] == "interrupted"
    server.plan({"steps": [shell("one", "echo 1")]})
    assert place.agentfs("run", "--resume", "job").stdout == "1\n"


def test_without_bubblewrap_a_models_programs_are_refused(
    place: Place, server: ScriptedServer, tmp_path: Path
) -> None:
    place.env["PATH"] = path_without(tmp_path, "bwrap")
    server.plan({"steps": [shell("one", "echo 1", max_attempts=1)]})
    server.plan({"impossible": "nothing can be run"})
    run(place, code=1)
    error = place.read("steps/one.1.result.json")["error"]
    assert (error["kind"], 'sandbox = "off"' in error["hint"]) == ("sandbox", True)
    server.plan({"steps": [shell("one", "echo 1")]})
    done = place.agentfs("run", "Again", "--mode", "split", env={"AGENTFS_TOOLS_SANDBOX": "off"})
    assert done.stdout == "1\n", "a person took the sandbox away"
