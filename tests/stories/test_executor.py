"""Steps that a model does, behind a real endpoint: from the outside, by the installed command."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

PLANNER, EXECUTOR = "gpt-5", "gpt-5-mini"
SOME_TEXT = {"kind": "output", "schema": {"type": "string", "minLength": 3}}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    return place


def finish(output: Any = "done", *, ok: bool = True, **more: Any) -> tuple[str, dict[str, Any]]:
    return "finish", {"ok": ok, "output": output, "surprising": None, "blocked": None, "evidence": [], **more}


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


def by_model(name: str, *tools: str, **fields: Any) -> dict[str, Any]:
    """A step without a tool, as a planner writes one."""
    return {
        "id": name,
        "description": f"do {name}",
        "tools": list(tools),
        "success_condition": f"The output names what {name} found in the folder",
        "depends_on": [],
        **fields,
    }


def verdict(met: bool, quote: str) -> dict[str, Any]:
    return {"met": met, "because": "look at it", "quote": quote}


def sent(server: ScriptedServer, model: str) -> list[str]:
    """Return what a model was sent, request by request, as text."""
    return [json.dumps(request, ensure_ascii=False) for request in server.requests if request["model"] == model]


def test_a_small_goal_is_done_in_one_loop_without_a_planner(place: Place, server: ScriptedServer) -> None:
    server.calls(write("slow.md", "the login test, it sleeps"), to=EXECUTOR)
    server.calls(("read_file", {"path": "slow.md"}), to=EXECUTOR)
    server.calls(finish("the login test", evidence=["it sleeps"]), to=EXECUTOR)
    done = place.agentfs("run", "Find the slowest test and write why to slow.md", "--workdir", ".")
    assert done.stdout == "the login test\n"
    assert (place.root / "slow.md").read_text() == "the login test, it sleeps"
    name = "find-the-slowest-test-and-write-why-to-slow-md"
    assert place.read("revisions/1.json", name)["by"]["role"] == "agentfs"
    result = place.read("steps/do.1.result.json", name)
    assert (result["status"], result["evidence"], result["usage"]["requests"]) == ("done", ["it sleeps"], 3)
    assert place.read("outcome.json", name)["usage"]["planner"] is None
    server.done()


def test_a_planned_step_is_done_by_the_other_model_and_judged(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [by_model("colour", "list_files", success_condition="A colour is named")]}, to=PLANNER)
    server.calls(("list_files", {"path": "."}), to=EXECUTOR)
    server.calls(finish('{"colour": "blue"}'), to=EXECUTOR)
    server.plan(verdict(True, '"colour": "blue"'), to=EXECUTOR)
    done = place.agentfs("run", place.goal("Name a colour\n"), "--mode", "split")
    assert json.loads(done.stdout) == {"colour": "blue"}
    result = place.read("steps/colour.1.result.json")
    assert result["checks"] == [
        {
            "kind": "judge",
            "ok": True,
            "detail": 'look at it (it quotes: \'"colour": "blue"\')',
            "run": None,
            "hint": None,
        }
    ]
    server.done()


def test_a_claim_without_proof_is_tried_again_with_the_reason(place: Place, server: ScriptedServer) -> None:
    step = by_model("report", "write_file", checks=[{"kind": "file", "path": "report.md"}])
    server.plan({"steps": [step]}, to=PLANNER)
    server.calls(("write_file", {"path": "notes.md", "content": "a report is due"}), to=EXECUTOR)
    server.calls(finish("I wrote report.md"), to=EXECUTOR)
    server.calls(write("report.md", "all is well"), to=EXECUTOR)
    server.calls(finish("now it is there"), to=EXECUTOR)
    done = place.agentfs("run", place.goal("Report\n"), "--mode", "split")
    assert done.stdout == "now it is there\n"
    assert place.read("steps/report.1.result.json")["error"]["kind"] == "check"
    first, _, second, _ = sent(server, EXECUTOR)
    assert ("report.md is not there" in first, "the file check failed" in second) == (False, True)
    server.done()


def test_a_question_inside_a_step_is_answered_by_a_command(place: Place, server: ScriptedServer) -> None:
    server.calls(("ask", {"question": "Which colour?"}))
    waits = place.agentfs("run", place.goal("Paint the shop\n"), code=3)
    assert "do.1.question.md" in waits.stderr
    assert "Which colour?" in (place.run_folder() / "steps/do.1.question.md").read_text()
    status = place.agentfs("status", "job")
    assert "waits for a person's answer" in status.stdout
    assert "agentfs resume" in place.agentfs("reply", "job", "do", "Blue").stderr
    server.calls(("ask", {"question": "Dark or light?"}))
    again = place.agentfs("run", "--resume", "job", code=3)
    assert "do.1.question-2.md" in again.stderr
    place.agentfs("reply", "job", "do", "dark")
    server.calls(finish("painted dark blue"))
    assert place.agentfs("run", "--resume", "job").stdout == "painted dark blue\n"
    assert [message["role"] for message in server.requests[-1]["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant", "tool")
    ]
    assert place.read("steps/do.1.result.json")["usage"]["requests"] == 3
    server.done()


def test_a_loop_that_hands_over_goes_on_with_a_planner(place: Place, server: ScriptedServer) -> None:
    server.calls(("hand_over", {"why": "it takes nine pieces of work"}), to=EXECUTOR)
    server.plan({"steps": [by_model("one", "note", checks=[SOME_TEXT])]}, to=PLANNER)
    server.calls(("note", {"text": "one"}), to=EXECUTOR)
    server.calls(finish("one of nine"), to=EXECUTOR)
    server.plan(verdict(True, "The output is: one of nine"), to=EXECUTOR)
    done = place.agentfs("run", place.goal("Move the shop\n"))
    assert done.stdout == "one of nine\n"
    assert place.read("planning/2.json")["trigger"] == "drift"
    assert "it takes nine pieces of work" in sent(server, PLANNER)[0]
    server.done()


def test_a_server_without_tools_is_spoken_to_in_text(place: Place, tmp_path: Path) -> None:
    with ScriptedServer(refuses=["tools"]) as server:
        place.env["OPENAI_BASE_URL"] = server.url
        server.says('```json\n{"name": "list_files", "arguments": {"path": "."}}\n```')
        server.says("There is nothing. I am done.")
        ends = {"name": "finish", "arguments": finish("nothing there")[1]}
        server.says(f"```json\n{json.dumps(ends)}\n```")
        done = place.agentfs("run", place.goal("Look around\n"))
        assert done.stdout == "nothing there\n"
        assert "If the step is done, reply DONE" in json.dumps(server.requests[-1]["messages"])
        server.done()


def test_an_unreachable_model_is_reported_in_a_line_and_the_run_stays(place: Place, server: ScriptedServer) -> None:
    place.env["OPENAI_BASE_URL"] = "http://127.0.0.1:9/v1"
    done = place.agentfs("run", place.goal("Look around\n"), code=4)
    assert "127.0.0.1:9" in done.stderr
    assert place.read("steps/do.1.result.json")["error"]["kind"] == "unreachable"
    place.env["OPENAI_BASE_URL"] = server.url
    server.calls(("list_files", {}))
    server.calls(finish("here"))
    assert place.agentfs("run", "--resume", "job").stdout == "here\n"


JUDGED = "checks:\n  - {kind: judge, condition: A colour is named}"
COLOUR = "### paint\n```sh\necho blue\n```\n"


def test_a_judge_of_the_goal_who_is_not_reached_says_nothing_of_the_goal(
    place: Place, server: ScriptedServer
) -> None:
    server.fails(401, "Incorrect API key provided")
    done = place.agentfs("run", place.runbook(COLOUR, JUDGED), code=4)
    assert "the goal's own checks could not be judged" in done.stderr
    assert not (place.run_folder() / "outcome.json").exists()
    found = place.read("planning/2.checks.json")
    assert (found["checks"], found["error"]["kind"]) == ([], "unreachable")
    server.plan(verdict(True, "The output is: blue"))
    assert place.agentfs("run", "--resume", "job").stdout == "blue\n"
    assert place.read("outcome.json")["reason"] == "steps_done"


def test_a_judge_of_the_goal_for_whom_there_is_no_room_is_asked_after_a_top_up(
    place: Place, server: ScriptedServer
) -> None:
    done = place.agentfs("run", place.runbook(COLOUR, f"{JUDGED}\nlimits: {{requests: 0}}"), code=3)
    assert "limits.requests" in done.stderr
    server.plan(verdict(True, "The output is: blue"))
    assert place.agentfs("resume", "job", "--add-requests", "1").stdout == "blue\n"
    server.done()


def test_nothing_leaks_over_the_wire(place: Place, server: ScriptedServer) -> None:
    """Words of one step, of the plan and of the tools' outputs are in no other step's requests unless it refers to them."""
    first = by_model("raccoon", "write_file", "read_file", why="walrus", success_condition="lynx.txt holds a zebra", checks=[{"kind": "file", "path": "lynx.txt"}])  # fmt: skip
    second = by_model("gibbon", "list_files", input={"given": "{{steps.raccoon.output}}"}, depends_on=["raccoon"], checks=[SOME_TEXT])  # fmt: skip
    server.plan({"steps": [first, second]}, to=PLANNER)
    server.calls(write("lynx.txt", "badger"), to=EXECUTOR)
    server.calls(("read_file", {"path": "lynx.txt"}), to=EXECUTOR)
    server.calls(finish("41 eels", surprising="heron", evidence=["marmot"]), to=EXECUTOR)
    server.plan({"keep": True}, to=PLANNER)
    server.calls(("list_files", {"path": ".", "pattern": "*.md"}), to=EXECUTOR)
    server.calls(finish("done"), to=EXECUTOR)
    server.plan(verdict(True, "The output is: done"), to=EXECUTOR)
    place.agentfs("run", place.goal("Count the otters\n\nIn the pond, gently.\n"), "--mode", "split")
    server.done()
    executor, planner = sent(server, EXECUTOR), sent(server, PLANNER)
    judged = executor.pop()
    assert [word for word in ("raccoon", "walrus", "badger", "heron", "planner") if word in judged] == []
    for request in executor[3:]:
        assert "41 eels" in request
        assert "Count the otters" in request
        words = ("raccoon", "walrus", "zebra", "lynx", "badger", "heron", "marmot", "gently", "planner")
        assert [word for word in words if word in request] == []
    for request in executor[:3]:
        assert [word for word in ("gibbon", "walrus", "gently") if word in request] == []
    replan = planner[1]
    assert ("41 eels" in replan, "heron" in replan, "marmot" in replan) == (True, True, True), "what finish returned"
    assert "tool_calls" not in replan
    assert "badger" not in replan, "what a tool gave back in the executor's conversation"
