"""The runs of a daemon: how places are shared, runs that ended, runs that failed."""

import gc
import io
import json
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.actions import EndRun, IssueOrder, Wait
from agentfs.daemon.reporter import Reporter
from agentfs.daemon.runs import (
    NEVER,
    TURNS,
    EndedRuns,
    FailedRuns,
    ManagedRun,
    share,
    share_places,
)
from agentfs.engine.driver import Driver
from agentfs.engine.foreground import Stop, drive
from agentfs.engine.world import open_driver, open_world
from agentfs.storage.workspace import Workspace, ended_runs, load_settings
from tests.drives import Quiet
from tests.workspaces import Place

WAIT = Wait("attempt", "work is under way")
END = EndRun("done", "steps_done", "all done")


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def reporter(output: io.StringIO) -> Reporter:
    return Reporter(output)


# ── places ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("free", "held", "given"),
    [
        (4, [0], [4]),  # alone: everything
        (2, [2], [2]),
        (0, [0, 0], [0, 0]),
        (-1, [3], [0]),  # fewer places than before
        (4, [0, 0], [2, 2]),  # half each
        (4, [0, 0, 0], [2, 1, 1]),
        (1, [1, 0], [0, 1]),  # the place that became free goes to the run that has none
        (1, [0, 0], [1, 0]),  # of these to the first in line
        (1, [2, 3], [1, 0]),
        (3, [4, 0], [0, 3]),  # nobody goes beyond an equal share
        (3, [0] * 9, [1, 1, 1, 0, 0, 0, 0, 0, 0]),
        (2, [], []),
    ],
)
def test_free_places_go_to_the_runs_that_hold_fewest(free: int, held: list[int], given: list[int]) -> None:
    assert share(free, held) == given


def test_places_go_round() -> None:
    """Three runs with endless steps share four places: over time each has had as many as the others."""
    held, had, line = [0, 0, 0], [0, 0, 0], [0, 1, 2]
    for end in range(300):
        given = share(4 - sum(held), [held[run] for run in line])
        for run, more in zip(list(line), given, strict=True):
            held[run] += more
            had[run] += more
            if more:
                line.remove(run)
                line.append(run)
        held[max(range(3), key=lambda one: (held[one], (one + end) % 3))] -= 1
    assert max(had) - min(had) <= 4


class FakeDriver:
    """Decides what it is given; starts as many attempts as it may."""

    def __init__(self, decisions: Sequence[Any], wants: int = 0) -> None:
        self.decisions, self.wants, self.jobs = iter(decisions), wants, 0
        self.places, self.trouble, self.state = 0, None, self
        self.actions: list[Any] = []

    has_to_wait = Driver.has_to_wait

    def read(self) -> None:
        pass

    derive = read

    def decide(self, *, draining: bool) -> list[Any]:
        """Decide what it is given; nothing of it is left to be performed."""
        assert not draining
        started = [IssueOrder.__new__(IssueOrder) for _ in range(min(self.places - self.jobs, self.wants))]
        self.jobs += len(started)
        self.wants -= len(started)
        decided = next(self.decisions)
        if isinstance(decided, Exception):
            raise decided
        self.actions = [*started, *decided]
        return []

    def moving(self, *_kinds: str, most: int) -> bool:
        assert most == 1
        return self.wants > 0

    def at_work(self) -> int:
        return self.jobs

    taken = at_work

    def notify(self, _state: object, actions: list[Any]) -> None:
        assert actions


def managed(decisions: Sequence[Any], wants: int = 0) -> Any:
    nothing: Any = None
    return ManagedRun(FakeDriver(decisions, wants), nothing, nothing, nothing, set())  # type: ignore[arg-type]


def turned(run: Any) -> int:
    """Have a run take its turns; return how many were reported."""
    reported: list[Any] = []
    run.take_turns(draining=False, report=lambda one: reported.append(one.driver.actions))
    return len(reported)


