"""A user who may write into goals/ is trusted less than the person who runs the daemon.

Links, pipes, leases, hard links and swaps in goals/ and in the files that people put into a run: nothing there is
followed, waited for, or trusted twice. Opening without O_NOFOLLOW or O_NONBLOCK in `open_regular`, holding `rejected` or
`.on-its-way` through a link, looking at `rejected` before it is opened by name, or letting the dropped file itself be the
run's goal makes these fail (each was tried).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.config import Settings
from agentfs.daemon.inbox import Inbox
from agentfs.engine.means import catalogue_of
from agentfs.errors import AgentfsError
from agentfs.storage.completeness import Completeness
from agentfs.storage.dropped_goals import StillChanging
from agentfs.storage.files import exchange
from agentfs.storage.workspace import Workspace
from tests.daemons import Watching, book
from tests.workspaces import Place, end, wait_for

GOOD = book("echo good")
GATED = book("echo one", "echo two", lines="gate")
SECRET = "the-private-key-4711"
SWAPS = 150  # of each race
SOON = 40.0  # seconds; a lease that is waited for takes 45


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.agentfs("init")
    (place.home / "secret").write_text(f"# {SECRET}\n{SECRET}\n")
    return place


# ── links that are there before the daemon comes ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("level", [0, 1, 2])
def test_on_its_way_is_never_a_way_out(place: Place, level: int) -> None:
    """A link at any level of `.on-its-way` would have the daemon move a person's files into goals/."""
    letters = place.home / "letters"
    private = letters.joinpath("2026-11-16", "private", "diary.md")
    private.parent.mkdir(parents=True)
    private.write_text(SECRET)
    way = place.root / "goals" / ".on-its-way"
    parts = (way, way / "2026-11-16", way / "2026-11-16" / "private")
    parts[level].parent.mkdir(parents=True, exist_ok=True)
    parts[level].symlink_to((letters, private.parent.parent, private.parent)[level])
    with Watching(place) as daemon:
        if level == 0:
            daemon.wait_for_output("cannot be finished: it is a link, not a folder (.on-its-way)")
        daemon.drop("good.md", GOOD)
        assert daemon.outcome("good")["answer"] == "good"
    assert private.read_text() == SECRET
    assert not (place.root / "goals" / "diary.md").exists()
    assert [path.name for path in place.runs.glob("????-??-??/*")] == ["good"]


def test_rejected_as_a_link_is_not_written_through(place: Place) -> None:
    outside = place.home / "outside"
    outside.mkdir()
    (place.root / "goals" / "rejected").symlink_to(outside)
    with Watching(place) as daemon:
        daemon.drop("bad.md", "---\nunknown: 1\n---\nx\n")
        daemon.wait_for_output("it cannot be moved to rejected/: it is a link, not a folder")
        daemon.drop("good.md", GOOD)
        assert daemon.outcome("good")["answer"] == "good"
    assert os.listdir(outside) == []
    assert (place.root / "goals" / "bad.md").exists()


# ── what is changed after it was judged ───────────────────────────────────────────────────────────────────


def test_a_hard_link_changed_after_the_approval_changes_nothing(place: Place) -> None:
    (place.root / "agentfs.toml").write_text('approve = "plan"\n')
    kept = place.root / "kept.md"
    kept.write_text(GATED)
    os.link(kept, place.root / "goals" / "job.md")
    with Watching(place) as daemon:
        folder = daemon.folder("job")
        daemon.wait_for_output("or type: agentfs approve")
        place.agentfs("approve", "job")
        wait_for((folder / "steps" / "a.1.question.md").exists, "the gate")
        kept.write_text(GATED.replace("echo two", "touch owned"))
        (folder / "steps" / "a.1.reply.md").write_text("approve\n")
        wait_for((folder / "steps" / "b.1.question.md").exists, "the second gate")
        (folder / "steps" / "b.1.reply.md").write_text("approve\n")
        assert daemon.outcome("job")["answer"] == "two"
    assert (folder / "goal.md").read_text() == GATED
    assert not (folder / "files" / "owned").exists()
    assert place.read("outcome.json")["revisions"] == 2, "the plan, and its approval"


