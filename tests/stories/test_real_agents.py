"""The real coding agents against a scripted model on loopback, from the outside: an edit, a lie, a loop, a rate limit, a kill.

They are installed by name from npm into a cache; where that cannot be had, these are skipped, and say so. By default Codex
and Claude Code: to install them takes 8 to 15 seconds each, once; the default suite gives it a minute. All five with
./test --full, or AGENTFS_TEST_AGENTS=1 .venv/bin/pytest tests/stories/test_real_agents.py
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agent_models import ScriptedModel
from tests.agent_programs import REAL, installed, section
from tests.contexts import confined
from tests.stories.test_agents import alive
from tests.sweeps import FULL
from tests.workspaces import Place, end, wait_for

pytestmark = [confined, pytest.mark.skipif(os.uname().machine != "x86_64", reason="installed for x86_64 only")]
ALL = FULL or "AGENTFS_TEST_AGENTS" in os.environ
WANTED = [*REAL] if ALL else ["codex", "claude"]
CHECK = "grep -q fixed bug.txt"
FIX = "echo fixed > bug.txt"
# It lies, loops, is refused, is rate-limited; and with all of them: is locked out, answers in prose, hangs.
MODES = {
    "claim": {"check"},
    "loop": {"agent", "exit"},
    "refusal": {"agent", "exit"},
    "429": {"agent", "exit", "timeout"},
}
MODES |= {"401": {"agent", "exit"}, "prose": {"agent"}, "hang": {"timeout"}} if ALL else {}


def ready(place: Place, name: str, model: ScriptedModel, more: dict[str, Any] | None = None) -> str:
    """Let a goal have this agent fix a file in a repository, with a scripted model behind it; return the goal's name."""
    program = installed(name)
    place.agentfs("init", ".")
    settings = {**section(name, model.url, program), **(more or {})}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    toml = "\n".join(['[tools]\nnetwork = "agents"', "", f"[agents.{name}]", *lines])
    (place.root / "agentfs.toml").write_text(f"{toml}\n")
    place.env |= REAL[name].environment(model.url)
    repo = place.root / "repo"
    repo.mkdir()
    (repo / "bug.txt").write_text("a bug\n")
    for words in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=P", "-c", "user.email=p@x", "commit", "-qm", "first"),
    ):
        subprocess.run(["git", "-C", str(repo), *words], check=True)
    step = f"### fix\nFix bug.txt.\nagent: {name}\ncheck: `{CHECK}`\nretries: 0\n"
    return place.runbook(step, "workdir: repo\nisolate: worktree")


def error_of(place: Place, attempt: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = place.read(f"steps/fix.{attempt}.result.json")["error"]
    return found


@pytest.mark.parametrize("name", WANTED)
def test_it_edits_a_repository_in_a_worktree(tmp_path: Path, name: str) -> None:
    place = Place(tmp_path)
    with ScriptedModel([FIX]) as model:
        ran = place.agentfs("run", ready(place, name, model))
    assert ran.stdout == "it is fixed\n"
    found = place.read("steps/fix.1.result.json")
    assert (found["status"], found["agent"], found["usage"]["output_tokens"]) == ("done", name, 14)
    assert (place.root / "repo/bug.txt").read_text() == "a bug\n"
    place.agentfs("apply", "job")
    assert (place.root / "repo/bug.txt").read_text() == "fixed\n"
    assert "dummy-key" not in "".join(path.read_text() for path in place.run_folder().glob("steps/*"))
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("mode", [*MODES])
def test_what_it_did_not_do_is_not_done(tmp_path: Path, name: str, mode: str) -> None:
    """Some try again for minutes when they are limited, and say nothing meanwhile: then silence ends them."""
    place, idle = Place(tmp_path), {"429": {"idle_s": 15}, "hang": {"idle_s": 3}}.get(mode)
    with ScriptedModel(["echo again"] if mode == "loop" else [FIX], mode) as model:
        place.agentfs("run", ready(place, name, model, idle), code=1)
    assert error_of(place)["kind"] in MODES[mode]


@pytest.mark.parametrize("name", WANTED)
def test_killed_with_agentfs_nothing_is_left_running(tmp_path: Path, name: str) -> None:
    place, tag = Place(tmp_path), f"32{os.getpid()}"
    with ScriptedModel([f"(setsid sleep {tag} &) ; sleep {tag}"]) as model:
        running = place.begin("run", ready(place, name, model))
        wait_for(lambda: len(alive(tag)) >= 2, "the agent's commands", 180)  # opencode starts slowly
        end(running, signal.SIGKILL)
        wait_for(lambda: not alive(tag), "the end of the agent's commands")
    # What it did is undone, so that it may be tried again without a question.
    with ScriptedModel([FIX]) as model:
        place.env |= REAL[name].environment(model.url)
        settings = (place.root / "agentfs.toml").read_text()
        (place.root / "agentfs.toml").write_text(
            settings.replace(settings.split("127.0.0.1:")[1].split("/")[0], str(model.server_address[1]))
            if "127.0.0.1:" in settings
            else settings
        )
        place.agentfs("run", "--resume", "job")
    assert [place.read(f"steps/fix.{n}.result.json")["status"] for n in (1, 2)] == ["interrupted", "done"]
