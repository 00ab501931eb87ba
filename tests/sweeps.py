"""How much of each sweep is tried: a few cases by default, all of them with `./test --full`.

AGENTFS_SWEEP=full is what `./test --full` sets; a number tries so many points of each crash sweep. AGENTFS_SWEEP_SEED
chooses other cases. What is chosen depends on nothing else, so that a failure comes back.
"""

import os
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
WANTED = os.environ.get("AGENTFS_SWEEP", "")
FULL = WANTED == "full"
LONGEST = 6 * 3600  # seconds that a test may take whose sweep is larger than by default
SEED = os.environ.get("AGENTFS_SWEEP_SEED", "agentfs")

only_full = pytest.mark.skipif(not FULL, reason="takes minutes, or thousands of processes: ./test --full")


def size(usual: int, full: int) -> int:
    """Return how large a sweep is."""
    return full if FULL else usual


def some(
    cases: Sequence[T],
    few: int,
    *,
    about: str,
    most: int = 10_000,
    also: Callable[[T], bool] | None = None,
    of_these: int = 1,
) -> list[T]:
    """Return all cases in a full sweep, or the most of them; else a few, chosen by a seed, and a few of those that are `also` tried."""
    chance = random.Random(f"{SEED} {about}")
    chosen = set(chance.sample(range(len(cases)), _count(len(cases), few, most)))
    wanted = [index for index, one in enumerate(cases) if also and also(one)]
    chosen |= set(chance.sample(wanted, _count(len(wanted), of_these, most)))
    return [cases[index] for index in sorted(chosen)]


def _count(there: int, few: int, most: int) -> int:
    return min(there, most if FULL else max(few, int(WANTED or 0)))
