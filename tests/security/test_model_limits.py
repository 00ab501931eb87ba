"""Models that never stop, and servers that never answer: bounded, written down, and taken up again where it stopped.

What a single request does when it is faulty is in tests/shell/test_model_faults.py. A `Meter` that begins at nothing,
whatever the files say, makes the first test fail (it was tried: 14 requests).
"""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer, replies
from tests.workspaces import Place, end, wait_for

MOST = 10
HELD = {"kind": "output", "schema": {"type": "string"}}
STEP = {"id": "do", "description": "Go on for ever", "tools": ["list_files"], "checks": [HELD], "max_attempts": 1}


def a_place(tmp_path: Path, server: ScriptedServer, **limits: float) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    place.agentfs("init")
    lines = "\n".join(f"{name} = {value}" for name, value in limits.items())
    (place.root / "agentfs.toml").write_text(f"[limits]\n{lines}\n[executor]\nmax_turns = 1000\n")
    return place


def test_ten_requests_are_ten_whatever_is_killed_in_between(tmp_path: Path) -> None:
    """The model reads another file every turn: no circle, no end."""
    asked: list[int] = []

    def another(_request: Any) -> Any:
        asked.append(len(asked))
        return replies.calls(("list_files", {"path": ".", "pattern": f"{len(asked)}*"}), pause_s=0.05)

    with ScriptedServer(another) as server:
        place = a_place(tmp_path, server, requests=MOST)
        running = place.begin("run", place.goal("Read on and on\n"), "--mode", "single")
        wait_for(lambda: len(asked) >= 4, "a few requests")
        end(running, signal.SIGKILL)
        before = len(server.requests)
        place.agentfs("reply", "job", "do", "again", code=None)
        for _ in range(3):
            place.agentfs("run", "--resume", "job", code=3)
            place.agentfs("reply", "job", "do", "again", code=None)
        assert 4 <= before < len(server.requests) <= MOST
        assert "--add-requests N" in place.agentfs("status", "job").stdout
        assert not (place.run_folder() / "outcome.json").exists()


ENDLESS: dict[str, Any] = {
    "the same call": lambda _: replies.calls(("list_files", {"path": "."})),
    "two calls in turn": None,
    "a tool that nobody has": lambda _: replies.calls(("rm_rf", {"path": "/"})),
    "arguments that are none": lambda _: replies.calls(("list_files", '{"path": ')),
    "only words": lambda _: replies.says("I am thinking about it."),
    "nothing at all": lambda _: replies.says(""),
    "fifty megabytes": lambda _: replies.says("x" * 10_000, repeats=5_000),
    "one page of HTML": lambda _: replies.page(),
    "too many requests": lambda _: replies.fails(429, retry_after=0),
    "out of order": lambda _: replies.fails(503, retry_after=0),
    "a reset before the answer": lambda _: replies.says("x", resets_after=0),
    "a reset in the middle": lambda _: replies.calls(("list_files", {"path": "."}), resets_after=2),
    "a stream without an end": lambda _: replies.says("x" * 200, ends_after=3),
}


@pytest.mark.parametrize("fault", ENDLESS)
def test_a_fault_that_never_ends_is_bounded_and_resumable(tmp_path: Path, fault: str) -> None:
    count: list[int] = []

    def in_turn(_request: Any) -> Any:
        count.append(1)
        return replies.calls(("list_files", {"path": ".", "pattern": f"{len(count) % 2}"}))

    with ScriptedServer(ENDLESS[fault] or in_turn) as server:
        place = a_place(tmp_path, server, requests=30, attempts=1, replans=0)
        done = place.agentfs(
            "run", place.goal(json.dumps({"goal": "Go on for ever", "steps": [STEP]}), "job.json"), code=None
        )
        assert done.returncode in (1, 3, 4), done.stderr
        assert 1 <= len(server.requests) <= 30
        result = place.read("steps/do.1.result.json")
        assert (result["status"] in ("failed", "interrupted"), bool(result["error"]["message"])) == (True, True)
        assert result["usage"]["requests"] == len(server.requests)
        ends = {"ok": True, "output": "here", "surprising": None, "blocked": None, "evidence": []}
        server.answer = lambda _: replies.calls(("finish", ends))
        place.agentfs("retry", "job", "do", code=None)
        assert place.agentfs("run", "--resume", "job").stdout == "here\n"
