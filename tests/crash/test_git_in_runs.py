"""A person works with git in `runs/`, under a daemon or between two commands: nothing is lost, nothing done twice unasked.

A log without a result is an attempt that was made, whatever else of it is missing.
"""

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentfs.storage.files import exchange
from agentfs.storage.locks import Lock, is_driven, lock_file
from tests.daemons import Watching
from tests.workspaces import Place, wait_for

FRONT = "workdir: shop"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.root / "shop").mkdir()
    return place


def a_runbook(place: Place) -> str:
    steps = "### send\n```sh\necho sent >> effects.txt\n```\nnot repeatable\n"
    return place.runbook(steps, front="workdir: shop")


def effects(place: Place) -> list[str]:
    return (place.root / "shop" / "effects.txt").read_text().splitlines()


def test_a_reset_asks_before_anything_is_done_again(place: Place) -> None:
    place.agentfs("run", a_runbook(place))
    place.git("reset", "-q", "--hard", "HEAD~1")
    assert not (place.run_folder() / "outcome.json").exists()
    place.agentfs("run", "--resume", "job", code=3)
    assert effects(place) == ["sent"]
    assert (place.run_folder() / "steps" / "send.1.question.md").exists()
    assert place.read("steps/send.1.result.json")["status"] == "interrupted"
    place.agentfs("reply", "job", "send", "done")
    place.agentfs("run", "--resume", "job")
    assert effects(place) == ["sent"]
    assert place.read("outcome.json")["status"] == "done"


def test_a_reset_under_a_daemon_asks_too(place: Place) -> None:
    place.agentfs("init")
    a_runbook(place)
    with Watching(place) as daemon:
        (place.root / "job.md").rename(place.root / "goals" / "job.md")
        wait_for(lambda: bool(list(place.runs.glob("*/job/outcome.json"))), "the end of the run")
        wait_for(
            lambda: "outcome.json" in place.git("ls-files"), "the commit of the end, and the index in step with it"
        )
        place.git("reset", "-q", "--hard", "HEAD~1")
        wait_for((place.run_folder() / "steps" / "send.1.question.md").exists, "the question")
        assert daemon.popen.poll() is None
    assert effects(place) == ["sent"]


@pytest.mark.parametrize("order", [b"", b'{"format": "agentfs/ord', None], ids=["empty", "cut", "gone"])
def test_a_claim_without_a_readable_order_is_an_attempt_that_was_made(place: Place, order: bytes | None) -> None:
    place.agentfs("run", a_runbook(place))
    folder = place.run_folder()
    for name in ("outcome.json", "steps/send.1.result.json"):
        (folder / name).unlink()
    path = folder / "steps" / "send.1.json"
    path.unlink() if order is None else path.write_bytes(order)
    claim = json.loads((folder / "steps" / "send.1.log.jsonl").read_text().splitlines()[0])
    assert (len(claim["key"]), claim["repeatable"]) == (64, False)
    place.agentfs("run", "--resume", "job", code=3)
    assert effects(place) == ["sent"]
    assert place.read("steps/send.1.result.json")["key"] == claim["key"]


def test_a_log_of_the_first_release_says_nothing_of_its_order_and_is_asked_about(place: Place) -> None:
    place.agentfs("run", place.runbook("### look\n```sh\necho sent >> effects.txt\n```\nrepeatable\n", FRONT))
    folder = place.run_folder()
    log = folder / "steps" / "look.1.log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for name in ("key", "repeatable"):
        del lines[0][name]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("outcome.json", "steps/look.1.result.json", "steps/look.1.json"):
        (folder / name).unlink()
    place.agentfs("run", "--resume", "job", code=3)
    assert effects(place) == ["sent"]


