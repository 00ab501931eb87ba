"""The goal is edited mid-run: what a person set in plan.json stays, or is asked about; the revision names who edited."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

BOOK = "### a\n```sh\necho a\n```\n### hold\ngate\n```sh\necho held\n```\n### tell\n```sh\necho hello\n```\n"
HAND = "echo hello by hand"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A runbook that waits at a gate, whose last step a person has edited in plan.json."""
    place = Place(tmp_path)
    place.env |= {"GIT_AUTHOR_NAME": "Ada Lovelace", "GIT_AUTHOR_EMAIL": "ada@example.org"}
    place.agentfs("run", place.runbook(BOOK), code=3)
    edit(place, "plan.json", "echo hello", HAND)
    place.agentfs("run", "--resume", "job", code=3)
    return place


def edit(place: Place, file: str, old: str, new: str) -> None:
    path = place.run_folder() / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def commands(place: Place) -> dict[str, str]:
    return {step["id"]: step["input"]["command"] for step in place.read("plan.json")["steps"]}


def test_an_edited_goal_leaves_what_was_set_by_hand(place: Place) -> None:
    edit(place, "goal.md", "echo held", "echo held on")
    place.agentfs("run", "--resume", "job", code=3)
    assert commands(place) == {"a": "echo a", "hold": "echo held on", "tell": HAND}
    revision = place.read("revisions/3.json")
    assert (revision["trigger"], revision["detail"]) == ("goal_changed", "Ada Lovelace edited the goal")
    assert [change["step"] for change in revision["changes"]] == ["hold"]
    assert "Ada Lovelace edited the goal" in place.git("log", "-1", "--format=%B")
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "hello by hand\n"


@pytest.mark.parametrize("word", ["approve", "reject"])
def test_an_edited_goal_that_says_otherwise_is_asked_about(place: Place, word: str) -> None:
    edit(place, "goal.md", "echo hello", "echo hello again")
    edit(place, "goal.md", "echo held", "echo held on")
    edit(place, "goal.md", "echo a", "echo a again")
    asks = place.agentfs("run", "--resume", "job", code=3).stderr
    assert "planning/2.question.md" in asks
    assert "see what it would change: agentfs diff " in asks
    assert commands(place)["tell"] == HAND
    question = (place.run_folder() / "planning" / "2.question.md").read_text()
    assert "The goal was edited, and a person has to look at what that changes:\n" in question
    assert "- you and the answer changed the same: tell.input\n" in question
    assert "\nruns again:\n  a: the step, or one before it, has changed\n" in question, "it is a person's own word"
    shown = place.agentfs("diff", "job", "--question").stdout
    assert "echo hello by hand" in shown
    assert "echo hello again" in shown
    place.agentfs(word, "job", "planning/2")
    place.agentfs("run", "--resume", "job", code=3)
    took = word == "approve"
    assert commands(place) == {
        "a": "echo a again" if took else "echo a",
        "hold": "echo held on" if took else "echo held",
        "tell": "echo hello again" if took else HAND,
    }
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == ("hello again\n" if took else "hello by hand\n")


def test_an_edited_goal_that_a_model_plans_keeps_what_was_set_by_hand(tmp_path: Path) -> None:
    def steps(tell: str) -> dict[str, Any]:
        words = {"description": "do it", "success_condition": "the command prints its file", "tool": "shell"}
        hold = {"id": "hold", **words, "input": {"command": "echo held"}, "depends_on": [], "gate": True}
        return {"steps": [hold, {"id": "tell", **words, "input": {"command": tell}, "depends_on": ["hold"]}]}

    with ScriptedServer() as server:
        place = Place(tmp_path)
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-for-tests", "GIT_AUTHOR_NAME": "Ada"}
        server.plan(steps("echo hello"))
        place.agentfs("run", place.goal("Tell\n"), "--mode", "split", code=3)
        edit(place, "plan.json", "echo hello", HAND)
        edit(place, "goal.md", "Tell", "Tell it all")
        server.plan(steps("echo hello again"))
        asks = place.agentfs("run", "--resume", "job", code=3).stderr
        assert "planning/2.question.md" in asks
        assert commands(place)["tell"] == HAND
        question = (place.run_folder() / "planning" / "2.question.md").read_text()
        assert "- it changes what you set by hand: tell.input\n" in question
        assert place.read("planning/2.json")["detail"] == "Ada edited the goal"
        assert "Ada" not in json.dumps(server.requests[-1]["messages"]), "a model need not know who"


