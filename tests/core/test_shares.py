"""Places for attempts, shared: nobody goes beyond an equal share while others are ready, and no place stays empty."""

import pytest

from agentfs.core.shares import grant


@pytest.mark.parametrize(
    ("free", "mine", "others", "waiting", "first", "granted"),
    [
        (4, 0, 0, [], False, 4),  # alone: everything
        (2, 2, 3, [], False, 2),  # others are busy, but none of them could start more
        (0, 0, 1, [0], True, 0),  # nothing is free
        (4, 0, 1, [0], True, 2),  # two that are ready: half each
        (4, 0, 3, [0, 0, 0], True, 1),
        (1, 1, 2, [0], False, 0),  # its own place has become free, and goes to the one that has none
        (1, 0, 2, [0], False, 0),  # the same when it holds none either: the other has waited longer
        (1, 0, 2, [0], True, 1),  # until it is its turn
        (1, 1, 2, [2], True, 1),  # the other holds more
        (1, 2, 1, [2], False, 0),  # a full share is a full share
        (1, 2, 2, [3], True, 1),  # but whoever is next takes a place rather than leave it empty
        (3, 0, 9, [0] * 9, True, 1),  # more runs than places: one each
    ],
)
def test_grant(free: int, mine: int, others: int, waiting: list[int], first: bool, granted: int) -> None:
    assert grant(places=4, free=free, mine=mine, others=others, waiting=waiting, first=first) == granted


def test_places_go_round() -> None:
    """Three runs with endless steps share four places: over time each has had as many as the others."""
    held, had, line = [0, 0, 0], [0, 0, 0], [0, 1, 2]
    for end in range(300):
        while sum(held) < 4:
            run = min(line, key=lambda one: (held[one], line.index(one)))
            line.remove(run)
            more = grant(
                places=4,
                free=4 - sum(held),
                mine=held[run],
                others=2,
                waiting=[held[one] for one in line],
                first=True,
            )
            assert more >= 1
            held[run] += more
            had[run] += more
            line.append(run)
        held[max(range(3), key=lambda one: (held[one], (one + end) % 3))] -= 1
    assert max(had) - min(had) <= 4
