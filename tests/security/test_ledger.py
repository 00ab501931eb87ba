"""Nothing planted in the ledger's repository, or in words that go into a commit, runs or passes for something else."""

import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentfs.ledger import Entry
from agentfs.ledger.maintenance import Maintenance
from tests.ledgers import RUN, a_ledger, a_run, an_entry, assert_sound, git, put

HOOKS = (
    "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change", "reference-transaction",
    "post-checkout", "pre-auto-gc", "fsmonitor-watchman",
)  # fmt: skip


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program that leaves a trace when it runs."""
    path = tmp_path / "trap"
    path.write_text(f'#!/bin/sh\necho "$0" >> {tmp_path}/sprung\ncat\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def test_no_hook_filter_monitor_or_signer_ever_runs(
    tmp_path: Path, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = a_ledger(tmp_path)
    hooks = ledger.root / ".git" / "hooks"
    hooks.mkdir()
    for name in HOOKS:
        (hooks / name).symlink_to(trap)
    for key, value in {
        "core.hooksPath": str(hooks),
        "core.fsmonitor": str(trap),
        "filter.evil.clean": str(trap),
        "filter.evil.smudge": str(trap),
        "filter.evil.process": str(trap),
        "filter.evil.required": "true",
        "gpg.program": str(trap),
        "commit.gpgSign": "true",
        "core.editor": str(trap),
        "core.pager": str(trap),
        "core.sshCommand": str(trap),
        "core.alternateRefsCommand": str(trap),
        "credential.helper": str(trap),
        "diff.external": str(trap),
        "diff.evil.command": str(trap),
        "diff.evil.textconv": str(trap),
        "diff.agentfs-plan.command": str(trap),
        "diff.agentfs-plan.textconv": str(trap),
        "alias.update-index": f"!{trap}",
        "alias.ls-files": f"!{trap}",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{trap}",
        "remote.origin.promisor": "true",
    }.items():
        git(ledger.root, "config", key, value)
    (ledger.root / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n", encoding="utf-8")
    (ledger.root / ".gitattributes").write_text("* filter=evil\n", encoding="utf-8")
    for name in ("GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_ASKPASS"):
        monkeypatch.setenv(name, str(trap))
    for revision in (1, 2):
        put(ledger.root, a_run(revision))
        assert ledger.commit(an_entry(a_run(revision)))
        assert ledger.sync_index(RUN) is True
    assert ledger.history()
    git(ledger.root, "config", "gc.autoPackLimit", "1")  # so that everything is packed again, and pruned
    for _ in range(2):
        ledger.commit(an_entry(files={**a_run(), "goal.md": os.urandom(8)}))
        git(ledger.root, "-c", "core.hooksPath=/dev/null", "repack", "-dq")
        (tmp_path / "sprung").unlink(missing_ok=True)  # that was ours, with all those settings
    done = Maintenance(ledger.root).do(threading.Event())
    assert (done is not None and done.trouble) is None
    assert len(list((ledger.root / ".git" / "objects" / "pack").glob("*.pack"))) == 1
    assert len(ledger.history(RUN)) == 4
    assert not (tmp_path / "sprung").exists()
    git(ledger.root, "-c", "core.fsmonitor=false", "add", ".gitattributes", check=False)
    assert (tmp_path / "sprung").exists(), "the trap itself works"


def test_a_program_that_git_would_ask_what_to_keep_is_not_asked(tmp_path: Path, trap: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger.commit(an_entry())
    (tmp_path / "more").write_text(f"[gc]\n\trecentObjectsHook = {trap}\n", encoding="utf-8")
    git(ledger.root, "config", "include.path", str(tmp_path / "more"))
    done = Maintenance(ledger.root).do(threading.Event())
    assert done is not None
    assert (done.packed > 0, done.trouble) == (True, None)
    assert not (tmp_path / "sprung").exists()


def test_the_environment_cannot_point_git_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = a_ledger(tmp_path)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_TRACE", "GIT_TRACE2"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    put(ledger.root, a_run())
    ledger.commit(an_entry())
    assert ledger.sync_index(RUN) is True
    assert not (tmp_path / "elsewhere").exists()
    assert git(ledger.root, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("name", "email"),
    [
        ("Eve> 0 +0000\ncommitter Eve <e@e> 0 +0000\n\nforged", "e@e"),
        ("", ""),
        ("<>", "<\n>"),
        ("\x00\x1b[31m", "a\x00b"),
        ("\udcff", "\ud800"),
        ("..,", "x y"),
    ],
)
def test_a_name_cannot_forge_a_field(tmp_path: Path, name: str, email: str) -> None:
    ledger = a_ledger(tmp_path)
    at = datetime(1960, 1, 1, tzinfo=UTC)
    ledger.commit(Entry(RUN, a_run(), "x\0y \ud800\n", name, email, at))
    assert_sound(ledger.root)
    raw = git(ledger.root, "cat-file", "commit", "main").partition("\n\n")[0].splitlines()
    assert [line.partition(" ")[0] for line in raw] == ["tree", "author", "committer"]
    assert raw[2] == "committer agentfs <agentfs@localhost> 0 +0000"
    assert ledger.history()[0].subject == "xy ?"


def test_a_lock_that_only_looks_like_ours_is_never_removed(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    (ledger.root / ".git" / "agentfs" / "999999999.1.1").write_text("x", encoding="utf-8")
    lock = ledger.root / ".git" / "index.lock"
    lock.write_text("x", encoding="utf-8")
    ledger.commit(an_entry())
    assert lock.exists()


def test_links_in_the_claims_folder_are_not_followed(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    (ledger.root / ".git" / "agentfs" / "1.0.1").symlink_to(victim)
    os.link(victim, ledger.root / ".git" / "index.lock")
    ledger.commit(an_entry())
    assert victim.read_text(encoding="utf-8") == "mine"
    assert (ledger.root / ".git" / "index.lock").exists()
