"""A daemon that is killed, stopped or obstructed: nothing is lost, nothing runs twice, no run holds up another."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.clocks import WallClock, needs_faketime
from tests.daemons import Watching, book
from tests.sweeps import size
from tests.workspaces import Place, wait_for

GATED = book("echo sent", lines="gate")
SLOW = "echo begun >> effects; while ! test -e go; do sleep 0.02; done; echo ended >> effects"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def begun(daemon: Watching, name: str = "job") -> Path:
    """Wait until the slow step of a run has begun; return the run's folder."""
    folder = daemon.folder(name)
    wait_for((folder / "files" / "effects").exists, "the slow step")
    return folder


def children(pid: int) -> list[int]:
    """Return the living descendants of a process."""
    found = [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]
    return [*found, *(below for one in found for below in children(one))]


def is_running(pid: int) -> bool:
    """Whether a process does anything yet; one that has ended may wait for its parent to take notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_unfinished(folder: Path) -> list[str]:
    claims = [path.name.removesuffix(".log.jsonl") for path in (folder / "steps").glob("*.log.jsonl")]
    return [name for name in claims if not (folder / "steps" / f"{name}.result.json").exists()]


def test_killed_and_started_again_it_goes_on_and_a_goal_is_taken_once(place: Place) -> None:
    with Watching(place) as first:
        first.drop("job.md", book(SLOW, lines="repeatable"))
        folder = begun(first)
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    (first.goals / "later.md").write_text(book("echo later"))
    (folder / "files" / "go").touch()
    with Watching(place) as second:
        assert second.outcome("job")["status"] == "done"
        assert second.outcome("later")["answer"] == "later"
    assert (folder / "files" / "effects").read_text() == "begun\nbegun\nended\n"
    assert place.read("steps/a.1.result.json")["status"] == "interrupted"
    assert sorted(path.parent.name for path in place.runs.glob("*/*/run.json")) == ["job", "later"]
    place.ledger_is_sound()


def test_a_goal_whose_intake_was_cut_off_is_taken_once(place: Place) -> None:
    """The folder is made and run.json written, but the goal has not moved yet: the next daemon uses that folder."""
    place.agentfs("init")
    text = book("echo x")
    (place.root / "goals" / "job.md").write_text(text)
    with Watching(place) as daemon:
        folder = daemon.folder("job")
        assert daemon.outcome("job")["status"] == "done"
    day = folder.parent
    shutil.rmtree(folder)
    (day / "job").mkdir()
    (day / "job" / "run.json").write_text("{")
    (place.root / "goals" / "job.md").write_text(text)
    with Watching(place) as daemon:
        assert daemon.outcome("job")["answer"] == "x"
    assert [path.name for path in day.iterdir()] == ["job"]


def test_a_run_that_ended_without_its_commit_gets_it_at_the_next_start(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", book("echo x"))
        daemon.outcome("job")
    whole = place.log()
    assert whole[-1] == "agentfs job: done, 1 of 1 steps"
    place.git("update-ref", "refs/heads/main", "HEAD~1")
    assert place.log() == whole[:-1]
    with Watching(place):
        wait_for(lambda: place.log() == whole, "the commit that was owed")
    place.ledger_is_sound()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_leaves_nothing_running_and_nothing_that_claims_to(place: Place, number: signal.Signals) -> None:
    with Watching(place) as daemon:
        for name in ("one", "two"):
            daemon.drop(f"{name}.md", book(SLOW, lines="repeatable"))
        folders = [begun(daemon, name) for name in ("one", "two")]
        below = children(daemon.popen.pid)
        assert below
        assert daemon.end(number) == 130
        assert [pid for pid in below if is_running(pid)] == []
    assert [is_unfinished(folder) for folder in folders] == [[], []]
    assert {place.read("steps/a.1.result.json", name)["status"] for name in ("one", "two")} == {"interrupted"}
    assert "a | running" not in (folders[0] / "STATUS.md").read_text()


def test_ctrl_c_once_lets_what_runs_finish_and_takes_nothing_new(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", book(SLOW, "echo next"))
        folder = begun(daemon)
        daemon.popen.send_signal(signal.SIGINT)
        daemon.wait_for_output("what runs finishes; Ctrl-C again ends it")
        daemon.drop("late.md", book("echo late"))
        (folder / "files" / "go").touch()
        assert daemon.popen.wait(timeout=60) == 130
    assert place.read("steps/a.1.result.json")["status"] == "done"
    assert not (folder / "steps" / "b.1.json").exists()
    assert os.listdir(daemon.goals) == ["late.md"]
    assert "goes on from here" in daemon.output()


def test_a_broken_run_is_set_aside_alone_and_taken_up_when_it_is_fixed(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", book("test -e ready && echo ok", lines="retries: 0"))
        daemon.outcome("job")
        folder = daemon.folder("job")
    record = (folder / "run.json").read_bytes()
    broken = shutil.copytree(folder, folder.parent / "broken")
    (broken / "outcome.json").unlink()
    (broken / "run.json").write_text('{"run": 1}')
    with Watching(place) as daemon:
        daemon.wait_for_output("/broken: set aside: ")
        daemon.drop("good.md", book("echo good"))
        assert daemon.outcome("good")["answer"] == "good"
        (broken / "run.json").write_bytes(record)
        (broken / "files" / "ready").touch()
        (broken / "steps" / "a.1.again.md").touch()
        wait_for((broken / "outcome.json").exists, "the end of the run that was fixed")
    assert json.loads((broken / "outcome.json").read_text())["answer"] == "ok"


def test_a_run_deleted_under_its_hands_holds_up_no_other(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("gone.md", book(SLOW))
        daemon.drop("stays.md", book(SLOW))
        gone, stays = begun(daemon, "gone"), begun(daemon, "stays")
        os.rename(gone, place.root / "elsewhere")
        daemon.wait_for_output("/gone: its folder was moved or deleted; what ran in it is ended")
        (stays / "files" / "go").touch()
        assert daemon.outcome("stays")["status"] == "done"


def test_goals_that_is_moved_away_is_made_again(place: Place) -> None:
    with Watching(place) as daemon:
        os.rename(daemon.goals, place.root / "old-goals")
        daemon.wait_for_output("goals/ was moved or deleted")
        (place.root / "old-goals" / "not.md").write_text(book("echo not"))
        daemon.drop("job.md", book("echo x"))
        assert daemon.outcome("job")["answer"] == "x"
        shutil.rmtree(daemon.goals)
        wait_for(daemon.goals.is_dir, "the new folder")
    assert len(list(place.runs.glob("*/*/run.json"))) == 1


def test_runs_that_is_moved_away_is_made_again_with_a_ledger(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("asks.md", GATED)
        asks = daemon.folder("asks")
        wait_for((asks / "steps" / "a.1.question.md").exists, "the question")
        os.rename(place.runs, place.root / "archive")
        daemon.wait_for_output(
            "runs/ was moved or deleted, so its runs are not driven; the next goal makes a new one"
        )
        daemon.wait_for_output("/asks: its folder was moved or deleted; what ran in it is ended")
        assert not place.runs.exists()  # so that it can be moved back
        daemon.drop("new.md", book("echo new"))
        assert daemon.outcome("new")["answer"] == "new"
        daemon.wait_for_output(
            "runs/ is another folder now: the runs in it are driven, and it has a ledger of its own"
        )
        wait_for(lambda: "new: done" in place.git("log", "--all"), "the commit in the new ledger")
        os.rename(place.runs, place.root / "second")
        os.rename(place.root / "archive", place.runs)
        (asks / "steps" / "a.1.reply.md").write_text("approve\n")
        assert daemon.outcome("asks")["answer"] == "sent"
    assert place.log()[-1] == "agentfs asks: done, 1 of 1 steps"


def test_a_run_that_is_renamed_or_copied_goes_on_under_its_new_name(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("asks.md", GATED)
        asks = daemon.folder("asks")
        wait_for((asks / "steps" / "a.1.question.md").exists, "the question")
        copied = shutil.copytree(asks, asks.with_name("copied"))
        renamed = asks.rename(asks.with_name("renamed"))
        os.rename(asks.parent, other := asks.parent.with_name("2020-02-02"))
        for name in ("copied", "renamed"):
            (other / name / "steps" / "a.1.reply.md").write_text("approve\n")
            assert daemon.outcome(name)["run"] == f"2020-02-02/{name}"
        daemon.wait_for_output("/asks: its folder was moved or deleted; what ran in it is ended")
    assert not copied.exists()
    assert not renamed.exists()
    assert {line for line in place.log() if "done" in line} == {
        "agentfs copied: done, 1 of 1 steps",
        "agentfs renamed: done, 1 of 1 steps",
    }
    place.ledger_is_sound()


def test_what_happens_while_the_event_queue_overflows_is_noticed(place: Place) -> None:
    """The kernel keeps 16,384 events for a reader that does not read, and drops the rest."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"the kernel keeps {limit} events: to overflow that takes too long")
    with Watching(place) as daemon:
        daemon.drop("asks.md", GATED)
        steps = daemon.folder("asks") / "steps"
        wait_for((steps / "a.1.question.md").exists, "the question")
        daemon.wait_for_output("a.1.reply.md: approve or reject")
        daemon.popen.send_signal(signal.SIGSTOP)
        for _ in range(limit):
            (daemon.goals / ".litter.tmp").touch()
            (daemon.goals / ".litter.tmp").unlink()
        (steps / "a.1.reply.md").write_text("approve\n")
        daemon.popen.send_signal(signal.SIGCONT)
        daemon.wait_for_output("event queue overflowed; rescanning")
        assert daemon.outcome("asks")["answer"] == "sent"


