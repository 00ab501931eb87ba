"""Models that make no native calls, and models that nearly say what they mean: they are helped, not tripped."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.executor import conversation
from agentfs.models.text_protocol import FIRST
from agentfs.testing import ScriptedReply, ScriptedServer, replay
from tests.contexts import confined
from tests.workspaces import Place

pytestmark = confined


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(refuses=["tools"]) as server:
        yield server


@pytest.fixture
def native() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.env["OPENAI_API_KEY"] = "sk-a-key-for-tests"
    return place


def run(place: Place, server: ScriptedServer, *, code: int = 0, mode: str = "single") -> str:
    place.env["OPENAI_BASE_URL"] = server.url
    return str(place.agentfs("run", place.goal("Sort it\n"), "--mode", mode, code=code).stdout)


def run_step(place: Place, server: ScriptedServer, *tools: str) -> str:
    place.env["OPENAI_BASE_URL"] = server.url
    step = {
        "id": "sum",
        "description": "Add these up",
        "tools": tools,
        "input": {"material": "1 2 3"},
        "depends_on": [],
    }
    return str(place.agentfs("run", place.goal(json.dumps({"goal": "Add", "steps": [step]}), "job.json")).stdout)


def chat(server: ScriptedServer, number: int = -1) -> list[tuple[str, str]]:
    taken = [request for request in server.requests if "tools" not in request or "tools" not in server.refuses]
    return [(message["role"], message["content"]) for message in taken[number]["messages"]]


def sh(command: str) -> str:
    return f"```sh\n{command}\n```"


def test_a_goal_in_words_alone(place: Place, server: ScriptedServer) -> None:
    server.says(sh("echo 4 > n.txt; cat n.txt"))
    server.says("DONE: 4")
    assert run(place, server) == "4\n"
    (system, user, assistant, result) = chat(server)
    assert len(system[1]) < 500, "small models read slowly"
    assert "DONE" not in system[1], "one that hears of the end before it did anything ends at once"
    assert user == ("user", f"Step: Sort it\n\n{FIRST}")
    assert assistant == ("assistant", sh("echo 4 > n.txt; cat n.txt"))
    assert result == ("user", f"Result:\n4\n\n{conversation.NEXT}")
    assert chat(server, -1)[:2] == chat(server, -2)[:2], "what was read once need not be read again"
    assert replay(place.run_folder(), environment={}).departures == ()
    server.done()


def test_one_that_writes_its_calls_as_text_is_found_out_and_begins_again(
    place: Place, native: ScriptedServer
) -> None:
    native.says('```json\n{"name": "shell", "arguments": {"command": "touch too-early"}}\n```')
    native.says(sh("echo 4"))
    native.says("DONE: 4")
    assert run(place, native) == "4\n"
    assert ["tools" in request for request in native.requests] == [True, False, False]
    assert [role for role, _ in chat(native, 1)] == ["system", "user"], "nothing of the other form is left"
    assert not list(place.root.rglob("too-early")), "what the model wrote before the result was known is not run"
    assert replay(place.run_folder(), environment={}).departures == ()
    native.says(sh("echo 5"))
    native.says("DONE: 5")
    place.agentfs("run", place.goal("Sort it\n", "again.md"), "--mode", "single")
    assert "tools" not in native.requests[3], "the next run knows"
    native.done()


def test_a_model_with_native_calls_may_quote_what_it_likes(place: Place, native: ScriptedServer) -> None:
    native.calls(("shell", {"command": "echo 4"}))
    native.says(sh("touch quoted"))
    native.calls(("finish", {"ok": True, "output": "4"}))
    assert run(place, native) == "4\n"
    assert not list(place.root.rglob("quoted"))
    assert chat(native)[-1] == ("user", conversation.PROSE)
    native.done()


ENDS = {
    "done": "DONE: 4",
    "done, in a block": "```sh\nDONE: 4\n```",
    "the fields of finish": '{"ok": true, "output": "4"}',
    "ok as a word": '{"tool": "finish", "ok": "true", "output": "4"}',
    "no ok": '{"tool": "finish", "output": "4"}',
    "a number": '{"tool": "finish", "ok": true, "output": 4, "surprising": false, "blocked": "", "evidence": null}',
    "single quotes": "{'tool': 'finish', 'arguments': {'ok': True, 'output': '4', 'note': 'x'}}",
    "done, and no more": "DONE",
    "done, after thoughts": "<think>So it is 4.</think>DONE: 4",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_the_ways_to_end_a_step(place: Place, server: ScriptedServer, end: str) -> None:
    server.says(sh("echo 4"))
    server.says(end)
    assert run(place, server) == "4\n"
    server.done()


def test_a_claim_beside_the_work_waits_until_the_work_was_seen(place: Place, server: ScriptedServer) -> None:
    server.says(sh("echo 4") + "\nDONE: 5")
    server.says("DONE: 4")
    assert run(place, server) == "4\n"
    assert chat(server)[-1] == ("user", f"Result:\n4\n\nResult:\n{conversation.ALONE}\n\n{conversation.NEXT}")
    server.done()


def test_words_beside_a_block_are_answered_with_one_line(place: Place, server: ScriptedServer) -> None:
    server.says(f"I count the lines.\n{sh('touch counted')}")
    server.says("Two.")
    server.says(sh("echo 4"))
    server.says("I think it is 4.")
    server.says("DONE: 4")
    assert run(place, server) == "4\n"
    asked_again = (
        "user",
        f"Step: Sort it\n\n\n{conversation.NOTHING_RUN}\n\n{FIRST}",
    )  # of the end only when something was done
    assert chat(server, 1)[1:] == chat(server, 2)[1:] == [asked_again], "it would repeat what it is shown"
    assert chat(server, 4)[-2:] == [("assistant", "I think it is 4."), ("user", conversation.NOTHING_RUN_OR_DONE)]
    assert not list(place.root.rglob("counted"))
    server.done()


def test_a_command_that_fails_is_reported_without_hints_for_people(place: Place, server: ScriptedServer) -> None:
    server.says(sh("no-such-program"))
    server.says(sh("echo 4"))
    server.says("DONE")
    assert run(place, server) == "4\n"
    text = chat(server, 1)[-1][1]
    assert text.startswith("Result:\nIt failed (exit): exit code 127: ")
    assert text.endswith(conversation.NEXT_FAILED)
    assert "programs are looked for" not in text


@pytest.mark.parametrize("spoken", [True, False])
def test_an_end_with_nothing_done_is_sent_back_once(place: Place, spoken: bool) -> None:
    with ScriptedServer(refuses=["tools"] if spoken else []) as server:
        for _ in range(2):
            if spoken:
                server.says("DONE: sorted")
            else:
                server.calls(("finish", {"ok": True, "output": "sorted"}))
        assert run(place, server) == "sorted\n"
        text = conversation.NOTHING_RUN if spoken else conversation.NOTHING_DONE
        assert text in chat(server)[-1][1]
        server.done()


def test_a_step_that_can_be_answered_from_its_input_may_end_at_once(place: Place, native: ScriptedServer) -> None:
    native.calls(("finish", {"ok": True, "output": "6"}))
    native.plan({"met": True, "because": "so it says", "quote": "The output is: 6"})
    assert run_step(place, native, "shell") == "6\n"
    native.done()


def test_a_step_with_no_tools_is_answered_by_the_reply(place: Place, server: ScriptedServer) -> None:
    server.says("It is 6.")
    server.plan({"met": True, "because": "so it says", "quote": "The output is: It is 6."})
    assert run_step(place, server) == "It is 6.\n"
    assert "You have no tools" in chat(server, -2)[0][1]
    server.done()


def test_a_question_in_words_is_answered_and_the_words_go_on(place: Place, server: ScriptedServer) -> None:
    server.says("ASK: Which colour?")
    run(place, server, code=3)
    assert "Which colour?" in (place.run_folder() / "steps/do.1.question.md").read_text()
    place.agentfs("reply", "job", "do", "blue")
    server.says("DONE: blue")
    assert place.agentfs("run", "--resume", "job").stdout == "blue\n"
    assert chat(server)[-2:] == [
        ("assistant", "ASK: Which colour?"),
        ("user", f"Result:\nblue\n\n{conversation.NEXT}"),
    ]
    server.done()


def test_a_scratchpad_in_words(place: Place, server: ScriptedServer) -> None:
    server.says(sh("echo 4"))
    server.says('```json\n{"tool": "write_file", "path": "PLAN.md", "content": "- [ ] count"}\n```')
    server.says(sh("echo 4"))
    server.says("DONE: 4")
    assert run(place, server, mode="scratchpad") == "4\n"
    assert conversation.PLAN_FIRST in chat(server, 1)[-1][1]
    assert "- [ ] count" in chat(server, 2)[-1][1]
    server.done()


CALLS: dict[str, tuple[str, dict[str, Any] | str]] = {
    "an empty path": ("list_files", {"path": ""}),
    "null for what is not needed": ("list_files", {"path": ".", "pattern": None}),
    "nothing for what is not needed": ("list_files", {"path": ".", "pattern": ""}),
    "a prefix": ("functions.list_files", {}),
    "JSON in JSON": ("list_files", json.dumps('{"path": "."}')),
    "single quotes": ("list_files", "{'path': '.'}"),
    "a remark": ("list_files", {"path": ".", "explanation": "I look around"}),
    "an interpreter of no name": ("shell", {"command": "ls", "interpreter": ""}),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_native_calls_that_a_person_would_understand(
    place: Place, native: ScriptedServer, call: tuple[str, dict[str, Any] | str]
) -> None:
    native.calls(call)
    native.calls(("finish", {"ok": "true", "output": "seen", "surprising": None, "blocked": "none", "evidence": "x"}))
    assert run(place, native) == "seen\n"
    native.done()


def test_an_endpoint_that_cuts_every_stream_is_at_fault_and_no_attempt_has_failed(
    place: Place, native: ScriptedServer
) -> None:
    native.answer = lambda _: ScriptedReply(calls=(("shell", {"command": "echo 4"}),), ends_after=3)
    run(place, native, code=4)
    result = place.read("steps/do.1.result.json")
    assert (result["status"], result["error"]["kind"]) == ("interrupted", "unreachable")
    assert "broke off" in result["error"]["message"]
    native.answer = None
    native.calls(("shell", {"command": "echo 4"}))
    native.calls(("finish", {"ok": True, "output": "4"}))
    assert place.agentfs("run", "--resume", "job").stdout == "4\n"
