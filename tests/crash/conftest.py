"""The stories that are cut off, each played undisturbed first, on a file system in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.crash.stories")

from tests.crash import stories  # noqa: E402 - once their asserts explain themselves
from tests.crash.playing import Story, play  # noqa: E402 - once their asserts explain themselves
from tests.crash.sweeping import in_memory  # noqa: E402 - once their asserts explain themselves


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    with in_memory() as folder:
        stories.put_planner(folder / "planner")
        yield folder


@pytest.fixture(scope="session")
def five(folder: Path) -> Story:
    return play(folder, "five", stories.five_steps)


@pytest.fixture(scope="session")
def planned(folder: Path) -> Story:
    return play(folder, "planned", stories.four_steps)
