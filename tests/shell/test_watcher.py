"""Watchdog events: names of what happened in some folders, and whether events may be missing."""

import logging
import os
import threading
from pathlib import Path

from agentfs.storage.watcher import FolderWatch
from tests.workspaces import wait_for


def test_what_is_written_and_moved_is_reported(tmp_path: Path) -> None:
    woken, found = threading.Event(), list[str]()
    (tmp_path / "below").mkdir()
    with FolderWatch([tmp_path], woken.set) as watch:
        assert watch.no_events is None
        (tmp_path / "below" / "x").touch()
        (tmp_path / ".goal").touch()
        os.rename(tmp_path / ".goal", tmp_path / "goal.md")

        def is_reported() -> bool:
            found.extend(watch.seen())
            return str(tmp_path / "goal.md") in found

        wait_for(is_reported, "the event")
    assert woken.is_set()
    assert str(tmp_path / "below" / "x") not in found


def test_an_overflow_is_noticed() -> None:
    woken = threading.Event()
    with FolderWatch([], woken.set) as watch:
        logging.getLogger("watchdog.observers.inotify_c").warning("Inotify queue overflowed; events were lost")
        assert watch.overflowed
        assert woken.is_set()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with FolderWatch([tmp_path / "nowhere"], lambda: None) as watch:
        assert watch.no_events == "No such file or directory"
        assert watch.seen() == []
