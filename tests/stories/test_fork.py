"""`fork` from outside: a new run from any revision of another, with the results that still count."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

BOOK = (
    "### a\n```sh\necho a >> effects; echo a\n```\n"
    "### b\n```sh\necho b >> effects; echo b\n```\n"
    "### c\nafter: a\n```sh\necho c >> effects; echo c\n```\n"
)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def day(place: Place) -> str:
    """A runbook that is done, with a second revision in which b does something else; return the run's day."""
    place.agentfs("run", place.runbook(BOOK))
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text(encoding="utf-8").replace("echo b >>", "echo B >>"), encoding="utf-8")
    place.agentfs("retry", "job", "b")
    place.agentfs("run", "--resume", "job")
    return place.run_folder().parent.name


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def effects(place: Place, name: str) -> list[str]:
    return (place.run_folder(name) / "files" / "effects").read_text(encoding="utf-8").split()


def test_a_new_run_begins_where_a_revision_stood(place: Place, day: str) -> None:
    before = contents(place.run_folder())
    made = place.agentfs("fork", "job@1")
    assert made.stdout == f"{day}/job-2\n"
    assert made.stderr.splitlines() == [
        f"{day}/job-2: fork of {day}/job@1: keeps 2 steps (a, c)",
        "still to run: b",
        "files/ is copied as it is now",
        f"nothing drives it; go on with: agentfs resume {day}/job-2",
    ]
    assert contents(place.run_folder()) == before
    assert place.tree("job-2") == [
        "goal.md",
        "planning/1.json",
        "planning/1.result.json",
        "run.json",
        "steps/a.1.json",
        "steps/a.1.log.jsonl",
        "steps/a.1.result.json",
        "steps/c.1.json",
        "steps/c.1.log.jsonl",
        "steps/c.1.result.json",
    ]
    copied = place.read("steps/a.1.result.json", "job-2")
    assert copied == {**place.read("steps/a.1.result.json"), "run": f"{day}/job-2", "revision": 1}
    done = place.agentfs("run", "--resume", "job-2")
    assert done.stdout == "c\n"
    assert effects(place, "job-2") == [*effects(place, "job"), "b"]
    assert place.log()[-2:] == ["agentfs job-2: revision 1, the first plan", "agentfs job-2: done, 3 of 3 steps"]
    revision = place.read("revisions/1.json", "job-2")
    assert revision["by"] == {"role": "agentfs", "name": "agentfs", "model": None}
    assert revision["detail"] == f"fork of {day}/job@1"
    assert f"began as a fork of {day}/job@1" in place.agentfs("replay", "job-2", code=2).stderr
    assert (place.run_folder("job-2") / "goal.md").read_bytes() == (place.run_folder() / "goal.md").read_bytes()
    place.ledger_is_sound()


def test_a_fork_of_the_last_revision_has_nothing_left_to_do(place: Place, day: str) -> None:
    page = json.loads(place.agentfs("fork", "job", "--json", "--name", "Another Try").stdout)
    assert page == {
        "run": f"{day}/another-try",
        "source": f"fork of {day}/job@2",
        "mode": "auto",
        "planner": None,
        "executor": None,
        "plan": True,
        "kept": ["a", "b", "c"],
        "to_run": [],
        "workdir": "files",
    }
    place.agentfs("run", "--resume", "another-try")
    assert effects(place, "another-try") == effects(place, "job")


def test_a_dry_run_makes_nothing(place: Place, day: str) -> None:
    before = contents(place.runs)
    done = place.agentfs("fork", "job@1", "--dry-run")
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "dry run: this is what it would do; nothing is written",
        f"a fork of {day}/job@1: keeps 2 steps (a, c)",
        "still to run: b",
        "files/ is copied as it is now",
    ]
    assert contents(place.runs) == before


def test_a_cancelled_run_forks_approved_a_draft_stays_one_and_a_folder_outside_is_shared(place: Place) -> None:
    (place.root / "shop").mkdir()
    place.agentfs("plan", place.runbook(BOOK), "--workdir", "shop")
    place.agentfs("fork", "job")
    assert place.read("planning/1.result.json", "job-2")["plan"]["status"] == "draft"
    place.agentfs("approve", "job")
    place.agentfs("cancel", "job")
    done = place.agentfs("fork", "job")
    assert f"both work in {place.root / 'shop'}: it is not copied" in done.stderr
    place.agentfs("run", "--resume", "job-3")
    effects = (place.root / "shop" / "effects").read_text(encoding="utf-8").split()
    assert sorted(effects) == ["a", "b", "c"], "each once; b and c run at once"


def test_mistakes_are_reported(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK))
    assert "has no revision 4 (it has 1 to 1)" in place.agentfs("fork", "job@4", code=2).stderr
    (place.run_folder() / "goal.md").write_text("---\nnonsense: 1\n---\n# x\n", encoding="utf-8")
    assert "is not valid: " in place.agentfs("fork", "job", code=2).stderr
    assert [path.name for path in place.run_folder().parent.iterdir()] == ["job"]


def test_what_a_dead_fork_left_is_not_mixed_into_the_next_run(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK))
    dead = place.run_folder().parent / "job-2"
    (dead / "steps").mkdir(parents=True)
    (dead / "run.json").write_text("{}", encoding="utf-8")
    assert place.agentfs("fork", "job").stdout.endswith("/job-2\n")  # nothing was in it yet
    assert (dead / "goal.md").is_file()
    (dead / "goal.md").unlink()
    place.agentfs("run", "--resume", "job-2", code=2)
    (dead / "plan.json").write_text("{}", encoding="utf-8")  # it was a run: what it holds is not thrown away
    kept = contents(dead)
    assert place.agentfs("fork", "job").stdout.endswith("/job-3\n")
    assert contents(dead) == kept


def test_models_and_mode_of_its_own(place: Place, server: ScriptedServer) -> None:
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    step: dict[str, Any] = {
        "description": "say it",
        "tool": "shell",
        "success_condition": "it prints",
        "depends_on": [],
    }
    server.plan({"steps": [{**step, "id": "one", "input": {"command": "echo 1"}}]})
    place.agentfs("run", place.goal("Say one\n"), "--mode", "split")
    asked = len(server.requests)
    place.agentfs("fork", "job", "--planner", "big", "--executor", "small")
    place.agentfs("run", "--resume", "job-2")
    assert len(server.requests) == asked
    run = place.read("run.json", "job-2")
    assert (run["mode"], run["models"]["planner"], run["models"]["executor"]) == ("split", "big", "small")
    assert place.read("revisions/1.json", "job-2")["by"]["role"] == "agentfs"
    done = place.agentfs("fork", "job", "--mode", "single")
    assert "from its goal alone: single begins with a plan of its own" in done.stderr
    assert place.tree("job-3") == ["goal.md", "run.json"]
