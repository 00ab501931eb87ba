"""Recordings with something rare in them, made in this process, and played again."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import JsonObject
from agentfs.models.base import Reply, Request
from agentfs.models.capabilities import Payload
from agentfs.replay.playback import difference
from agentfs.replay.recording import Try, Unreplayable
from agentfs.replay.replay import replay
from agentfs.testing import ScriptedServer
from agentfs.tools.secrets import SecretMask
from tests.drives import Drive, Driven
from tests.scripts import Script, Turn, call, calls, finish, verdict
from tests.workspaces import Place, end, wait_for

TOOLS = ["shell", "summarize", "note"]
STEP: dict[str, Any] = {
    "id": "look",
    "description": "Look at it",
    "tools": TOOLS,
    "input": {"n": 1},
    "depends_on": [],
}


def goes_as_it_went(drive: Drive) -> None:
    assert replay(drive.folder, environment={}).departures == ()


def test_a_limit_that_a_loop_reached(tmp_path: Path) -> None:
    place = Driven(tmp_path / "w", AGENTFS_LIMITS_REQUESTS="2")
    drive = place.begin([STEP], Script([calls(call("shell", command="echo 1"))] * 3))
    assert drive.result("look")["error"]["kind"] == "limit"
    goes_as_it_went(drive)


def test_time_that_was_up(tmp_path: Path) -> None:
    slow = {**STEP, "timeout_s": 1, "max_attempts": 1}
    drive = Driven(tmp_path / "w").begin([slow], Script([calls(call("shell", command="sleep 30"))]))
    assert drive.result("look")["error"]["kind"] == "timeout"
    goes_as_it_went(drive)


def test_a_step_that_was_edited_while_a_model_did_it(tmp_path: Path) -> None:
    place = Driven(tmp_path / "w")

    def edited(_request: Request) -> Any:
        (plan,) = place.workspace.runs.glob("*/job/plan.json")
        plan.write_text(plan.read_text(encoding="utf-8").replace("Look at it", "Look well"), encoding="utf-8")
        return calls(call("shell", command="sleep 30"))

    turns: list[Turn] = [calls(call("shell", command="echo 1")), edited, finish("seen")]
    drive = place.begin([{**STEP, "repeatable": True, "checks": [{"kind": "output", "schema": {}}]}], Script(turns))
    assert (drive.result("look", 1)["error"]["kind"], drive.result("look", 2)["output"]) == ("superseded", "seen")
    goes_as_it_went(drive)


def test_loops_side_by_side_a_judge_a_summary_and_circles(tmp_path: Path) -> None:
    def answer(request: Request) -> Any:
        if request.role == "judge":
            return verdict(met=True, quote="The output is: seen")
        messages = json.dumps(request.messages)
        if not request.offers:
            return Reply("short")
        if "in circles" in messages:
            return calls(call("shell", command="echo again"))
        return finish("seen") if "short" in messages else calls(call("summarize", text="long"))

    steps = [
        {**STEP, "id": "one", "success_condition": "it was seen"},
        {**STEP, "id": "two", "success_condition": "it was seen"},
        {**STEP, "id": "round", "description": "Go in circles", "max_attempts": 1, "on_failure": "continue"},
    ]
    drive = Driven(tmp_path / "w").begin(steps, Script([answer] * 40))
    assert drive.driver.facts.outcome is not None
    assert drive.driver.facts.outcome.status == "done"
    goes_as_it_went(drive)


def test_a_loop_that_asks_twice(tmp_path: Path) -> None:
    place = Driven(tmp_path / "w")
    step = {**STEP, "tools": ["ask"], "checks": [{"kind": "output", "schema": {}}]}
    asks: list[Turn] = [calls(call("ask", question="Which?"))]
    place.begin([step], Script(asks)).answer("look.1.reply.md", "blue")
    place.go_on(Script([*asks])).answer("look.1.reply-2.md", "red")
    drive = place.go_on(Script([finish("seen")]))
    assert drive.result("look")["output"] == "seen"
    goes_as_it_went(drive)


def test_a_failed_run_that_was_resumed_with_two_failures(tmp_path: Path) -> None:
    book = "### one\nafter: nothing\n```sh\ncat one\n```\n### two\nafter: nothing\n```sh\ncat two\n```\n"
    place = Place(tmp_path)
    place.agentfs("run", place.runbook(book), code=1)
    for name in ("one", "two"):
        (place.run_folder() / "files" / name).write_text(name, encoding="utf-8")
    place.agentfs("run", "--resume", "job")
    assert replay(place.run_folder(), environment={}).departures == ()


def test_a_run_that_was_cancelled_while_a_step_ran(tmp_path: Path) -> None:
    place = Place(tmp_path)
    process = place.begin("run", place.runbook("### wait\n```sh\ntouch here; sleep 60\n```\n"))
    wait_for(lambda: any(place.runs.glob("*/job/files/here")), "the step")
    place.agentfs("cancel", "job")
    assert end(process, signal.SIGCONT)[0] == 1
    assert place.read("steps/wait.1.result.json")["error"]["kind"] == "cancelled"
    assert replay(place.run_folder(), environment={}).departures == ()


def test_a_rule_that_has_changed_is_one_departure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfs.core.steps.attempts_allowed", lambda *_, **__: 1)
    replayed = replay(Path(__file__).parent.parent / "recordings" / "shop", environment={})
    (found,) = [departure for departure in replayed.departures if not departure.request]
    assert (found.file, found.what, found.recorded) == ("steps/read.2.json", "", "it is there")
    assert found.came.startswith("nothing: call planner: read: exit code 1")


def test_an_output_that_was_cut_and_is_read_as_a_file(tmp_path: Path) -> None:
    place = Driven(tmp_path / "w", AGENTFS_LIMITS_OUTPUT_BYTES="300")
    write = {"id": "write", "tool": "shell", "input": {"command": "seq 1 1000"}}
    read = {"id": "read", "tool": "shell", "input": {"command": 'wc -l < "{{steps.write.file}}"'}}
    drive = place.begin([write, read], Script([]))
    assert (drive.result("write")["cut"], drive.result("read")["output"]) == (True, "1000")
    goes_as_it_went(drive)


@pytest.fixture
def lesser() -> Iterator[ScriptedServer]:
    """An endpoint that takes neither schemas nor tools."""
    with ScriptedServer(refuses=["json_schema", "tool_choice", "tools"]) as server:
        yield server


def test_an_endpoint_that_takes_less(tmp_path: Path, lesser: ScriptedServer) -> None:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": lesser.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    done = {"ok": True, "output": "53", "surprising": None, "blocked": None, "evidence": []}
    step = {"id": "look", "description": "look", "tools": ["shell"], "depends_on": []}
    lesser.says(json.dumps({"steps": [{**step, "success_condition": "a number is told"}]}))
    lesser.says("```sh\necho it is 53\n```")
    lesser.says(json.dumps({"tool": "finish", "arguments": done}))
    lesser.says('{"met": true, "because": "so", "quote": "The output is: 53"}')
    place.agentfs("run", place.goal("Reckon\n"), "--mode", "split")
    assert replay(place.run_folder(), environment={}).departures == ()


def test_a_program_as_the_planner(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.agentfs("init")
    plan = {
        "steps": [{"id": "tell", "tool": "shell", "input": {"command": "echo 1"}, "success_condition": "it tells"}]
    }
    (place.root / "plan.txt").write_text(json.dumps(plan), encoding="utf-8")
    command = json.dumps(["cat", str(place.root / "plan.txt")])
    (place.root / "agentfs.toml").write_text(f'[planner]\nkind = "command"\ncommand = {command}\n', encoding="utf-8")
    place.agentfs("run", place.goal("Tell\n"), "--mode", "split")
    assert replay(place.run_folder(), environment={}).departures == ()


def test_what_is_no_run_cannot_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(Unreplayable, match=r"is not a run: there is no run\.json"):
        replay(tmp_path)


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────

BRIEFING = "# Goal\n\nTidy\n\n# Working folder\n\n{}\n\n# Tools\n\n- shell\n\n# Limits left\n\n3 replans, {} minutes of work."


def sent(text: str) -> Try:
    return Try(
        1, "planner", "gpt-5", ({"role": "system", "content": "Plan."}, {"role": "user", "content": text}), {}, None
    )


def compared(was: str, now: str) -> tuple[str, str, str] | None:
    messages: tuple[JsonObject, ...] = ({"role": "system", "content": "Plan."}, {"role": "user", "content": now})
    return difference(Payload(messages, {}), sent(was), SecretMask({"A_KEY": "secret-value"}), lambda text: text)


def test_the_working_folder_the_minutes_and_secrets_are_no_difference() -> None:
    assert compared(BRIEFING.format("It is empty.", 120), BRIEFING.format("```\na.txt  3 bytes\n```", 119)) is None
    assert compared("the key is [secret A_KEY]", "the key is secret-value") is None


def test_the_first_difference_is_shown_with_what_is_around_it() -> None:
    was, now = f"{'a' * 100}b{'c' * 200}", f"{'a' * 100}d"
    found = ("message 2 (user), content", f"…{'a' * 30}b{'c' * 119}…", f"…{'a' * 30}d")
    assert compared(was, now) == found