def test_a_descriptor_that_was_kept_writes_into_nothing(inbox: Inbox) -> None:
    goal = inbox.folder / "job.md"
    goal.write_text(GOOD)
    with goal.open("r+") as kept:
        with inbox.taking(goal) as folder:
            kept.write("# Another")
            kept.flush()
        kept.write(" goal")
    assert (folder / "goal.md").read_text() == GOOD
    assert sorted(path.name for path in folder.iterdir()) == [
        "files", "goal.md", "planning", "revisions", "run.json", "steps"
    ]  # fmt: skip


# ── leases ────────────────────────────────────────────────────────────────────────────────────────────────

_HOLD = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], "r+")
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
"""


@contextmanager
def leased(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process holds a write lease on a file: who opens it has to wait, unless without blocking."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != "held\n":
            pytest.skip("this file system has no leases")
        yield holder
    finally:
        holder.communicate("")
        holder.wait(timeout=SOON)


def test_a_leased_goal_holds_nobody_up(place: Place) -> None:
    """A write lease of the dropper's makes a plain open wait for 45 seconds, again and again."""
    with Watching(place) as daemon:
        beside = place.root / "goals" / ".leased.md"
        beside.write_text(GOOD)
        with leased(beside):
            began = time.monotonic()
            os.rename(beside, daemon.goals / "leased.md")
            time_to_judge = began + 4  # longer than a file must hold still where nobody can tell who writes it
            for number in range(3):
                daemon.drop(f"good-{number}.md", GOOD)
                assert daemon.outcome(f"good-{number}")["answer"] == "good"
            wait_for(lambda: time.monotonic() > time_to_judge, "the leased goal to be looked at")
            daemon.drop("last.md", GOOD)
            assert daemon.outcome("last")["answer"] == "good"
            assert time.monotonic() - began < SOON
            assert (daemon.goals / "leased.md").exists()
            assert not any(place.runs.glob("????-??-??/leased"))
        assert daemon.outcome("leased")["answer"] == "good"


def test_a_leased_goal_does_not_keep_the_daemon_from_ending(place: Place) -> None:
    goal = place.root / "goals" / "leased.md"
    goal.write_text(GOOD)
    with leased(goal), Watching(place) as daemon:
        time_to_judge = time.monotonic() + 4
        wait_for(lambda: time.monotonic() > time_to_judge, "the leased goal to be looked at")
        daemon.popen.send_signal(signal.SIGTERM)
        daemon.popen.wait(timeout=SOON)
    assert goal.exists()


# ── races ─────────────────────────────────────────────────────────────────────────────────────────────────


class Time:
    """A clock that goes a second further each time it is looked at: whatever is there has held still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 10.0
        return self.now


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    root = tmp_path / "ws"
    for part in ("goals", "runs"):
        (root / part).mkdir(parents=True)
    (root / "agentfs.toml").touch()
    settings, clock = Settings(), Time()
    return Inbox(Workspace(root), settings, catalogue_of(settings, {}), False, Completeness(clock), clock)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Do something over and over while the block runs."""
    over = threading.Event()

    def again() -> None:
        while not over.is_set():
            with suppress(OSError):
                act()

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=SOON)


def take_or_reject(inbox: Inbox, path: Path) -> str:
    """Do with a goal what the daemon does; return what became of it."""
    try:
        with inbox.taking(path):
            return "taken"
    except StillChanging:
        return "later"
    except OSError:
        return "put off"
    except AgentfsError as error:
        return "rejected" if inbox.reject(path, error).error else "stuck"


