"""What a daemon hears, and how it finds out that it hears nothing; which event of a run is news."""

import io
import json
import os
from pathlib import Path

import pytest

from agentfs.ears import PATIENCE_SECONDS, Evidence
from agentfs.ended import LATEST, LOOKS, MOST, Ended, ended_runs
from agentfs.mounts import written_behind
from agentfs.roots import Roots
from agentfs.setaside import SetAside
from agentfs.stillness import being_written
from agentfs.ui.progress import Teller
from tests.mounts import mirrored


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def teller(said: io.StringIO) -> Teller:
    return Teller(said)


def an_ended_run(runs: Path, name: str) -> Path:
    folder = runs / "2026-11-16" / name
    for part in ("steps", "planning"):
        (folder / part).mkdir(parents=True)
    for file in ("run.json", "goal.md", "plan.json"):
        (folder / file).touch()
    (folder / "outcome.json").write_text("{}")
    return folder


class Moment:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_goal_of_which_nothing_is_heard_proves_that_events_do_not_come() -> None:
    time = Moment()
    evidence = Evidence(time)
    evidence.saw({"there-before.md"})
    evidence.heard("heard.md")
    evidence.saw({"there-before.md", "heard.md"})
    time.now = 100.0
    assert not evidence.is_deaf()
    evidence.saw({"unheard.md"})
    time.now += PATIENCE_SECONDS - 0.1
    assert not evidence.is_deaf()
    evidence.saw(set())  # taken meanwhile
    time.now += 0.1
    assert evidence.is_deaf()


def test_an_event_that_is_late_is_no_proof() -> None:
    time = Moment()
    evidence = Evidence(time)
    evidence.saw(set())
    evidence.saw({"late.md"})
    time.now = PATIENCE_SECONDS - 0.1
    evidence.heard("late.md")
    evidence.saw({"late.md"})
    time.now = 100.0
    assert not evidence.is_deaf()


def test_a_file_system_that_others_write_to_is_known(tmp_path: Path) -> None:
    assert written_behind(tmp_path) is None
    assert written_behind(tmp_path / "nowhere") is None
    (tmp_path / "back").mkdir()
    (tmp_path / "front").mkdir()
    with mirrored(tmp_path / "back", tmp_path / "front") as front:
        assert written_behind(front) == "FUSE"
        (front / "goal.md").write_text("x")
        assert being_written(front / "goal.md") is None
        assert being_written(tmp_path / "back" / "goal.md") is False


def test_edits_of_the_runs_that_ended_last_are_told_once(tmp_path: Path, teller: Teller, said: io.StringIO) -> None:
    ended, folder = Ended(teller), an_ended_run(tmp_path, "job")
    ended.add(folder)
    ended.tell_of_edits()
    assert said.getvalue() == ""
    (folder / "plan.json").write_text("{}")
    os.utime(folder / "plan.json", (1, 1))  # `cp -p` brings an old time along
    (folder / "steps" / "a.1.again.md").touch()
    ended.tell_of_edits()
    ended.tell_of_edits()
    run = "2026-11-16/job"
    words = "plan.json, steps changed, but the run has ended"
    assert said.getvalue() == f"{run}: {words}: `agentfs resume {run}` takes it up again\n"
    assert ended.reopened() == []
    (folder / "outcome.json").unlink()
    ended.tell_of_edits()
    assert (ended.reopened(), ended.reopened()) == ([folder], [])


def test_only_the_last_ones_are_looked_at(tmp_path: Path, teller: Teller) -> None:
    ended = Ended(teller)
    folders = [an_ended_run(tmp_path, f"job-{number}") for number in range(LATEST + 2)]
    for number, folder in enumerate(folders):
        os.utime(folder / "outcome.json", (number, number))
    (tmp_path / "2026-11-16" / "No Run").mkdir()
    (tmp_path / "2026-11-16" / "No Run" / "outcome.json").touch()
    found = ended_runs(tmp_path)
    assert found == folders
    for folder in found:
        ended.add(folder)
        (folder / "outcome.json").unlink()
    assert sorted(ended.reopened()) == sorted(folders[2:])


