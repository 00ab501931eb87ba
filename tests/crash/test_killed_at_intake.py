"""kill -9 of a daemon before every change of a file while it takes a goal and runs it: the goal runs exactly once."""

import os
from functools import partial
from pathlib import Path

import pytest

from tests.crash.forking import Forks
from tests.crash.stories import results
from tests.crash.sweeping import (
    CHANGES,
    LOOKS,
    Point,
    Traced,
    copy_of,
    needs_strace,
    points,
    sweep,
)
from tests.daemons import Watching, book
from tests.sweeps import some
from tests.workspaces import Place, wait_for

pytestmark = needs_strace
GOAL = book("echo a >> effects; echo x", lines="repeatable")


@pytest.fixture(scope="module")
def begins(folder: Path) -> Place:
    """A workspace with a goal that nobody has taken yet."""
    (folder / "begins").mkdir()
    place = Place(folder / "begins")
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('[tools]\nsandbox = "off"\n[limits]\nparallel = 1\n')
    (place.root / "goals" / "job.md").write_text(GOAL)
    return place


def is_over(place: Place) -> bool:
    """Whether the goal has run, and the ledger tells of it."""
    if not list(place.runs.glob("*/*/outcome.json")) or not (place.runs / ".git" / "index").exists():
        return False
    return len(place.log()) == 2 and place.git("status", "--porcelain") == ""


def watched(place: Place, *options: str) -> tuple[bool, str]:
    """Let a daemon under strace take the goal; return whether it was killed, and what it did to files."""
    daemon = Traced(place, "watch", calls=(*CHANGES, *LOOKS), options=options)
    wait_for(lambda: daemon.command.poll() is not None or is_over(place), "the goal's end")
    daemon.command.terminate()
    ended = daemon.wait()
    assert ended.code in (-9, 130), ended.err
    return ended.killed, ended.trace


def taken_once(begins: Place, point: Point, own: Path, _forks: Forks) -> str:
    """Kill a daemon at a point, start another, and look at what became of the goal."""
    place = copy_of(begins, own / "place")
    killed, _ = watched(place, *point.options(place, "signal=KILL"))
    is_there_once(place)
    with Watching(place):
        wait_for(lambda: is_over(place), "the goal's end")
    assert [path.name for path in (place.root / "goals").rglob("*") if path.is_file()] == []
    assert list(place.runs.glob("*/*/.dropped")) == []
    ran_once(place)
    return "killed" if killed else "not reached"


def is_there_once(place: Place) -> None:
    """Assert that the goal is somewhere, whole, and nowhere else."""
    in_goals, in_runs = waiting(place), list(place.runs.glob("*/*/goal.md"))
    on_its_way = list(place.runs.glob("*/*/.dropped"))
    assert len(in_goals) + (len(in_runs) or len(on_its_way)) == 1, f"now: {in_goals} {on_its_way} {in_runs}"
    assert {path.read_text() for path in (*in_goals, *on_its_way, *in_runs)} == {GOAL}


def waiting(place: Place) -> list[Path]:
    """Return the goals that are not runs yet, on their way or not."""
    return [path for path in (place.root / "goals").rglob("*") if path.is_file()]


def ran_once(place: Place) -> None:
    folder = place.run_folder()
    assert [path.name for path in folder.parent.iterdir()] == ["job"]
    assert place.read("outcome.json")["answer"] == "x"
    settled = [result["status"] for _, result in sorted(results(folder)["a"].items())]
    assert settled == ["interrupted"] * (len(settled) - 1) + ["done"]
    assert len((folder / "files" / "effects").read_text().split()) <= len(settled)
    assert place.log() == ["agentfs job: revision 1, the first plan", "agentfs job: done, 1 of 1 steps"]
    place.ledger_is_sound()


def takes(point: Point) -> bool:
    """Whether a point is right before the goal leaves or comes."""
    return point.path.endswith(("goals/job.md", "/job")) and point.call in ("renameat", "linkat", "unlinkat")


def test_killed_while_it_takes_a_goal(begins: Place, folder: Path) -> None:
    place = copy_of(begins, folder / "undisturbed")
    _, trace = watched(place)
    cuts = some(points(trace, place.root), 1, about="intake", also=takes)
    sweep("killed while it takes a goal", cuts, partial(taken_once, begins), folder)


# ── the same in forks, which die in milliseconds ──────────────────────────────────────────────────────────

TAKING = [
    ("run.json", 0),
    ("job.md", 0),
    ("goal.md", 0),
    (".dropped", 1),
]  # right before one is made, moved or removed
CHANGES_OF_A_PASS = 40  # of the disk, at least: it dies before one of these


def taken_in_a_fork(begins: Place, case: tuple[str, int], own: Path, forks: Forks) -> str:
    near, cut = case
    place = copy_of(begins, own / "place")
    code, output = forks.run(place.root, place.env, cut=cut, near=near)
    assert code in (0, -9), output
    is_there_once(place)
    assert forks.run(place.root, place.env)[0] == 0
    assert waiting(place) == []
    ran_once(place)
    return "killed" if code else "not reached"


def test_killed_before_any_change_of_an_intake(begins: Place, folder: Path) -> None:
    cases = [*TAKING, *some([("", cut) for cut in range(CHANGES_OF_A_PASS)], 2, about="forked intake")]
    kinds = sweep("killed in an intake", cases, partial(taken_in_a_fork, begins), folder)
    assert kinds == {"killed": len(cases)}


@pytest.mark.parametrize("kind", ["edited", "link", "pipe"])
def test_what_changed_while_nobody_watched_is_rejected(begins: Place, folder: Path, kind: str) -> None:
    """The daemon is gone right before the run has its goal; what was judged is no longer what is there."""
    place = copy_of(begins, folder / f"changed-{kind}")
    code, output = Forks().run(place.root, place.env, cut=0, near="goal.md")
    assert code == -9, output
    (dropped,) = place.runs.glob("*/job/.dropped")
    if kind == "edited":
        dropped.write_text(GOAL.replace("echo x", "touch owned"))
    else:
        dropped.unlink()
        dropped.symlink_to(place.root / "agentfs.toml") if kind == "link" else os.mkfifo(dropped)
    with Watching(place) as daemon:
        assert "job.md:1:1: it was changed while it was being taken (look at it, then" in daemon.rejected("job.md")
        daemon.drop("job.md", GOAL)
        wait_for(lambda: is_over(place), "the goal's end")
    assert os.path.lexists(place.root / "goals" / "rejected" / "job.md")
    ran_once(place)
