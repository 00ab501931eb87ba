"""`blame` from outside: who set each field, in which revision, and why."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

ADA = {"GIT_AUTHOR_NAME": "Ada Lovelace", "GIT_AUTHOR_EMAIL": "ada@example.org"}


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[Place]:
    """A run whose plan a model made, a person changed, and the model changed again."""
    with ScriptedServer() as server:
        place = Place(tmp_path)
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests", **ADA}
        server.plan({"steps": [_step("gather", "exit 1", max_attempts=2), _step("send", "echo sent", gate=True)]})
        server.plan({"steps": [_step("gather-again", "echo 1"), _step("send", "echo sent", why="Ada's", gate=True)]})
        place.agentfs("run", place.goal("Send\n"), "--mode", "split", "--approve", "plan", code=3)
        plan = place.run_folder() / "plan.json"
        text = plan.read_text().replace('"tool": "shell",\n', '"why": "Ada\'s",\n      "tool": "shell",\n')
        plan.write_text(text.replace('"draft"', '"approved"').replace('"why": "Ada\'s",\n', "", 1))
        place.agentfs("run", "--resume", "job", code=3)
        yield place


def _step(name: str, command: str, **fields: object) -> dict[str, object]:
    words = {"description": f"do {name}", "success_condition": f"the command of {name} prints its file"}
    return {"id": name, **words, "tool": "shell", "input": {"command": command}, "depends_on": [], **fields}


def test_a_table_that_fits_a_terminal(planned: Place) -> None:
    output = planned.agentfs("blame", "job", env={"COLUMNS": "80"}).stdout.splitlines()
    assert output == [
        "step          field              by             rev  why",
        "(the plan)    goal               planner gpt-5  1    the first plan",
        "              status             Ada Lovelace   2    edited by Ada Lovelace",
        "gather-again  description        planner gpt-5  3    after gather failed twice",
        "              tool               planner gpt-5  3    after gather failed twice",
        "              input.command      planner gpt-5  3    after gather failed twice",
        "              depends_on         planner gpt-5  3    after gather failed twice",
        "              success_condition  planner gpt-5  3    after gather failed twice",
        "send          description        planner gpt-5  1    the first plan",
        "              why                Ada Lovelace   2    edited by Ada Lovelace",
        "              tool               planner gpt-5  1    the first plan",
        "              input.command      planner gpt-5  1    the first plan",
        "              depends_on         planner gpt-5  1    the first plan",
        "              success_condition  planner gpt-5  1    the first plan",
        "              gate               planner gpt-5  1    the first plan",
    ]
    assert max(map(len, output)) <= 80


def test_one_step_and_json(planned: Place) -> None:
    assert len(planned.agentfs("blame", "job", "send").stdout.splitlines()) == 8
    page = json.loads(planned.agentfs("blame", "job", "send", "--json").stdout)
    assert page["fields"][1] | {"at": ""} == {
        "step": "send",
        "field": "why",
        "by": {"role": "person", "name": "Ada Lovelace", "model": None},
        "revision": 2,
        "call": None,
        "trigger": "edited",
        "why": "edited by Ada Lovelace",
        "detail": "plan.json was edited",
        "at": "",
    }
    assert "did you mean 'send'?" in planned.agentfs("blame", "job", "sned", code=2).stderr


def test_a_runbook_an_edit_nobody_took_up_and_what_does_not_read(place: Place) -> None:
    place.agentfs("run", place.runbook("### a\n```sh\necho a\n```\n"))
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace("echo a", "echo b"))
    output = place.agentfs("blame", "job").stdout.splitlines()
    assert output[4].split() == ["input.command", "runbook", "1", "the", "first", "plan"]
    assert output[-1].startswith("plan.json has been edited since: agentfs diff ")
    (place.run_folder() / "revisions" / "1.plan.json").write_text("{")
    assert "revisions/1.plan.json" in place.agentfs("blame", "job", code=2).stderr
