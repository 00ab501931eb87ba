"""Places that are not as they should be: mounts without events, no watches, another file system, a full disk."""

import os
import shutil
import subprocess
import sys
from datetime import datetime

import pytest

from agentfs.storage.timing import DIVISOR
from tests.daemons import Watching, book
from tests.mounts import mirrored, mounted
from tests.shell.test_full_disk import fill
from tests.workspaces import Place, wait_for

GATED = book("echo x >> effect; echo good", lines="gate")
GOOD = book("echo x >> effect; echo good")


def ran_once(daemon: Watching, name: str) -> None:
    assert daemon.outcome(name)["answer"] == "good"
    assert (daemon.place.run_folder(name) / "files" / "effect").read_text() == "x\n"
    assert not any(daemon.place.runs.glob(f"*/{name}-2"))


def test_on_fuse_it_looks_every_second_by_itself_and_says_so(place: Place) -> None:
    """Of what is written behind a mount no event comes, and no lease tells who writes it."""
    back = place.root.parent / "back"
    back.mkdir()
    with mirrored(back, place.root), Watching(place, env={DIVISOR: "1"}) as daemon:  # a slow writer has seconds
        assert daemon.output() == (
            "goals/ is looked at every second: events may be missing on a FUSE file system\n"
            f"looking every second: drop goals into {daemon.goals}\n"
        )
        with (back / "goals" / "job.md").open("w") as slow:
            slow.write(GATED[:20])
            slow.flush()
            daemon.drop("other.md", GOOD)
            wait_for((daemon.goals / "job.md").exists, "the mount to show it")
            slow.write(GATED[20:])
        steps = back / "runs" / daemon.folder("job").relative_to(place.runs) / "steps"
        wait_for((steps / "a.1.question.md").exists, "the question")
        (steps / "a.1.reply.md").write_text("approve\n")
        for name in ("job", "other"):
            ran_once(daemon, name)
    assert daemon.output().count("looked at every second") == 1


def test_where_events_turn_out_not_to_come_everything_is_found(place: Place) -> None:
    """An overlay whose upper folder is written to behind its back: no kind of file system that gives itself away."""
    parts = {name: place.root.parent / name for name in ("lower", "upper", "workdir")}
    for folder in parts.values():
        folder.mkdir()
    options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['workdir']}"
    with mounted("overlay", options, place.root), Watching(place, "--json") as daemon:
        assert '"polling": false' in daemon.output()
        daemon.drop("seen.md", GOOD)
        daemon.folder("seen")
        (parts["upper"] / "goals" / "unseen.md").write_text(GOOD)
        for name in ("seen", "unseen"):
            ran_once(daemon, name)


def test_without_watches_it_looks_every_second_and_says_how_to_have_more(place: Place) -> None:
    """A user namespace has a limit of its own."""
    limit = 'echo 0 > /proc/sys/user/max_inotify_watches && exec "$@"'
    if subprocess.run(
        ["unshare", "-Ur", "sh", "-c", limit, "sh", "true"], capture_output=True, check=False
    ).returncode:
        pytest.skip("no user namespace with a limit of its own can be made here")
    none = "no watches are left (more: sudo sysctl fs.inotify.max_user_watches=524288)"
    with Watching(place, under=("unshare", "-Ur", "sh", "-c", limit, "sh")) as daemon:
        assert f"goals/ is looked at every second: {none}\nlooking every second: drop" in daemon.output()
        for name in ("one", "two", "three"):
            daemon.drop(f"{name}.md", GATED)
        for name in ("one", "two", "three"):
            wait_for((daemon.folder(name) / "steps" / "a.1.question.md").exists, "the question")
            (daemon.folder(name) / "steps" / "a.1.reply.md").write_text("approve\n")
        for name in ("one", "two", "three"):
            ran_once(daemon, name)
    run = ("unshare", "-Ur", "sh", "-c", limit, "sh", sys.executable, "-m", "agentfs", "run")
    (place.root / "five.md").write_text(GOOD)
    done = subprocess.run(
        [*run, "five.md"], cwd=place.root, env=place.env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr
    assert none not in done.stderr  # it needs no watch


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("cut", ["before the run has it", "after the run has it"])
def test_goals_on_another_file_system_are_taken_once(place: Place, cut: str) -> None:
    """A rename cannot reach the run: the goal is moved out of the way under the run's name, then copied."""
    place.agentfs("init")
    day = datetime.now().astimezone().strftime("%Y-%m-%d")
    on_its_way = place.root / "goals" / ".on-its-way" / day / "job" / "job.md"
    goal = place.runs / day / "job" / "goal.md"
    kill = {
        "before the run has it": (str(goal.parent), "linkat", ":when=2"),  # the first is run.json
        "after the run has it": (str(on_its_way.parent), "unlinkat", ""),
    }
    path, call, when = kill[cut]
    inject = ("-P", path, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL{when}")
    under = ("strace", "-f", "-D", "-qq", "-o", str(place.root.parent / "trace"), *inject)
    with mounted("tmpfs", "size=2m", place.root / "goals"):
        with Watching(place, under=under) as killed:
            killed.drop_across("job.md", GOOD)
            assert killed.popen.wait(timeout=60) == -9
        assert on_its_way.read_text() == GOOD
        assert goal.exists() == cut.startswith("after")
        with Watching(place) as daemon:
            ran_once(daemon, "job")
            daemon.drop_across("whole.md", GOOD)
            ran_once(daemon, "whole")
            assert os.listdir(daemon.goals) == []
    assert sorted(path.parent.name for path in place.runs.glob("*/*/run.json")) == ["job", "whole"]


def test_a_full_disk_is_waited_out_aloud_and_nothing_is_lost(place: Place) -> None:
    with mounted("tmpfs", "size=3m", place.root), Watching(place) as daemon:
        daemon.drop("open.md", GATED)
        folder = daemon.folder("open")
        wait_for((folder / "STATUS.md").exists, "the question")
        (folder / "steps" / "a.1.reply.md").write_text("approve\n")
        for name in ("one.md", "two.md"):
            (place.root / f".{name}").write_text(GOOD)
        filler = fill(place)
        for name in ("one.md", "two.md"):
            os.rename(place.root / f".{name}", daemon.goals / name)
        daemon.wait_for_output(
            "no goal can be taken now; they stay in goals/: No space left on device; it goes on when there is room"
        )
        daemon.wait_for_output("/open: set aside: No space left on device; it goes on when there is room")
        assert sorted(os.listdir(daemon.goals)) == ["one.md", "two.md"]
        filler.unlink()
        daemon.wait_for_output("goals are taken again")
        daemon.wait_for_output("/open: goes on")
        for name in ("one", "two", "open"):
            ran_once(daemon, name)
        assert daemon.output().count("no goal can be taken now") == 1
        wait_for(lambda: len(place.log()) == 6, "the ledger")
        wait_for(lambda: place.git("status", "--porcelain") == "", "the index")
        place.ledger_is_sound()