def test_turns_follow_each_other_until_the_run_has_to_wait() -> None:
    run = managed([[END], [END], [WAIT], [END]])
    assert (turned(run), run.driver.actions, run.waits_since) == (3, [WAIT], NEVER)


def test_others_have_their_turn_after_a_while() -> None:
    assert turned(managed([[END]] * 100)) == TURNS


def test_a_failure_is_that_of_the_run_alone() -> None:
    wrong = OSError("no room")
    run = managed([[END], wrong, [END]])
    assert (turned(run), run.driver.trouble) == (1, wrong)


@pytest.mark.parametrize("places", range(1, 9))
@pytest.mark.parametrize("count", range(1, 5))
def test_together_they_never_start_more_than_there_are_places(places: int, count: int) -> None:
    runs = [managed([[WAIT]] * 9, wants=places) for _ in range(count)]
    for _ in range(2):
        share_places(runs, places - sum(run.driver.jobs for run in runs))
        for run in runs:
            turned(run)
        assert sum(run.driver.jobs for run in runs) <= places
    assert sum(run.driver.jobs for run in runs) == places  # and none is left empty
    assert all(run.driver.jobs for run in runs) == (places >= count)
    assert all(run.waits_since < NEVER for run in runs if run.driver.wants)


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────


def make_run(runs: Path, name: str) -> Path:
    folder = runs / "2026-11-16" / name
    for part in ("steps", "planning"):
        (folder / part).mkdir(parents=True)
    for file in ("run.json", "goal.md", "plan.json"):
        (folder / file).touch()
    (folder / "outcome.json").write_text("{}")
    return folder


def test_what_a_run_leaves_needs_no_garbage_collection(tmp_path: Path) -> None:
    """A daemon rarely does a full one: a second, in which nothing else happens, once there is much to look at."""
    place = Place(tmp_path)
    place.agentfs("run", place.goal("# Job\n\n## Steps\n\n### a\n```sh\necho hi\n```\n"))
    workspace, folder, settings = (
        Workspace(place.root),
        place.run_folder(),
        load_settings(place.root / "agentfs.toml", {}),
    )
    (folder / "outcome.json").unlink()
    gc.collect()
    gc.disable()
    try:
        with open_world(workspace, settings, {}, lambda _: None, lambda: None) as world:
            driver = open_driver(folder, world)
            drive(driver, Stop(), Quiet())
            assert driver.facts.outcome is not None
            left = weakref.ref(driver)
            del driver
            assert left() is None
    finally:
        gc.enable()


# ── runs that have ended, and runs that failed ────────────────────────────────────────────────────────────


def test_edits_of_the_runs_that_ended_last_are_reported_once(
    tmp_path: Path, reporter: Reporter, output: io.StringIO
) -> None:
    ended, folder = EndedRuns(reporter), make_run(tmp_path, "job")
    ended.add(folder)
    ended.report_edits()
    assert output.getvalue() == ""
    (folder / "plan.json").write_text("{}")
    os.utime(folder / "plan.json", (1, 1))  # `cp -p` brings an old time along
    (folder / "steps" / "a.1.again.md").touch()
    ended.report_edits()
    ended.report_edits()
    run = "2026-11-16/job"
    words = "plan.json, steps changed, but the run has ended"
    assert output.getvalue() == f"{run}: {words}: `agentfs resume {run}` takes it up again\n"
    assert ended.take_reopened() == []
    (folder / "outcome.json").unlink()
    ended.report_edits()
    assert [ended.take_reopened() for _ in range(3)] == [[], [folder], []]


def test_only_the_last_ones_are_looked_at(tmp_path: Path, reporter: Reporter) -> None:
    ended = EndedRuns(reporter)
    folders = [make_run(tmp_path, f"job-{number}") for number in range(EndedRuns.LATEST + 2)]
    for number, folder in enumerate(folders):
        os.utime(folder / "outcome.json", (number, number))
    (tmp_path / "2026-11-16" / "No Run").mkdir()
    (tmp_path / "2026-11-16" / "No Run" / "outcome.json").touch()
    found = ended_runs(tmp_path)
    assert found == folders
    for folder in found:
        ended.add(folder)
        (folder / "outcome.json").unlink()
    assert ended.take_reopened() == []
    assert ended.take_reopened() == sorted(folders[2:])


