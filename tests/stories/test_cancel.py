"""`cancel` ends a run. Where nobody drives it, it takes the lock and ends it itself: nothing of the plan is started."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.daemons import Watching
from tests.workspaces import Place, end, wait_for

GATE = "### send\n```sh\necho sent\n```\ngate\n"
ADA = {"GIT_AUTHOR_NAME": "Ada", "GIT_COMMITTER_NAME": "Ada"}
SLOW = "### slow\n{0}\n```sh\necho $$ > pid; touch begun; sleep 600\n```\n### last\n```sh\necho last\n```\n"


def test_a_run_that_nobody_drives_is_ended_and_may_be_forgotten(place: Place) -> None:
    place.agentfs("run", place.runbook(GATE), code=3)
    run = place.run_folder().parent.name + "/job"
    done = place.agentfs("cancel", "job", env=ADA)
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f'runs/{run}/plan.json: "status" is now "cancelled" (it was "approved")',
        f"{run}: cancelled; 0 of 1 steps done",
    ]
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "Ada job: revision 2, edited by Ada",
        "agentfs job: cancelled, 0 of 1 steps",
    ]
    assert "**cancelled**" in (place.run_folder() / "STATUS.md").read_text()
    place.ledger_is_sound()
    place.agentfs("verify")
    assert "has ended" in place.agentfs("cancel", "job", code=2).stderr
    assert f"(agentfs resume {run} continues it)" in place.agentfs("pause", "job", code=2).stderr
    place.agentfs("forget", "job", "--yes")
    assert not list(place.runs.glob("20*/*"))


@pytest.mark.parametrize("sandbox", ["auto", "off"])
@pytest.mark.parametrize("line", ["repeatable", "not repeatable"])
def test_what_a_killed_driver_left_running_is_ended_too(place: Place, line: str, sandbox: str) -> None:
    process = place.begin("run", place.runbook(SLOW.format(line)), env={"AGENTFS_TOOLS_SANDBOX": sandbox})
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step")
    end(process, signal.SIGKILL)
    place.agentfs("cancel", "job")
    result, outcome = place.read("steps/slow.1.result.json"), place.read("outcome.json")
    assert (result["status"], outcome["status"], outcome["reason"]) == ("interrupted", "cancelled", "cancelled")
    files = str(place.run_folder() / "files")
    wait_for(lambda: not [pid for pid in os.listdir("/proc") if pid.isdigit() and works_in(pid, files)], "its end")
    assert not (place.run_folder() / "steps" / "slow.1.question.md").exists()


def works_in(pid: str, folder: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == folder
    except OSError:
        return False


def test_a_question_that_is_open_is_closed(place: Place) -> None:
    place.agentfs("run", place.runbook('### which\n```ask\n{"question": "Which?"}\n```\n'), code=3)
    place.agentfs("cancel", "job")
    assert place.read("steps/which.1.result.json")["error"]["kind"] == "cancelled"
    assert place.read("outcome.json")["status"] == "cancelled"


def test_a_run_that_never_had_a_plan(place: Place) -> None:
    unreachable = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    place.agentfs("run", place.goal("Tidy the shop\n"), "--mode", "split", env=unreachable, code=4)
    dry = place.agentfs("cancel", "job", "--dry-run").stderr
    assert "would" in dry
    assert not (place.run_folder() / "outcome.json").exists()
    place.agentfs("cancel", "job")
    assert place.read("outcome.json")["status"] == "cancelled"
    assert place.log() == ["agentfs job: cancelled, 0 of 0 steps"]
    place.ledger_is_sound()
    place.agentfs("resume", "job", env=unreachable, code=4)


def test_a_run_that_is_being_planned_under_a_watch(place: Place) -> None:
    (place.root / "thinks").write_text("#!/bin/sh\nexec sleep 600\n")
    (place.root / "thinks").chmod(0o755)
    place.agentfs("init")
    command = json.dumps([str(place.root / "thinks")])
    (place.root / "agentfs.toml").write_text(f'mode = "split"\n[planner]\nkind = "command"\ncommand = {command}\n')
    with Watching(place) as daemon:
        daemon.drop("job.md", "Tidy the shop\n")
        wait_for(lambda: any(place.runs.glob("*/job/planning/1.json")), "the call")
        output = place.agentfs("cancel", "job", code=2).stderr
        assert "has no plan yet" in output


def test_nothing_of_the_workspace_is_run(place: Place) -> None:
    """A person who cancels a run need not have its tools, its sandbox, or a key."""
    place.agentfs("run", place.runbook(GATE), code=3)
    (place.root / "tools").mkdir(exist_ok=True)
    (place.root / "tools" / "mine.py").write_text(
        f"from agentfs import tool\nopen({str(place.root / 'ran')!r}, 'w')\n\n@tool\ndef mine(a: str) -> str:\n    return a\n"
    )
    (place.root / "agentfs.toml").write_text('[tools]\nsandbox = "require"\n')
    place.agentfs("cancel", "job", env={"PATH": without_bwrap(place)})
    assert place.read("outcome.json")["status"] == "cancelled"
    assert not (place.root / "ran").exists()


def without_bwrap(place: Place) -> str:
    folder = place.root.parent / "bin"
    folder.mkdir()
    git = subprocess.run(["sh", "-c", "command -v git"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "git").symlink_to(Path(git))
    return str(folder)


def test_one_that_is_driven_is_left_to_its_driver(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", f"# Job\n\n## Steps\n\n{GATE}")
        daemon.wait_for_output("job: waits: ")
        assert len(place.agentfs("cancel", "job").stderr.splitlines()) == 1
        assert daemon.outcome("job")["status"] == "cancelled"
        daemon.wait_for_output("job: cancelled")
