"""Locks of runs and of goals/: one holder at a time, whatever becomes of the files they are taken on."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentfs.doctor.workspace_check import _find_locks
from agentfs.errors import UserError
from agentfs.ledger.branch import Claims
from agentfs.ledger.git import BRANCH
from agentfs.storage.locks import (
    HeldFolder,
    Lock,
    held_inodes,
    is_driven,
    lock_file,
    locked,
    own_folder,
    who_holds,
)

HOLD = """
import sys, time
from pathlib import Path
from agentfs.storage.locks import Lock
lock = Lock(Path(sys.argv[1]))
print(lock.take(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs/2026-11-16/job"
    folder.mkdir(parents=True)
    return folder


def test_a_lock_is_held_by_one_and_freed_by_death(run: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert lock_file(run).read_text() == f"{holder.pid} 2026-11-16/job\n"
        with locked(run) as mine:
            assert mine is False
        holder.kill()
        holder.wait()
    with locked(run) as mine:
        assert mine is True
    assert os.listdir(lock_file(run).parent) == [], "nothing is left of a lock that was let go of"


def test_a_lock_follows_its_folder(run: Path) -> None:
    with locked(run) as mine:
        assert mine
        moved = run.rename(run.with_name("other"))
        run.mkdir()
        with locked(moved) as second:
            assert not second
        with locked(run) as second:
            assert second


def test_a_folder_locked_by_a_step_is_free(run: Path) -> None:
    import fcntl

    descriptor = os.open(run, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with locked(run) as mine:
        assert mine
    os.close(descriptor)


def test_a_lock_that_many_take_in_turn_is_held_by_one(run: Path) -> None:
    """Its file comes and goes with every holder, and still no two of them hold the lock at once."""
    inside, most, stop, wrong = 0, 0, threading.Event(), []
    guard = threading.Lock()

    def take_turns() -> None:
        nonlocal inside, most
        lock = Lock(run)
        while not stop.is_set():
            if not lock.take():
                continue
            with guard:
                inside += lock.is_held()
                most = max(most, inside)
            with guard:
                inside -= lock.is_held()
                if inside < 0:
                    wrong.append(inside)
            lock.release()

    threads = [threading.Thread(target=take_turns) for _ in range(4)]
    for thread in threads:
        thread.start()
    stop.wait(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert (most, wrong) == (1, [])


def test_a_holder_knows_that_its_lock_was_deleted(run: Path) -> None:
    first, second = Lock(run), Lock(run)
    assert first.take()
    shutil.rmtree(own_folder(run.parent.parent))
    assert not first.is_held()
    assert second.take()
    first.release()
    assert second.is_held(), "a lock that is lost removes nothing of another's"
    second.release()


def test_where_the_ledger_is_no_repository_of_its_own_locks_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/.git").write_text("gitdir: elsewhere\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/HEAD").touch()
    names = {name: own_folder(tmp_path / name).relative_to(tmp_path / name) for name in ("new", "linked", "bare")}
    assert {name: str(path) for name, path in names.items()} == {
        "new": ".git/agentfs-own",
        "linked": ".agentfs-own",
        "bare": ".agentfs-own",
    }


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


def test_a_long_list_of_the_kernels_is_read_whole(run: Path) -> None:
    folders = [run.parent / f"job-{number}" for number in range(300)]  # some pages of locks
    for folder in folders:
        folder.mkdir()
    locks = [Lock(folder) for folder in folders]
    try:
        assert all(lock.take() for lock in locks)
        held = held_inodes()
        assert [folder.name for folder in folders if not is_driven(folder, held)] == []
    finally:
        for lock in locks:
            lock.release()
    assert not any(map(is_driven, folders))


def test_a_lock_of_gits_that_comes_and_goes_is_no_finding(tmp_path: Path) -> None:
    claims, over = Claims(tmp_path), threading.Event()
    (tmp_path / BRANCH).parent.mkdir(parents=True)
    claims.folder.mkdir()

    def commit() -> None:
        while not over.is_set():
            claim = claims.path()
            claim.touch()
            with claims.locked(claim, tmp_path / f"{BRANCH}.lock"):
                pass
            claim.unlink()

    committing = threading.Thread(target=commit)
    committing.start()
    try:
        found = [words for _ in range(500) for words in _find_locks(claims)]
    finally:
        over.set()
        committing.join()
    assert found == []
    (tmp_path / "index.lock").touch()
    assert [one.grade for one in _find_locks(claims)] == ["remark"]