def holds_secret(folder: Path) -> list[Path]:
    """Return the files, links left out, that hold the secret."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if path.stat().st_size < 1 << 20 and SECRET.encode() in path.read_bytes()]


def test_a_goal_that_is_swapped_is_what_was_judged_or_nothing(inbox: Inbox, tmp_path: Path) -> None:
    """A regular file, a link to a secret, a pipe and /dev/zero take turns under one name while goals are taken."""
    secret, goal = tmp_path / "secret", inbox.folder / "job.md"
    secret.write_text(f"---\n{SECRET}: 1\n---\nwhat is wrong with a goal is quoted beside it\n")
    kinds: list[Callable[[Path], object]] = [
        lambda path: path.write_text(GOOD),
        lambda path: path.symlink_to(secret),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
    ]
    turn = iter(range(10**9))

    def swap() -> None:
        beside = inbox.folder / f".{next(turn)}.tmp"
        kinds[next(turn) // 2 % len(kinds)](beside)
        os.rename(beside, goal)

    came: dict[str, int] = {}
    with meanwhile(swap):
        for _ in range(SWAPS):
            wait_for(lambda: os.path.lexists(goal), "a goal")
            found = take_or_reject(inbox, goal)
            came[found] = came.get(found, 0) + 1
    assert holds_secret(inbox.workspace.root) == []
    goals = list(inbox.workspace.runs.glob("*/*/goal.md"))
    assert len(goals) == came.get("taken", 0)
    assert {path.read_text() for path in goals} <= {GOOD}
    assert not any(path.is_symlink() for path in goals)
    assert set(came) <= {"taken", "later", "rejected"}, came
    assert secret.exists()


def test_rejected_that_is_swapped_for_a_link_leads_nowhere(inbox: Inbox, tmp_path: Path) -> None:
    outside, rejected, link = tmp_path / "outside", inbox.folder / "rejected", inbox.folder / ".link"
    outside.mkdir()
    rejected.mkdir()
    link.symlink_to(outside)
    with meanwhile(lambda: exchange(rejected, link)):
        for number in range(SWAPS):
            goal = inbox.folder / f"bad-{number}.md"
            goal.write_text("")
            take_or_reject(inbox, goal)
    assert os.listdir(outside) == []
    kept = [*inbox.folder.rglob("bad-*.md")]
    assert len(kept) >= SWAPS, "none is lost"


@pytest.mark.parametrize("after", ["mkdir", "stat"])
def test_rejected_that_is_swapped_right_before_it_is_opened(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    outside, rejected, link = tmp_path / "outside", inbox.folder / "rejected", inbox.folder / ".link"
    outside.mkdir()
    rejected.mkdir()
    link.symlink_to(outside)
    real = getattr(os, after)

    def act_and_swap(path: Any, *given: Any, **more: Any) -> Any:
        try:
            return real(path, *given, **more)
        finally:
            if path == "rejected" and not rejected.is_symlink():
                exchange(rejected, link)

    monkeypatch.setattr(os, after, act_and_swap)
    (inbox.folder / "bad.md").write_text("")
    take_or_reject(inbox, inbox.folder / "bad.md")
    assert os.listdir(outside) == []
    assert len([*inbox.folder.rglob("bad.md")]) == 1, "it is not lost"


def test_a_run_folder_that_is_swapped_for_a_link_leads_nowhere(inbox: Inbox, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for part in ("files", "planning", "revisions", "steps"):
        (outside / part).mkdir()

    def swap() -> None:
        for folder in inbox.workspace.runs.glob("????-??-??/*"):
            if not folder.name.startswith("was-") and not folder.is_symlink():
                folder.rename(folder.with_name(f"was-{time.monotonic_ns()}"))
                folder.symlink_to(outside)

    with meanwhile(swap):
        for number in range(SWAPS):
            goal = inbox.folder / f"job-{number}.md"
            goal.write_text(GOOD)
            take_or_reject(inbox, goal)
    files = [path for path in outside.rglob("*") if not path.is_dir()]
    assert files == []
    there = [*inbox.folder.glob("job-*.md"), *inbox.workspace.runs.glob("????-??-??/was-*/goal.md")]
    there += inbox.workspace.runs.glob("????-??-??/was-*/.dropped")
    there += [path for path in inbox.workspace.runs.glob("????-??-??/job-*/goal.md") if not path.parent.is_symlink()]
    assert len(there) >= SWAPS, "none is lost"


@pytest.mark.parametrize("part", ["the day", "the run"])
def test_a_folder_swapped_as_soon_as_it_is_made_leads_nowhere(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    outside, make = tmp_path / "outside", os.mkdir
    outside.mkdir()
    wanted = "job" if part == "the run" else datetime.now().astimezone().strftime("%Y-%m-%d")

    def make_and_swap(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        make(name, mode, dir_fd=dir_fd)
        if os.path.basename(name) == wanted:
            os.rename(name, f"{name}-was", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            os.symlink(outside, name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make_and_swap)
    (inbox.folder / "job.md").write_text(GOOD)
    take_or_reject(inbox, inbox.folder / "job.md")
    assert os.listdir(outside) == []


# ── files that people put into a run ──────────────────────────────────────────────────────────────────────


def hostile(path: Path, kind: str, secret: Path) -> None:
    """Put something in the place of a person's file that is no file of theirs."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(secret)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)


