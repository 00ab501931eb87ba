"""`agentfs mcp` in a conversation of a real client (Claude Code, Codex) whose model is scripted and on loopback.

The clients come from npm, as in test_real_agents, and know agentfs by `claude mcp add` and `codex mcp add`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.agent_models import Plan, ScriptedModel
from tests.agent_programs import REAL, installed
from tests.mcp_servers import needs_mcp
from tests.workspaces import DEADLINE, Place

pytestmark = [needs_mcp, pytest.mark.skipif(os.uname().machine != "x86_64", reason="installed for x86_64 only")]
RUNBOOK = "# Say it\n\n## Steps\n\n### first\n```sh\necho one\n```\n"
EDITED = [{"id": "first", "tool": "shell", "input": {"command": "echo uno"}, "depends_on": []}]
Turn = tuple[str, Callable[[str], dict[str, Any]]]  # a tool of agentfs, and its arguments from the last result


class Conversation(ScriptedModel):
    """A model that uses these tools one after the other; it waits for the server where the client has it wait."""

    def __init__(self, *turns: Turn) -> None:
        super().__init__([])
        self.turns, self.taken, self.offered = list(turns), 0, set[str]()

    def plan(self, acted: int, tools: Iterable[str]) -> Plan:  # noqa: ARG002 - it counts for itself
        known = {name.replace("__agentfs/", "__agentfs__"): name for name in tools}
        self.offered |= {name.removeprefix("mcp__agentfs__") for name in known if name.startswith("mcp__agentfs__")}
        if not known or self.taken == len(self.turns):
            return "text", "it waits for a person" if known else "{}", {}
        if not self.offered and "WaitForMcpServers" in known:
            return "tool", "WaitForMcpServers", {}
        name, arguments = self.turns[self.taken]
        self.taken += 1
        full = f"mcp__agentfs__{name}"
        return "tool", known.get(full, full), arguments(self.last_result())

    def last_result(self) -> str:
        """Return what the last tool answered."""
        _, body = self.requests[-1]
        for one in reversed(body.get("input") or body["messages"]):
            parts = one["content"] if isinstance(one.get("content"), list) else [one]
            for part in reversed(parts):
                if part.get("type") in ("tool_result", "function_call_output"):
                    found = part.get("content") or part.get("output")
                    return found if isinstance(found, str) else "".join(piece.get("text", "") for piece in found)
        return ""


ALLOWED = ("start_run", "show_run", "edit_plan", "approve")


def command(name: str, model: Conversation) -> list[str]:
    """Return how a client that knows agentfs is called once, with no person at its terminal."""
    program, words = str(installed(name)), "Start a run that says one."
    if name == "claude":
        allowed = ",".join(f"mcp__agentfs__{tool}" for tool in ALLOWED)
        return [program, "-p", words, "--allowedTools", allowed, "--model", "claude-sonnet-4-5"]
    codex = REAL[name].settings(model.url)["command"][1:6]  # `exec`, and the scripted model as its provider
    keys = {"default_tools_approval_mode": "approve", "required": True, "startup_timeout_sec": 60}
    settings = [
        word for key, value in keys.items() for word in ("-c", f"mcp_servers.agentfs.{key}={json.dumps(value)}")
    ]
    return [program, *codex, "--skip-git-repo-check", "-m", "fake", *settings, words]


def client(argv: list[str], place: Place, env: dict[str, str]) -> str:
    """Run a client to its end; return what it printed."""
    done = subprocess.run(
        argv, cwd=place.root, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE * 2,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_it_starts_a_run_proposes_an_edit_and_cannot_approve(tmp_path: Path, name: str) -> None:
    place = Place(tmp_path)
    place.agentfs("init")

    def edit(shown: str) -> dict[str, Any]:
        page = json.loads(shown[shown.index("{") :])
        return {"run": page["run"], "plan_sha256": page["plan_sha256"], "steps": EDITED, "because": "Spanish"}

    def started(result: str) -> dict[str, Any]:
        return {"run": json.loads(result[result.index("{") :])["run"]}

    turns: list[Turn] = [("start_run", lambda _: {"goal": RUNBOOK}), ("show_run", started), ("edit_plan", edit)]
    with Conversation(*turns, ("approve", lambda _: {"run": "say-it"})) as model:
        env = {**place.env, **REAL[name].environment(model.url)}
        server = [sys.executable, "-m", "agentfs", "-C", str(place.root), "mcp"]
        client([str(installed(name)), "mcp", "add", "agentfs", "--", *server], place, env)
        assert "it waits for a person" in client(command(name, model), place, env)
        assert model.taken == len(model.turns)
        assert {"start_run", "edit_plan", "reply"} <= model.offered
        assert not {"approve", "reject", "trust", "forget", "resume"} & model.offered
    plan = place.read("plan.json", "say-it")
    assert (plan["status"], plan["steps"][0]["input"]["command"]) == ("draft", "echo one")
    assert not [*place.run_folder("say-it").glob("steps/*.result.json")]
    place.agentfs("resume", "say-it", code=3)  # the proposal becomes a question
    place.agentfs("approve", "say-it", "planning/2")
    place.agentfs("resume", "say-it", code=3)
    place.agentfs("approve", "say-it")
    assert place.agentfs("resume", "say-it").stdout == "uno\n"
