"""goals/: what counts as a goal, when it is complete, and how it leaves the folder."""

import errno
import json
import os
import socket
import stat
from pathlib import Path

import pytest

from agentfs.core.config import Settings
from agentfs.daemon.inbox import Inbox, Refused, is_goal_name, is_junk
from agentfs.engine.means import catalogue_of
from agentfs.errors import AgentfsError, BadFile
from agentfs.storage.completeness import Completeness
from agentfs.storage.dropped_goals import StillChanging, free_names, move_in
from agentfs.storage.safe_open import hold_named
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace

BOOK = "# Job\n\n## Steps\n\n### a\n```sh\necho a\n```\n"


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def inbox(tmp_path: Path, time: Time) -> Inbox:
    return make(tmp_path, time)


def make(root: Path, time: Time, *, model: bool = False, settings: Settings | None = None) -> Inbox:
    (root / "goals").mkdir()
    (root / "runs").mkdir()
    settings = settings or Settings()
    return Inbox(Workspace(root), settings, catalogue_of(settings, {}), model, Completeness(time), time)


def taken(inbox: Inbox, name: str) -> Path:
    with inbox.taking(inbox.folder / name) as folder:
        return folder


def refused(inbox: Inbox, name: str) -> str:
    """Return why a goal is not taken, as its error file says it."""
    path = inbox.folder / name
    with pytest.raises(AgentfsError) as caught, inbox.taking(path):
        pass
    refused = inbox.reject(path, caught.value)
    assert refused.error is not None
    assert not path.exists()
    return refused.error.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        ".hidden.md", "goal.md~", "~$goal.md", "goal.md.tmp", "goal.md.part", ".goal.md.swp", "goal.md.swp", "goal.swo",
        "goal.swx", "#goal.md#", ".#goal.md", "4913", "goal.md.bak", "goal.md.orig", "goal.md.crdownload", "sedKZ6snr",
        ".goal.md.Xy12ab", "goal.md___jb_tmp___", ".goutputstream-ABC123", "GOAL.TMP", "goal.md.save", "goal.md.save.2",
        "Thumbs.db", "desktop.ini", "._goal.md", "goal.md:Zone.Identifier", ".~lock.goal.md#", "goal.md.lock",
    ],
)  # fmt: skip
def test_what_editors_and_copiers_leave_is_no_goal(name: str) -> None:
    assert is_junk(name)
    assert not is_goal_name(name)


@pytest.mark.parametrize(
    "name", ["goal.md", "GOAL.MD", "a b.txt", "x.yaml", "x.yml", "x.json", "sediment.md", "tmp.md", "日本.md"]
)
def test_what_is_a_goal(name: str) -> None:
    assert is_goal_name(name)


def test_a_goal_is_complete_when_it_has_held_still(inbox: Inbox, time: Time) -> None:
    goal = inbox.folder / "job.md"
    goal.write_text(BOOK)
    assert (inbox.look().complete, inbox.look().restless) == ([], True)
    time.now += TIMING.complete
    with goal.open("a") as writer:
        writer.write("More.\n")
        writer.flush()
        assert inbox.look().complete == []
        time.now += TIMING.complete
        assert inbox.look().complete == []  # it has held still, but another process has it open
    assert inbox.look().complete == [goal]
    assert not inbox.look().restless


def test_the_oldest_comes_first(inbox: Inbox, time: Time) -> None:
    for age, name in enumerate(("c.md", "a.md", "b.md")):
        (inbox.folder / name).write_text(BOOK)
        os.utime(inbox.folder / name, (1000 + age, 1000 + age))
    inbox.look()
    time.now += TIMING.complete
    assert [path.name for path in inbox.look().complete] == ["c.md", "a.md", "b.md"]


def test_what_is_not_a_goal_is_left_alone_and_reported_once(inbox: Inbox) -> None:
    (inbox.folder / "notes.pdf").touch()
    (inbox.folder / "folder.md").mkdir()
    (inbox.folder / "rejected").mkdir()
    first = inbox.look()
    assert dict(first.left) == {
        "notes.pdf": "a goal ends in .md, .txt, .yaml, .yml, .json",
        "folder.md": "it is a folder; goals are files",
    }
    assert (inbox.look().left, first.wrong, first.restless) == ([], [], False)
    (inbox.folder / "notes.pdf").unlink()
    inbox.look()
    (inbox.folder / "notes.pdf").touch()
    assert [name for name, _ in inbox.look().left] == ["notes.pdf"]


def test_what_is_no_file_can_never_be_a_goal(inbox: Inbox) -> None:
    os.mkfifo(inbox.folder / "pipe.md")
    (inbox.folder / "link.md").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(inbox.folder / "socket.md"))
    found = {path.name: problem for path, problem in inbox.look().wrong}
    assert {name: problem.message for name, problem in found.items()} == {
        "pipe.md": "it is a named pipe, not a file",
        "link.md": "it is a symbolic link, not a file",
        "socket.md": "it is a socket, not a file",
    }
    refused = inbox.reject(inbox.folder / "link.md", BadFile("link.md", [found["link.md"]]))
    assert (inbox.folder / "rejected" / "link.md").is_symlink()
    assert refused.words == "link.md:1:1: it is a symbolic link, not a file (drop the file itself: cp -L)"


