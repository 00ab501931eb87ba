"""Commits of the ledger, looked at with git itself."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentfs.ledger import Ledger, LedgerBroken, LedgerBusy, LedgerCommit, blob_sha
from agentfs.ledger.git import BRANCH
from agentfs.ledger.repository import find_damage
from agentfs.storage.timing import TIMING
from tests.ledgers import AT, RUN, a_ledger, a_run, an_entry, assert_sound, git, put
from tests.mounts import mounted


def tracked(root: Path) -> list[str]:
    return git(root, "ls-tree", "-r", "--name-only", "main").splitlines()


def test_the_first_commit_is_a_root_commit_that_git_accepts(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    sha = ledger.commit(an_entry())
    assert git(ledger.root, "rev-parse", "main") == sha
    assert git(ledger.root, "log", "-1", "--format=%an|%ae|%cn|%ce|%aI|%s|%P") == (
        "agentfs planner|agentfs@localhost|agentfs|agentfs@localhost|2026-11-16T09:30:00+00:00"
        "|tidy-invoices: revision 1, the first plan|"
    )
    assert tracked(ledger.root) == sorted(f"{RUN}/{path}" for path in a_run())
    assert git(ledger.root, "show", f"main:{RUN}/goal.md") == "Tidy the invoices"
    assert_sound(ledger.root)


def test_each_commit_goes_on_top_and_holds_exactly_the_files_given(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    first = ledger.commit(an_entry({**a_run(), "outcome.json": b"{}"}))
    second = ledger.commit(an_entry(a_run(2)))
    assert git(ledger.root, "log", "--format=%H") == f"{second}\n{first}"
    assert tracked(ledger.root) == sorted(f"{RUN}/{path}" for path in a_run(2))
    assert git(ledger.root, "ls-tree", "-r", "--format=%(objectmode)", "main").splitlines() == ["100644"] * 7
    assert_sound(ledger.root)


def test_committing_what_is_there_already_changes_nothing(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    sha = ledger.commit(an_entry())
    assert ledger.commit(an_entry(message="another message")) is None
    assert git(ledger.root, "rev-parse", "main") == sha


def test_committed_names_the_blobs(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    assert ledger.committed(RUN) == {}
    ledger.commit(an_entry())
    assert ledger.committed(RUN) == {path: blob_sha(content) for path, content in a_run().items()}


def test_many_entries_become_one_commit_each_in_their_order(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    first = ledger.commit(an_entry())
    entries = [
        an_entry(),
        an_entry(a_run(2), message="revision 2"),
        an_entry(run="2026-11-16/other", message="other"),
        an_entry({**a_run(2), "outcome.json": b"{}"}, message="done"),
    ]
    same, second, other, last = ledger.commit_all([(entry, lambda _: True) for entry in entries])
    assert same is None
    assert git(ledger.root, "log", "--format=%H %s") == (
        f"{last} done\n{other} other\n{second} revision 2\n{first} tidy-invoices: revision 1, the first plan"
    )
    assert tracked(ledger.root) == sorted(
        [
            *(f"2026-11-16/other/{path}" for path in a_run()),
            *(f"{RUN}/{path}" for path in (*a_run(2), "outcome.json")),
        ]
    )
    assert ledger.commit_all([(entry, lambda _: True) for entry in entries[2:]]) == [None, None]
    assert_sound(ledger.root)


def test_other_runs_and_a_persons_files_stay(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    other = "2026-11-16/tidy"  # git sorts the folder `tidy` after the file `tidy-x`, and before `tidy0`
    ledger.commit(an_entry())
    ledger.commit(an_entry({"goal.txt": b"x"}, run=other))
    put(ledger.root, {"notes.md": b"mine", "deep/er.md": b"mine"})
    (ledger.root / "README.md").write_text("mine", encoding="utf-8")
    ledger.sync_index(RUN)
    ledger.sync_index(other)
    git(ledger.root, "add", "README.md", f"{RUN}/notes.md", f"{RUN}/deep/er.md")
    git(ledger.root, "commit", "-qm", "mine")
    ledger.commit(an_entry(a_run(2)))
    mine = ["README.md", f"{RUN}/deep/er.md", f"{RUN}/notes.md"]
    assert tracked(ledger.root) == sorted([*mine, f"{other}/goal.txt", *(f"{RUN}/{path}" for path in a_run(2))])
    assert_sound(ledger.root)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "steps/../x", "steps//x", "files/.git/config", "files/.GIT", "files/GIT~1", "files/a\\b",
     "files/a\nb", "files/gi7eba~1", "notes.md", "files/.gitmodules"],
)  # fmt: skip
def test_a_path_git_cannot_hold_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="is not a file of a run"):
        a_ledger(tmp_path).commit(an_entry({path: b""}))


@pytest.mark.parametrize("run", ["tidy", "2026-11-16/../x", "2026-11-16/x/y", ".git/hooks", "2026-11-16/x\n"])
def test_a_run_id_that_is_none_is_refused(tmp_path: Path, run: str) -> None:
    with pytest.raises(ValueError, match="is not a run id"):
        a_ledger(tmp_path).commit(an_entry(run=run))


def test_after_gc_the_history_goes_on(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    first = ledger.commit(an_entry())
    git(ledger.root, "gc", "-q", "--prune=now")
    assert not (ledger.root / ".git" / "refs" / "heads" / "main").exists()
    second = ledger.commit(an_entry(a_run(2)))
    assert git(ledger.root, "log", "--format=%H") == f"{second}\n{first}"
    git(ledger.root, "gc", "-q", "--prune=now")
    assert ledger.committed(RUN) == {path: blob_sha(content) for path, content in a_run(2).items()}
    assert [commit.sha for commit in ledger.history()] == [second, first]
    assert_sound(ledger.root)


def test_a_commit_goes_on_top_of_where_a_person_moved_the_branch(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    first = ledger.commit(an_entry())
    ledger.commit(an_entry(a_run(2)))
    git(ledger.root, "reset", "-q", "--hard", str(first))
    third = ledger.commit(an_entry(a_run(3)))
    assert git(ledger.root, "log", "--format=%H") == f"{third}\n{first}"
    assert_sound(ledger.root)


def test_a_branch_that_moves_while_we_commit_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = a_ledger(tmp_path)
    first = ledger.commit(an_entry())
    git(ledger.root, "reset", "-q", "--hard")
    link = os.link
    times = 2

    def late(source: Path, target: Path) -> None:
        nonlocal times
        if times:
            git(ledger.root, "commit", "-q", "--allow-empty", "-m", f"a person's {times}")
            times -= 1
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    last = ledger.commit(an_entry(a_run(2), message="ours"))
    assert git(ledger.root, "log", "--format=%s") == (
        "ours\na person's 1\na person's 2\ntidy-invoices: revision 1, the first plan"
    )
    assert [commit.sha for commit in ledger.history()][:: len(ledger.history()) - 1] == [last, first]
    times = 99
    with pytest.raises(LedgerBusy, match="main keeps moving"):
        ledger.commit(an_entry(a_run(3)))
    assert not (ledger.root / ".git" / "refs" / "heads" / "main.lock").exists()
    assert_sound(ledger.root)


def test_what_a_persons_commit_dropped_comes_back_with_the_next(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger.commit(an_entry())
    git(ledger.root, "commit", "-q", "--allow-empty", "-m", "made before the index was in step")
    assert ledger.committed(RUN) == {}
    assert ledger.commit(an_entry()) is not None
    assert set(ledger.committed(RUN)) == set(a_run())


@pytest.mark.parametrize("away", [("checkout", "-q", "--detach"), ("checkout", "-q", "-b", "mine")])
def test_commits_go_to_main_wherever_head_is(tmp_path: Path, away: tuple[str, ...]) -> None:
    ledger = a_ledger(tmp_path)
    first = ledger.commit(an_entry())
    git(ledger.root, *away)
    before = git(ledger.root, "rev-parse", "HEAD")
    second = ledger.commit(an_entry(a_run(2)))
    assert git(ledger.root, "log", "--format=%H", "main") == f"{second}\n{first}"
    assert git(ledger.root, "rev-parse", "HEAD") == before


def test_a_persons_lock_on_main_is_waited_for_and_never_removed(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    lock = ledger.root / ".git" / "refs" / "heads" / "main.lock"
    lock.write_text("", encoding="utf-8")
    with pytest.raises(LedgerBusy, match=r"main\.lock is held by another program"):
        ledger.commit(an_entry())
    assert lock.exists()
    lock.unlink()
    assert ledger.commit(an_entry()) is not None
    assert ledger.sync_index(RUN)
    assert list((ledger.root / ".git" / "agentfs").iterdir()) == [ledger.root / ".git" / "agentfs" / "turn"]


def test_while_another_process_has_its_turn_the_ledger_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentfs.ledger.branch.TIMING", replace(TIMING, ledger_lock=0.0))
    ledger = a_ledger(tmp_path)
    with Ledger(ledger.root)._claims.turn(), pytest.raises(LedgerBusy, match="another agentfs"):
        ledger.commit(an_entry())


COMMITTER = """
import sys
from pathlib import Path
from tests.ledgers import an_entry
from agentfs.ledger import Ledger
root, who = Path(sys.argv[1]), sys.argv[2]
for number in range(6):
    assert Ledger(root).commit(an_entry({"goal.md": b"%d" % number}, run=f"2026-11-16/run-{who}-{number}", message=f"{who} {number}"))
