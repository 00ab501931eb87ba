"""Ledgers and entries for tests, and git as a person would run it."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from agentfs.ledger import Entry, Ledger, blob_sha

RUN = "2026-11-16/tidy-invoices"
AT = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
GIT = shutil.which("git") or "git"
# Contents whose objects lie in `objects/17`: git counts that folder to see whether it is time for `git gc`.
SEEN_BY_GIT = [one for one in (b"%d" % number for number in range(30_000)) if blob_sha(one)[:2] == "17"]
PERSON = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def git(root: Path, *words: str, check: bool = True, given: str = "") -> str:
    """Run git in a folder, as Ada, with no settings but the repository's; return what it prints."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    done = subprocess.run(
        [GIT, *PERSON, *words], cwd=root, env=environment, input=given, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip("\n") if done.returncode == 0 else done.stderr


def a_run(revision: int = 1) -> dict[str, bytes]:
    """The files of a run at one of its revisions."""
    files = {"run.json": b"{}\n", "goal.md": b"Tidy the invoices\n", "plan.json": b'{"revision": %d}\n' % revision}
    for number in range(1, revision + 1):
        files[f"revisions/{number}.json"] = b'{"number": %d}\n' % number
        files[f"revisions/{number}.plan.json"] = b'{"revision": %d}\n' % number
    return files


def an_entry(
    files: Mapping[str, bytes] | None = None,
    *,
    run: str = RUN,
    message: str = "tidy-invoices: revision 1, the first plan\n\nAgentfs-Run: 2026-11-16/tidy-invoices\n",
) -> Entry:
    found = a_run() if files is None else files
    return Entry(run, found, message, "agentfs planner", "agentfs@localhost", AT)


def a_ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "runs")


def put(root: Path, files: Mapping[str, bytes], run: str = RUN) -> None:
    """Write a run's files into its folder, as the rest of agentfs does before it commits."""
    for path, content in files.items():
        target = root / run / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def assert_sound(root: Path) -> None:
    """Let git itself look at everything."""
    assert git(root, "fsck", "--strict", "--full", "--no-dangling") in (
        "",
        "notice: HEAD points to an unborn branch (main)",
    ), git(root, "fsck", "--strict", check=False)
