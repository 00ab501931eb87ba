"""Forgetting runs: their files go, their history stays, and nothing else is touched."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentfs.storage.locks import locked
from tests.daemons import Watching, book
from tests.workspaces import DEADLINE, Place, wait_for

SAY = "### say\n```note\nhello\n```\n"
FAIL = "### say\n```sh\nexit 3\n```\nretries: 0\n"
GATE = "### say\ngate\n```note\nhello\n```\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def ran(place: Place, name: str = "job", steps: str = SAY, front: str = "") -> str:
    """Run a runbook to its end, or until it waits; return the run's id."""
    place.agentfs("run", place.runbook(steps, front, f"{name}.md"), code=None)
    return f"{place.run_folder(name).parent.name}/{name}"


def ended_at(place: Place, name: str, moment: str) -> None:
    """Let a run have ended at another moment."""
    path = place.run_folder(name) / "outcome.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ended_at": moment}, indent=2) + "\n")


def names(place: Place) -> set[str]:
    return {folder.name for folder in place.runs.glob("????-??-??/*")}


def forget_json(place: Place, *words: str, code: int = 0) -> Any:
    return json.loads(place.agentfs("forget", *words, "--json", code=code).stdout)


def test_files_go_and_history_stays(place: Place) -> None:
    run = ran(place)
    other = ran(place, "other")
    files = place.git("ls-tree", "-r", "--name-only", "main", f"{run}/").splitlines()
    done = place.agentfs("forget", "job")
    commit = place.git("rev-parse", "--short=10", "main").strip()
    assert done.stdout.splitlines()[2:] == [
        f"1 run forgotten, {done.stdout.split('1 run forgotten, ')[1].splitlines()[0]}",
        f"what it was:   git -C runs log -- {run}",
        f"have it back:  git -C runs checkout {commit}^ -- {run}",
    ]
    assert done.stderr == ""
    assert names(place) == {"other"}
    author = place.git("log", "-1", "--format=%an").strip()
    assert place.git("log", "--format=%an: %s", "--", run).splitlines() == [
        f"{author}: job: forgotten",
        "agentfs: job: done, 1 of 1 steps",
        "agentfs: job: revision 1, the first plan",
    ]
    assert author != "agentfs"
    assert place.git("log", "-1", "--format=%(trailers:only)").strip() == f"Agentfs-Run: {run}"
    assert place.git("ls-tree", "-r", "--name-only", "main^", f"{run}/").splitlines() == files
    assert [one["run"] for one in json.loads(place.agentfs("status", "--json").stdout)] == [other]
    place.ledger_is_sound()


def test_what_was_forgotten_can_be_had_back(place: Place) -> None:
    run = ran(place)
    place.agentfs("forget", run)
    place.git("checkout", "-q", "main^", "--", run)
    assert json.loads(place.agentfs("show", run, "--json").stdout)["steps"][0]["output"] == "hello"


def test_a_name_may_be_used_again(place: Place) -> None:
    run = ran(place)
    place.agentfs("forget", run)
    assert ran(place) == run
    entries = json.loads(place.agentfs("log", run, "--json").stdout)["entries"]
    assert [(entry["kind"], bool(entry["commit"])) for entry in entries] == [("revision", True), ("outcome", True)]
    place.ledger_is_sound()


def test_only_runs_that_have_ended(place: Place) -> None:
    done, waits = ran(place), ran(place, "waits", GATE)
    refused = place.agentfs("forget", "job", "waits", code=2)
    assert refused.stderr.splitlines() == [
        f"{waits} has not ended: end it first (agentfs cancel {waits})",
        "nothing was forgotten",
    ]
    place.agentfs("forget", "--state", "done", "--yes")
    assert names(place) == {"waits"}
    place.agentfs("cancel", "waits")
    place.agentfs("forget", "waits")
    assert names(place) == set()
    assert done != waits