def test_a_goal_moves_into_its_run(inbox: Inbox) -> None:
    goal = inbox.folder / "Tidy up!.MD"
    goal.write_text(BOOK)
    inode = goal.stat().st_ino
    folder = taken(inbox, goal.name)
    assert folder.name == "tidy-up"
    assert (folder / "goal.md").read_text() == BOOK
    assert (folder / "goal.md").stat().st_ino != inode, "a file of the run's own"
    assert os.listdir(inbox.folder) == []
    run = json.loads((folder / "run.json").read_text())
    assert (run["source"], run["approve"], run["run"]) == (str(goal), "never", f"{folder.parent.name}/tidy-up")


def test_a_goal_in_words_is_looked_at_before_it_runs(tmp_path: Path, time: Time) -> None:
    inbox = make(tmp_path, time, model=True)
    (inbox.folder / "words.txt").write_text("Tidy the invoices\n")
    run = json.loads((taken(inbox, "words.txt") / "run.json").read_text())
    assert run["approve"] == "plan"
    (inbox.folder / "loose.md").write_text("---\napprove: never\n---\nTidy the invoices\n")
    assert "loose.md:2:1: approve: 'never' is looser than 'plan'" in refused(inbox, "loose.md")


def test_an_explicit_approve_of_the_settings_holds_for_a_runbook_too(tmp_path: Path, time: Time) -> None:
    inbox = make(tmp_path, time, settings=Settings(approve="plan"))
    (inbox.folder / "job.md").write_text(BOOK)
    assert json.loads((taken(inbox, "job.md") / "run.json").read_text())["approve"] == "plan"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "job.md:1:1: the goal is empty (write down what is to be done)"),
        (b" \n\t\n", "job.md:1:1: the goal is empty"),
        (b"\x7fELF\x02\x01\x01\0\0", "is not text"),
        (b"Gr\xfc\xdfe\n", "job.md:1:3: byte 0xfc is not UTF-8 (save the file as UTF-8 text)"),
        (b"x" * (1024 * 1024 + 1), "job.md:1:1: the goal is larger than 1 MiB"),
        (b"Make me rich\n", "Two ways out"),
        (b"---\nlimits:\n  attempts: 99\n---\n" + BOOK.encode(), "job.md:3:3: limits.attempts: 99 is more than 2"),
        (b"---\nworkdir: /etc\n---\n" + BOOK.encode(), "job.md:2:1: workdir: '/etc' lies outside the folders"),
        (b"---\nname: x\nfoo: 1\n---\n" + BOOK.encode(), "job.md:3:1: "),
    ],
)
def test_an_invalid_goal(inbox: Inbox, content: bytes, words: str) -> None:
    (inbox.folder / "job.md").write_bytes(content)
    reason = refused(inbox, "job.md")
    assert words in reason
    assert reason.startswith("# job.md was not taken\n\n    job.md:")
    assert reason.endswith("Fix it, then move it back into goals/ (`agentfs check FILE` says whether it is valid).\n")
    assert (inbox.folder / "rejected" / "job.md").read_bytes() == content
    assert list(inbox.workspace.runs.glob("*/*")) == []


