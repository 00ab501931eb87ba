"""The index in step with the branch: what `git status` shows a person after agentfs committed."""

import os
from pathlib import Path

import pytest

from agentfs.ledger import Ledger
from tests.ledgers import RUN, a_ledger, a_run, an_entry, git, put


def status(root: Path) -> list[str]:
    return git(root, "status", "--porcelain").splitlines()


def revised(ledger: Ledger, revision: int = 1, **more: bytes) -> None:
    """Write a run's files and commit them, without the index."""
    files = {**a_run(revision), **{name.replace("__", "."): content for name, content in more.items()}}
    put(ledger.root, files)
    ledger.commit(an_entry(files))


def listed(root: Path) -> list[str]:
    return git(root, "ls-files").splitlines()


def test_after_a_commit_nothing_shows_as_changed(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    assert status(ledger.root) != []
    assert ledger.sync_index(RUN) is True
    assert status(ledger.root) == []
    revised(ledger, 2)
    assert ledger.sync_index(RUN) is True
    assert status(ledger.root) == []
    assert listed(ledger.root) == sorted(f"{RUN}/{path}" for path in a_run(2))


def test_an_entry_that_left_the_tree_leaves_the_index(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger, outcome__json=b"{}")
    assert ledger.sync_index(RUN)
    (ledger.root / RUN / "outcome.json").unlink()
    revised(ledger, 2)
    assert ledger.sync_index(RUN)
    assert status(ledger.root) == []


def test_files_not_committed_yet_do_not_show(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    put(
        ledger.root,
        {**a_run(), "steps/list.1.json": b"{}", "files/out.txt": b"x", "STATUS.md": b"", ".plan.tmp": b""},
    )
    assert status(ledger.root) == []


def test_what_a_person_staged_stays_staged_and_is_not_swept_in(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    ledger.sync_index(RUN)
    put(ledger.root, {"notes.md": b"mine"})
    (ledger.root / "README.md").write_text("mine", encoding="utf-8")
    git(ledger.root, "add", "README.md", f"{RUN}/notes.md")
    revised(ledger, 2)
    assert ledger.sync_index(RUN)
    assert status(ledger.root) == [f"A  {RUN}/notes.md", "A  README.md"]
    assert git(ledger.root, "ls-tree", "-r", "--name-only", "main", "README.md", f"{RUN}/notes.md") == ""


@pytest.mark.parametrize("count", [3, 12])
def test_many_runs_are_brought_in_step_at_once(tmp_path: Path, count: int) -> None:
    ledger = a_ledger(tmp_path)
    runs = [f"2026-11-16/run-{number}" for number in range(count)]
    for run in runs:
        put(ledger.root, a_run(), run)
    ledger.commit_all([(an_entry(run=run, message=run), lambda _: True) for run in runs])
    (ledger.root / "README.md").write_text("mine", encoding="utf-8")
    git(ledger.root, "add", "README.md")
    assert ledger.sync_index(*runs)
    assert status(ledger.root) == ["A  README.md"]


def test_a_conflict_in_one_run_keeps_only_that_one_waiting(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    other = "2026-11-16/other"
    for run in (RUN, other):
        put(ledger.root, a_run(), run)
    ledger.commit_all([(an_entry(run=run, message=run), lambda _: True) for run in (RUN, other)])
    git(ledger.root, "update-index", "--index-info", given=f"100644 {'1' * 40} 1\t{RUN}/plan.json\n")
    assert ledger.sync_index(RUN, other) is False
    assert f"{other}/plan.json" in git(ledger.root, "ls-files")
    assert git(ledger.root, "ls-files", "--stage", f"{RUN}/").split() == ["100644", "1" * 40, "1", f"{RUN}/plan.json"]


def test_an_index_in_step_is_left_alone(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    ledger.sync_index(RUN)
    git(ledger.root, "status")
    before = (ledger.root / ".git" / "index").stat()
    assert ledger.sync_index(RUN) is True
    assert (ledger.root / ".git" / "index").stat() == before


def test_while_a_person_holds_the_index_lock_commits_go_on_and_the_index_follows(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    lock = ledger.root / ".git" / "index.lock"
    lock.write_text("", encoding="utf-8")
    revised(ledger)
    assert ledger.sync_index(RUN) is False
    assert lock.exists()
    lock.unlink()
    assert ledger.sync_index(RUN) is True
    assert status(ledger.root) == []


@pytest.mark.parametrize(
    "sign", ["rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"]
)
def test_while_a_person_is_in_the_middle_of_something_the_index_is_theirs(tmp_path: Path, sign: str) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    (ledger.root / ".git" / sign).mkdir()
    assert ledger.sync_index(RUN) is False
    assert not (ledger.root / ".git" / "index").exists()


def test_in_the_middle_of_a_real_rebase_commits_go_on_and_the_rebase_can_end(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    ledger.sync_index(RUN)
    git(ledger.root, "checkout", "-q", "-b", "mine")
    for text in ("one", "two"):
        (ledger.root / "README.md").write_text(text, encoding="utf-8")
        git(ledger.root, "add", "README.md")
        git(ledger.root, "commit", "-qm", text)
    git(ledger.root, "-c", "sequence.editor=sed -i s/pick/edit/", "rebase", "-q", "-i", "main")
    other = "2026-11-16/other"
    put(ledger.root, a_run(), other)
    sha = ledger.commit(an_entry(run=other, message="other: revision 1"))
    assert ledger.sync_index(other) is False
    git(ledger.root, "-c", "core.editor=true", "rebase", "--continue")
    git(ledger.root, "-c", "core.editor=true", "rebase", "--continue")
    assert status(ledger.root) == []
    assert git(ledger.root, "log", "--format=%s", "mine") == "two\none\ntidy-invoices: revision 1, the first plan"
    assert git(ledger.root, "rev-parse", "main") == sha


@pytest.mark.parametrize("away", [("checkout", "-q", "--detach"), ("checkout", "-q", "-b", "mine")])
def test_away_from_main_the_index_is_left_alone(tmp_path: Path, away: tuple[str, ...]) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    ledger.sync_index(RUN)
    git(ledger.root, *away)
    before = listed(ledger.root)
    revised(ledger, 2)
    assert ledger.sync_index(RUN) is False
    assert listed(ledger.root) == before


def test_an_index_a_person_changed_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    (ledger.root / "README.md").write_text("mine", encoding="utf-8")
    link = os.link

    def late(source: str, target: str) -> None:
        git(ledger.root, "add", "README.md")
        link(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", late)
        assert ledger.sync_index(RUN) is False
    assert listed(ledger.root) == ["README.md"]
    assert not (ledger.root / ".git" / "index.lock").exists()
    assert ledger.sync_index(RUN) is True
    assert status(ledger.root) == ["A  README.md"]


@pytest.mark.parametrize("setting", ["index.version=4", "core.splitIndex=true", "core.untrackedCache=true"])
def test_every_kind_of_index_is_kept_in_step(tmp_path: Path, setting: str) -> None:
    ledger = a_ledger(tmp_path)
    git(ledger.root, "config", *setting.split("="))
    revised(ledger)
    git(ledger.root, "reset", "-q")
    revised(ledger, 2)
    assert ledger.sync_index(RUN) is True
    assert status(ledger.root) == []


def test_a_broken_index_is_left_for_a_person(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    (ledger.root / ".git" / "index").write_bytes(b"damaged")
    assert ledger.sync_index(RUN) is False
    assert (ledger.root / ".git" / "index").read_bytes() == b"damaged"


def test_a_run_whose_process_was_killed_before_the_index_followed_is_brought_in_step_with_the_next(
    tmp_path: Path,
) -> None:
    other = "2026-11-16/other"
    revised(a_ledger(tmp_path))
    later = Ledger(tmp_path / "runs")
    assert later.behind() == {RUN}
    put(later.root, a_run(), run=other)
    later.commit(an_entry(a_run(), run=other))
    assert later.sync_index(other) is True
    assert status(later.root) == []
    assert later.behind() == frozenset()


def test_a_torn_note_of_what_the_index_lacks_is_passed_over(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    revised(ledger)
    note = ledger.root / ".git" / "agentfs" / "behind"
    note.write_text(f"{RUN}\n2026-11-1")
    assert ledger.behind() == {RUN}
    assert ledger.sync_index() is True
    assert status(ledger.root) == []
