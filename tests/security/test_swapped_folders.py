"""A folder of a run is swapped for a link to a folder outside while commands read: nothing of that is ever read.

Each test was seen to fail while records were opened by their path, following links above the file's own name.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfs.core.hashing import sha256_bytes
from agentfs.engine.means import FileJudge
from agentfs.engine.run_reader import RunReader
from agentfs.errors import AgentfsError
from agentfs.storage import safe_open
from agentfs.storage.files import exchange
from tests.builders import CATALOGUE
from tests.daemons import Watching, book
from tests.security.test_safe_open import exchange_for_ever
from tests.sweeps import size
from tests.workspaces import Place, wait_for

OUTSIDE = "outside-4711"
LOOKS = size(15, 200)  # of each race
READING = (("status", "job", "--json"), ("show", "job", "--json"), ("show", "job", "a"), ("log", "job"), ("verify",))


@pytest.fixture(params=["openat2", "step by step"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "step by step":
        monkeypatch.setattr(safe_open, "_opener", lambda: safe_open._step_by_step)
    elif safe_open._opener() is not safe_open._openat2:
        pytest.skip("this kernel has no openat2")
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.agentfs("init")
    return place


def twin(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of a folder, outside, in which every answer is another one."""
    copy = tmp_path / "twin"
    shutil.copytree(folder, copy)
    for path in [path for path in copy.rglob("*") if path.is_file()]:
        path.write_bytes(path.read_bytes().replace(b"inside-4711", OUTSIDE.encode()))
    return copy


@contextmanager
def swapping(folder: Path, outside: Path) -> Iterator[None]:
    """Exchange a folder with a link to another one, over and over, while the block runs."""
    link, stop = folder.parent / ".link", threading.Event()
    link.symlink_to(outside)
    thread = threading.Thread(target=exchange_for_ever, args=(folder, link, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if folder.is_symlink():
            exchange(folder, link)


def facts_of(run: Path) -> str:
    """Return all that is read of a run, as text; nothing where it does not read."""
    try:
        return repr(RunReader(run, FileJudge(CATALOGUE), patient=False).read())
    except (OSError, AgentfsError):
        return ""


@pytest.mark.parametrize("part", ["steps", "planning", "revisions", "the run", "the day"])
def test_what_is_read_is_never_from_outside(place: Place, tmp_path: Path, part: str, opener: str) -> None:
    place.agentfs("run", place.goal(book("echo inside-4711")))
    run = place.run_folder()
    folder = {"the run": run, "the day": run.parent}.get(part, run / part)
    outside = twin(folder, tmp_path)
    foreign = {sha256_bytes(path.read_bytes()) for path in outside.rglob("*.plan.*json")} | {OUTSIDE, "Traceback"}
    foreign -= {sha256_bytes(path.read_bytes()) for path in folder.rglob("*.json")}
    seen = []
    with swapping(folder, outside):
        for number in range(LOOKS):
            _, out, err = place.looks(*READING[number % len(READING)])
            seen += [line for line in (out + err + facts_of(run)).splitlines() if any(one in line for one in foreign)]
    assert seen == []


def test_a_reply_beyond_a_link_is_no_reply(place: Place, tmp_path: Path) -> None:
    """A daemon drives a run that waits; its `steps` is, now and then, a link to a folder in which it is approved."""
    with Watching(place) as daemon:
        daemon.drop("job.md", book("touch owned", lines="gate"))
        folder = daemon.folder("job")
        wait_for((folder / "steps" / "a.1.question.md").exists, "the gate")
        outside = twin(folder / "steps", tmp_path)
        (outside / "a.1.reply.md").write_text("approve\n")
        with swapping(folder / "steps", outside):
            for number in range(4):
                daemon.drop(f"good-{number}.md", book("echo good"))
                assert daemon.outcome(f"good-{number}")["answer"] == "good"
        assert not (folder / "files" / "owned").exists()
        (folder / "steps" / "a.1.reply.md").write_text("approve\n")
        assert daemon.outcome("job")["status"] == "done"


def test_runs_itself_may_be_a_persons_link(place: Place, tmp_path: Path) -> None:
    """People keep their runs on another disk: their own link is followed, and none below it."""
    place.runs.rename(tmp_path / "disk")
    place.runs.symlink_to(tmp_path / "disk")
    place.agentfs("run", place.goal(book("echo fine", lines="gate")), code=3)
    place.agentfs("approve", "job")
    place.agentfs("run", "--resume", "job")
    assert json.loads(place.agentfs("status", "job", "--json").stdout)["outcome"]["answer"] == "fine"
    assert "files and ledger agree" in place.agentfs("verify").stderr
