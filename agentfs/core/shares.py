"""Share the places for attempts among many runs. Pure: numbers in, a number out.

A run may take every free place while no other run has a use for one. As soon as others do, nobody goes beyond an
equal share, and a place that becomes free goes to whoever holds fewest, the longest waiting first.
"""

from collections.abc import Iterable


def grant(*, places: int, free: int, mine: int, others: int, waiting: Iterable[int], first: bool) -> int:
    """Return how many more attempts a run may start now.

    `mine`: those it has under way. `others`: other runs that have some under way or could start one. `waiting`: of
    those that could start one, how many each has under way. `first`: it is this run's turn to take a free place.
    """
    if free <= 0:
        return 0
    reserved, anybody = 0, False
    for theirs in waiting:
        anybody = True
        reserved += theirs <= mine
        if reserved >= free:
            break
    if not anybody:
        return free
    share = -(-places // (others + 1))  # rounded up: places are not left empty
    return max(1 if first else 0, min(free - reserved, share - mine))
