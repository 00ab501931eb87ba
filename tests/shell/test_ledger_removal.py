"""Runs taken out of the tree and the index: nothing else moves, and the history has it all."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentfs.ledger import Ledger, LedgerBusy
from tests.ledgers import RUN, a_ledger, a_run, an_entry, assert_sound, git, put

AT = datetime(2026, 11, 17, tzinfo=UTC)
ADA = ("Ada", "ada@example.org")
RUNS = [RUN, "2026-11-16/other", "2026-11-15/tidy-invoices"]


def filled(tmp_path: Path) -> Ledger:
    ledger = a_ledger(tmp_path)
    for run in RUNS:
        put(ledger.root, a_run(), run)
        ledger.commit(an_entry(run=run, message=f"{run}\n\nAgentfs-Run: {run}\n"))
        ledger.sync_index(run)
    return ledger


def remove(ledger: Ledger, *runs: str) -> str | None:
    return ledger.remove(runs, f"{len(runs)} gone", ADA, AT)


def tree(root: Path) -> set[str]:
    paths = git(root, "ls-tree", "-r", "--name-only", "main").splitlines()
    return {"/".join(path.split("/")[:2]) for path in paths}


@pytest.mark.parametrize("gone", [RUNS[:1], RUNS[:2], RUNS[2:], RUNS])
def test_runs_leave_the_tree_in_one_commit(tmp_path: Path, gone: list[str]) -> None:
    ledger = filled(tmp_path)
    assert remove(ledger, *gone) == git(ledger.root, "rev-parse", "main")
    assert tree(ledger.root) == set(RUNS) - set(gone)
    assert git(ledger.root, "log", "-1", "--format=%an %cn %s") == f"Ada agentfs {len(gone)} gone"
    assert [ledger.committed(run) == {} for run in RUNS] == [run in gone for run in RUNS]
    assert ledger.committed_of(RUNS) == {run: ledger.committed(run) for run in RUNS}
    assert_sound(ledger.root)


def test_what_is_not_there_makes_no_commit(tmp_path: Path) -> None:
    assert remove(a_ledger(tmp_path / "empty"), RUN) is None
    ledger = filled(tmp_path)
    before = git(ledger.root, "rev-parse", "main")
    assert remove(ledger, "2026-11-16/never", "2026-01-01/tidy-invoices") is None
    assert git(ledger.root, "rev-parse", "main") == before


def test_the_index_follows_and_what_a_person_staged_stays(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    (ledger.root / "README.md").write_text("mine", encoding="utf-8")
    put(ledger.root, {"notes.md": b"staged in a run that goes"})
    git(ledger.root, "add", "README.md", f"{RUN}/notes.md")
    git(ledger.root, "rm", "-rq", "--cached", "--", RUNS[1])
    put(ledger.root, {}, RUN)
    remove(ledger, RUN)
    for path in sorted((ledger.root / RUN).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert ledger.sync_removed([RUN]) is True
    deleted = [line for line in git(ledger.root, "status", "--porcelain").splitlines() if not line.startswith("D ")]
    assert deleted == ["A  README.md"]
    assert not git(ledger.root, "ls-files", RUN)


def test_on_another_branch_there_is_nothing_to_bring_in_step(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    git(ledger.root, "checkout", "-q", "-b", "mine")
    before = git(ledger.root, "ls-files")
    remove(ledger, RUN)
    assert ledger.sync_removed([RUN]) is True
    assert git(ledger.root, "ls-files") == before


def test_a_lock_of_a_persons_is_left_alone(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    lock = ledger.root / ".git" / "refs" / "heads" / "main.lock"
    lock.touch()
    with pytest.raises(LedgerBusy):
        remove(ledger, RUN)
    lock.rename(ledger.root / ".git" / "index.lock")
    remove(ledger, RUN)
    assert ledger.sync_removed([RUN]) is False
    assert (ledger.root / ".git" / "index.lock").exists()


def test_what_was_forgotten_meanwhile_is_not_committed_again(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    remove(ledger, RUN)
    assert ledger.commit(an_entry(a_run(2)), still=lambda _: False) is None
    assert ledger.committed(RUN) == {}


def test_a_name_used_again_has_a_history_of_its_own(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    remove(ledger, RUN)
    sha = ledger.commit(an_entry(message=f"again\n\nAgentfs-Run: {RUN}\n"))
    assert [commit.sha for commit in ledger.history(RUN)] == [sha]