@needs_faketime
def test_the_clock_set_back_by_a_day_while_it_watches(place: Place) -> None:
    clock = WallClock.of(place)
    with Watching(place, env=clock.environment) as daemon:
        daemon.drop("asks.md", GATED)
        asks = daemon.folder("asks")
        wait_for((asks / "steps" / "a.1.question.md").exists, "the question")
        clock.set("-1d")
        daemon.drop("before.md", book("sleep 0.1; echo x", lines="timeout: 30s"))
        (asks / "steps" / "a.1.reply.md").write_text("approve\n")
        assert daemon.outcome("before")["answer"] == "x"
        assert daemon.outcome("asks")["answer"] == "sent"
        assert daemon.folder("before").parent.name < asks.parent.name
        daemon.drop("after.md", book("echo y"))
        assert daemon.outcome("after")["answer"] == "y"
        assert "looked at every second" not in daemon.output()
    ended = place.read("outcome.json", "asks")
    assert ended["ended_at"] < ended["started_at"]
    place.ledger_is_sound()


def test_a_flood_of_goals_is_taken_whole_and_once_while_it_answers(place: Place) -> None:
    count = size(60, 5000)
    goal = '{"goal": "x", "steps": [{"id": "a", "tool": "note", "input": {"text": "%d"}}]}'
    with Watching(place) as daemon:
        daemon.drop("asks.md", GATED)
        asks = daemon.folder("asks")
        wait_for((asks / "steps" / "a.1.question.md").exists, "the question")
        for number in range(count):
            (daemon.goals / f"g{number}.json").write_text(goal % number)
        (asks / "steps" / "a.1.reply.md").write_text("approve\n")
        assert daemon.outcome("asks")["answer"] == "sent"
        wait_for(lambda: not any(daemon.goals.glob("*.json")), "the flood", seconds=60 + count / 5)
        for number in range(count):
            assert daemon.outcome(f"g{number}")["answer"] == str(number)
    assert len(list(place.runs.glob("*/*/run.json"))) == count + 1
    assert "rejected" not in daemon.output()