def test_a_run_that_is_driven_is_kept(place: Place) -> None:
    run = ran(place)
    with locked(place.run_folder()) as mine:
        assert mine
        done = place.agentfs("forget", run, code=2)
        assert "is being driven by another agentfs" in done.stderr
        kept = forget_json(place, "--name", "job", "--yes", code=2)
        assert (kept["forgotten"], kept["kept"]) == ([], [{"run": run, "why": "another agentfs drives it"}])
    assert names(place) == {"job"}
    place.ledger_is_sound()


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--state", "failed"], {"bad"}),
        (["--state", "failed,done"], {"bad", "old", "new"}),
        (["--state", "failed", "--state", "done", "--name", "[bn]*"], {"bad", "new"}),
        (["--older-than", "30d"], {"old"}),
        (["--older-than", "2026-06-01"], {"old"}),
        (["--older-than", "0s"], {"old", "new", "bad"}),
        (["--older-than", "30d", "--state", "failed"], set()),
        (["--name", "????-??-??/[no]*"], {"old", "new"}),
        (["--name", "nothing*"], set()),
    ],
)
def test_by_age_state_and_name(place: Place, words: list[str], gone: set[str]) -> None:
    ran(place, "old")
    ended_at(place, "old", "2026-01-02T03:04:05.000006Z")
    ran(place, "new")
    ran(place, "bad", FAIL)
    ran(place, "waits", GATE)
    everything = {"old", "new", "bad", "waits"}
    looked = forget_json(place, *words, "--dry-run")
    assert {one["run"].partition("/")[2] for one in looked["forgotten"]} == gone
    assert names(place) == everything
    asked = place.agentfs("forget", *words, code=3 if gone else 0)
    assert names(place) == everything
    if gone:
        assert asked.stdout == ""
        assert asked.stderr.endswith(": look with --dry-run, then say --yes\n")
    done = forget_json(place, *words, "--yes")
    assert names(place) == everything - gone
    assert {**done, "dry_run": True, "commits": []} == looked
    assert len(done["commits"]) == (1 if gone else 0)
    assert set(done) == {"dry_run", "forgotten", "kept", "bytes", "commits"}
    assert done["bytes"] == sum(one["bytes"] for one in done["forgotten"])
    changed = place.git("status", "--porcelain").splitlines()
    assert [line[:3] + line.split("/")[1] for line in changed] == ([] if "old" in gone else [" M old"])


def test_an_age_is_what_the_outcome_says_not_when_it_was_copied(place: Place) -> None:
    ran(place)
    os.utime(place.run_folder() / "outcome.json", (0, 0))
    assert forget_json(place, "--older-than", "30d", "--dry-run")["forgotten"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "say which runs: their names, or --older-than 30d, --state done, --name 'tidy*'"),
        (("job", "--state", "done"), "name the runs, or choose them by --older-than, --state and --name: not both"),
        (("nobody",), "there is no run 'nobody'"),
        (
            ("--older-than", "soon"),
            "--older-than soon: write how long ago (90min, 3h, 2d, 4w), or a day (2026-11-01)",
        ),
        (("--older-than", "999999w"), "--older-than 999999w: write how long ago"),
        (("--state", "running"), "--state 'running': choose from done, failed, cancelled"),
    ],
)
def test_mistakes_get_words(place: Place, words: tuple[str, ...], message: str) -> None:
    ran(place)
    done = place.agentfs("forget", *words, code=2)
    assert message in done.stderr
    assert names(place) == {"job"}


@pytest.mark.parametrize(("typed", "left"), [("y\n", set()), ("yes\n", set()), ("\n", {"job"}), ("never\n", {"job"})])
def test_on_a_terminal_it_asks(place: Place, typed: str, left: set[str]) -> None:
    ran(place)
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "agentfs", "forget", "--state", "done"]
    asked = subprocess.Popen(command, cwd=place.root, env=place.env, stdin=terminal, stdout=terminal, stderr=terminal)
    printed = b""
    while b"Forget? [y/N] " not in printed:
        printed += os.read(master, 4096)
    assert names(place) == {"job"}
    os.write(master, typed.encode())
    assert asked.wait(DEADLINE) == 0
    os.close(terminal)
    os.close(master)
    assert b"gone for good" in printed
    assert names(place) == left