def test_a_few_looks_find_the_edits_of_all_that_are_known(
    tmp_path: Path, reporter: Reporter, output: io.StringIO
) -> None:
    ended = EndedRuns(reporter)
    folders = [make_run(tmp_path, f"job-{number}") for number in range(2 * EndedRuns.LOOKS)]
    for folder in folders:
        ended.add(folder)
        (folder / "plan.json").write_text("{}")
    ended.report_edits()
    assert 0 < len(output.getvalue().splitlines()) < len(folders)
    for _ in range(2 * EndedRuns.LOOKS):
        ended.report_edits()
    assert len(output.getvalue().splitlines()) == len(folders)


def test_many_edits_at_once_are_one_line(tmp_path: Path, reporter: Reporter, output: io.StringIO) -> None:
    """A workspace that was copied: whichever file came last looks edited, in every run."""
    ended = EndedRuns(reporter)
    for number in range(10 * EndedRuns.LOOKS):
        folder = make_run(tmp_path, f"job-{number}")
        ended.add(folder)
        (folder / "plan.json").write_text("{}")
    for _ in range(2 * EndedRuns.LOOKS):
        ended.report_edits()
    lines = output.getvalue().splitlines()
    assert len(lines) <= EndedRuns.LOOKS
    assert lines[0] == (
        "files of 11 runs changed after their end, of 2026-11-16/job-0 among them: "
        "`agentfs resume RUN` takes one up again"
    )


def test_as_many_are_known_as_may_be(tmp_path: Path, reporter: Reporter, output: io.StringIO) -> None:
    ended, first = EndedRuns(reporter), make_run(tmp_path, "first")
    (first / "plan.json").write_text("{}")
    ended.add(first)
    for number in range(EndedRuns.MOST):
        ended.add(tmp_path / "2026-11-16" / f"gone-{number}")
    for _ in range(EndedRuns.LOOKS):
        ended.report_edits()
    assert output.getvalue() == ""


def test_a_run_that_failed_is_tried_again_when_it_has_changed(tmp_path: Path, output: io.StringIO) -> None:
    failed = FailedRuns(Reporter(output, lambda: "now"))
    run, other = make_run(tmp_path, "job"), make_run(tmp_path, "other")
    assert failed.may_be_tried(run)
    for _ in range(2):
        failed.add(run, ValueError("torn"))
        failed.add(other, OSError(28, "No space left on device", "/some/where"))
    assert (failed.may_be_tried(run), failed.may_be_tried(other), failed.changed()) == (False, True, [])
    (run / "run.json").write_text("fixed")
    assert (failed.may_be_tried(run), failed.changed()) == (True, [run])
    failed.remove(run)
    failed.remove(run)
    failed.add(run, ValueError("torn"))
    failed.keep_only({run})
    assert failed.may_be_tried(other)
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [(line["event"], line["run"], line["words"]) for line in lines] == [
        ("trouble", "2026-11-16/job", "set aside: ValueError: torn"),
        ("trouble", "2026-11-16/other", "set aside: No space left on device; it goes on when there is room"),
        ("note", "2026-11-16/job", "goes on"),
        ("trouble", "2026-11-16/job", "set aside: ValueError: torn"),
    ]


def test_a_run_for_which_there_is_no_memory_is_tried_again_later(tmp_path: Path, output: io.StringIO) -> None:
    failed, run = FailedRuns(Reporter(output, lambda: "now")), make_run(tmp_path, "job")
    failed.add(run, MemoryError())
    assert failed.may_be_tried(run)
    assert "set aside: there is not enough memory; it is tried again in a while" in output.getvalue()