def test_a_goal_of_the_same_name_takes_nothing_from_a_run_whose_files_git_took_away(place: Place) -> None:
    goal = place.runbook("### make\n```sh\necho mine > made.txt\n```\n")
    place.agentfs("run", goal)
    folder = place.run_folder()
    first = place.git("rev-list", "--max-parents=0", "HEAD").strip()
    place.git("checkout", "-q", "--orphan", "empty")
    place.git("rm", "-rfq", "--cached", ".")
    for name in ("goal.md", "run.json", "plan.json", "outcome.json"):
        (folder / name).unlink()
    for part in ("revisions", "planning"):
        for path in (folder / part).iterdir():
            path.unlink()
    place.git("symbolic-ref", "HEAD", "refs/heads/main")
    assert first
    place.agentfs("run", goal)
    assert (folder / "files" / "made.txt").read_text() == "mine\n"
    assert (folder / "steps" / "make.1.log.jsonl").exists()
    assert place.run_folder("job-2").is_dir()


@pytest.mark.parametrize(
    "words", [["stash", "-q"], ["clean", "-fdq"], ["gc", "-q", "--prune=now"], ["checkout", "-q", "HEAD~1"]]
)
def test_other_things_a_person_does_there_lose_no_attempt(place: Place, words: list[str]) -> None:
    place.agentfs("run", a_runbook(place))
    place.git("-c", "user.name=Ada", "-c", "user.email=ada@example.org", *words)
    place.agentfs("status")
    place.agentfs("run", "--resume", "job", code=None)
    assert effects(place) == ["sent"]


# ── runs/.git, in which the locks lie, goes away under a driven run ───────────────────────────────────────

SLOW = "### wait\n```sh\necho began >> effects.txt; until test -e go; do sleep 0.02; done\n```\nnot repeatable\n"


def begin_slow_run(place: Place, command: str) -> Any:
    """Return the process that drives a run whose step waits."""
    place.agentfs("init")
    place.runbook(SLOW, FRONT)
    driver = place.begin("watch") if command == "watch" else place.begin("run", "job.md")
    if command == "watch":
        (place.root / "job.md").rename(place.root / "goals" / "job.md")
    wait_for((place.root / "shop" / "effects.txt").exists, "the step")
    return driver


def copy_ledger(place: Place) -> Path:
    """Return a copy of the ledger; a commit may be under way in it, whose files come and go."""
    copy = place.root / "other"

    def is_copied() -> bool:
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(place.runs / ".git", copy)
        except shutil.Error:
            return False
        return True

    wait_for(is_copied, "a moment without a commit")
    return copy


@pytest.mark.parametrize("command", ["run", "watch"])
def test_a_driver_takes_its_lock_again_when_the_ledger_is_deleted(place: Place, command: str) -> None:
    driver = begin_slow_run(place, command)
    try:
        folder = place.run_folder()
        shutil.rmtree((place.runs / ".git").rename(place.root / "gone"))  # a commit may be under way in there
        wait_for(lambda: is_driven(folder), "its lock in the new place")
        assert not Lock(folder).take()
        (place.root / "shop" / "go").touch()
        wait_for((folder / "outcome.json").exists, "the end of the run")
    finally:
        driver.terminate()
        driver.communicate()
    assert effects(place) == ["began"]
    assert place.read("outcome.json")["status"] == "done"


@pytest.mark.parametrize("command", ["run", "watch"])
def test_a_driver_whose_lock_another_process_has_by_now_stops(place: Place, command: str) -> None:
    """The other one's ledger, and lock, takes the place of the first in one go: there is no moment between them."""
    driver = begin_slow_run(place, command)
    folder = place.run_folder()
    pid = json.loads((folder / "steps" / "wait.1.log.jsonl").read_text().splitlines()[0])["pgid"]
    other = copy_ledger(place)
    with (other / lock_file(folder).relative_to(place.runs / ".git")).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        exchange(place.runs / ".git", other)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the end of what ran")
        if command == "watch":
            driver.terminate()
        _, output = driver.communicate(timeout=60)
    words = "now: the lock lay in runs/.git, which was deleted or replaced. What ran here is ended"
    assert f"another process drives {folder.parent.name}/job {words}" in output
    assert command == "watch" or driver.returncode == 2
    assert effects(place) == ["began"]
    assert not (folder / "outcome.json").exists()
