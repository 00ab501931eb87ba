"""What is pending of many runs is committed together, and one of them that cannot be keeps no other waiting."""

import os
import shutil
from pathlib import Path

import pytest

from agentfs.ledger import Ledger
from agentfs.ledger.committer import Committer
from tests.ledgers import assert_sound, git
from tests.workspaces import Place, wait_for

RUNBOOK = "# Job\n\n## Steps\n\n### a\n```sh\necho hi\n```\n"


@pytest.fixture
def ended(tmp_path: Path) -> list[Path]:
    """Three runs that have ended, and a ledger that knows nothing of them."""
    place = Place(tmp_path)
    for name in "xyz":
        place.agentfs("run", place.goal(RUNBOOK, f"{name}.md"))
    shutil.rmtree(place.runs / ".git")
    return [place.run_folder(name) for name in "xyz"]


def kept(folders: list[Path], seconds: float = 20.0) -> tuple[Ledger, list[str], bool]:
    """Let a committer see to these runs, for so long at the most; return the ledger, the messages, and whether nothing is pending any more."""
    ledger, messages = Ledger.create(folders[0].parents[1]), list[str]()
    keeper = Committer(ledger, ("Ada", "ada@example.org"), messages.append)
    assert keeper.is_idle()
    for folder in folders:
        keeper.note(folder)
    assert not keeper.is_idle()
    settled = keeper.flush(seconds)
    keeper.close()
    return ledger, messages, settled


def test_each_revision_and_outcome_has_its_commit_and_the_index_is_in_step(ended: list[Path]) -> None:
    ledger, messages, settled = kept(ended)
    assert (messages, settled) == ([], True)
    assert git(ledger.root, "log", "--reverse", "--format=%s").splitlines() == [
        line for name in "xyz" for line in (f"{name}: revision 1, the first plan", f"{name}: done, 1 of 1 steps")
    ]
    assert git(ledger.root, "status", "--porcelain") == ""
    assert_sound(ledger.root)


def test_while_a_person_has_another_branch_everything_is_committed_and_its_index_not_waited_for(
    ended: list[Path],
) -> None:
    ledger, _, _ = kept(ended[:1])
    git(ledger.root, "checkout", "-q", "-b", "look")
    ledger, messages, settled = kept(ended[1:], seconds=3.0)
    assert (messages, settled) == ([], True)
    assert {"y: done, 1 of 1 steps", "z: done, 1 of 1 steps"} <= set(
        git(ledger.root, "log", "--format=%s", "main").splitlines()
    )


def test_one_whose_files_do_not_read_keeps_no_other_waiting(ended: list[Path]) -> None:
    (ended[1] / "outcome.json").write_text("{}", encoding="utf-8")
    ledger, messages, settled = kept(ended)
    assert settled
    assert [line.partition(":")[0] for line in messages] == [f"the ledger passes over {ended[1].parent.name}/y"]
    assert {"x: done, 1 of 1 steps", "z: done, 1 of 1 steps"} <= set(
        git(ledger.root, "log", "--format=%s").splitlines()
    )


def test_one_whose_place_in_the_ledger_is_damaged_keeps_no_other_waiting(ended: list[Path]) -> None:
    ledger, _, _ = kept(ended[:1])
    tree = git(ledger.root, "rev-parse", f"main:{ended[0].parent.name}/x")
    path = ledger.root / ".git" / "objects" / tree[:2] / tree[2:]
    path.chmod(0o644)
    path.write_bytes(b"torn")
    _, messages, settled = kept(ended[1:] + ended[:1], seconds=3.0)
    assert not settled
    assert [line for line in messages if "cannot be written" in line]
    subjects = git(ledger.root, "log", "--format=%s").splitlines()
    assert {"y: done, 1 of 1 steps", "z: done, 1 of 1 steps"} <= set(subjects)


def test_runs_that_ended_long_ago_are_looked_through_for_what_they_owe(ended: list[Path]) -> None:
    """A daemon that was killed with much still to commit: what was written to the ledger last tells nothing."""
    ledger, _, _ = kept(ended[:1])
    for folder in ended:
        os.utime(folder / "outcome.json", (0, 0))
    (ended[0] / "outcome.json").write_bytes((ended[0] / "outcome.json").read_bytes() + b"\n")  # it ended once more
    messages: list[str] = []
    keeper = Committer(ledger, ("Ada", "ada@example.org"), messages.append)
    keeper.look_through(ended)
    assert not keeper.is_idle()
    wait_for(keeper.is_idle, "all of them to be committed")
    keeper.look_through(ended)
    wait_for(keeper.is_idle, "a second look")
    keeper.close()
    subjects = git(ledger.root, "log", "--reverse", "--format=%s").splitlines()
    assert (messages, sorted(subjects)) == (
        [],
        sorted(
            [
                "x: done, 1 of 1 steps",
                *(f"{n}: {w}" for n in "xyz" for w in ("revision 1, the first plan", "done, 1 of 1 steps")),
            ]
        ),
    )
    assert_sound(ledger.root)
