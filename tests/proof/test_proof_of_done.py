"""Done means shown."""

from pathlib import Path

import pytest

from tests.proof.liars import worlds
from tests.proof.stage import World, play

WORLDS = tuple(worlds())


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_world(world: World, tmp_path: Path) -> None:
    ended = play(world, tmp_path)
    if world.honest:
        assert ended.says_done, ended.words
        assert ended.is_met
    else:
        assert not ended.is_met, "this liar did the work"
        assert ended.way == world.admits, ended
