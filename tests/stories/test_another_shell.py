"""The key is in the service's environment only: a person operates its runs from a shell that has none.

What is stored is judged by what run.json says. Only a driver needs a model, and one without waits: exit code 4.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.daemons import Watching
from tests.workspaces import Place, wait_for


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def service(server: ScriptedServer) -> dict[str, str]:
    """What only the service has in its environment."""
    return {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-of-the-service"}


def by_model(name: str, **more: Any) -> dict[str, Any]:
    """A step that a model does."""
    fields = {"id": name, "description": f"do {name}", "tools": ["note"], "success_condition": f"{name} is done"}
    return {**fields, "depends_on": [], **more}


def first_plan(server: ScriptedServer) -> None:
    judged = [{"kind": "judge", "condition": "it is said"}]
    say = {"id": "say", "description": "say", "tool": "note", "input": {"text": "said"}, "depends_on": []}
    server.plan(
        {
            "steps": [
                {**say, "success_condition": "it is said", "checks": judged},
                by_model("paint", depends_on=["say"]),
            ]
        }
    )


def test_a_draft_of_the_service_is_operated_without_a_key(
    place: Place, server: ScriptedServer, service: dict[str, str]
) -> None:
    place.agentfs("init")
    first_plan(server)
    with Watching(place, under=("env", *(f"{name}={value}" for name, value in service.items()))) as daemon:
        daemon.drop("job.md", "Tidy the shop\n")
        daemon.wait_for_output("job: waits: ")
        assert place.read("run.json")["models"]["executor"] == "gpt-5-mini"
        listed = json.loads(place.agentfs("status", "--json").stdout)
        assert [(one["state"], one["why"]) for one in listed] == [("draft", "the plan is a draft: approve it")]
        assert "not valid" not in place.agentfs("status", "job").stdout
        assert "not valid" not in place.agentfs("show", "job").stdout
        plan = place.run_folder() / "plan.json"
        assert "ok" in place.agentfs("check", str(plan)).stderr
        edited = place.goal(plan.read_text().replace("do paint", "do paint the wall"), "other.json")
        assert "paint" in place.agentfs("check", "--against", "job", edited).stdout
        place.agentfs("skip", "job", "paint", "--because", "not today")
        place.agentfs("skip", "--undo", "job", "paint")
        place.agentfs("approve", "job", "--dry-run")
        assert "nothing drives it" not in place.agentfs("cancel", "job").stderr
        assert daemon.outcome("job")["status"] == "cancelled"
        place.agentfs("restore", "job@1")
        wait_for(lambda: not (place.run_folder() / "outcome.json").exists(), "the run to go on")
    server.done()


def test_a_run_of_the_service_waits_for_its_key_when_a_shell_without_drives_it(
    place: Place, server: ScriptedServer, service: dict[str, str]
) -> None:
    first_plan(server)
    place.agentfs("plan", place.goal("Tidy the shop\n"), env=service)
    place.agentfs("approve", "job")
    stopped = place.agentfs("resume", "job", code=4)
    assert "there is no model to" in stopped.stderr
    assert [path.name for path in place.run_folder().glob("planning/2*")] == []
    assert not (place.run_folder() / "plan.error.md").exists()
    assert not (place.run_folder() / "outcome.json").exists()
    for words in (("pause",), ("status",), ("show",)):
        place.agentfs(*words, "job")
    assert "resume" in place.agentfs("status", "job").stdout
    judged = {"met": True, "because": "so it says", "quote": "The output is: said"}
    server.plan(judged)
    for _ in range(2):  # a claim with nothing done is sent back once
        server.calls(("finish", {"ok": True, "output": "painted", "evidence": "painted all of it"}))
    server.plan({"met": True, "because": "so it says", "quote": "The output is: painted"})
    assert place.agentfs("resume", "job", env=service).stdout == "painted\n"
    server.done()


def test_a_failed_step_of_a_planned_run_asks_for_its_planner(
    place: Place, server: ScriptedServer, service: dict[str, str]
) -> None:
    fails = {"id": "a", "description": "a", "tool": "shell", "input": {"command": "exit 3"}, "depends_on": []}
    server.plan({"steps": [{**fails, "success_condition": "it works", "max_attempts": 1}]})
    place.agentfs("run", place.goal("Tidy the shop\n"), "--mode", "split", "--approve", "plan", env=service, code=3)
    place.agentfs("approve", "job")
    stopped = place.agentfs("resume", "job", code=4)
    assert "no model is configured to plan with" in stopped.stderr
    server.plan({"impossible": "nothing helps"})
    place.agentfs("resume", "job", env=service, code=1)
    assert place.read("outcome.json")["reason"] == "impossible"


def test_a_run_that_began_without_a_model_says_so_to_every_reader(place: Place, service: dict[str, str]) -> None:
    place.agentfs("plan", place.runbook("### a\n```sh\necho a\n```\n"))
    models = place.read("run.json")["models"]
    assert (models["planner"], models["executor"]) == (None, None)
    plan = place.run_folder() / "plan.json"
    value = json.loads(plan.read_text())
    value["steps"].append(by_model("paint"))
    other = place.goal(json.dumps(value), "other.json")
    for env in ({}, service):
        output = place.agentfs("check", "--against", "job", other, env=env, code=2).stdout
        assert "(it began without a model)" in output
        assert f"agentfs fork {plan.parent.parent.name}/job" in output
    forked = place.agentfs("fork", "job", env=service).stdout.strip()
    assert "paint" in place.agentfs("check", "--against", forked, other).stdout


def test_a_search_engine_that_only_the_service_knows(place: Place) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text("[tools]\nnetwork = true\n")
    engine = {"AGENTFS_TOOLS_WEB_SEARCH_URL": "http://127.0.0.1:9/"}
    step = '### find\ngate\n```web_search\n{"query": "shops"}\n```\n'
    place.agentfs("run", place.runbook(step), env=engine, code=3)
    assert "not valid" not in place.agentfs("status", "job").stdout
    place.agentfs("reject", "job", "--because", "no")
    assert "rejected" in place.agentfs("resume", "job", code=1).stderr
