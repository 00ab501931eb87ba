"""Forgetting cut off at every change of the disk: the run is whole, or forgotten, and the next command finishes."""

import itertools
import shutil
from pathlib import Path

from agentfs.ledger import Ledger
from agentfs.ledger.forget import Forgetting
from tests.cuts import cut_at
from tests.ledgers import RUN, a_ledger, a_run, an_entry, assert_sound, git, put

PERSON = ("Ada", "ada@example.org")
OTHER = "2026-11-16/other"
FILES = {**a_run(), "outcome.json": b'{"status": "done"}\n'}
BESIDE = {"files/out.txt": b"x", "steps/a.1.log.jsonl": b"{}\n", "files/deep/er.txt": b"y"}


def a_workspace(tmp_path: Path) -> Path:
    """A ledger with two runs that have ended, one of which is to be forgotten."""
    ledger = a_ledger(tmp_path)
    for run in (RUN, OTHER):
        put(ledger.root, {**FILES, **BESIDE}, run)
        ledger.commit(an_entry(FILES, run=run, message=f"{run}\n\nAgentfs-Run: {run}\n"))
        ledger.sync_index(run)
    return ledger.root


def forget(runs: Path) -> None:
    Forgetting(runs, Ledger(runs), PERSON).forget([runs / RUN])


def on_disk(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_cut_leaves_a_run_whole_or_forgotten(tmp_path: Path) -> None:
    base = a_workspace(tmp_path / "base")
    ends = set()
    for allowed in itertools.count():
        runs = tmp_path / str(allowed) / "runs"
        shutil.copytree(base, runs)
        cut = cut_at(allowed, lambda runs=runs: forget(runs))  # type: ignore[misc]
        whole = (runs / RUN).exists()
        assert not whole or on_disk(runs / RUN) == {**FILES, **BESIDE}
        Forgetting(runs, Ledger(runs), PERSON).finish()
        assert (runs / RUN).exists() == whole
        assert list((runs / ".forgotten").glob("*/*")) == []
        assert git(runs, "status", "--porcelain") == ""
        assert git(runs, "log", "--format=%an %s", "--", RUN).splitlines()[:-1] == (
            [] if whole else ["Ada tidy-invoices: forgotten"]
        )
        assert on_disk(runs / OTHER) == {**FILES, **BESIDE}
        assert_sound(runs)
        ends.add(whole)
        shutil.rmtree(runs)
        if not cut:
            break
    assert ends == {True, False}
    assert allowed > 20
