"""A run is recorded with a real endpoint, which then goes away; `agentfs replay` plays it again from its files."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place, end, wait_for

KEY = "sk-a-key-for-tests"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.env["TMPDIR"] = str(place.home)  # where a replay puts its files
    return place


@pytest.fixture
def server(place: Place) -> Iterator[ScriptedServer]:
    """A server that is gone when `gone` says so: what is replayed has nobody to ask, and no key."""
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}
        yield server


def shell(name: str, command: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "description": f"do {name}",
        "tool": "shell",
        "input": {"command": command},
        "success_condition": f"the command of {name} prints its file",
        "depends_on": [],
        **fields,
    }


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def replay(place: Place, *words: str, code: int = 0) -> Any:
    """Replay the run with nobody to ask, and see that the recording stays as it is."""
    before = files(place.run_folder())
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        place.env.pop(name, None)
    done = place.agentfs("replay", "job", *words, code=code)
    assert files(place.run_folder()) == before, "a replay never changes the run"
    return done


def edit_plan(place: Place, old: str, new: str) -> None:
    path = place.run_folder() / "plan.json"
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def replanned(place: Place, server: ScriptedServer) -> None:
    """Record a run with everything in it: a failure, another plan, a hand edit, a gate and its reply."""
    read = shell("read", "cat nothing.txt", depends_on=["make"], max_attempts=2)
    server.plan({"steps": [shell("make", "echo made > made.txt; echo ok"), read]})
    server.fails(429, retry_after="0")
    sent = shell("send", "echo sent {{steps.look.output}}", depends_on=["look"], gate=True)
    server.plan({"steps": [shell("look", "cat made.txt", depends_on=["make"]), sent]})
    place.agentfs("run", place.goal("Tidy the shop\n"), "--mode", "split", code=3)
    edit_plan(place, "echo sent", "echo sent off")
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "sent off made\n"


def test_a_failure_another_plan_a_hand_edit_and_a_gate(place: Place, server: ScriptedServer) -> None:
    replanned(place, server)
    done = replay(place)
    assert done.stdout == "replayed: the same 2 calls, 5 attempts, 3 revisions, outcome done\n"
    assert done.stderr == ""


def test_one_step_at_a_time(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("a", "echo 48")]})
    server.plan({"steps": [shell("b", "echo {{steps.nowhere.output}}", depends_on=["a"])]})  # sent back
    server.plan({"steps": [shell("b", "echo {{steps.a.output}} + 5", depends_on=["a"])]})
    server.plan({"finished": True, "answer": "53"})
    place.agentfs("run", place.goal("Reckon\n"), "--mode", "stepwise")
    assert replay(place).stdout == "replayed: the same 3 calls, 2 attempts, 2 revisions, outcome done\n"


@pytest.mark.parametrize("mode", ["single", "scratchpad"])
def test_a_loop_that_asks_a_person(place: Place, server: ScriptedServer, mode: str) -> None:
    server.calls(("write_file", {"path": "PLAN.md", "content": "1. look\n2. ask"}))
    server.calls(("shell", {"command": "seq 1 4000; echo 2. asked >> PLAN.md"}))
    server.calls(("shell", {"command": "exit 3"}), ("read_file", {"path": "/etc/hostname"}))
    server.calls(("ask", {"question": "Which colour?"}))
    place.agentfs("run", place.goal("Paint it\n"), "--mode", mode, code=3)
    place.agentfs("reply", "job", "do", "blue")
    server.says("I think I am done.")
    server.calls(("finish", {"ok": True, "output": "blue", "surprising": None, "blocked": None, "evidence": []}))
    assert place.agentfs("run", "--resume", "job").stdout == "blue\n"
    assert replay(place).stdout == "replayed: the same 1 call, 1 attempt, 1 revision, outcome done\n"


def test_killed_in_the_middle_of_a_loop_and_of_a_call(place: Place, server: ScriptedServer) -> None:
    goal = place.goal("Do it\n")
    server.plan({"steps": [shell("never", "echo never")]}, pause_s=60)
    process = place.begin("run", goal, "--mode", "split")
    wait_for(lambda: len(server.requests) == 1, "the call")
    end(process, signal.SIGKILL)
    step = {"id": "do-it", "description": "do it", "tools": ["shell"], "success_condition": "", "depends_on": []}
    server.plan({"steps": [{**step, "success_condition": "it says done"}]})
    server.calls(("shell", {"command": "echo one"}))
    server.says("too late", pause_s=60)
    process = place.begin("run", "--resume", "job")
    wait_for(lambda: len(server.requests) == 4, "the second turn")
    end(process, signal.SIGKILL)
    finish = {"ok": True, "output": "done", "surprising": None, "blocked": None, "evidence": []}
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("reply", "job", "do-it", "again")
    server.calls(("shell", {"command": "echo one"}))
    server.calls(("finish", finish))
    server.plan({"met": True, "because": "it says so", "quote": "The output is: done"})
    place.agentfs("run", "--resume", "job")
    assert replay(place).stdout == "replayed: the same 2 calls, 2 attempts, 1 revision, outcome done\n"


def test_the_goal_edited_mid_run_comes_from_the_ledger_or_from_a_saved_copy(
    place: Place, server: ScriptedServer
) -> None:
    server.plan({"steps": [shell("wait", "echo before"), shell("end", "echo old", depends_on=["wait"], gate=True)]})
    place.agentfs("run", place.goal("Tidy the shop\n"), "--mode", "split", code=3)
    server.plan({"steps": [shell("end-well", "echo new")]})
    (place.run_folder() / "goal.md").write_text("Tidy the shop, and the cellar\n", encoding="utf-8")
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job", "planning/2")
    place.agentfs("run", "--resume", "job")
    same = "replayed: the same 2 calls, 2 attempts, 2 revisions, outcome done\n"
    assert replay(place).stdout == same
    saved = place.root / "saved"
    assert place.agentfs("replay", "job", "--save", str(saved)).stdout == ""
    assert (saved / "planning" / "1.goal.md").read_text(encoding="utf-8") == "Tidy the shop\n"
    assert not (saved / "files").exists()
    assert place.agentfs("replay", str(saved), cwd=place.home).stdout == same
    (saved / "planning" / "1.goal.md").unlink()
    assert "the goal was edited after this call" in place.agentfs("replay", str(saved), code=2).stderr


def test_a_run_that_asked_no_model_and_one_that_waits(place: Place) -> None:
    steps = "### look\n```sh\necho 1\n```\n### send\ngate\n```sh\necho {{steps.look.output}} >> sent.txt\n```\n"
    (place.root / "shop").mkdir()
    place.agentfs("run", place.runbook(steps, "workdir: shop"), code=3)
    assert replay(place).stdout == "replayed: the same 1 call, 1 attempt, 1 revision, as far as it has come\n"
    place.agentfs("approve", "job")
    place.agentfs("run", "--resume", "job")
    assert replay(place).stdout == "replayed: the same 1 call, 2 attempts, 1 revision, outcome done\n"
    assert (place.root / "shop" / "sent.txt").read_text(encoding="utf-8") == "1\n", "nothing is run again"
    assert not list(place.home.glob("agentfs-replay-*")), "nothing is left behind"


# ── departures ────────────────────────────────────────────────────────────────────────────────────────────


def changed(path: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / path).read_text(encoding="utf-8")
        assert old in text
        (folder / path).write_text(text.replace(old, new), encoding="utf-8")

    return change


DEPARTURES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a reply": (
        changed("planning/1.log.jsonl", "echo made >", "echo mode >"),
        "planning/1.result.json: plan: recorded ",
    ),
    "what was sent": (
        changed("planning/2.log.jsonl", "Find another.", "Find no other."),
        "planning/2.log.jsonl: request 1, message 2 (user), content: recorded '… is wrong, not the luck. Find no other.",
    ),
    "an output": (
        changed("steps/look.1.result.json", '"output": "made"', '"output": "mode"'),
        "steps/send.2.json: key: recorded ",
    ),
    "a failure": (
        changed("steps/read.2.result.json", '"status": "failed"', '"status": "done"'),
        "steps/read.2.result.json: status: recorded done, came failed\n",
    ),
    "a verdict": (
        changed("planning/2.result.json", '"verdict": "plan"', '"verdict": "keep"'),
        "planning/2.result.json: verdict: recorded keep, came plan\n",
    ),
    "a plan": (
        changed("revisions/2.plan.json", "do look", "do see"),
        "revisions/2.plan.json: sha256: recorded ",
    ),
    "the outcome": (
        changed("outcome.json", '"reason": "steps_done"', '"reason": "impossible"'),
        "outcome.json: reason: recorded impossible, came steps_done\n",
    ),
    "tokens": (
        changed("planning/1.result.json", '"output_tokens": ', '"output_tokens": 1'),
        "planning/1.result.json: usage.output_tokens: recorded 1",
    ),
}


def test_every_value_that_is_changed_is_named_first(place: Place, server: ScriptedServer) -> None:
    replanned(place, server)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        place.env.pop(name)
    for what, (change, line) in DEPARTURES.items():
        saved = place.root / what
        place.agentfs("replay", "job", "--save", str(saved))
        change(saved)
        done = place.agentfs("replay", str(saved), code=1)
        assert done.stdout.startswith(line), (what, done.stdout)
        assert done.stderr == "", what


def test_a_changed_prompt_departs_at_the_first_request_unless_that_may_be(
    place: Place, server: ScriptedServer
) -> None:
    replanned(place, server)
    (place.root / "prompts").mkdir()
    (place.root / "prompts" / "planner.md").write_text("Plan as you like.\n", encoding="utf-8")
    done = replay(place, code=1)
    first, second = done.stdout.splitlines()
    assert first.startswith("planning/1.log.jsonl: request 1, message 1 (system), content: recorded ")
    assert first.endswith("came 'Plan as you like.\\n'")
    assert second.startswith("planning/2.log.jsonl: request 1, message 1 (system), content: recorded ")
    done = replay(place, "--lenient")
    assert done.stdout == "replayed: the same 2 calls, 5 attempts, 3 revisions, outcome done\n"
    assert done.stderr.count("not counted: planning/") == 2
    page = json.loads(replay(place, "--json", code=1).stdout)
    assert (page["same"], page["calls"], page["attempts"], page["revisions"]) == (False, 2, 5, 3)
    assert page["departures"][0]["file"] == "planning/1.log.jsonl"
    assert {departure["request"] for departure in page["departures"]} == {True}


def test_what_is_missing_is_reported_with_exit_code_2(place: Place, server: ScriptedServer) -> None:
    replanned(place, server)
    log = place.run_folder() / "planning" / "2.log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join(lines[:2]), encoding="utf-8")
    assert "planning/2.log.jsonl holds 1 of the 2 requests to gpt-5" in replay(place, code=2).stderr
    log.unlink()
    output = replay(place, code=2).stderr
    assert "cannot be replayed" in output
    assert "planning/2.log.jsonl is missing: it holds the 2 requests to gpt-5" in output
    assert place.agentfs("replay", "nothing", code=2).stderr.startswith("agentfs: there is no run 'nothing'")


# ── no effects ────────────────────────────────────────────────────────────────────────────────────────────

WATCHED = """
import sys
seen = []
watched = ("socket.__new__", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.exec", "os.fork",
           "os.posix_spawn", "os.system")
