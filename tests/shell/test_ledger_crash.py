"""A commit cut off at any moment: git finds nothing wrong, and the next one works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentfs.ledger import Ledger, branch
from agentfs.ledger.branch import start_time
from tests.cuts import Cut, Killed, cut_at
from tests.ledgers import RUN, a_ledger, a_run, an_entry, assert_sound, git, put

SMALL = {"goal.md": b"x", "plan.json": b"{}"}


@pytest.mark.parametrize("packed", [False, True])
def test_a_commit_cut_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    monkeypatch.setattr(branch, "STORING", ("core.fsync=all", f"fastimport.unpackLimit={0 if packed else 99}"))
    begins = a_ledger(tmp_path)
    begins.commit(an_entry({"goal.md": b"x"}))
    for allowed in range(200):
        ledger = Ledger(shutil.copytree(begins.root, tmp_path / str(allowed) / "runs"))
        cut = cut_at(allowed, lambda ledger=ledger: ledger.commit(an_entry(SMALL)))  # type: ignore[misc]
        assert_sound(ledger.root)
        again = Ledger(ledger.root)
        again.commit(an_entry(SMALL))
        assert set(again.committed(RUN)) == set(SMALL)
        assert len(again.history()) == 2
        assert_sound(ledger.root)
        assert not (ledger.root / ".git" / "refs" / "heads" / "main.lock").exists()
        assert again.sync_index()
        assert git(ledger.root, "diff", "--cached", "--name-only", "HEAD") == ""
        assert [path.name for path in (ledger.root / ".git" / "agentfs").iterdir()] == ["turn"]
        if not cut:
            break
    assert 10 < allowed < 199


def test_the_index_cut_at_every_step(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    for allowed in range(50):
        put(ledger.root, a_run(allowed + 1))
        ledger.commit(an_entry(a_run(allowed + 1)))
        cut = cut_at(allowed, lambda: ledger.sync_index(RUN))
        assert Ledger(ledger.root).sync_index(RUN) is True
        assert git(ledger.root, "status", "--porcelain") == ""
        assert not (ledger.root / ".git" / "index.lock").exists()
        if not cut:
            break
    assert 3 < allowed < 49


def test_a_repository_cut_while_it_was_made_is_completed(tmp_path: Path) -> None:
    for allowed in range(50):
        root = tmp_path / str(allowed) / "runs"
        with pytest.MonkeyPatch.context() as patched:
            Cut(patched, allowed)
            try:
                Ledger.create(root)
            except Killed:
                cut = True
            else:
                cut = False
        assert (Ledger(root).trouble() is None) is not cut or (root / ".git" / "HEAD").exists()
        assert Ledger.create(root).commit(an_entry()) is not None
        assert_sound(root)
        if not cut:
            break
    assert 5 < allowed < 49


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.cuts import Cut, Killed, cut_at
from tests.ledgers import an_entry
from agentfs.ledger import Ledger
rename = os.rename
def fatal(source, target):
    if str(source).endswith("main.lock"):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
os.rename = fatal
Ledger(Path(sys.argv[1])).commit(an_entry())
"""


def test_the_lock_of_a_killed_process_is_ours_to_remove(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    done = subprocess.run([sys.executable, "-c", KILLED, ledger.root], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -9
    assert (ledger.root / ".git" / "refs" / "heads" / "main.lock").exists()
    assert_sound(ledger.root)
    assert ledger.commit(an_entry()) is not None
    assert_sound(ledger.root)


def test_the_claim_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    parent = os.getppid()
    claim = ledger.root / ".git" / "agentfs" / f"{parent}.{start_time(parent)}.1"
    stale = ledger.root / ".git" / "agentfs" / f"{parent}.1.1"
    for path in (claim, stale):
        path.write_text("", encoding="utf-8")
    ledger.commit(an_entry())
    assert claim.exists()
    assert not stale.exists()
