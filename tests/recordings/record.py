"""Record the runs in this folder again: `python -m tests.recordings.record`. Each is a story played on a scripted endpoint."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

HERE = Path(__file__).parent


def shell(name: str, command: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "description": f"do {name}",
        "tool": "shell",
        "input": {"command": command},
        "success_condition": f"the command of {name} prints what it found",
        "depends_on": [],
        **fields,
    }


def finish(output: str, *evidence: str) -> tuple[str, dict[str, Any]]:
    return "finish", {"ok": True, "output": output, "surprising": None, "blocked": None, "evidence": list(evidence)}


def shop(place: Place, server: ScriptedServer) -> None:
    """A failure, another plan, a model that asks, a hand edit, a gate."""
    count = shell("count", "echo '{\"rows\": 0}'", expects={"properties": {"rows": {"minimum": 1}}})
    server.plan({"steps": [count, shell("read", "cat prices.txt", depends_on=["count"], max_attempts=2)]}, to="gpt-5")
    server.plan({"keep": True}, to="gpt-5")
    server.fails(429, retry_after="0", to="gpt-5")
    paint = {
        "id": "paint",
        "description": "Choose a colour and write it down",
        "tools": ["ask", "write_file"],
        "input": {"material": "rows: {{steps.count.output.rows}}"},
        "success_condition": "a colour was chosen",
        "depends_on": ["count"],
    }
    send = shell("send", "echo painted {{steps.paint.output}}", depends_on=["paint"], gate=True)
    server.plan({"steps": [paint, send]}, to="gpt-5")
    server.calls(("ask", {"question": "Which colour?"}), to="gpt-5-mini")
    place.agentfs("run", place.goal("Paint the shop\n", "shop.md"), "--mode", "split", code=3)
    place.agentfs("reply", "shop", "paint", "blue")
    server.calls(("write_file", {"path": "colour.txt", "content": "blue"}), to="gpt-5-mini")
    server.calls(finish("blue", "the person said: blue"), to="gpt-5-mini")
    server.plan({"met": True, "because": "it is blue", "quote": "the person said: blue"}, to="gpt-5-mini")
    place.agentfs("run", "--resume", "shop", code=3)
    path = place.run_folder("shop") / "plan.json"
    path.write_text(path.read_text(encoding="utf-8").replace("echo painted", "echo painted it"), encoding="utf-8")
    place.agentfs("run", "--resume", "shop", code=3)
    place.agentfs("approve", "shop")
    place.agentfs("run", "--resume", "shop")


def loop(place: Place, server: ScriptedServer) -> None:
    """A loop with a scratchpad that hands over; the goal's own check fails once."""
    server.calls(("shell", {"command": "ls"}), to="gpt-5-mini")  # refused: there is no plan yet
    server.calls(("write_file", {"path": "PLAN.md", "content": "1. look\n2. write"}), to="gpt-5-mini")
    server.says("I have a plan.", to="gpt-5-mini")
    server.calls(("shell", {"command": "seq 1 3000"}), ("shell", {"command": "exit 3"}), to="gpt-5-mini")
    server.calls(("hand_over", {"why": "it is too much for one go"}), to="gpt-5-mini")
    server.plan({"steps": [shell("think", "echo thought")]}, to="gpt-5")
    server.plan({"steps": [shell("write", "echo text > report.md; echo written")]}, to="gpt-5")
    front = "---\nchecks:\n  - kind: file\n    path: report.md\n---\n"
    place.agentfs("run", place.goal(f"{front}Write a report.\n", "loop.md"), "--mode", "scratchpad")


STORIES: dict[str, Callable[[Place, ScriptedServer], None]] = {"shop": shop, "loop": loop}


def record(name: str, to: Path) -> None:
    """Tell one story, and save what became of it."""
    with tempfile.TemporaryDirectory() as temp, ScriptedServer() as server:
        place = Place(Path(temp))
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-for-recording"}
        STORIES[name](place, server)
        server.done()
        place.agentfs("replay", name, "--save", str(to))


if __name__ == "__main__":
    for story in sys.argv[1:] or STORIES:
        shutil.rmtree(HERE / story, ignore_errors=True)
        record(story, HERE / story)