"""


def test_thirty_six_commits_of_six_processes_lose_none(tmp_path: Path) -> None:
    root = a_ledger(tmp_path).root
    here = Path(__file__).parents[2]
    started = [subprocess.Popen([sys.executable, "-c", COMMITTER, root, str(n)], cwd=here) for n in range(6)]
    assert [each.wait(60) for each in started] == [0] * 6
    assert sorted(git(root, "log", "--format=%s").splitlines()) == [f"{w} {n}" for w in range(6) for n in range(6)]
    assert len(tracked(root)) == 36
    assert_sound(root)


def test_history_tells_commits_newest_first_and_by_run(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    assert ledger.history() == []
    first = ledger.commit(an_entry(message="a: revision 1\n\nwhy\n\nAgentfs-Run: 2026-11-16/a", run="2026-11-16/a"))
    other = ledger.commit(an_entry(message="b: revision 1\n\nAgentfs-Run: 2026-11-16/b", run="2026-11-16/b"))
    second = ledger.commit(
        an_entry(a_run(2), message="a: revision 2\n\nAgentfs-Run: 2026-11-16/a", run="2026-11-16/a")
    )
    assert [commit.sha for commit in ledger.history()] == [second, other, first]
    assert [commit.sha for commit in ledger.history("2026-11-16/a")] == [second, first]
    last = ledger.history("2026-11-16/a")[-1]
    seconds = int(AT.timestamp())
    assert last == LedgerCommit(
        str(first),
        [],
        author=f"agentfs planner <agentfs@localhost> {seconds} +0000",
        committer=f"agentfs <agentfs@localhost> {seconds} +0000",
        message="a: revision 1\n\nwhy\n\nAgentfs-Run: 2026-11-16/a\n",
        trailers={"Agentfs-Run": ["2026-11-16/a"]},
        others=(),
        changes=last.changes,
    )
    assert (last.subject, last.by, last.at) == ("a: revision 1", "agentfs planner", AT)
    assert sorted((one.how, one.path) for one in last.changes) == [
        ("A", f"2026-11-16/a/{path}") for path in sorted(a_run())
    ]


def test_history_reads_a_persons_merge(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger.commit(an_entry())
    git(ledger.root, "reset", "-q", "--hard")
    git(ledger.root, "checkout", "-q", "-b", "side")
    git(ledger.root, "commit", "-q", "--allow-empty", "-m", "side")
    git(ledger.root, "checkout", "-q", "main")
    git(ledger.root, "merge", "-q", "--no-ff", "-m", "merged", "side")
    subjects = [commit.subject for commit in ledger.history()]
    assert subjects[0] == "merged"
    assert sorted(subjects) == ["merged", "side", "tidy-invoices: revision 1, the first plan"]


def test_a_branch_file_with_no_commit_in_it_is_reported_with_its_fix(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    (ledger.root / ".git" / "refs" / "heads" / "main").write_text("\n", encoding="utf-8")
    assert "does not name a commit" in (ledger.trouble() or "")
    with pytest.raises(LedgerBroken, match="put the sha of the last good one in it"):
        ledger.commit(an_entry())


def test_a_missing_commit_is_reported(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    (ledger.root / ".git" / "refs" / "heads" / "main").write_text("1" * 40 + "\n", encoding="utf-8")
    with pytest.raises(LedgerBroken, match="git cannot read the ledger"):
        ledger.commit(an_entry())


def test_many_objects_become_one_pack(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    many = {f"steps/s{number}.1.json": b"%d" % number for number in range(70)}
    ledger.commit(an_entry({**a_run(), **many}))
    pack = ledger.root / ".git" / "objects" / "pack"
    assert sorted(path.suffix for path in pack.iterdir()) == [".idx", ".pack"]
    assert set(ledger.committed(RUN)) == {*a_run(), *many}
    assert Ledger(ledger.root).commit(an_entry({**a_run(2), **many})) is not None
    assert_sound(ledger.root)


def test_without_git_a_commit_says_so_and_follows_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path / "nothing"))
        ledger = a_ledger(tmp_path)
        assert ledger.trouble() is None
        with pytest.raises(LedgerBroken, match="git is not installed"):
            ledger.commit(an_entry())
        assert ledger.sync_index(RUN) is True, "there is nothing to bring in step"
    assert ledger.commit(an_entry()) is not None
    assert_sound(ledger.root)


def test_a_full_disk_is_reported_and_leaves_the_ledger_sound(tmp_path: Path) -> None:
    """Git meets the end of the disk in the middle of its work."""
    with mounted("tmpfs", "size=512k", tmp_path):
        ledger = a_ledger(tmp_path)
        ledger.commit(an_entry())
        with pytest.raises(LedgerBroken, match=r"git cannot store commits: .*space"):
            ledger.commit(an_entry({**a_run(2), "steps/a.1.json": os.urandom(600_000)}))
        assert_sound(ledger.root)
        assert ledger.commit(an_entry(a_run(2))) is not None
        assert_sound(ledger.root)


def test_a_commit_made_while_git_looks_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The git of this test finds damage, and the branch moves meanwhile: once, not at all, or every time."""
    ledger = a_ledger(tmp_path)
    ledger.commit(an_entry())
    branch, looks = ledger.root / ".git" / BRANCH, tmp_path / "looks"
    found = f'echo "missing blob 1"; echo x >> {looks}; '
    committed = f"cp {branch} {branch}.lock; mv {branch}.lock {branch}; "
    for how, lines, times in (
        (f"test -e {looks} && exit 0; {found}{committed}", [], 1),
        (found, ["missing blob 1"], 1),
        (found + committed, None, 5),
    ):
        _fake_git(tmp_path / "bin", how + "exit 2")
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        if lines is None:
            with pytest.raises(LedgerBusy):
                find_damage(ledger.root)
        else:
            assert find_damage(ledger.root) == lines
        assert looks.read_text().count("x") == times
        looks.unlink()


def _fake_git(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