def test_nothing_outside_the_runs_folder_is_touched(place: Place) -> None:
    shop = place.root / "shop"
    shop.mkdir()
    (shop / "mine.txt").write_text("mine")
    closed = (
        "### say\n```sh\nmkdir shut; echo x > shut/x; ln -s ../../../../goals out; chmod 500 shut; echo hi\n```\n"
    )
    ran(place, "inside", closed)
    ran(place, "shopping", "### say\n```sh\necho made > made.txt\n```\n", "workdir: shop")
    os.symlink(shop, place.run_folder("inside") / "steps" / "elsewhere")
    os.symlink(shop / "mine.txt", place.run_folder("inside") / "planning" / "9.json")
    (place.root / "goals" / "kept.txt").write_text("kept")
    place.agentfs("forget", "inside", "shopping")
    assert names(place) == set()
    assert sorted(path.name for path in shop.iterdir()) == ["made.txt", "mine.txt"]
    assert (place.root / "goals" / "kept.txt").read_text() == "kept"
    assert "mine" not in place.git("log", "-p")
    assert list((place.runs / ".forgotten").iterdir()) == []
    place.ledger_is_sound()


def test_an_edit_after_the_end_is_in_the_ledger_too(place: Place) -> None:
    run = ran(place)
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace("hello", "a later thought"))
    (place.run_folder() / "steps" / "say.1.result.json").write_text("{ torn")
    place.agentfs("forget", run)
    assert place.log()[-2:] == [
        f"{place.git('log', '-1', '--format=%an').strip()} {words}"
        for words in ("job: as it stood when it was forgotten", "job: forgotten")
    ]
    assert "a later thought" in place.git("show", f"main^:{run}/plan.json")
    assert place.git("show", f"main^:{run}/steps/say.1.result.json") == "{ torn"
    place.ledger_is_sound()


def test_what_the_ledger_never_had_is_committed_first(place: Place) -> None:
    run = ran(place)
    subprocess.run(["rm", "-rf", str(place.runs / ".git")], check=True)
    place.agentfs("forget", run)
    assert [line.partition(" job: ")[2] for line in place.log()] == [
        "revision 1, the first plan",
        "done, 1 of 1 steps",
        "forgotten",
    ]
    place.ledger_is_sound()


def test_a_ledger_that_is_locked_keeps_the_run(place: Place) -> None:
    run = ran(place)
    before = place.tree()
    lock = place.runs / ".git" / "refs" / "heads" / "main.lock"
    lock.touch()
    done = place.agentfs("forget", run, code=2)
    assert done.stderr.startswith(f"agentfs: nothing was forgotten: {lock} is held by another program")
    assert place.tree() == before
    lock.unlink()
    place.agentfs("forget", run)
    assert names(place) == set()
    place.ledger_is_sound()


def test_an_index_that_is_locked_is_brought_in_step_later(place: Place) -> None:
    ran(place)
    lock = place.runs / ".git" / "index.lock"
    lock.touch()
    done = place.agentfs("forget", "job")
    assert "the next `agentfs forget`, `run` or `watch` completes that" in done.stderr
    lock.unlink()
    assert place.git("status", "--porcelain") != ""
    ran(place, "another")
    assert names(place) == {"another"}
    place.ledger_is_sound()


def test_a_forgetting_that_was_killed_is_finished_by_the_next_command(place: Place) -> None:
    run = ran(place)
    (place.runs / ".forgotten" / run).parent.mkdir(parents=True)
    os.rename(place.run_folder(), place.runs / ".forgotten" / run)
    assert place.agentfs("status").stdout.startswith("no runs yet")
    assert place.agentfs("forget", "--state", "done", "--yes").stdout == "no run that has ended matches\n"
    assert list((place.runs / ".forgotten").iterdir()) == []
    assert place.log()[-1].endswith("job: forgotten")
    place.ledger_is_sound()


def test_a_daemon_beside_it_is_not_disturbed(place: Place) -> None:
    with Watching(place) as daemon:
        for number in range(3):
            daemon.drop("job.md", book("echo hello"))
            daemon.outcome("job")
            wait_for(lambda: place.agentfs("forget", "job", code=None).returncode == 0, "the daemon to let go of it")
            assert names(place) == set(), number
        daemon.drop("last.md", book("echo last"))
        assert daemon.outcome("last")["status"] == "done"
        wait_for(lambda: len([line for line in place.log() if " last: " in line]) == 2, "its commits")
        output = daemon.output()
    assert "passes over" not in output
    assert "moved or deleted" not in output
    assert [line.partition(" job: ")[2] for line in place.log() if " job: " in line] == [
        "revision 1, the first plan",
        "done, 1 of 1 steps",
        "forgotten",
    ] * 3
    place.ledger_is_sound()
