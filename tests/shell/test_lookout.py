"""When a driver looks at its run's folder again: what is news, and how long somebody may take to name a file."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs.core import paths
from agentfs.engine.driver import Driver
from agentfs.engine.foreground import Lookout, is_news, is_unnamed
from agentfs.engine.world import open_driver, open_world
from agentfs.storage.files import temp_name
from agentfs.storage.locks import locked
from agentfs.storage.settings import load_settings
from agentfs.storage.timing import TIMING
from agentfs.storage.watcher import FolderWatch
from agentfs.storage.workspace import find_workspace
from tests.workspaces import Place, wait_for

GATED = "### send\ngate\n```note\nsent\n```\n"


@pytest.fixture
def driver(place: Place) -> Iterator[Driver]:
    """The driver of a run that waits for a person's yes."""
    place.agentfs("init")
    place.agentfs("run", place.runbook(GATED), code=3)
    workspace = find_workspace(place.root)
    assert workspace is not None
    settings, folder = load_settings(workspace.settings, {}), place.run_folder()
    with (
        open_world(workspace, settings, place.env, lambda _words: None, lambda: None) as world,
        locked(folder) as ours,
    ):
        assert ours
        yield open_driver(folder, world)


@pytest.fixture
def lookout(driver: Driver) -> Iterator[Lookout]:
    with FolderWatch([driver.folder], lambda: None, written=[driver.folder / paths.STEPS]) as watch:
        yield Lookout(driver, watch)


def steps_of(lookout: Lookout) -> Path:
    return lookout.driver.folder / paths.STEPS


def test_a_file_without_its_name_keeps_the_driver_looking_for_a_second(lookout: Lookout) -> None:
    assert lookout.patience() > 2 * TIMING.restless
    (steps_of(lookout) / ".reply").write_text("approve\n")
    wait_for(lookout.has_news, "news of a file that has no name yet")
    assert 0 < lookout.alert - time.monotonic() <= 1
    assert lookout.patience() <= TIMING.restless
    (steps_of(lookout) / "send.1.reply.md").hardlink_to(steps_of(lookout) / ".reply")  # nobody hears of a link
    wait_for(lookout.has_news, "a look at the folder without any event", seconds=1)
    wait_for(lambda: lookout.alert < time.monotonic(), "the end of the alert")
    wait_for(lambda: not lookout.has_news(), "quiet")
    assert lookout.patience() > 2 * TIMING.restless


def test_temporary_files_of_our_own_alert_nobody(lookout: Lookout) -> None:
    (steps_of(lookout) / temp_name("new")).write_text("ours")
    (steps_of(lookout) / "send.1.reply.md").write_text("approve\n")
    wait_for(lookout.has_news, "news of the reply")
    assert lookout.alert == 0.0


def test_what_is_known_or_none_of_ours_is_no_news(lookout: Lookout) -> None:
    question, heard = steps_of(lookout) / "send.1.question.md", list[str]()
    question.write_text(question.read_text())
    (steps_of(lookout) / "notes.txt").write_text("a person's own")
    (lookout.driver.folder / "last.txt").write_text("a person's own")

    def heard_of_all() -> bool:  # folders are listened to one by one: which is heard first is nobody's promise
        heard.extend(lookout.watch.seen())
        return {Path(path).name for path in heard} == {"send.1.question.md", "notes.txt", "last.txt"}

    wait_for(heard_of_all, "news of every file")
    assert not any(is_unnamed(path, lookout.driver) or is_news(path, lookout.driver) for path in heard)
