"""Names made durable for all who wait at once: no one returns before a sync that began after its own file was there."""

import threading
import time
from pathlib import Path

import pytest

from agentfs.storage import files as steps_folder
from agentfs.storage.files import SharedSync, StepsFolder
from tests.workspaces import wait_for


def test_many_who_wait_share_a_sync_that_began_after_each_had_put_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: set[int] = set()
    durable: set[int] = set()
    syncs, early = [], []

    def sync_folder(_folder: str) -> None:
        there = set(put)
        time.sleep(0.002)
        durable.update(there)
        syncs.append(len(there))

    monkeypatch.setattr(steps_folder, "sync_folder", sync_folder)
    shared = SharedSync(str(tmp_path))

    def work(first: int) -> None:
        for number in range(first, first + 50):
            put.add(number)
            shared.wait()
            if number not in durable:
                early.append(number)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert early == []
    assert len(durable) == 400
    assert len(syncs) < 400  # some were shared; how many is the scheduler's business


def test_a_sync_that_is_under_way_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if `upto` is read once the sync is over: who came meanwhile would return too early."""
    put: set[str] = set()
    durable: set[str] = set()
    seen: dict[str, bool] = {}
    began, go_on = threading.Event(), threading.Event()

    def sync_folder(_folder: str) -> None:
        there = set(put)
        began.set()
        assert go_on.wait(60)
        durable.update(there)

    monkeypatch.setattr(steps_folder, "sync_folder", sync_folder)
    shared = SharedSync(str(tmp_path))

    def work(name: str) -> None:
        put.add(name)
        shared.wait()
        seen[name] = name in durable

    first, second = (threading.Thread(target=work, args=(name,)) for name in ("first", "second"))
    first.start()
    assert began.wait(60)
    second.start()
    wait_for(lambda: shared._latest == 2, "the second to wait")
    go_on.set()
    first.join(60)
    second.join(60)
    assert seen == {"first": True, "second": True}


def test_who_could_not_sync_says_so_and_the_next_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[OSError | None] = [OSError("the disk is gone"), None]

    def sync_folder(_folder: str) -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    monkeypatch.setattr(steps_folder, "sync_folder", sync_folder)
    shared = SharedSync(str(tmp_path))
    with pytest.raises(OSError, match="the disk is gone"):
        shared.wait()
    shared.wait()
    assert answers == []


def test_what_is_put_is_whole_and_there_once(tmp_path: Path) -> None:
    for name in ("steps", "revisions"):
        (tmp_path / name).mkdir()
    steps = StepsFolder.of(tmp_path)
    steps.put("a.1.result.json", b"{}", durable=True)
    assert (tmp_path / "steps" / "a.1.result.json").read_bytes() == b"{}"
    with pytest.raises(FileExistsError):
        steps.put("a.1.result.json", b"[]", durable=True)
    assert [path.name for path in tmp_path.rglob("*.json")] == ["a.1.result.json"]
