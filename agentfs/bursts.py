"""Turn several runs at the same time, each in a thread: while one waits for the disk, another decides.

A thread touches only what belongs to its run. Whatever runs share (places, lists, the terminal) is the daemon's own:
it hands out places before, and looks at what has become of them when all are back.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from agentfs.core.decide import Action, Wait
from agentfs.seats import Seat
from agentfs.tools.process import Pool

AT_ONCE = 4  # runs; more would only wait for the interpreter
TURNS = 16  # of one run in a row, while it has something to do at once: it ends the sooner, and costs less
One = TypeVar("One")
Came = TypeVar("Came")
Tell = Callable[[Seat, list[Action]], None]


@dataclass(slots=True)
class Burst:
    """Turns of one run, one after the other, until it has to wait or others should have theirs."""

    seat: Seat
    room: int  # attempts it may start
    actions: list[Action] = field(default_factory=list)  # what the last turn decided
    left: int = 0  # of its room, before that turn
    before: int = 0  # the places it held, before all of them

    def go(self, *, draining: bool, tell: Tell) -> None:
        """Take the turns. Whatever goes wrong is this run's trouble, and no other's."""
        driver = self.seat.driver
        self.before = driver.taken()
        driver.places = self.seat.under_way + self.room
        for _ in range(TURNS):
            self.left = max(0, driver.places - self.seat.under_way)
            try:
                self.actions = driver.turn(draining=draining)
            except Exception as error:  # noqa: BLE001 - one broken run never holds up another
                driver.trouble = error
            if driver.trouble is not None:
                return
            tell(self.seat, self.actions)
            if all(isinstance(action, Wait) for action in self.actions):
                return


class Together:
    """Threads for what may happen at the same time."""

    def __init__(self) -> None:
        self._threads = Pool(AT_ONCE - 1, "turn")
        self.one = threading.Lock()  # for what only one of them may do at a time

    def each(self, work: Callable[[One], Came], things: Sequence[One]) -> list[Came]:
        """Do this with each, and return what came of it when all is done. Of one alone no thread hears."""
        others = [self._threads.submit(work, one) for one in things[1:]]
        first = [work(one) for one in things[:1]]
        return first + [other.result() for other in others]

    def close(self) -> None:
        self._threads.shutdown()
