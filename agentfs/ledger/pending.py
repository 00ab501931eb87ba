"""Pending commits: the revisions of a run, and its outcome, that `main` does not have yet.

Reads a run's folder, writes nothing. Commits are derived from files, so any process may make them.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from agentfs.core import paths
from agentfs.core.commit_messages import AGENTFS, author_of, outcome_message, revision_message
from agentfs.core.goal_file import MAX_BYTES
from agentfs.core.records import Answer, Outcome, Revision, Usage
from agentfs.ledger.ledger import Entry, Still, blob_sha, committable
from agentfs.storage.files import read_whole
from agentfs.storage.safe_open import NotRegular, names_in, read_regular, scan
from agentfs.storage.workspace import goal_path

UNCOMMITTED = (".log.jsonl", ".output.txt")
_PARTS = (paths.PLANNING, paths.REVISIONS, paths.STEPS)
_REVISION = re.compile(rb'"revision": ?([0-9]+)')


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit that a run has yet to get."""

    message: str
    author: tuple[str, str]
    at: datetime
    plan: bytes | None  # None: the run ended before there was one
    revision: int | None  # the revision it is for; None: the outcome


def pending_entries(
    folder: Path, committed: Mapping[str, str], person: tuple[str, str], *, logs: bool
) -> list[tuple[Entry, Still]]:
    """Return what is to be committed of a run, oldest first, given what is: each unless another process does it."""
    entries: list[tuple[Entry, Still]] = []
    run = run_id(folder)
    for one in _find_pending(folder, run, committed, person):
        entry = Entry(run, _files_of(folder, one, logs=logs), one.message, *one.author, one.at)
        entries.append((entry, partial(_is_pending, one, folder, entry)))
    return entries


def run_id(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def _find_pending(
    folder: Path, run: str, committed: Mapping[str, str], person: tuple[str, str]
) -> Iterator[PendingCommit]:
    found = map(paths.parse_revision_file, names_in(folder / paths.REVISIONS))
    numbers = sorted(one[0] for one in found if one and one[1] == "record")
    for number in numbers:
        if f"{paths.REVISIONS}/{paths.revision_file(number)}" not in committed:
            yield _pending_revision(folder, run, number, person)
    if (folder / paths.OUTCOME).exists():
        source = read_whole(folder / paths.OUTCOME)
        if committed.get(paths.OUTCOME) != blob_sha(source):
            yield _pending_outcome(folder, run, numbers[-1] if numbers else None, source)


def _is_pending(one: PendingCommit, folder: Path, entry: Entry, committed: Mapping[str, str]) -> bool:
    """Whether it still is, and the run not forgotten, now that no other process can write to the ledger."""
    if one.revision is not None:
        missing = f"{paths.REVISIONS}/{paths.revision_file(one.revision)}" not in committed
    else:
        missing = committed.get(paths.OUTCOME) != blob_sha(entry.files[paths.OUTCOME])
    return missing and folder.is_dir()


def _pending_revision(folder: Path, run: str, number: int, person: tuple[str, str]) -> PendingCommit:
    revision = Revision.model_validate_json(read_whole(folder / paths.REVISIONS / paths.revision_file(number)))
    plan = read_whole(folder / paths.REVISIONS / paths.revision_plan_file(number))
    message = revision_message(run, revision, _usage_of(folder, revision))
    return PendingCommit(message, author_of(revision, person), _moment(revision.at), plan, number)


def _usage_of(folder: Path, revision: Revision) -> Usage | None:
    if revision.call is None:
        return None
    path = folder / paths.PLANNING / paths.call_file(revision.call, "answer")
    return Answer.model_validate_json(read_whole(path)).usage


def _pending_outcome(folder: Path, run: str, last: int | None, source: bytes) -> PendingCommit:
    outcome = Outcome.model_validate_json(source)
    plan = read_whole(folder / paths.REVISIONS / paths.revision_plan_file(last)) if last else None
    message = outcome_message(run, outcome, in_plan=len(json.loads(plan)["steps"]) if plan else 0)
    return PendingCommit(message, AGENTFS, _moment(outcome.ended_at), plan, None)


def _moment(timestamp: str) -> datetime:
    return datetime.fromisoformat(timestamp).astimezone(UTC)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────


def _files_of(folder: Path, one: PendingCommit, *, logs: bool) -> dict[str, bytes]:
    """Return every file that belongs into a commit: the run's story so far; logs and working files only if asked."""
    files = {paths.RUN: read_whole(folder / paths.RUN)} | ({paths.PLAN: one.plan} if one.plan else {})
    goal = goal_path(folder)
    with suppress(NotRegular, IsADirectoryError):  # a link in its place is no goal: what it leads to is not the run's
        files[goal.name] = read_regular(goal, MAX_BYTES)
    if one.revision is None:
        files[paths.OUTCOME] = read_whole(folder / paths.OUTCOME)
    for part in _PARTS:
        skipped = ".json" if part == paths.STEPS and one.revision == 1 else None  # no order is older than plan 1
        found = _plain_files(f"{folder}/{part}", f"{part}/", logs=logs, skipped=skipped)
        files |= {name: source for name, source in found if _belongs(part, name, source, one.revision)}
    return {**files, **(_working_files(folder) if logs else {})}


def current_files(folder: Path, *, logs: bool = False) -> dict[str, bytes]:
    """Return the files of a run that belong into the ledger, as they are: whatever is missing or does not read."""
    alone = {paths.RUN, paths.PLAN, paths.OUTCOME, *(f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES)}
    found = {name: source for name, source in _plain_files(f"{folder}", "", logs=logs) if name in alone}
    for part in _PARTS:
        found.update(_plain_files(f"{folder}/{part}", f"{part}/", logs=logs))
    return {**found, **(_working_files(folder) if logs else {})}


def _plain_files(folder: str, prefix: str, *, logs: bool, skipped: str | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files in a folder that git can hold; there are thousands: a Path takes longer."""
    left_out = tuple(suffix for suffix in (skipped, *(() if logs else UNCOMMITTED)) if suffix)
    try:
        files = [one.name for one in scan(folder) if not one.name.endswith(left_out) and _is_plain(one)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(files):
        if committable(prefix + name):
            yield prefix + name, read_whole(f"{folder}/{name}")


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.name[0] != "." and entry.is_file(follow_symlinks=False)


def _working_files(folder: Path) -> dict[str, bytes]:
    """Return what the steps made, as far as git can hold it."""
    found = {}
    for path in sorted((folder / paths.FILES).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink() and committable(name):
            found[name] = read_whole(path)
    return found


def _belongs(part: str, name: str, source: bytes, revision: int | None) -> bool:
    """Whether a file belongs to the story up to a revision: a late commit does not tell what came after it."""
    if revision is None:
        return True
    if part == paths.REVISIONS:
        found = paths.parse_revision_file(name.rpartition("/")[2])
        return found is not None and found[0] <= revision
    if part == paths.STEPS and name.endswith(".json"):
        number = _REVISION.search(source)
        return number is None or int(number[1]) < revision
    return True