FALLBACK = "### b\n```sh\necho b\n```\n### undo\non failure of: b\n```sh\necho undone\n```\n"


@pytest.mark.parametrize("approve", ["plan", "always"])
@pytest.mark.parametrize(("old", "new"), [("echo hello", "touch owned"), ("echo undone", "touch owned")])
def test_an_edited_goal_is_approved_again_where_plans_are(tmp_path: Path, approve: str, old: str, new: str) -> None:
    """Also if it changes only what is not in the plan yet: a fallback runs without a question later."""
    place = Place(tmp_path)
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(f'approve = "{approve}"\n')
    place.agentfs("run", place.runbook(BOOK + FALLBACK), code=3)
    edit(place, "goal.md", "echo held", "echo held on")
    place.agentfs("run", "--resume", "job", code=3)
    assert commands(place)["hold"] == "echo held on", "a draft is not approved yet: nothing is asked twice"
    assert not (place.run_folder() / "planning" / "2.question.md").exists()
    place.agentfs("approve", "job")
    place.agentfs("run", "--resume", "job", code=3)
    before = commands(place)
    edit(place, "goal.md", old, new)
    assert "planning/3.question.md" in place.agentfs("run", "--resume", "job", code=3).stderr
    question = (place.run_folder() / "planning" / "3.question.md").read_text()
    assert f'- the goal was edited after its plan was approved (approve = "{approve}")\n' in question
    assert commands(place) == before
    place.agentfs("approve", "job", "hold")
    place.agentfs("run", "--resume", "job", code=3)
    assert not (place.run_folder() / "steps" / "tell.1.json").exists(), "nothing runs meanwhile that was not approved"
    place.agentfs("approve", "job", "planning/3")
    place.agentfs("run", "--resume", "job")
    assert (place.run_folder() / "files" / "owned").exists() == (old == "echo hello")


def test_an_edited_goal_that_a_model_plans_is_approved_again(tmp_path: Path) -> None:
    def steps(command: str) -> dict[str, Any]:
        words = {"description": "do it", "success_condition": "the command prints its file", "tool": "shell"}
        hold = {"id": "hold", **words, "input": {"command": "echo held"}, "depends_on": [], "gate": True}
        return {"steps": [hold, {"id": "tell", **words, "input": {"command": command}, "depends_on": ["hold"]}]}

    with ScriptedServer() as server:
        place = Place(tmp_path)
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-for-tests"}
        server.plan(steps("echo hello"))
        place.agentfs("run", place.goal("Tell\n"), "--mode", "split", "--approve", "plan", code=3)
        place.agentfs("approve", "job")
        place.agentfs("run", "--resume", "job", code=3)
        edit(place, "goal.md", "Tell", "Tell it all")
        server.plan(steps("touch owned"))
        assert "planning/2.question.md" in place.agentfs("run", "--resume", "job", code=3).stderr
        assert commands(place)["tell"] == "echo hello"


def test_a_rejected_edit_is_asked_about_again_before_it_runs(tmp_path: Path) -> None:
    """A no leaves the plan as it is; what the edited goal does about a failure is part of that edit."""
    place = Place(tmp_path)
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('approve = "plan"\n')
    fails = BOOK.replace("echo hello", "false") + FALLBACK.replace("of: b", "of: tell").replace(
        "echo b", "echo hello"
    )
    place.agentfs("run", place.runbook(fails), code=3)
    place.agentfs("approve", "job")
    place.agentfs("run", "--resume", "job", code=3)
    edit(place, "goal.md", "echo undone", "touch owned")
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("reject", "job", "planning/2")
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job", "hold")
    assert "planning/3.question.md" in place.agentfs("run", "--resume", "job", code=3).stderr
    assert not (place.run_folder() / "files" / "owned").exists()
