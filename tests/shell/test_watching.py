"""One observer for folders that come and go: it tells names, and when it cannot be relied upon."""

import logging
import os
import subprocess
import threading
from pathlib import Path

import pytest
from watchdog.utils import BaseThread

from agentfs import watching
from agentfs.errors import UserError
from agentfs.holding import HeldFolder, who_holds
from agentfs.watch import ARRIVED, Unwatched
from agentfs.watching import ManyFolders, glance
from tests.workspaces import wait_for


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in ("steps", "planning", "files"):
        (tmp_path / "run" / name).mkdir(parents=True)
    (tmp_path / "run" / "goal.md").write_text("x")
    (tmp_path / "run" / "plan.json").write_text("{}")
    return tmp_path / "run"


def heard(folders: ManyFolders, path: Path) -> list[str]:
    """Wait to hear of a file; return everything that was heard until then, each once."""
    found: list[str] = []

    def seen() -> bool:
        found.extend(folders.seen())
        return str(path) in found

    wait_for(seen, f"news of {path.name}", seconds=10)
    return list(dict.fromkeys(found))


def _gone() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_folders_come_and_go(run: Path) -> None:
    woken = threading.Event()
    folders = ManyFolders(woken.set)
    try:
        folders.add_run(run)
        (run / "steps" / "a.1.reply.md").write_text("yes")
        heard(folders, run / "steps" / "a.1.reply.md")
        assert woken.is_set()
        (run / "files" / "x").write_text("nobody asked for this")
        os.rename(run / "plan.json", run / "planning" / "moved.json")
        heard(folders, run / "planning" / "moved.json")
        folders.remove_run(run)
        folders.seen()
        assert folders.lives(run, 0.1) is False
        folders.add(run)
        (run / "goal.md").write_text("first of two")
        assert folders.lives(run, 5)
        heard(folders, run / "goal.md")  # what is heard while waiting for the canary is not lost
        assert not list(run.glob(".agentfs-canary*"))
        left, others = run / f".agentfs-canary-{_gone()}.tmp", run / f".agentfs-canary-{os.getppid()}.tmp"
        left.touch()
        others.touch()
        assert folders.lives(run, 5)
        assert list(run.glob(".agentfs-canary*")) == [others]  # of a process that runs; the other was killed
    finally:
        folders.close()


def test_no_watches_left(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = ManyFolders(lambda: None)
    try:
        with pytest.raises(Unwatched, match="No such file or directory"):
            folders.add(run / "nowhere")
        monkeypatch.setattr(watching, "MOST_FOLDERS", 2)
        with pytest.raises(Unwatched, match="there are more open runs than are watched at once"):
            folders.add_run(run)
        folders.add(run)  # none of the three was kept
    finally:
        folders.close()


def test_dropped_events_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    woken = threading.Event()
    folders = ManyFolders(woken.set)
    try:
        logging.getLogger("watchdog.observers.inotify_c").warning("Inotify queue overflowed; events were lost")
        assert folders.lost
        assert woken.is_set()
    finally:
        folders.close()


def test_what_leaves_goals_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "goals").mkdir()
    (tmp_path / "elsewhere.md").touch()
    folders = ManyFolders(lambda: None)
    try:
        folders.add(tmp_path / "goals", ARRIVED)
        os.rename(tmp_path / "elsewhere.md", tmp_path / "goals" / "moved.md")
        heard(folders, tmp_path / "goals" / "moved.md")
        folders.seen()
        os.rename(tmp_path / "goals" / "moved.md", tmp_path / "elsewhere.md")
        (tmp_path / "goals" / "last.md").touch()
        assert heard(folders, tmp_path / "goals" / "last.md") == [str(tmp_path / "goals" / "last.md")]
    finally:
        folders.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_of_watchdogs_that_fails_is_noticed_and_others_are_none_of_its_business(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Failing(BaseThread):
        def run(self) -> None:
            raise OSError(5, "no luck")

    def fail() -> None:
        raise ValueError("ours")

    told: list[str] = []
    before = threading.excepthook
    threading.excepthook = lambda died: told.append(str(died.exc_value))
    woken = threading.Event()
    folders = ManyFolders(woken.set)
    try:
        Failing().start()
        wait_for(woken.is_set, "to be woken")
        assert folders.failed == "OSError: [Errno 5] no luck"
        ours = threading.Thread(target=fail)
        ours.start()
        ours.join()
        assert told == ["ours"]
    finally:
        folders.close()
        threading.excepthook = before


@pytest.mark.parametrize("what", ["steps/a.1.reply.md", "planning/1.reply.md", "plan.json", "goal.md", "run.json"])
def test_a_glance_sees_what_people_write(run: Path, what: str) -> None:
    before = glance(run)
    assert glance(run) == before
    (run / what).write_text("something longer")
    assert glance(run) != before


def test_a_glance_at_nothing(tmp_path: Path) -> None:
    assert set(glance(tmp_path / "nowhere")) == {None}


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    first, second = HeldFolder(tmp_path / "goals"), HeldFolder(tmp_path / "goals")
    first.take()
    assert first.is_there()
    assert not second.is_there()
    with pytest.raises(UserError, match=f"is being watched already, by process {os.getpid()} "):
        second.take()
    os.rename(tmp_path / "goals", tmp_path / "moved")
    assert not first.is_there()
    (tmp_path / "goals").mkdir()
    assert not first.is_there()
    first.take()
    assert first.is_there()
    first.release()
    second.take()
    second.release()
    assert who_holds(tmp_path / "goals") == "another agentfs"


def test_a_folder_that_cannot_be_held(tmp_path: Path) -> None:
    (tmp_path / "goals").touch()
    with pytest.raises(UserError, match="goals cannot be watched: File exists"):
        HeldFolder(tmp_path / "goals").take()
