"""Several runs are turned at the same time: with no more attempts than there are places, and none of them in another's way."""

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.bursts import AT_ONCE, TURNS, Burst, Together
from agentfs.core.decide import EndRun, IssueOrder, Wait
from agentfs.driving import Stop, drive
from agentfs.settings import load_settings
from agentfs.turns import Turns
from agentfs.workspace import Workspace
from agentfs.world import open_driver, open_world
from tests.drives import Quiet
from tests.workspaces import Place

WAIT = Wait("attempt", "work is under way")
END = EndRun("done", "steps_done", "all done")


@pytest.fixture
def together() -> Iterator[Together]:
    threads = Together()
    yield threads
    threads.close()


def test_all_happen_at_the_same_time_and_come_back_in_order(together: Together) -> None:
    meeting = threading.Barrier(AT_ONCE, timeout=60)
    assert together.each(lambda n: (meeting.wait(), n)[1], range(AT_ONCE)) == list(range(AT_ONCE))


def test_of_one_alone_no_thread_hears(together: Together) -> None:
    assert together.each(lambda _: threading.current_thread(), [1]) == [threading.current_thread()]
    assert together.each(lambda _: threading.current_thread(), []) == []


class FakeDriver:
    """Decides what it is told to; starts as many attempts as it may."""

    def __init__(self, decisions: list[Any], wants: int = 0) -> None:
        self.decisions, self.wants = iter(decisions), wants
        self.jobs: dict[int, None] = {}
        self.places, self.trouble, self.state = 0, None, self

    def turn(self, *, draining: bool) -> list[Any]:
        assert not draining
        room = self.places - len(self.jobs)
        started = [IssueOrder.__new__(IssueOrder) for _ in range(min(room, self.wants))]
        for one in started:
            self.jobs[id(one), len(self.jobs)] = None  # type: ignore[index]
        self.wants -= len(started)
        decided = next(self.decisions)
        if isinstance(decided, Exception):
            raise decided
        return [*started, *decided]

    def moving(self, *_kinds: str) -> bool:
        return self.wants > 0

    def taken(self) -> int:
        return len(self.jobs)


class FakeSeat:
    def __init__(self, driver: FakeDriver) -> None:
        self.driver, self.settled, self.finished = driver, set[Any](), 0

    @property
    def under_way(self) -> int:
        return len(self.driver.jobs)


def gone(seat: Any, room: int = 0) -> tuple[Burst, int]:
    """Take the turns of a seat; return them, and how many were told of."""
    told: list[Any] = []
    burst = Burst(seat, room)
    burst.go(draining=False, tell=lambda _seat, actions: told.append(actions))
    return burst, len(told)


def test_turns_follow_each_other_until_the_run_has_to_wait() -> None:
    burst, told = gone(FakeSeat(FakeDriver([[END], [END], [WAIT], [END]])))
    assert (burst.actions, told) == ([WAIT], 3)


def test_others_have_their_turn_after_a_while() -> None:
    assert gone(FakeSeat(FakeDriver([[END]] * 100)))[1] == TURNS


def test_whatever_goes_wrong_is_the_trouble_of_that_run() -> None:
    wrong = OSError("no room")
    burst, told = gone(FakeSeat(FakeDriver([[END], wrong, [END]])))
    assert (burst.seat.driver.trouble, told) == (wrong, 1)


@pytest.mark.parametrize("places", range(1, 9))
@pytest.mark.parametrize("count", range(1, AT_ONCE + 1))
def test_together_they_never_start_more_than_there_are_places(places: int, count: int) -> None:
    turns = Turns(places)
    seats: list[Any] = [FakeSeat(FakeDriver([[WAIT]] * 9, wants=places)) for _ in range(count)]
    for first in (False, True):
        bursts = [
            Burst(seat, turns.take(seat, count, together=count - before, first=first))
            for before, seat in enumerate(seats)
        ]
        for burst in bursts:
            burst.go(draining=False, tell=lambda *_: None)
        for burst in bursts:
            turns.give_back(burst)
        assert turns.busy == sum(len(seat.driver.jobs) for seat in seats) <= places
    assert turns.busy == places  # and none is left empty
    if places >= count:
        assert all(seat.driver.jobs for seat in seats)
    assert all(seat in turns.line for seat in seats if seat.driver.wants)


def test_what_a_run_leaves_needs_no_look_for_garbage(tmp_path: Path) -> None:
    """A daemon looks for it rarely: a second, in which nothing else happens, once there is much to look at."""
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
            driver = open_driver(folder, settings, world)
            drive(driver, Stop(), Quiet())
            assert driver.facts.outcome is not None
            left = weakref.ref(driver)
            del driver
            assert left() is None
    finally:
        gc.enable()