sys.addaudithook(lambda event, _: seen.append(event) if event in watched else None)
from agentfs.commands import main
print(main(["replay", "job"]), seen)
"""


def test_no_packet_leaves_and_no_program_is_started(place: Place, server: ScriptedServer) -> None:
    replanned(place, server)
    asked = len(server.requests)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        cwd=place.root,
        env=place.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.endswith("outcome done\n0 []\n"), done.stdout + done.stderr
    assert len(server.requests) == asked, "although it is there and the key is set"


def test_a_run_with_masked_secrets_is_replayed(place: Place, server: ScriptedServer) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('[tools]\nenv = ["OPENAI_API_KEY"]\n', encoding="utf-8")
    server.fails(401, f"Incorrect key {KEY}")
    tell, fail = shell("tell", 'echo "the key is $OPENAI_API_KEY"'), shell("fail", f"echo {KEY} >&2; exit 1")
    server.plan({"steps": [tell, {**fail, "max_attempts": 1}]})
    server.plan({"impossible": f"because of {KEY}"})
    place.agentfs("run", place.goal("Tell\n"), "--mode", "split", code=4)
    place.agentfs("run", "--resume", "job", code=1)
    assert place.read("steps/tell.1.result.json")["output"] == "the key is [secret OPENAI_API_KEY]"
    env = dict(place.env)
    assert replay(place).stdout.startswith("replayed: the same 3 calls")
    place.env = env
    found = [str(path) for path in place.root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert found == []