def test_what_is_edited_in_a_run_that_has_ended_is_reported(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", book("test -e ready && echo ok", lines="retries: 0"))
        daemon.outcome("job")
        daemon.drop("old.md", book("echo old"))
        daemon.outcome("old")
    folder = place.run_folder("job")
    (place.run_folder("old") / "replan.md").write_text("faster\n")
    with Watching(place) as daemon:
        run = f"{folder.parent.name}/old"
        daemon.wait_for_output(
            f"{run}: replan.md changed, but the run has ended: `agentfs resume {run}` takes it up again"
        )
        (folder / "files" / "ready").touch()
        (folder / "steps" / "a.1.again.md").touch()
        daemon.wait_for_output("/job: steps changed, but the run has ended")
        (folder / "outcome.json").unlink()
        assert daemon.outcome("job")["answer"] == "ok"


def test_a_plan_that_is_saved_as_it_was_after_the_end_is_no_edit(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", book("echo ok"))
        daemon.outcome("job")
    folder = place.run_folder("job")
    plan = (folder / "plan.json").read_bytes()
    (folder / "plan.json").write_bytes(plan)
    with Watching(place) as daemon:
        daemon.drop("other.md", book("echo ok"))
        daemon.outcome("other")
        (place.run_folder("other") / "plan.json").write_bytes(plan + b"\n")  # every run is looked at before again
        daemon.wait_for_output("/other: plan.json changed, but the run has ended")
        assert "/job: plan.json" not in daemon.output()


def test_it_stops_when_the_workspace_is_gone(place: Place) -> None:
    with Watching(place) as daemon:
        os.rename(place.root, place.root.parent / "moved")
        assert daemon.popen.wait(timeout=30) == 2
        assert "goals cannot be watched: No such file or directory" in daemon.output()


def test_it_needs_a_workspace_that_is_trusted(place: Place) -> None:
    assert "no workspace at or above" in place.agentfs("watch", code=2).stderr
    (place.root / "agentfs.toml").touch()
    assert "was not made by you" in place.agentfs("watch", code=2).stderr
