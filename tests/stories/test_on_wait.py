"""`on_wait`: a person's own command, run once for each thing that a run waits for them with."""

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.daemons import Watching, book
from tests.workspaces import Place, end, wait_for

GATED = (
    "### a\n```sh\necho a\n```\n### send\ngate\n```sh\necho sent\n```\n### who\nafter: nothing\n```ask\nWho?\n```\n"
)
TELL = """on_wait = 'echo "$AGENTFS_RUN|$AGENTFS_WHAT|$AGENTFS_FILE|$AGENTFS_WHY|$AGENTFS_HOW" >> notices'\n"""


def settings(place: Place, text: str = TELL) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(text)


def notices(place: Place) -> list[str]:
    path = place.root / "notices"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def test_each_thing_is_reported_once_whatever_drives_the_run(place: Place) -> None:
    settings(place)
    place.agentfs("run", place.runbook(GATED), code=3)
    folder = place.run_folder()
    run = f"{folder.parent.name}/job"
    things = [
        f"{run}|ask|{folder}/steps/who.1.question.md|who: Who?|agentfs reply {run} who TEXT",
        f"{run}|gate|{folder}/steps/send.1.question.md|send: needs approval|agentfs approve {run} send",
    ]
    assert notices(place) == things
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job", "send")
    place.agentfs("run", "--resume", "job", code=3)
    assert notices(place) == things
    lines = [json.loads(line) for line in (folder / "on_wait.log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines if line.get("what") == "gate"] == ["begins"]
    assert sorted(line["event"] for line in lines) == ["begins", "begins", "ended", "ended"]
    place.ledger_is_sound()


def test_items_that_were_cut_off_are_reported_once_however_they_are_answered(place: Place) -> None:
    settings(place)
    process = place.begin(
        "run", place.runbook("### work\neach: a, b, c\n```sh\ntouch {{item}}; test -e go || sleep 600\n```\n")
    )
    files = place.root / "runs"
    wait_for(lambda: len([*files.glob("*/job/files/[abc]")]) == 3, "three items")
    end(process)
    place.agentfs("resume", "job", code=3)
    folder = place.run_folder()
    run = f"{folder.parent.name}/job"
    why = (
        "work~a: it was cut off and is not repeatable: a person must say what became of it (and 2 more of its items)"
    )
    assert (place.root / "notices").read_text() == (
        f"{run}|cut|{folder}/steps/work~a.1.question.md|{why}|agentfs reply {run} work again\n"
        f"agentfs reply {run} work done\nagentfs reply {run} work failed\n"
    )
    before = notices(place)
    place.agentfs("reply", "job", "work~a", "done")
    place.agentfs("resume", "job", code=3)
    assert notices(place) == before
    place.agentfs("reply", "job", "work", "done")
    place.agentfs("resume", "job")
    place.ledger_is_sound()


def test_a_daemon_that_is_killed_tells_nothing_twice(place: Place) -> None:
    settings(place, TELL + 'approve = "plan"\n')
    goal = "---\napprove: plan\n---\n" + book("echo a", lines="gate")
    with Watching(place) as daemon:
        daemon.drop("job.md", goal)
        wait_for(lambda: len(notices(place)) == 1, "the draft to be reported")
        daemon.end(signal.SIGKILL)
    assert notices(place)[0].split("|")[1] == "draft"
    with Watching(place) as daemon:
        daemon.wait_for_output("waits: the plan is a draft")
        place.agentfs("approve", "job")
        wait_for(lambda: len(notices(place)) == 2, "the gate to be reported")
        place.agentfs("pause", "job")
        daemon.wait_for_output("is paused")
        place.agentfs("resume", "job")
        place.agentfs("approve", "job")
        assert daemon.outcome("job")["status"] == "done"
    assert [line.split("|")[1] for line in notices(place)] == ["draft", "gate"]


def test_a_slow_command_holds_nobody_up(place: Place) -> None:
    settings(place, "on_wait = 'while ! test -e go; do sleep 0.05; done; echo hello > notices'\n")
    with Watching(place) as daemon:
        daemon.drop("asks.md", book("echo a", lines="gate"))
        wait_for(lambda: any(place.runs.glob("*/asks/on_wait.log.jsonl")), "the command to begin")
        daemon.drop("other.md", book("echo other"))
        assert daemon.outcome("other")["answer"] == "other"
    assert notices(place) == []
    (place.root / "go").touch()
    wait_for((place.root / "notices").exists, "the command, which runs on by itself")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("'echo out of paper >&2; exit 3'", "on_wait exited with 3: out of paper ({run} waits)"),
        ('["no-such-bell", "-x"]', "on_wait cannot be started ([Errno 2] No such file or directory: 'no-such-bell')"),
    ],
)
def test_a_command_that_fails_is_one_line(place: Place, command: str, words: str) -> None:
    settings(place, f"on_wait = {command}\n")
    output = place.agentfs("run", place.runbook("### a\ngate\n```sh\ntrue\n```\n"), code=3).stderr
    run = f"{place.run_folder().parent.name}/job"
    assert [line for line in output.splitlines() if "on_wait" in line] == [
        line for line in output.splitlines() if line.startswith(words.format(run=run))
    ]
    assert output.count("on_wait") == 1


