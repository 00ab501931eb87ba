"""Who works in the worktree of an isolated run, and whose the changes are: steps, checks, questions, people."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.contexts import confined
from tests.stories.test_isolation import Repo
from tests.workspaces import Place, wait_for

pytestmark = confined
WAIT = 'while ! test -e "$HOME/go" && ! test -e go.log; do sleep 0.05; done'


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    place.agentfs("init", ".")
    return place


@pytest.fixture
def repo(place: Place) -> Repo:
    return Repo(place)


def steps_goal(place: Place, *steps: dict[str, Any], **front: Any) -> str:
    """Write a goal in plan form that works in a worktree."""
    goal = {"goal": "Job", "workdir": "repo", "isolate": "worktree", **front, "steps": [*steps]}
    (place.root / "job.json").write_text(json.dumps(goal))
    return "job.json"


def shell(name: str, command: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "tool": "shell", "input": {"command": command}, "depends_on": [], **more}


def overlap(place: Place, one: str, other: str) -> bool:
    """Whether two steps were at work at the same time."""
    spans = [place.read(f"steps/{name}.1.result.json") for name in (one, other)]
    first, second = sorted((span["started_at"], span["ended_at"]) for span in spans)
    return bool(second[0] < first[1])


def test_steps_that_write_take_turns_and_the_others_do_not_wait(place: Place, repo: Repo) -> None:
    one, two = (shell(name, f"echo {name} > {name}; {WAIT}") for name in ("one", "two"))
    aside = {"id": "aside", "tool": "note", "input": {"text": "x"}, "depends_on": []}
    running = place.begin("run", steps_goal(place, one, two, aside))
    wait_for(lambda: any(place.runs.glob("*/job/steps/aside.1.result.json")), "the step that needs no folder")
    wait_for((place.run_folder() / "files/one").exists, "the first")
    assert not (place.run_folder() / "steps/two.1.json").exists()  # it takes no place while it cannot start
    (place.run_folder() / "files/go.log").touch()
    out, err = running.communicate(timeout=60)
    assert running.wait() == 0, (out, err)
    assert not overlap(place, "one", "two")
    assert repo.commits() == [("agentfs", "one: shell"), ("agentfs", "two: shell")]


def test_what_checks_drop_is_nobodys(place: Place, repo: Repo) -> None:
    """A step's checks, what it needs, its condition, and the goal's own checks: all leave something in the folder."""
    dropping = {"kind": "command", "run": "date +%N >> dropped; echo x >> a.txt"}
    step = shell("one", "test ! -e dropped; echo 1 > one", checks=[dropping], needs=[dropping], when=dropping)
    gated = shell("two", "test ! -e dropped", gate=True, needs=[dropping], depends_on=["one"])
    goal = steps_goal(place, step, gated, checks=["date +%N >> dropped; test -e later"])
    place.agentfs("run", goal, code=3)
    place.agentfs("approve", "job", "two")
    place.agentfs("run", "--resume", "job", code=1)
    assert place.read("outcome.json")["reason"] == "goal_checks_failed"
    assert not (place.run_folder() / "files/dropped").exists()
    (place.run_folder() / "files/later").write_text("a person's\n")
    place.agentfs("retry", "job", "two")
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job", "two")
    place.agentfs("run", "--resume", "job")
    assert repo.commits() == [("agentfs", "one: shell"), ("Pat", "job: changed by hand")]
    assert (place.run_folder() / "files/a.txt").read_text() == "one\n"


def test_what_a_step_did_before_it_asked_is_its_own(place: Place, repo: Repo, server: ScriptedServer) -> None:
    """Meanwhile nothing else writes; what a person changes while they are asked is theirs."""
    server.calls(
        ("write_file", {"path": "half", "content": "half\n"}), ("write_file", {"path": "b", "content": "b\n"})
    )
    server.calls(("ask", {"question": "Which colour?"}))
    loop: dict[str, Any] = {"id": "paint", "description": "Paint", "tools": ["write_file", "ask"], "depends_on": []}
    loop |= {"checks": [{"kind": "file", "path": "half", "contains": "whole"}]}
    place.agentfs("run", steps_goal(place, loop, shell("other", "test ! -e b || test -e half; echo 2 > two")), code=3)
    assert not (place.run_folder() / "steps/other.1.json").exists()
    assert repo.commits() == []
    files = place.run_folder() / "files"
    assert (files / "half").read_text() == "half\n"
    (files / "theirs").write_text("a person's\n")
    place.agentfs("reply", "job", "paint", "Blue")
    server.calls(("write_file", {"path": "half", "content": "whole, blue\n"}))
    server.calls(("finish", {"ok": True, "output": "painted", "surprising": None, "blocked": None, "evidence": []}))
    place.agentfs("run", "--resume", "job")
    assert repo.commits() == [
        ("Pat", "job: changed by hand"),
        ("agentfs", "paint: Paint"),
        ("agentfs", "other: shell"),
    ]
    shown = repo("log", "--reverse", "--format=%s", "--name-only", "--branches=agentfs/*", "^trunk").split()
    assert shown == [
        "job:",
        "changed",
        "by",
        "hand",
        "theirs",
        "paint:",
        "Paint",
        "b",
        "half",
        "other:",
        "shell",
        "two",
    ]
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


def test_a_question_that_is_no_longer_wanted_leaves_nothing_behind(
    place: Place, repo: Repo, server: ScriptedServer
) -> None:
    server.calls(("write_file", {"path": "half", "content": "half\n"}))
    server.calls(("ask", {"question": "Which colour?"}))
    loop: dict[str, Any] = {"id": "paint", "description": "Paint", "tools": ["write_file", "ask"], "depends_on": []}
    loop |= {"checks": [{"kind": "file", "path": "half"}]}
    place.agentfs("run", steps_goal(place, loop, shell("other", "test ! -e half; echo 2 > two")), code=3)
    plan = place.run_folder() / "plan.json"
    document = json.loads(plan.read_text())
    plan.write_text(json.dumps({**document, "steps": document["steps"][1:]}))
    place.agentfs("run", "--resume", "job")
    assert repo.commits() == [("agentfs", "other: shell")]
