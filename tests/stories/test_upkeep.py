"""The ledger of a workspace that is used a lot stays small and fast, and nobody has to see to it."""

import json
import os
import signal
from pathlib import Path

import pytest

from agentfs.storage.timing import TIMING
from tests.daemons import Watching, book
from tests.ledgers import SEEN_BY_GIT
from tests.workspaces import Place, wait_for


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.agentfs("init")
    made.git("config", "gc.auto", "1")  # as if there were thousands of objects already
    for content in SEEN_BY_GIT[:3]:  # nothing refers to them, so that they stay
        (tmp_path / "blob").write_bytes(content)
        made.git("hash-object", "-w", str(tmp_path / "blob"))
    return made


def loose(place: Place) -> list[str]:
    found = place.runs.glob(".git/objects/[0-9a-f][0-9a-f]/*")
    return sorted(path.parent.name for path in found if path.parent.name != "17")


def test_a_daemon_with_nothing_to_do_packs_what_is_loose(place: Place) -> None:
    with Watching(place, "--json") as daemon:
        for number in range(3):
            daemon.drop(f"job-{number}.md", book(f"echo {number}"))
        assert [daemon.outcome(f"job-{number}")["answer"] for number in range(3)] == ["0", "1", "2"]
        daemon.wait_for_output('"event": "maintained"')
        assert loose(place) == []
        daemon.drop("later.md", book("echo later"))
        assert daemon.outcome("later")["answer"] == "later"
        wait_for(lambda: "later: done, 1 of 1 steps" in place.git("log", "--format=%s"), "the commit")
    (line,) = [one for one in map(json.loads, daemon.output().splitlines()) if one["event"] == "maintained"]
    assert line["words"].startswith("the ledger was maintained: ")
    assert line["run"] is None
    assert len(place.log()) == 8


def test_while_something_runs_nothing_is_packed(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("long.md", book("while ! test -e go; do sleep 0.05; done"))
        folder = daemon.folder("long")
        wait_for((folder / "steps" / "a.1.log.jsonl").exists, "the step")
        wait_for(lambda: "plan.json" in place.git("ls-files"), "the first commit")
        before = loose(place)
        begun = _seconds(daemon)
        wait_for(lambda: _seconds(daemon) > begun + TIMING.idle + 2, "as long as it would take, if it did")
        assert loose(place) == before
        assert "maintained" not in daemon.output()
        (folder / "files" / "go").touch()
        assert daemon.outcome("long")["status"] == "done"
        daemon.wait_for_output("the ledger was maintained: ")
        assert daemon.end(signal.SIGTERM) == 130


def _seconds(daemon: Watching) -> float:
    ticks = int(Path(f"/proc/{daemon.popen.pid}/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def test_run_does_it_at_its_end_and_stdout_has_the_answer_alone(place: Place) -> None:
    done = place.agentfs("run", place.runbook("### a\n```sh\necho hi\n```\n"))
    assert done.stdout == "hi\n"
    assert "the ledger was maintained: " in done.stderr
    assert loose(place) == []
    assert place.log() == ["agentfs job: revision 1, the first plan", "agentfs job: done, 1 of 1 steps"]


def test_run_leaves_it_while_a_daemon_is_there(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("asks.md", book("echo sent", lines="gate"))
        wait_for((daemon.folder("asks") / "steps" / "a.1.question.md").exists, "the question")
        done = place.agentfs("run", place.runbook("### a\n```sh\necho hi\n```\n"))
        assert "maintained" not in done.stderr


def test_a_persons_lock_is_left_and_reported(place: Place) -> None:
    lock = place.runs / ".git" / "packed-refs.lock"
    lock.touch()
    done = place.agentfs("run", place.runbook("### a\n```sh\necho hi\n```\n"))
    assert f"the ledger was not maintained: {lock} exists; it is tried again" in done.stderr
    assert (done.stdout, lock.exists(), len(place.log())) == ("hi\n", True, 2)


def test_there_is_nothing_to_say_while_there_is_nothing_to_do(tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = place.agentfs("run", place.runbook("### a\n```sh\necho hi\n```\n"))
    assert "maintained" not in done.stderr
