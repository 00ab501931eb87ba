"""kill -9 before every system call that changes a file: the run ends as if nothing had happened.

`./test --full` cuts it off at every point; by default at a few, chosen by a seed.
"""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.crash.forking import Forks
from tests.crash.playing import LOOKED_AT, Act, Story
from tests.crash.stories import SETTINGS, STEPS, assert_ended_well, assert_whole, live_on, words_to_go_on
from tests.crash.sweeping import (
    Point,
    copy_of,
    killed_at,
    needs_strace,
    points,
    strace,
    sweep,
)
from tests.sweeps import SEED, some
from tests.workspaces import Place

pytestmark = needs_strace


def killed_once(story: Story, case: tuple[Act, Point], own: Path, forks: Forks) -> str:
    act, point = case
    place = copy_of(act.begins, own / "place")
    cut = killed_at(point, place, *act.words)
    seen = assert_whole(place, story.expected)
    live_on(place, forks)
    assert_ended_well(place, story.expected, seen)
    return "killed" if cut.killed else "not reached"


def commits(case: tuple[Act, Point]) -> bool:
    """Whether a point is right before a commit point."""
    return case[1].path.endswith(("job/plan.json", "release.1.result.json"))


def test_a_run_of_five_steps_killed_before_any_change_of_a_file(five: Story) -> None:
    cuts = some(five.cuts(), 1, about="five steps", also=commits, of_these=2)
    sweep("killed in a run of five steps", cuts, partial(killed_once, five), five.folder)


def test_a_run_of_five_steps_killed_before_it_looks_at_a_file(five: Story) -> None:
    looks = some(five.looks(), 1, about="looks", most=200)
    sweep("killed before a look", looks, partial(killed_once, five), five.folder)


def test_a_planned_run_killed_before_any_change_of_a_file(planned: Story) -> None:
    cuts = some(planned.cuts(), 2, about="planned")
    sweep("killed in a planned run", cuts, partial(killed_once, planned), planned.folder)


# ── in recovery ───────────────────────────────────────────────────────────────────────────────────────────

FIRST_CUTS = ("fetch.1.result.json", "send.1.log.jsonl", "send.1.result.json", "job/plan.json", "revisions/2.json")
IN_RECOVERY = 60  # changes of files, from the start of the next process on


def crashed(story: Story) -> Iterator[Act]:
    """Yield the run as crashes of many kinds leave it, with what the next process does first."""
    for number, wanted in enumerate(some(FIRST_CUTS, 1, about="first cuts")):
        act, point = next(
            (act, p) for act, p in story.cuts() if p.call in ("linkat", "renameat2") and wanted in p.path
        )
        begins = copy_of(act.begins, story.folder / f"crashed-{number}")
        killed_at(point, begins, *act.words)
        place, words = copy_of(begins, story.folder / f"recovers-{number}"), words_to_go_on(begins)
        ended = strace(place, *words, calls=LOOKED_AT)
        yield Act(begins, words, points(ended.trace, place.root)[:IN_RECOVERY])


def killed_in_recovery(story: Story, case: tuple[Act, Point], own: Path, forks: Forks) -> str:
    act, point = case
    place, chance = copy_of(act.begins, own / "place"), random.Random(f"{SEED} {point}")
    seen, killed = [assert_whole(place, story.expected)], 0
    for again in (point, chance.choice(act.points)):
        killed += killed_at(again, place, *words_to_go_on(place)).killed
        seen.append(assert_whole(place, story.expected))
    live_on(place, forks)
    assert_ended_well(place, story.expected, *seen)
    return f"killed {1 + killed} times"


def test_killed_again_and_again_in_recovery(five: Story) -> None:
    cuts = some([(act, point) for act in crashed(five) for point in act.points], 2, about="recovery")
    sweep("killed again in recovery", cuts, partial(killed_in_recovery, five), five.folder)


# ── in a commit ───────────────────────────────────────────────────────────────────────────────────────────


def test_killed_in_a_commit_the_next_start_commits(five: Story, folder: Path) -> None:
    behind = copy_of(five.acts[0].begins, folder / "behind")
    live_on(behind)
    behind.git("update-ref", "refs/heads/main", "HEAD~3")
    begins = copy_of(behind, folder / "commits")
    ended = strace(behind, "run", "--resume", "job", calls=LOOKED_AT)
    assert behind.log() == five.expected.log
    in_git = [point for point in points(ended.trace, behind.root) if "/.git/" in f"{point.path} {point.what}"]

    def one(point: Point, own: Path, forks: Forks) -> str:
        place = copy_of(begins, own / "place")
        cut = killed_at(point, place, "run", "--resume", "job")
        place.git("fsck", "--strict")
        assert forks.command(place, "run", "--resume", "job") == 0
        assert place.log() == five.expected.log
        place.ledger_is_sound()
        return "killed" if cut.killed else "not reached"

    sweep("killed in a commit", some(in_git, 2, about="commit"), one, folder)


# ── while it makes a workspace ────────────────────────────────────────────────────────────────────────────


def test_killed_while_it_makes_a_workspace(five: Story, folder: Path) -> None:
    (folder / "empty").mkdir()
    empty = Place(folder / "empty")
    empty.runbook(STEPS)
    first = copy_of(empty, folder / "made")
    made = points(strace(first, "init", calls=LOOKED_AT).trace, first.root)

    def one(point: Point, own: Path, forks: Forks) -> str:
        place = copy_of(empty, own / "place")
        cut = killed_at(point, place, "init")
        assert forks.command(place, "init") == 0
        (place.root / "agentfs.toml").write_text(SETTINGS)
        live_on(place, forks)
        assert_ended_well(place, five.expected)
        return "killed" if cut.killed else "not reached"

    sweep("killed while it makes a workspace", some(made, 1, about="init"), one, folder)
