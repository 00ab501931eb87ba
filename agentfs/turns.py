"""Who of many runs may start attempts, and how many: keeps the line, asks `core.shares` for the number."""

from dataclasses import dataclass, field

from agentfs.bursts import Burst
from agentfs.core.decide import takes_place
from agentfs.core.shares import grant
from agentfs.seats import Seat


@dataclass(slots=True)
class Turns:
    """The places for attempts of one process, shared by its seats."""

    places: int
    busy: int = 0  # held by all seats, for jobs that have ended but were not taken in yet included
    line: dict[Seat, None] = field(default_factory=dict)  # could start more than they may; longest waiting first

    def take(self, seat: Seat, seats: int, *, together: int = 1, first: bool = False) -> int:
        """Return how many attempts a seat may start in the turns it is about to have.

        `together`: among how many that have theirs at the same time the places are still to be shared.
        """
        self.line.pop(seat, None)
        free = self.places - self.busy + seat.finished
        due = grant(
            places=self.places,
            free=free,
            mine=seat.under_way,
            others=max(len(self.line), min(self.busy, seats - 1)),
            waiting=(one.under_way for one in self.line),
            first=first,
        )
        room = min(due, max(0, -(-free // together)))
        self.busy += room  # nobody else's until it is given back
        return room

    def give_back(self, burst: Burst) -> None:
        """Hear what became of the places a seat had; put it in line if it could start more than it was allowed to."""
        seat = burst.seat
        self.busy += seat.driver.taken() - burst.before - burst.room
        if seat.driver.trouble is not None:
            return
        starts = sum(takes_place(action) for action in burst.actions)
        if (starts >= burst.left) if burst.left else seat.driver.state.moving("order", "start", "ask", "retry"):
            self.line[seat] = None

    def next(self) -> Seat | None:
        """Return who has a free place next: whoever holds fewest, the longest waiting first."""
        if self.busy >= self.places:
            return None
        best: Seat | None = None
        for seat in self.line:
            if seat.under_way == 0:
                return seat
            if best is None or seat.under_way < best.under_way:
                best = seat
        return best

    def leave(self, seat: Seat) -> None:
        self.busy -= seat.driver.taken()
        self.line.pop(seat, None)