def test_a_run_whose_goal_is_removed_goes_on_and_says_so(place: Place) -> None:
    """Some editors remove a file before they write it again: a look in between does not set the run aside."""
    with Watching(place) as daemon:
        daemon.drop("job.md", GATED)
        folder = daemon.folder("job")
        wait_for((folder / "steps" / "a.1.question.md").exists, "the gate")
        (folder / "goal.md").unlink()
        wait_for((folder / "goal.error.md").exists, "what is wrong with the goal")
        assert "there is no goal file" in (folder / "goal.error.md").read_text()
        (folder / "goal.md").write_text(GATED)
        wait_for(lambda: not (folder / "goal.error.md").exists(), "the goal is good again")
        place.agentfs("approve", "job", "a")
        wait_for((folder / "steps" / "b.1.question.md").exists, "the next gate")
    assert "set aside" not in daemon.output()


@pytest.mark.parametrize("kind", ["pipe", "link", "zero", "huge"])
def test_a_goal_in_its_run_that_is_no_file_is_no_edit(place: Place, kind: str) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", GATED)
        folder = daemon.folder("job")
        wait_for((folder / "steps" / "a.1.question.md").exists, "the gate")
        hostile(folder / "goal.md", kind, place.home / "secret")
        wait_for((folder / "goal.error.md").exists, "what is wrong with the goal")
        daemon.drop("good.md", GOOD)
        assert daemon.outcome("good")["answer"] == "good"
        wait_for(lambda: "agentfs good: done, 1 of 1 steps" in place.log(), "the ledger: it waits for no such goal")
    assert SECRET not in (folder / "goal.error.md").read_text()
    assert [path for path in holds_secret(place.runs) if path.parent.name != "files"] == []
    began = time.monotonic()
    shown = place.agentfs("status", "job", code=None)
    resumed = place.agentfs("run", "--resume", "job", code=2)
    assert "(put the goal itself there)" in resumed.stderr
    assert SECRET not in shown.stdout + shown.stderr + resumed.stdout + resumed.stderr
    assert time.monotonic() - began < SOON
    (folder / "goal.md").unlink()
    (folder / "goal.md").write_text(GATED)
    place.agentfs("run", "--resume", "job", code=3)
    assert not (folder / "goal.error.md").exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "zero", "huge"])
@pytest.mark.parametrize("file", ["steps/a.1.reply.md", "replan.md"])
def test_a_reply_that_is_no_file_is_no_answer(place: Place, kind: str, file: str) -> None:
    (place.home / "secret").write_text(f"approve\n{SECRET}\n")
    place.agentfs("run", place.goal(GATED), code=3)
    folder = place.run_folder()
    hostile(folder / file, kind, place.home / "secret")
    before = json.loads(place.agentfs("status", "job", "--json", code=None).stdout)
    began = time.monotonic()
    place.agentfs("run", "--resume", "job", code=3)
    assert time.monotonic() - began < SOON
    assert json.loads(place.agentfs("status", "job", "--json", code=None).stdout)["run"] == before["run"]
    assert not (folder / "steps" / "a.1.json").exists()
    assert not (folder / "planning" / "2.json").exists()
    assert holds_secret(place.runs) == []


def test_a_leased_reply_is_not_waited_for(place: Place) -> None:
    place.agentfs("run", place.goal(GATED), code=3)
    reply = place.run_folder() / "steps" / "a.1.reply.md"
    reply.write_text("approve\n")
    with leased(reply):
        began = time.monotonic()
        running = place.begin("run", "--resume", "job")
        time_to_judge = began + 4
        wait_for(lambda: time.monotonic() > time_to_judge, "the reply to be looked at")
        place.agentfs("status", "job", code=None)
        assert time.monotonic() - began < SOON
        assert not (place.run_folder() / "steps" / "a.1.json").exists()
        end(running, signal.SIGTERM)
        assert time.monotonic() - began < SOON