def test_a_goal_that_cannot_be_read(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    (inbox.folder / "job.md").write_text(BOOK)

    def denied(path: str, *_: int, **__: int) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("agentfs.daemon.inbox.read_regular", denied)
    assert "job.md:1:1: cannot be read: Permission denied (give the user" in refused(inbox, "job.md")


def test_a_rejected_goal_never_takes_the_place_of_another(inbox: Inbox) -> None:
    for content in ("", " ", "  "):
        (inbox.folder / "job.md").write_text(content)
        refused(inbox, "job.md")
    names = sorted(os.listdir(inbox.folder / "rejected"))
    assert names == ["job-2.md", "job-2.md.error.md", "job-3.md", "job-3.md.error.md", "job.md", "job.md.error.md"]


def test_a_name_as_long_as_can_be_is_cut(inbox: Inbox) -> None:
    name = "ü" * 126 + ".md"
    (inbox.folder / name).write_text("")
    assert "was not taken" in refused(inbox, name)
    (kept,) = (one for one in os.listdir(inbox.folder / "rejected") if not one.endswith(".error.md"))
    assert len(os.fsencode(kept)) <= 200
    (inbox.folder / name).write_text(BOOK)
    assert taken(inbox, name).name == "u" * 48


def test_a_name_that_is_no_utf8(inbox: Inbox) -> None:
    name = os.fsdecode(b"caf\xe9.md")
    (inbox.folder / name).write_text(BOOK)
    folder = taken(inbox, name)
    assert folder.name == "caf"
    assert json.loads((folder / "run.json").read_text())["source"].endswith("/caf\ufffd.md")
    (inbox.folder / name).write_text("")
    refused(inbox, name)


def test_where_nothing_can_be_moved_the_goal_stays_and_is_left_in_peace(inbox: Inbox, time: Time) -> None:
    (inbox.folder / "rejected").write_text("a file in the way")
    (inbox.folder / "job.md").write_text("")
    refused = inbox.reject(inbox.folder / "job.md", AgentfsError("job.md: invalid"))
    assert refused == Refused(
        "job.md", "job.md: invalid; and it cannot be moved to rejected/: it is a file, not a folder", None
    )
    assert (inbox.folder / "job.md").exists()
    assert not inbox.look().restless
    time.now += TIMING.inbox_again
    assert inbox.look().restless


def test_a_goal_edited_after_it_was_read_goes_back(inbox: Inbox, tmp_path: Path) -> None:
    goal, run = inbox.folder / "job.md", tmp_path / "run"
    goal.write_text("newer")
    run.mkdir()
    with hold_named(run) as held:
        with pytest.raises(StillChanging):
            move_in(goal, held, "2026-11-16/job", {"goal.md": b"older"})
        assert (goal.read_text(), os.listdir(run)) == ("newer", [])
        goal.unlink()
        with pytest.raises(StillChanging):
            move_in(goal, held, "2026-11-16/job", {"goal.md": b"older"})


def test_what_was_on_its_way_when_the_intake_was_cut_off(inbox: Inbox) -> None:
    """A goal that its run has is removed; one that it has not goes back, never over another."""
    way, runs = inbox.folder / ".on-its-way" / "2026-11-16", inbox.workspace.runs / "2026-11-16"
    for run in ("has", "has-not", "was-never"):
        (way / run).mkdir(parents=True)
        (way / run / "job.md").write_text(run)
    for run in ("has", "has-not"):
        (runs / run).mkdir(parents=True)
        (runs / run / "run.json").touch()
    (runs / "has" / "goal.md").touch()
    inbox.bring_back()
    assert {path.name: path.read_text() for path in inbox.folder.iterdir()} == {
        "job.md": "has-not",
        "job-2.md": "was-never",
    }
    inbox.bring_back()
    assert len(os.listdir(inbox.folder)) == 2


def cut_off(inbox: Inbox, *, has_goal: bool = False) -> Path:
    """Return the folder of a run whose intake ended right after the rename, or right after the goal was written."""
    (inbox.folder / "job.md").write_text(BOOK)
    folder = taken(inbox, "job.md")
    (folder / ".dropped").write_text(BOOK)
    if not has_goal:
        (folder / "goal.md").unlink()
    return folder


@pytest.mark.parametrize("has_goal", [False, True])
def test_an_intake_that_was_cut_off_is_finished(inbox: Inbox, has_goal: bool) -> None:
    folder = cut_off(inbox, has_goal=has_goal)
    assert inbox.finish_intakes() == ([], True)
    assert (folder / "goal.md").read_text() == BOOK
    assert not (folder / ".dropped").exists()
    assert os.listdir(inbox.folder) == []


@pytest.mark.parametrize("has_goal", [False, True])
def test_what_is_not_what_was_judged_is_rejected_and_not_lost(inbox: Inbox, has_goal: bool) -> None:
    folder = cut_off(inbox, has_goal=has_goal)
    (folder / ".dropped").write_text("newer")
    (refused,), settled = inbox.finish_intakes()
    assert (refused.name, settled) == ("job.md", True)
    assert "it was changed while it was being taken" in (inbox.folder / "rejected/job.md.error.md").read_text()
    assert (inbox.folder / "rejected/job.md").read_text() == "newer"
    assert (folder / "goal.md").exists() == has_goal
    (inbox.folder / "job.md").write_text(BOOK)
    assert taken(inbox, "job.md").name == ("job-2" if has_goal else "job"), "a folder with no goal is free again"


def test_a_folder_with_a_goal_on_its_way_is_not_free(inbox: Inbox) -> None:
    folder = cut_off(inbox)
    (inbox.folder / "job.md").write_text(BOOK)
    assert taken(inbox, "job.md").name == "job-2"
    assert (folder / ".dropped").exists()


def test_an_error_file_never_takes_the_place_of_a_goal(inbox: Inbox) -> None:
    for name in ("job.md.error.md", "job.md"):
        (inbox.folder / name).write_text("")
        refused(inbox, name)
    assert (inbox.folder / "rejected/job.md.error.md").read_text() == ""
    assert (inbox.folder / "rejected/job-2.md.error.md").exists()


def test_names_that_are_free(tmp_path: Path) -> None:
    with hold_named(tmp_path) as folder:
        assert next(free_names(folder, "x.md")) == "x.md"
        (tmp_path / "x.md").symlink_to("nowhere")
        assert next(free_names(folder, "x.md")) == "x-2.md"
        (tmp_path / "x-2.md.error.md").touch()
        assert next(free_names(folder, "x.md", beside=".error.md")) == "x-3.md"
    assert stat.S_ISLNK((tmp_path / "x.md").lstat().st_mode)
