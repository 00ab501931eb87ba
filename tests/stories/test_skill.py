"""`agentfs skill`: what it teaches is right, and an agent that has read it writes a runbook that holds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.step_lines import LINES
from agentfs.testing import ScriptedServer
from agentfs.testing.replies import ScriptedReply, calls
from tests.workspaces import Place

PLACE = ".agents/skills/agentfs/SKILL.md"
GOALS = re.compile(r"^````markdown\n(.*?)^````$", re.MULTILINE | re.DOTALL)
PLANS = re.compile(r"^```json plan\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def skill(place: Place) -> str:
    place.agentfs("init")
    assert place.agentfs("skill").stderr == f"wrote {PLACE}\n"
    return (place.root / PLACE).read_text(encoding="utf-8")


def test_every_example_passes_the_check(place: Place, skill: str) -> None:
    goals, plans = GOALS.findall(skill), PLANS.findall(skill)
    assert (len(goals), len(plans)) == (4, 1)
    for number, text in enumerate(goals):
        (place.root / f"goal-{number}.md").write_text(text, encoding="utf-8")
    (place.root / "plan.json").write_text(plans[0], encoding="utf-8")
    uses_others(place, goals[1])
    env = {"OPENAI_API_KEY": "sk-a-key-for-tests"}
    done = place.agentfs("check", *(f"goal-{n}.md" for n in range(4)), "plan.json", env=env)
    asks = "; it needs values for place (`agentfs show-goal goal-1.md`)"
    assert done.stderr == f"goal-0.md: ok\ngoal-1.md: ok{asks}\ngoal-2.md: ok\ngoal-3.md: ok\nplan.json: ok\n"


def uses_others(place: Place, runbook: str) -> None:
    """Let a goal be used in a workspace that allows runs in runs."""
    (place.root / "runbooks").mkdir(exist_ok=True)
    (place.root / "runbooks/back-up.md").write_text(runbook, encoding="utf-8")
    (place.root / "agentfs.toml").write_text('[tools]\nallow = ["shell", "run"]\n', encoding="utf-8")


def test_its_runs_in_a_run_are_done(place: Place, skill: str) -> None:
    goals = GOALS.findall(skill)
    uses_others(place, goals[1])
    place.goal(goals[2])
    place.agentfs("run", "job.md")
    assert [place.read(f"steps/{step}.1.result.json", "job")["child"].split("/")[1] for step in ("staging", "prod")] == [
        "job-staging", "job-prod",
    ]  # fmt: skip


def test_its_runbook_runs_up_to_the_gate(place: Place, skill: str) -> None:
    place.goal(GOALS.findall(skill)[0])
    place.agentfs("run", "job.md", code=3)
    assert "publishing 1 pages" not in place.agentfs("show", "release").stdout
    place.agentfs("approve", "release")
    assert place.agentfs("resume", "release").stdout == "publishing 1 pages\n"


def test_its_runbook_with_parameters_runs_for_each_item(place: Place, skill: str) -> None:
    place.goal(GOALS.findall(skill)[1])
    assert "the parameter 'place'" in place.agentfs("run", "job.md", code=2).stderr
    place.agentfs("run", "job.md", "-p", "place=staging")
    assert place.read("steps/dump~users.1.result.json", "back-up")["status"] == "done"
    dumped = {path.name: path.read_text() for path in (place.run_folder("back-up") / "files").glob("*.sql")}
    assert dumped == {"users.sql": "-- users of staging\n", "orders.sql": "-- orders of staging\n"}
    assert place.read("steps/prune.1.result.json", "back-up")["status"] == "skipped"


def test_the_lines_it_lists_are_lines(skill: str) -> None:
    listed = skill.partition("Lines a step may hold:")[2].partition("Fences:")[0]
    cells = re.findall(r"^\| (`.*?`) \|", listed, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`+ ?([a-z ]+)[:`]", cell) if name != "command"]
    known = {line.keyword for line in LINES}
    assert [name for name in named if name not in known] == []
    assert set(named) >= {"check", "each", "when", "agent", "gate"}
    assert len(set(named)) >= 13


def test_it_is_written_once_and_an_edited_one_is_kept(place: Place, skill: str) -> None:
    assert place.agentfs("skill").stderr == f"{PLACE} is up to date\n"
    (place.root / PLACE).write_text("mine", encoding="utf-8")
    assert "--force" in place.agentfs("skill", ".", code=2).stderr
    assert (place.root / PLACE).read_text(encoding="utf-8") == "mine"
    place.agentfs("skill", "--force")
    assert (place.root / PLACE).read_text(encoding="utf-8") == skill
    assert "is not a folder" in place.agentfs("skill", "nowhere", code=2).stderr


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def test_an_agent_that_reads_it_writes_a_runbook_that_holds(
    place: Place, skill: str, server: ScriptedServer, tmp_path: Path
) -> None:
    """The scripted agent knows nothing but what it is sent: it writes the form that it read, for a job of its own."""

    def answer(request: dict[str, Any]) -> ScriptedReply:
        read = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        if not read:
            return calls(("read_file", {"path": PLACE}))
        if len(read) == 1:
            learned = GOALS.findall(read[0])[0].replace("name: release", "name: mine")
            return calls(("write_file", {"path": "mine.md", "content": learned}))
        fields = {"ok": True, "output": "mine.md", "surprising": None, "blocked": None, "evidence": [f"{len(read)}"]}
        return calls(("finish", fields))

    server.answer = answer
    steps = "### write\nWrite a runbook.\ntools: read_file, write_file\ncheck: `test -s mine.md`\n"
    env = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    place.agentfs("run", place.runbook(steps), "--workdir", ".", env=env)
    assert place.agentfs("check", "mine.md").stderr == "mine.md: ok\n"
