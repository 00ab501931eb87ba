"""A gate is a person's word: a no is never replaced, and what a person is asked says all they have to know."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

PUBLISH = """### build
```sh
echo built
```

### publish
gate
{line}
```sh
echo fast >> published
```

### publish-slowly
instead of: publish
```sh
echo slow >> published
```

### tell
```sh
echo told
```

### withdraw
on failure of: publish
```sh
echo withdrawn
```

### sorry
on failure of: publish-slowly
```sh
echo sorry
```
"""
GAVE_UP = "A person rejected 'publish': nothing takes its place. Clean-up: 'withdraw'."


@pytest.mark.parametrize("line", ["", "on failure: continue"])
def test_a_no_is_never_replaced_and_only_its_clean_up_runs(place: Place, line: str) -> None:
    place.agentfs("run", place.runbook(PUBLISH.format(line=line)), code=3)
    foreseen = place.agentfs("reject", "job", "--dry-run", "--because", "not today").stderr
    assert foreseen.splitlines()[1:] == [
        f"runs/{place.run_folder().parent.name}/job/steps/publish.1.reply.md: reject",
        f"it would then clean up, and end failed: {GAVE_UP}",
    ]
    assert not (place.run_folder() / "steps" / "publish.1.reply.md").exists()
    place.agentfs("reject", "job", "--because", "not today")
    ended = place.agentfs("run", "--resume", "job", code=1)
    assert ended.stdout == ""
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("failed", "rejected")
    assert outcome["summary"].startswith("publish was rejected: not today; the clean-up is done")
    assert outcome["steps"]["done"] == ["build", "withdraw"]
    assert not (place.run_folder() / "files" / "published").exists()
    assert place.log()[1:] == [
        "agentfs job: revision 2, after publish could not be reached",
        "agentfs job: failed, 2 of 2 steps",
    ]


def test_a_no_without_a_clean_up_ends_the_run(place: Place) -> None:
    book = PUBLISH.format(line="").split("### withdraw", maxsplit=1)[0]
    place.agentfs("run", place.runbook(book), code=3)
    foreseen = place.agentfs("reject", "job", "--dry-run").stderr
    assert foreseen.splitlines()[-1] == "it would then be failed: publish was rejected"
    place.agentfs("reject", "job")
    place.agentfs("run", "--resume", "job", code=1)
    outcome = place.read("outcome.json")
    assert (outcome["reason"], outcome["summary"]) == ("rejected", "publish was rejected; 1 of 3 steps done")
    assert outcome["calls"] == 1


# ── where a model plans ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def asking(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    return place


def shell(name: str, command: str, *after: str, **fields: Any) -> dict[str, Any]:
    """A step as a planner writes one."""
    words = f"the command of {name} prints its file"
    does: dict[str, Any] = {"id": name, "description": f"do {name}", "tool": "shell", "input": {"command": command}}
    return {**does, "success_condition": words, "depends_on": list(after), **fields}


def test_the_planners_next_answer_to_a_no_needs_a_yes(asking: Place, server: ScriptedServer) -> None:
    place = asking
    server.plan({"steps": [shell("send", "echo sent >> effects", gate=True)]})
    place.agentfs("run", place.goal("Send it\n"), "--mode", "split", "--approve", "never", code=3)
    foreseen = place.agentfs("reject", "job", "--dry-run").stderr.splitlines()[-1]
    assert foreseen == "it would then ask the planner for another plan, and do nothing of it before you approve it"
    place.agentfs("reject", "job", "--because", "not like this")
    server.plan({"steps": [shell("post", "echo posted >> effects")]})
    waits = place.agentfs("run", "--resume", "job", code=3)
    assert "planning/2.question.md" in waits.stderr
    question = (place.run_folder() / "planning" / "2.question.md").read_text()
    assert "- you rejected send: look at what is planned instead\n" in question
    assert not (place.run_folder() / "files" / "effects").exists()
    place.agentfs("approve", "job")
    place.agentfs("run", "--resume", "job")
    assert (place.run_folder() / "files" / "effects").read_text() == "posted\n"