def test_the_command_may_call_agentfs(place: Place) -> None:
    settings(place, "on_wait = 'agentfs-here approve \"$AGENTFS_RUN\"'\n")
    bin_ = place.root.parent / "bin"
    bin_.mkdir()
    (bin_ / "agentfs-here").write_text(f'#!/bin/sh\nexec {sys.executable} -m agentfs "$@" > said 2>&1\n')
    (bin_ / "agentfs-here").chmod(0o755)
    place.env["PATH"] = f"{bin_}:{place.env['PATH']}"
    with Watching(place) as daemon:
        daemon.drop("job.md", book("echo a", lines="gate"))
        assert daemon.outcome("job")["answer"] == "a"


def test_an_edit_that_cannot_be_read_is_reported_once_however_often_it_is_saved(place: Place) -> None:
    settings(place)
    with Watching(place) as daemon:
        daemon.drop("job.md", book("echo a", lines="gate"))
        wait_for(lambda: len(notices(place)) == 1, "the gate to be reported")
        plan = place.run_folder() / "plan.json"
        good = plan.read_text()
        plan.write_text("{")
        wait_for(lambda: len(notices(place)) == 2, "the plan to be reported")
        plan.write_text("{}")
        wait_for(lambda: "'status' is missing" in (plan.parent / "plan.error.md").read_text(), "the other error")
        plan.write_text(good)
        wait_for(lambda: not (plan.parent / "plan.error.md").exists(), "it to be fixed")
    assert [line.split("|")[1] for line in notices(place)] == ["gate", "plan"]


def test_nobody_elses_command_is_run(place: Place, tmp_path: Path) -> None:
    settings(place, "on_wait = 'touch sprung'\n")
    place.agentfs("run", place.runbook("### a\ngate\n```sh\ntrue\n```\n"), code=3)
    wait_for((place.root / "sprung").exists, "the command")
    theirs = tmp_path / "theirs"
    shutil.copytree(place.root, theirs)
    (theirs / "sprung").unlink()
    next(theirs.glob("runs/*/job/on_wait.log.jsonl")).unlink()
    for words in (["run", "--resume", "job"], ["run", "job.md"], ["watch"]):
        assert "was not made by you" in place.agentfs(*words, code=2, cwd=theirs).stderr
    for words in (["status"], ["show", "job"], ["approve", "job"], ["replay", "job"], ["fork", "job"]):
        place.agentfs(*words, code=None, cwd=theirs)
    assert not (theirs / "sprung").exists()


def test_a_goal_cannot_set_it(place: Place) -> None:
    settings(place, "")
    name = place.runbook("### a\ngate\n```sh\ntrue\n```\n", "on_wait: touch sprung")
    assert "on_wait" in place.agentfs("run", name, code=2).stderr
    place.agentfs(
        "run", place.runbook("### a\ngate\n```sh\ntrue\n```\n"), code=3, env={"AGENTFS_ON_WAIT": "touch here"}
    )
    assert [path.name for path in place.root.glob("*") if path.name in ("here", "sprung")] == ["here"]
