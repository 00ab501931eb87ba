"""A planner that never answers: it has a deadline, its time counts, it holds up nothing else, and it can be ended."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemons import Watching, book
from tests.workspaces import Place, wait_for

SILENT = 'mode = "split"\n[planner]\nkind = "command"\ncommand = ["sh", "-c", "touch asked; exec sleep 600"]\n'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(SILENT)
    return place


def settings(place: Place, *, planner: str = "", limits: str = "") -> None:
    (place.root / "agentfs.toml").write_text(f"{SILENT}{planner}\n[limits]\n{limits}\n")


def test_a_call_has_a_deadline_and_the_run_goes_on_from_there(place: Place) -> None:
    settings(place, planner="timeout_s = 0.5")
    done = place.agentfs("run", place.goal("Tidy the shop\n"), code=4)
    answer = place.read("planning/1.result.json")
    assert (answer["verdict"], answer["error"]["kind"]) == ("failed", "unreachable")
    assert answer["error"]["message"] == "the planner did not answer within 0.5 s"
    assert answer["error"]["hint"] == "raise timeout_s under [planner] in agentfs.toml, or use another model"
    assert 0.4 < answer["duration_s"] < 30
    assert "the planner did not answer within 0.5 s" in done.stderr
    plan = '{"steps": [{"id": "a", "tool": "shell", "input": {"command": "echo ok"}, "success_condition": "it prints ok"}]}'
    (place.root / "agentfs.toml").write_text(
        f"mode = \"split\"\n[planner]\nkind = \"command\"\ncommand = ['echo', '{plan}']\n"
    )
    assert place.agentfs("run", "--resume", "job").stdout == "ok\n"


def test_the_time_of_calls_counts_as_minutes(place: Place) -> None:
    settings(place, limits="minutes = 0.01")
    done = place.agentfs("run", place.goal("Tidy the shop\n"), code=3)
    answer = place.read("planning/1.result.json")
    assert (answer["verdict"], answer["error"]["kind"]) == ("interrupted", "limit")
    assert answer["error"]["message"] == "the limit of 0.01 minutes is reached (limits.minutes)"
    assert "the limit of 0.01 minutes is reached (limits.minutes)" in done.stderr
    assert not (place.run_folder() / "planning" / "2.json").exists()


def test_open_calls_take_no_place_of_an_attempt_and_cancel_ends_one(place: Place) -> None:
    settings(place, limits="parallel = 1")
    with Watching(place) as daemon:
        for name in ("one", "two"):
            daemon.drop(f"{name}.md", "Tidy the shop\n")
        for name in ("one", "two"):
            wait_for((daemon.folder(name) / "planning" / "1.json").exists, "the call")
        daemon.drop("steps.md", book("echo a", "echo b", front="approve: never"))
        assert daemon.outcome("steps")["answer"] == "b"
        (place.run_folder("one") / "plan.json").write_text(
            '{"status": "cancelled", "steps": [{"id": "a", "tool": "note", "input": {"text": "x"}}]}'
        )
        assert daemon.outcome("one")["status"] == "cancelled"
        assert daemon.end(signal.SIGTERM) == 130
    assert place.read("planning/1.result.json", "one")["verdict"] == "interrupted"
    assert place.read("planning/1.result.json", "two")["verdict"] == "interrupted"


@pytest.mark.parametrize("goal", ["a step", "a call"])
def test_a_closed_terminal_ends_and_settles_what_runs(place: Place, goal: str) -> None:
    text = book("touch begun; sleep 600", lines="repeatable") if goal == "a step" else "Tidy the shop\n"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", sys.executable, "-m", "agentfs", "run", place.goal(text)],
        cwd=place.root,
        env={**place.env, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    begun = "*/job/files/begun" if goal == "a step" else "../asked"
    wait_for(lambda: any(place.runs.glob(begun)), "what runs to begin")
    os.close(ours)
    process.wait(timeout=60)  # nobody is there to see how it exits
    settled = "steps/a.1.result.json" if goal == "a step" else "planning/1.result.json"
    found = place.read(settled)
    assert found["status" if goal == "a step" else "verdict"] == "interrupted"
    assert "another agentfs" not in place.agentfs("status", "job").stdout


def test_a_run_under_nohup_outlives_its_terminal(place: Place) -> None:
    goal = place.goal(book("touch begun; while ! test -e go; do sleep 0.02; done; echo ok"))
    words = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-m", "agentfs", "run", goal]
    process = subprocess.Popen(words, cwd=place.root, env=place.env, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step to begin")
    process.send_signal(signal.SIGHUP)
    (place.run_folder() / "files" / "go").touch()
    assert process.communicate(timeout=60)[0] == "ok\n"
    assert process.returncode == 0