def test_a_few_looks_find_the_edits_of_all_that_are_known(tmp_path: Path, teller: Teller, said: io.StringIO) -> None:
    ended = Ended(teller)
    folders = [an_ended_run(tmp_path, f"job-{number}") for number in range(2 * LOOKS)]
    for folder in folders:
        ended.add(folder)
        (folder / "plan.json").write_text("{}")
    ended.tell_of_edits()
    assert 0 < len(said.getvalue().splitlines()) < len(folders)
    for _ in range(2 * LOOKS):
        ended.tell_of_edits()
    assert len(said.getvalue().splitlines()) == len(folders)


def test_many_edits_at_once_are_one_line(tmp_path: Path, teller: Teller, said: io.StringIO) -> None:
    """A workspace that was copied: whichever file came last looks edited, in every run."""
    ended = Ended(teller)
    for number in range(10 * LOOKS):
        folder = an_ended_run(tmp_path, f"job-{number}")
        ended.add(folder)
        (folder / "plan.json").write_text("{}")
    for _ in range(2 * LOOKS):
        ended.tell_of_edits()
    lines = said.getvalue().splitlines()
    assert len(lines) <= LOOKS
    assert lines[0] == (
        "files of 11 runs changed after their end, of 2026-11-16/job-0 among them: "
        "`agentfs resume RUN` takes one up again"
    )


def test_as_many_are_known_as_may_be(tmp_path: Path, teller: Teller, said: io.StringIO) -> None:
    ended, first = Ended(teller), an_ended_run(tmp_path, "first")
    (first / "plan.json").write_text("{}")
    ended.add(first)
    for number in range(MOST):
        ended.add(tmp_path / "2026-11-16" / f"gone-{number}")
    for _ in range(LOOKS):
        ended.tell_of_edits()
    assert said.getvalue() == ""


def test_a_run_set_aside_is_tried_again_when_it_has_changed(tmp_path: Path, said: io.StringIO) -> None:
    aside = SetAside(Teller(said, lambda: "now"))
    run, other = an_ended_run(tmp_path, "job"), an_ended_run(tmp_path, "other")
    assert aside.may_be_tried(run)
    for _ in range(2):
        aside.put(run, ValueError("torn"))
        aside.put(other, OSError(28, "No space left on device", "/some/where"))
    assert (aside.may_be_tried(run), aside.may_be_tried(other), aside.changed()) == (False, True, [])
    (run / "run.json").write_text("mended")
    assert (aside.may_be_tried(run), aside.changed()) == (True, [run])
    aside.forget(run)
    aside.forget(run)
    aside.put(run, ValueError("torn"))
    aside.keep_only({run})
    assert aside.may_be_tried(other)
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [(line["event"], line["run"], line["words"]) for line in lines] == [
        ("trouble", "2026-11-16/job", "set aside: ValueError: torn"),
        ("trouble", "2026-11-16/other", "set aside: No space left on device; it goes on when there is room"),
        ("note", "2026-11-16/job", "goes on"),
        ("trouble", "2026-11-16/job", "set aside: ValueError: torn"),
    ]


def test_folders_that_are_replaced(tmp_path: Path, teller: Teller, said: io.StringIO) -> None:
    goals, runs = tmp_path / "goals", tmp_path / "runs"
    runs.mkdir()
    roots = Roots(goals, runs, teller)
    roots.take()
    assert (roots.goals_are_new(), roots.runs_are_new()) == (False, False)
    os.rename(goals, tmp_path / "old-goals")
    os.rename(runs, tmp_path / "old-runs")
    assert (roots.goals_are_new(), roots.runs_are_new(), roots.runs_are_new()) == (True, False, False)
    os.rename(tmp_path / "old-runs", runs)
    assert not roots.runs_are_new()  # it is back
    os.rename(runs, tmp_path / "old-runs")
    runs.mkdir()
    assert (roots.runs_are_new(), roots.runs_are_new()) == (True, False)
    assert (runs / ".git" / "HEAD").exists()
    roots.release()
    assert said.getvalue().splitlines() == [
        "goals/ was moved or deleted: the folder that is there now is the one being watched",
        "runs/ was moved or deleted, so its runs are not driven; the next goal makes a new one",
        "runs/ is another folder now: the runs in it are driven, and it has a ledger of its own",
    ]


def test_a_run_for_which_there_is_no_memory_is_tried_again_later(tmp_path: Path, said: io.StringIO) -> None:
    aside, run = SetAside(Teller(said, lambda: "now")), an_ended_run(tmp_path, "job")
    aside.put(run, MemoryError())
    assert aside.may_be_tried(run)
    assert "set aside: there is not enough memory; it is tried again in a while" in said.getvalue()
