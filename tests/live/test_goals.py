"""Whatever a model does, the machine holds: records are valid, the ledger is sound, done means checked, limits hold."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import Answer, Outcome, Result
from tests.live.goals import GOALS, Goal, GoalReport
from tests.workspaces import Place

REQUESTS = 12


@pytest.mark.live
@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_a_goal(goal: Goal, place: Place, reports: list[GoalReport]) -> None:
    files = place.root / "files"
    files.mkdir()
    for name, text in goal.files:
        (files / name).parent.mkdir(exist_ok=True)
        (files / name).write_text(text)
    front = f"---\nlimits:\n  requests: {REQUESTS}\n  replans: 1\n---\n"
    (place.root / f"{goal.name}.md").write_text(front + goal.text + "\n")
    began = time.monotonic()
    end = began + 60 * float(os.environ.get("AGENTFS_LIVE_MINUTES", "10"))
    out = driven(place, ["run", f"{goal.name}.md", "--mode", "split", "--workdir", "files"], end)
    folder = place.run_folder(goal.name)
    while time.monotonic() < end and say_yes(folder):
        out = driven(place, ["run", "--resume", goal.name], end)
    reports.append(how_it_went(goal, folder, out, files, time.monotonic() - began))
    assert_it_holds(place, folder, goal.name)


def driven(place: Place, words: list[str], end: float) -> str:
    """Drive a run until it rests or its time is up; return its answer."""
    process = place.begin(*words)
    try:
        out, err = process.communicate(timeout=max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    assert "Traceback" not in err, err
    return out


def say_yes(folder: Path) -> bool:
    """Approve every step that a planner put a gate before; return whether there was one."""
    questions = [
        path for path in folder.glob("steps/*.question.md") if "<!-- key:" in path.read_text(encoding="utf-8")
    ]
    replies = [path.with_name(path.name.replace("question", "reply")) for path in questions]
    new = [path for path in replies if not path.exists()]
    for path in new:
        path.write_text("approve\n", encoding="utf-8")
    return bool(new)


def how_it_went(goal: Goal, folder: Path, answer: str, files: Path, seconds: float) -> GoalReport:
    answers = [json.loads(path.read_bytes()) for path in sorted((folder / "planning").glob("*.result.json"))]
    outcome = folder / "outcome.json"
    status = json.loads(outcome.read_bytes())["status"] if outcome.exists() else "waits"
    problems = tuple(
        problem for path in sorted((folder / "planning").glob("*.log.jsonl")) for problem in repaired(path)
    )
    return GoalReport(
        name=goal.name,
        planned=(folder / "revisions" / "1.json").exists(),
        repairs=sum(entry == "repair" for entry in problems),
        found=tuple(problem for problem in problems if problem != "repair"),
        calls=len(answers),
        status=status,
        met=status == "done" and goal.met(files, answer),
        seconds=seconds,
    )


def repaired(log: Path) -> list[str]:
    """Return what a planner was asked to fix in one call: `repair` for each turn, and its lines."""
    found: list[str] = []
    for line in log.read_text("utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        if entry["event"] != "request" or entry["keep"] == 0:
            continue
        for message in entry["messages"]:
            if message["role"] == "user":
                found += ["repair", *re.findall(r"^\d+\. (.{1,160})", message["content"], re.MULTILINE)]
    return found


def assert_it_holds(place: Place, folder: Path, name: str) -> None:
    """Assert what must be so whatever the model says."""
    place.git("fsck", "--strict")
    requests = 0
    for path in folder.glob("planning/*.result.json"):
        answer = Answer.model_validate_json(path.read_bytes())
        requests += answer.usage.requests if answer.usage else 0
    for path in folder.glob("steps/*.result.json"):
        result = Result.model_validate_json(path.read_bytes())
        requests += result.usage.requests if result.usage else 0
        assert result.status != "done" or all(check.ok for check in result.checks)
    assert requests <= REQUESTS
    if (folder / "outcome.json").exists():
        outcome = Outcome.model_validate_json((folder / "outcome.json").read_bytes())
        assert outcome.status != "done" or outcome.steps.done
    assert place.agentfs("show", name, "--json").stdout
