"""Who sees what, on the wire. Unique words are planted everywhere; every request of a run, as a real server received it,
is searched for all of them.

A step's executor sees its step, its resolved input, the errors of its own earlier attempts and one line of the goal. A
judge sees condition and evidence, a summary text and focus. The planner sees of an executor's conversation what
`finish` returned. That these tests can fail was seen by giving the loop the plan, then the goal's whole text, with its
opening, and by adding a loop's messages to its evidence, which goes to judge and planner.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.prompts import load_prompt
from agentfs.testing import ScriptedServer
from tests.workspaces import Place

PLANNER, EXECUTOR = "gpt-5", "gpt-5-mini"
Seen = dict[str, set[str]]

ABOUT_THE_GOAL = {"otters", "quokka"}
FOR_THE_PLANNER = {"narwhal", "axolotl", "pangolin"}  # context, AGENTS.md, prompts/planner.md
PLAN = {
    *("raccoon", "gecko", "walrus", "lynx", "ibis"),
    *("civet", "mongoose", "puffin", "toucan", "jackal"),
    *("tapir", "dugong", "ocelot"),
    *("serval", "caracal", "kestrel"),
    *("gibbon", "wombat", "okapi"),
}
CONVERSATIONS = {"capybara", "badger", "dingo", "osprey", "iguana"}  # prose, arguments and outputs of tools
RETURNED = {"eels", "heron", "marmot", "condor", "vicuna", "stoat", "fine-weather"}
WORDS = ABOUT_THE_GOAL | FOR_THE_PLANNER | PLAN | CONVERSATIONS | RETURNED

GOAL = """---
context: [background.txt]
checks: [{kind: file, path: final.txt}]
---
Count the otters

In the pond, where the quokka sleeps.
"""
STEPS: list[dict[str, Any]] = [
    {
        "id": "raccoon",
        "description": "gecko",
        "why": "walrus",
        "tools": ["write_file", "read_file"],
        "input": {"given": "ibis"},
        "success_condition": "notes.txt is there, as the lynx left it",
        "checks": [{"kind": "file", "path": "notes.txt"}],
        "depends_on": [],
    },
    {
        "id": "civet",
        "description": "mongoose",
        "why": "puffin",
        "tools": ["read_file"],
        "input": {"given": "jackal"},
        "success_condition": "A toucan is named in the output",
        "depends_on": [],
    },
    {
        "id": "tapir",
        "description": "dugong",
        "tool": "shell",
        "input": {"command": "echo ocelot"},
        "success_condition": "A name is printed",
        "depends_on": [],
    },
    {
        "id": "serval",
        "description": "caracal",
        "tool": "summarize",
        "input": {"text": "{{steps.tapir.output}}", "focus": "kestrel"},
        "success_condition": "It is shorter than what it summarizes",
        "depends_on": ["tapir"],
    },
    {
        "id": "gibbon",
        "description": "wombat",
        "why": "okapi",
        "tools": ["read_file"],
        "input": {"given": "{{steps.raccoon.output}}", "also": "{{steps.serval.output}}"},
        "success_condition": "The output tells the weather",
        "checks": [{"kind": "output", "schema": {"type": "string", "enum": ["fine-weather"]}}],
        "depends_on": ["raccoon", "serval", "civet"],
    },
]
LAST = {
    "id": "last",
    "description": "Write it down",
    "tool": "write_file",
    "input": {"path": "final.txt", "content": "7"},
    "success_condition": "final.txt holds a number",
    "depends_on": ["gibbon"],
}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    place.agentfs("init")
    (place.root / "prompts").mkdir(exist_ok=True)
    (place.root / "prompts" / "planner.md").write_text(f"{load_prompt('planner', None).text}\nMind the pangolin.\n")
    (place.root / "background.txt").write_text("There was a narwhal.\n")
    (place.root / "AGENTS.md").write_text("Feed the axolotl.\n")
    for name, word in {"burrow.txt": "dingo", "lair.txt": "osprey", "hollow.txt": "iguana"}.items():
        (place.root / name).write_text(f"{word}\n")
    return place


def finish(output: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "finish", {"ok": True, "output": output, "surprising": None, "blocked": None, "evidence": [], **more}


def read(path: str) -> tuple[str, dict[str, Any]]:
    return "read_file", {"path": path}


def whose(request: dict[str, Any]) -> str:
    """Return the role of a request, and its step; the planner's are distinguished by number later."""
    if request["model"] == PLANNER:
        return "planner"
    system, user = (str(message["content"]) for message in request["messages"][:2])
    if system.startswith("You judge"):
        return "judge"
    if system.startswith("You summarize"):
        return "summarize"
    ids = {step["description"]: step["id"] for step in STEPS}
    step = ids.get(user.partition("Step: ")[2].partition("\n")[0], "do")
    return f"{step}, again" if "It was tried before" in user else step


