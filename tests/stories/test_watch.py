"""The watched folder: drop a goal in whatever way, and it runs, once, whole."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs.daemon.daemon import ENOUGH_TO_DO
from tests.daemons import Watching, book
from tests.workspaces import Place, wait_for

GATED = book("echo sent", lines="gate")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    """One daemon for all that do not mind the others; a real start, with its command line, too."""
    with Watching(Place(tmp_path_factory.mktemp("shared")), under=("env",)) as daemon:
        yield daemon


def once(daemon: Watching, name: str) -> None:
    """Assert that a goal has run to its end, and that its one step had its effect once."""
    assert daemon.outcome(name)["status"] == "done"
    assert (daemon.place.run_folder(name) / "files" / "effect").read_text() == "x\n"


def test_a_goal_runs_once_however_it_is_dropped(watching: Watching) -> None:
    text, goals, beside = book("echo x >> effect"), watching.goals, watching.place.root / "beside.md"
    beside.write_text(text)
    slow = (goals / "slow.md").open("w")
    slow.write(text[: len(text) // 2])
    slow.flush()
    watching.drop("moved.md", text)
    shutil.copy(beside, goals / "copied.md")
    (goals / ".synced.md.Xy12ab").write_text(text)  # rsync: hidden, then renamed
    os.rename(goals / ".synced.md.Xy12ab", goals / "synced.md")
    (goals / "4913").touch()  # vim: a probe, the old file kept as a backup, the new one written in its place
    (goals / "4913").unlink()
    (goals / "edited.md~").write_text("half of an older")
    (goals / "edited.md").write_text(text)
    os.link(beside, goals / "linked.md")
    (goals / "Straße & Über.MD").write_text(text)
    for name in ("moved", "copied", "synced", "edited", "linked", "strasse-uber"):
        once(watching, name)
    assert sorted(set(os.listdir(goals)) - {"rejected"}) == [
        "edited.md~",
        "slow.md",
    ]  # what is still being written is still there
    slow.write(text[len(text) // 2 :])
    slow.close()
    once(watching, "slow")
    assert (watching.place.run_folder("slow") / "goal.md").read_text() == text
    (goals / "edited.md~").unlink()
    assert set(os.listdir(goals)) <= {"rejected"}
    assert not any(watching.place.runs.glob("*/*-2"))


def test_several_run_side_by_side(watching: Watching) -> None:
    """Each waits for the other: neither could end if they ran one after the other."""
    (watching.place.root / "shared").mkdir()
    meet = "touch {}; while ! test -e {}; do sleep 0.02; done"
    watching.drop("one.md", book(meet.format("one", "two"), front="workdir: shared"))
    watching.drop("two.md", book(meet.format("two", "one"), front="workdir: shared"))
    assert [watching.outcome(name)["status"] for name in ("one", "two")] == ["done", "done"]


def test_the_same_name_twice_is_two_runs(watching: Watching) -> None:
    watching.drop("twice.md", book("echo first"))
    assert watching.outcome("twice")["answer"] == "first"
    watching.drop("twice.md", book("echo second"))
    assert watching.outcome("twice-2")["answer"] == "second"


def test_an_invalid_goal_is_rejected_with_its_reason_and_holds_up_nothing(watching: Watching) -> None:
    bad = book("echo a").replace("### a\n", "### a\nafter: b\n")
    goals, rejected = watching.goals, watching.goals / "rejected"
    watching.drop("bad.md", bad)
    watching.drop("good.md", book("echo good"))
    assert watching.outcome("good")["answer"] == "good"
    wait_for((rejected / "bad.md").exists, "the rejected goal")
    assert (rejected / "bad.md").read_text() == bad
    reason = (rejected / "bad.md.error.md").read_text()
    assert reason.startswith("# bad.md was not taken\n\n    bad.md:6:")
    assert "Fix it, then move it back into goals/" in reason
    watching.drop("bad.md", "\n")
    wait_for((rejected / "bad-2.md").exists, "the second rejected goal")
    assert "bad.md:1:1: the goal is empty" in (rejected / "bad-2.md.error.md").read_text()
    (goals / "folder.md").mkdir()
    (goals / "notes.pdf").touch()
    watching.wait_for_output("goals/folder.md is left alone: it is a folder")
    watching.wait_for_output("goals/notes.pdf is left alone: a goal ends in")
    os.mkfifo(goals / "pipe.md")
    wait_for((rejected / "pipe.md.error.md").exists, "the rejected pipe")
    watching.drop("words.md", "Make me rich\n")
    wait_for((rejected / "words.md").exists, "the goal in words")
    assert "Two ways out" in (rejected / "words.md.error.md").read_text()
    assert not any(watching.place.runs.glob("*/[bw][ao][dr]*"))
    (rejected / "bad.md").write_text(book("echo fixed"))
    os.rename(rejected / "bad.md", goals / "bad.md")
    assert watching.outcome("bad")["answer"] == "fixed"
    (goals / "folder.md").rmdir()
    (goals / "notes.pdf").unlink()


def test_what_is_dropped_while_nobody_watches_is_taken_at_the_start(place: Place) -> None:
    place.agentfs("init")
    (place.root / "goals" / "job.md").write_text(book("echo x >> effect"))
    with Watching(place) as daemon:
        once(daemon, "job")


def test_what_a_person_writes_in_an_open_run_is_acted_upon_at_once(watching: Watching) -> None:
    watching.drop("asks.md", GATED)
    folder = watching.folder("asks")
    wait_for((folder / "steps" / "a.1.question.md").exists, "the question")
    watching.wait_for_output("a.1.reply.md: approve or reject")
    wait_for(lambda: "Waits for you" in (folder / "STATUS.md").read_text(), "STATUS.md")
    plan = (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(plan.replace("echo sent", "echo edited"))
    wait_for((folder / "revisions" / "2.json").exists, "the edit to become a revision")
    wait_for((folder / "steps" / "a.2.question.md").exists, "the question about what was edited")
    (folder / "steps" / "a.2.reply.md").write_text("approve\n")
    wait_for((folder / "outcome.json").exists, "the end")
    assert watching.outcome("asks")["answer"] == "edited"


@pytest.mark.parametrize("name", ["steps", "planning"])
def test_a_run_may_be_called_as_a_folder_in_it(watching: Watching, name: str) -> None:
    """Every edit is noticed at once: a file of the run is not taken for one of its steps."""
    watching.drop(f"{name}.md", book("echo first", "echo sent", lines="gate"))
    folder = watching.folder(name)
    wait_for((folder / "steps" / "a.1.question.md").exists, "the question")
    (folder / "steps" / "a.1.reply.md").write_text("approve\n")
    wait_for((folder / "steps" / "b.1.question.md").exists, "the second question", seconds=8)
    plan = (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(plan.replace("echo sent", "echo edited"))
    wait_for((folder / "revisions" / "2.json").exists, "the edit to become a revision", seconds=8)
    (folder / "steps" / "a.1.again.md").touch()
    wait_for((folder / "steps" / "a.2.question.md").exists, "the first step to be done again", seconds=8)
    (folder / "goal.md").write_text((folder / "goal.md").read_text().replace("# Job", "# Job, and more"))
    wait_for((folder / "planning" / "2.json").exists, "the goal's edit to be a call", seconds=8)
    (folder / "plan.json").write_text("{")
    wait_for((folder / "plan.error.md").exists, "the word about the invalid plan", seconds=8)


def test_an_ended_run_that_is_taken_up_again_is_driven_again(watching: Watching) -> None:
    watching.drop("again.md", book("test -e ready && echo x >> effect", lines="retries: 0"))
    folder = watching.folder("again")
    assert watching.outcome("again")["status"] == "failed"
    (folder / "files" / "ready").touch()
    watching.place.agentfs("resume", "again")
    once(watching, "again")


def test_a_second_daemon_is_refused_and_the_first_is_named(watching: Watching) -> None:
    second = watching.place.agentfs("watch", code=2)
    assert f"goals is being watched already, by process {watching.popen.pid} (" in second.stderr
    assert "agentfs watch)" in second.stderr


def test_run_works_beside_it(watching: Watching) -> None:
    done = [watching.place.agentfs("run", watching.place.runbook("### a\n```sh\necho hi\n```\n", name=f"{n}.md"))
            for n in "xyz"]  # fmt: skip
    assert [one.stdout for one in done] == ["hi\n"] * 3
    watching.drop("held.md", GATED)
    wait_for((watching.folder("held") / "steps" / "a.1.question.md").exists, "the question")
    held = watching.place.agentfs("run", "--resume", "held", code=2)
    assert "is being driven by another agentfs" in held.stderr
    watching.place.agentfs("approve", "held")
    assert watching.outcome("held")["answer"] == "sent"


def test_polling_finds_the_same(place: Place) -> None:
    with Watching(place, "--poll") as daemon:
        assert "looking every second" in daemon.output()
        daemon.drop("job.md", GATED)
        folder = daemon.folder("job")
        wait_for((folder / "steps" / "a.1.question.md").exists, "the question")
        wait_for((folder / "STATUS.md").exists, "STATUS.md")
        (folder / "steps" / "a.1.reply.md").write_text("perhaps\n")
        wait_for(lambda: "'perhaps'" in (folder / "STATUS.md").read_text(), "the reply that does not count")
        (folder / "steps" / "a.1.reply.md").write_text("approve\n")
        assert daemon.outcome("job")["answer"] == "sent"


def test_lines_for_programs(place: Place) -> None:
    with Watching(place, "--json") as daemon:
        daemon.drop("job.md", book("echo hi"))
        daemon.drop("bad.md", "")
        assert daemon.outcome("job")["status"] == "done"
        daemon.wait_for_output('"event": "ended"')
        daemon.wait_for_output('"event": "rejected"')
        assert daemon.end(signal.SIGINT) == 130
    lines = [json.loads(line) for line in daemon.output().splitlines()]
    assert {line["event"] for line in lines} == {
        "watching", "taken", "rejected", "driving", "action", "started", "settled", "ended", "stopped",
    }  # fmt: skip
    (settled,) = [line for line in lines if line["event"] == "settled"]
    assert (settled["run"][11:], settled["step"], settled["attempt"], settled["status"]) == ("job", "a", 1, "done")


def test_a_place_that_becomes_free_goes_to_the_run_that_has_none(place: Place) -> None:
    """One place, two runs: the second is not kept waiting until the first has done all its steps."""
    wait = "while ! test -e go; do sleep 0.02; done"
    with Watching(place, AGENTFS_LIMITS_PARALLEL="1") as daemon:
        daemon.drop("long.md", book(wait, "echo b", "echo c", lines="after: nothing"))
        long = daemon.folder("long")
        wait_for((long / "steps" / "a.1.log.jsonl").exists, "the first step")
        daemon.drop("short.md", book("echo short"))
        wait_for((daemon.folder("short") / "revisions" / "1.json").exists, "the second run's plan")
        threading.Timer(0, (long / "files" / "go").touch).start()
        assert daemon.outcome("long")["status"] == daemon.outcome("short")["status"] == "done"
        started = [place.read(f"steps/{step}.1.result.json", run)["started_at"]
                   for run, step in (("long", "a"), ("short", "a"), ("long", "b"), ("long", "c"))]  # fmt: skip
        assert started == sorted(started)


def test_runs_that_never_rest_keep_no_goal_out(place: Place) -> None:
    """More of them than are ready at once before goals are let in slowly: each begins, and so does one that comes later.

    That it can fail was tried: with a rule that lets no goal in meanwhile, the last ones begin when the first have ended.
    """
    steps = [{"id": f"s{n}", "tool": "note", "input": {"text": f"{n}"}} for n in range(400)]
    busy = [f"busy-{number}" for number in range(ENOUGH_TO_DO + 8)]
    with Watching(place, AGENTFS_LIMITS_PARALLEL="64") as daemon:  # with few places most would only stand in line
        for name in busy:
            daemon.drop(f"{name}.json", json.dumps({"goal": name, "steps": steps}))
        for name in busy:
            wait_for((daemon.folder(name) / "steps" / "s0.1.json").exists, f"the first order of {name}")
        daemon.drop("late.md", book("echo late"))
        assert daemon.outcome("late")["status"] == "done"
        assert [name for name in busy if (daemon.folder(name) / "outcome.json").exists()] == []
        daemon.end(signal.SIGKILL)
