"""What a run owes the ledger: the commits of revisions, and of its outcome, that `main` does not have yet.

Reads a run's folder and the ledger, writes nothing. Commits are derived from files, so anybody may make them.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from agentfs.core import paths
from agentfs.core.commit_messages import AGENTFS, author_of, outcome_message, revision_message
from agentfs.core.goal_file import MAX_BYTES
from agentfs.core.records import Answer, Outcome, Revision, Usage
from agentfs.disk import read_whole
from agentfs.ledger import Entry, Ledger, Still, committable
from agentfs.regular import NotRegular, read_regular
from agentfs.workspace import goal_path

UNCOMMITTED = (".log.jsonl", ".output.txt")
_REVISION = re.compile(rb'"revision": ?([0-9]+)')


@dataclass(frozen=True, slots=True)
class Owed:
    """A commit that a run still owes the ledger."""

    message: str
    author: tuple[str, str]
    at: datetime
    plan: bytes | None  # None: the run ended before there was one
    upto: int | None  # the revision it is for; None: the outcome


def owed(folder: Path, run: str, ledger: Ledger, person: tuple[str, str]) -> Iterator[Owed]:
    """Yield what this run has that the ledger has not, oldest first."""
    committed = ledger.committed(run)
    numbers = sorted(n for n, kind in _revision_files(folder) if kind == "record")
    for number in numbers:
        if f"{paths.REVISIONS}/{paths.revision_file(number)}" not in committed:
            yield _owed_revision(folder, run, number, person)
    outcome = folder / paths.OUTCOME
    if outcome.exists():
        source = read_whole(outcome)
        if committed.get(paths.OUTCOME) != blob_sha(source):
            yield _owed_outcome(folder, run, numbers[-1] if numbers else None, source)


def commit_owed(folder: Path, run: str, ledger: Ledger, person: tuple[str, str], *, logs: bool) -> None:
    """Commit what a run owes, oldest first."""
    if entries := entries_owed(folder, run, ledger, person, logs=logs):
        ledger.commit_all(entries)


def entries_owed(
    folder: Path, run: str, ledger: Ledger, person: tuple[str, str], *, logs: bool
) -> list[tuple[Entry, Still]]:
    """Return what a run owes, oldest first; nothing that somebody else commits, or forgets, before it is our turn."""
    entries: list[tuple[Entry, Still]] = []
    for one in owed(folder, run, ledger, person):
        entry = Entry(run, files_at(folder, one, logs=logs), one.message, *one.author, one.at)
        entries.append((entry, partial(_is_owed, one, folder, entry, ledger)))
    return entries


def _is_owed(one: Owed, folder: Path, entry: Entry, ledger: Ledger) -> bool:
    """Whether it still is, now that nobody else can write to the ledger."""
    committed = ledger.committed(entry.run)
    if one.upto is not None:
        missing = f"{paths.REVISIONS}/{paths.revision_file(one.upto)}" not in committed
    else:
        missing = committed.get(paths.OUTCOME) != blob_sha(entry.files[paths.OUTCOME])
    return missing and folder.is_dir()


def _revision_files(folder: Path) -> Iterator[tuple[int, str]]:
    for path in (folder / paths.REVISIONS).iterdir():
        if found := paths.parse_revision_file(path.name):
            yield found


def _owed_revision(folder: Path, run: str, number: int, person: tuple[str, str]) -> Owed:
    revision = Revision.model_validate_json(read_whole(folder / paths.REVISIONS / paths.revision_file(number)))
    plan = read_whole(folder / paths.REVISIONS / paths.revision_plan_file(number))
    message = revision_message(run, revision, _usage_of(folder, revision))
    return Owed(message, author_of(revision, person), _moment(revision.at), plan, number)


def _usage_of(folder: Path, revision: Revision) -> Usage | None:
    if revision.call is None:
        return None
    path = folder / paths.PLANNING / paths.call_file(revision.call, "answer")
    return Answer.model_validate_json(read_whole(path)).usage


def _owed_outcome(folder: Path, run: str, last: int | None, source: bytes) -> Owed:
    outcome = Outcome.model_validate_json(source)
    plan = read_whole(folder / paths.REVISIONS / paths.revision_plan_file(last)) if last else None
    message = outcome_message(run, outcome, in_plan=len(json.loads(plan)["steps"]) if plan else 0)
    return Owed(message, AGENTFS, _moment(outcome.ended_at), plan, None)


def _moment(timestamp: str) -> datetime:
    return datetime.fromisoformat(timestamp).astimezone(UTC)


def blob_sha(source: bytes) -> str:
    """Return the name git gives to this content."""
    return hashlib.sha1(b"blob %d\0" % len(source) + source, usedforsecurity=False).hexdigest()


def files_at(folder: Path, one: Owed, *, logs: bool = False) -> dict[str, bytes]:
    """Return every file that belongs into a commit: the run's story so far; logs and working files only if asked."""
    files = {paths.RUN: read_whole(folder / paths.RUN)} | ({paths.PLAN: one.plan} if one.plan else {})
    goal = goal_path(folder)
    with suppress(NotRegular, IsADirectoryError):  # a link in its place is no goal: what it leads to is not the run's
        files[goal.name] = read_regular(goal, MAX_BYTES)
    if one.upto is None:
        files[paths.OUTCOME] = read_whole(folder / paths.OUTCOME)
    for part in (paths.PLANNING, paths.REVISIONS, paths.STEPS):
        skipped = ".json" if part == paths.STEPS and one.upto == 1 else None  # no order is older than the first plan
        found = _plain_files(f"{folder}/{part}", f"{part}/", logs=logs, skipped=skipped)
        files |= {name: source for name, source in found if _belongs(part, name, source, one.upto)}
    return {**files, **(_working_files(folder) if logs else {})}


def as_it_stands(folder: Path, *, logs: bool = False) -> dict[str, bytes]:
    """Return the files of a run that belong into the ledger, as they are: whatever is missing or does not read."""
    alone = {paths.RUN, paths.PLAN, paths.OUTCOME, *(f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES)}
    found = {name: source for name, source in _plain_files(f"{folder}", "", logs=logs) if name in alone}
    for part in (paths.PLANNING, paths.REVISIONS, paths.STEPS):
        found.update(_plain_files(f"{folder}/{part}", f"{part}/", logs=logs))
    return {**found, **(_working_files(folder) if logs else {})}


def _plain_files(folder: str, prefix: str, *, logs: bool, skipped: str | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files in a folder that git can hold; there are thousands: a Path takes longer."""
    left_out = tuple(suffix for suffix in (skipped, *(() if logs else UNCOMMITTED)) if suffix)
    try:
        with os.scandir(folder) as entries:
            files = [one.name for one in entries if not one.name.endswith(left_out) and _is_plain(one)]
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


def _belongs(part: str, name: str, source: bytes, upto: int | None) -> bool:
    """Whether a file belongs to the story up to a revision: a late commit does not tell what came after it."""
    if upto is None:
        return True
    if part == paths.REVISIONS:
        found = paths.parse_revision_file(name.rpartition("/")[2])
        return found is not None and found[0] <= upto
    if part == paths.STEPS and name.endswith(".json"):
        said = _REVISION.search(source)
        return said is None or int(said[1]) < upto
    return True