def seen(server: ScriptedServer) -> Seen:
    """Return which of the planted words stand in whose requests, the whole bodies, tools included."""
    found: Seen = {}
    planner = 0
    for request in server.requests:
        who = whose(request)
        if who == "planner":
            planner += 1
            who = f"planner {planner}"
        text = json.dumps(request, ensure_ascii=False)
        found.setdefault(who, set()).update(word for word in WORDS if word in text)
    return found


def scripted(server: ScriptedServer) -> None:
    """Steps that run at once are distinguished by a word of their description."""
    server.plan({"steps": STEPS}, to=PLANNER)
    note = ("write_file", {"path": "notes.txt", "content": "badger"})
    server.calls(note, text="I am thinking of a capybara.", to=EXECUTOR, when="gecko")
    server.calls(read("notes.txt"), to=EXECUTOR, when="gecko")
    server.calls(finish("41 eels", surprising="heron", evidence=["marmot"]), to=EXECUTOR, when="gecko")
    server.calls(read("burrow.txt"), to=EXECUTOR, when="mongoose")
    server.calls(finish("a toucan", evidence=["condor"]), to=EXECUTOR, when="mongoose")
    for output in ("a toucan", "fine-weather"):
        server.plan(
            {"met": True, "because": "it is", "quote": f"The output is: {output}"}, to=EXECUTOR, when="You judge"
        )
    server.says("stoat", to=EXECUTOR, when="You summarize")
    server.plan({"keep": True}, to=PLANNER)
    server.calls(read("lair.txt"), to=EXECUTOR, when="wombat")
    server.calls(finish("vicuna"), to=EXECUTOR, when="wombat")
    server.calls(read("hollow.txt"), to=EXECUTOR, when="It was tried before")
    server.calls(finish("fine-weather"), to=EXECUTOR, when="It was tried before")
    server.plan({"steps": [LAST]}, to=PLANNER)


def test_nobody_sees_more_than_their_part(place: Place, server: ScriptedServer) -> None:
    scripted(server)
    place.agentfs("run", place.goal(GOAL), "--mode", "split", "--workdir", ".")
    server.done()
    found = seen(server)

    second = found.pop("planner 2")  # while it is asked others still run: what they return may be there, or not yet
    assert ABOUT_THE_GOAL | FOR_THE_PLANNER | PLAN | {"eels", "heron", "marmot"} <= second
    assert second & CONVERSATIONS == set()
    assert found == {
        "planner 1": ABOUT_THE_GOAL | FOR_THE_PLANNER,
        "raccoon": {"gecko", "lynx", "ibis", "capybara", "badger", "otters"},
        "civet": {"mongoose", "toucan", "jackal", "dingo", "otters"},
        "judge": {"toucan", "jackal", "dingo", "eels", "stoat", "iguana", "fine-weather"},  # of civet and gibbon
        "summarize": {"ocelot", "kestrel"},
        "gibbon": {"wombat", "eels", "stoat", "osprey", "otters"},
        "gibbon, again": {
            "wombat",
            "eels",
            "stoat",
            "vicuna",
            "fine-weather",
            "iguana",
            "otters",
        },  # its check, too
        "planner 3": ABOUT_THE_GOAL | FOR_THE_PLANNER | PLAN | RETURNED - {"vicuna"},  # an attempt that was made good
    }


def test_a_step_is_offered_its_own_tools_only(place: Place, server: ScriptedServer) -> None:
    scripted(server)
    place.agentfs("run", place.goal(GOAL), "--mode", "split", "--workdir", ".")
    offered = {
        whose(request): [tool["function"]["name"] for tool in request.get("tools", ())] for request in server.requests
    }
    assert offered == {
        "planner": [],
        "judge": [],
        "summarize": [],
        "raccoon": ["write_file", "read_file", "finish"],
        "civet": ["read_file", "finish"],
        "gibbon": ["read_file", "finish"],
        "gibbon, again": ["read_file", "finish"],
    }


def test_what_a_loop_did_before_it_drifted_stays_with_it(place: Place, server: ScriptedServer) -> None:
    """A scratchpad's plan, and all its loop's conversation, reach neither the planner nor the steps that follow."""
    server.calls(("write_file", {"path": "PLAN.md", "content": "- [ ] feed the iguana\n"}), to=EXECUTOR)
    server.calls(read("lair.txt"), text="capybara", to=EXECUTOR)
    server.calls(("hand_over", {"why": "heron"}), to=EXECUTOR)
    server.plan({"steps": [STEPS[1]]}, to=PLANNER)
    server.calls(finish("a toucan", evidence=["condor"]), to=EXECUTOR)
    server.plan({"met": True, "because": "it is", "quote": "The output is: a toucan"}, to=EXECUTOR)
    place.agentfs("run", place.goal(GOAL.replace("final.txt", "lair.txt")), "--mode", "scratchpad", "--workdir", ".")
    server.done()
    assert seen(server) == {
        "do": ABOUT_THE_GOAL | {"iguana", "osprey", "capybara"},
        "planner 1": ABOUT_THE_GOAL | FOR_THE_PLANNER | {"heron"},
        "civet": {"mongoose", "toucan", "jackal", "otters"},
        "judge": {"toucan", "jackal"},
    }
