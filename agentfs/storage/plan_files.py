"""plan.json, which is only ever exchanged, so that no edit is lost; displaced plans, and those of past revisions.

An editor that had a displaced plan open may have saved into it: no save is lost.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.hashing import canonical, sha256_bytes
from agentfs.core.plan_merge import HandEditHistory, HandEdits, plan_without_edits
from agentfs.core.records import Plan, Revision
from agentfs.errors import UserError
from agentfs.storage.completeness import Completeness, is_being_written
from agentfs.storage.files import appear, exchange, listing, publish, read_whole, replace, sync_folder, temp_name


@dataclass(frozen=True, slots=True)
class DisplacedFile:
    """A file that was exchanged out of its place. An editor may still have it open, and write into it."""

    path: Path
    known: bytes  # what it held when it came out

    def rescued(self) -> bytes | None:
        """Return what was written into it since; None if nothing was. Ask once no writer has it open."""
        content = read_whole(self.path)
        return None if content == self.known else content

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def install(path: Path, content: bytes, expected: bytes | None) -> tuple[bool, DisplacedFile | None]:
    """Exchange `path` for new content, unless it holds something unexpected: then that stays in its place.

    Returns whether the new content is in place, and the file that came out, to be watched until no writer has it
    open. `path` is never absent and never torn, and what a person wrote is never overwritten.
    """
    temp = path.parent / temp_name("plan")
    appear(temp, content, durable=True)  # whole: what a dead driver leaves may be a person's
    try:
        placed = _swap_in(temp, path, expected)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    if placed != "exchanged":
        temp.unlink(missing_ok=True)
        sync_folder(path.parent)
        return placed == "linked", None
    came_out = read_whole(temp)
    seen = came_out in (expected, content)
    if not seen:
        exchange(temp, path)  # a person was faster: theirs goes back
    sync_folder(path.parent)
    return seen, DisplacedFile(temp, came_out if seen else content)


def _swap_in(temp: Path, path: Path, expected: bytes | None) -> Literal["exchanged", "linked", "taken"]:
    """Move the new file to its place: by exchange if there is an old one, else only if there still is none."""
    try:
        if expected is not None:
            exchange(temp, path)  # the commit point; then look at what came out
            return "exchanged"
        os.link(temp, path)
    except FileExistsError:
        return "taken"
    except FileNotFoundError:
        os.link(temp, path)  # it was deleted meanwhile: a deleted plan holds nothing to lose
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
        return _swap_by_replacing(temp, path, expected)
    return "linked"


def _swap_by_replacing(temp: Path, path: Path, expected: bytes | None) -> Literal["exchanged", "taken"]:
    """Where a file system cannot exchange: look, then replace at once. The window is small, not none."""
    if read_whole(path) != expected:
        return "taken"
    kept = path.parent / temp_name("plan")
    os.link(path, kept)
    os.replace(temp, path)
    os.rename(kept, temp)
    return "exchanged"


# ── plans that came out of an exchange ────────────────────────────────────────────────────────────────────

KEPT = "plan.saved-{}.json"


def look_after(folder: Path, displaced: list[DisplacedFile], completeness: Completeness) -> list[DisplacedFile]:
    """Put saves into displaced plans back into plan.json; return the displaced plans that are still open."""
    waiting: list[DisplacedFile] = []
    for file in displaced:
        if not _is_closed(file.path, completeness):
            waiting.append(file)
        elif (saved := file.rescued()) is None:
            file.remove()
        else:
            waiting += _put_back(folder, file, saved)
    return waiting


def _is_closed(path: Path, completeness: Completeness) -> bool:
    """Whether no writer has it open; where that cannot be known, whether it has held still long enough."""
    writing = is_being_written(path)
    return completeness.is_complete(path) if writing is None else not writing


def _put_back(folder: Path, file: DisplacedFile, saved: bytes) -> list[DisplacedFile]:
    """Put a save that missed plan.json into it, or beside it if plan.json has been edited since."""
    plan = folder / paths.PLAN
    current = read_whole(plan) if plan.is_file() else None
    latest = last_revision(folder)
    if current is not None and current == latest:
        placed, another = install(plan, saved, current)
        if placed:
            file.remove()
            return [another] if another else []
        if another is not None:
            return [file, another]
    keep_beside(folder, saved)
    file.remove()
    return []


def keep_beside(folder: Path, saved: bytes) -> Path:
    """Write a save under a name of its own, for a person to look at."""
    number = 1
    while True:
        path = folder / KEPT.format(number)
        try:
            publish(path, saved, durable=True)
        except FileExistsError:
            number += 1
        else:
            return path


def last_revision(folder: Path) -> bytes | None:
    """Return the plan of the last revision, byte for byte; None: there is none."""
    parsed = map(paths.parse_revision_file, listing(folder / paths.REVISIONS))
    numbers = [found[0] for found in parsed if found and found[1] == "plan"]
    return read_whole(folder / paths.REVISIONS / paths.revision_plan_file(max(numbers))) if numbers else None


# ── plans of revisions: reads only; each is read once, in order ─────────────────────────────────────────


class LostPlan(UserError):
    """The plan of a revision is not there, or does not read."""


@dataclass(slots=True)
class PastPlans:
    """Reads the copies that `revisions/` keeps."""

    folder: Path
    _held: HandEditHistory = field(default_factory=HandEditHistory)

    def plan(self, revision: int) -> Plan:
        """Return the plan of a revision; raise if it does not read."""
        name = f"{paths.REVISIONS}/{paths.revision_plan_file(revision)}"
        try:
            return Plan.model_validate_json(read_whole(self.folder / name))
        except (OSError, ValidationError):
            raise LostPlan(f"{name} does not read: take it back from the ledger") from None

    def hand_edits(self, revisions: Sequence[Revision], last: Plan | None = None) -> HandEdits:
        """Return the fields that a person set by hand. `last`: the last plan, if it is known."""
        if not _is_edited(revisions):
            return {}
        if self._held.revisions > len(revisions):
            self._held = HandEditHistory()
        for revision in revisions[self._held.revisions :]:
            known = last if revision is revisions[-1] else None
            self._held = self._held.after(revision, known or self.plan(revision.revision))
        return self._held.hand_edits

    def unedited(self, revisions: Sequence[Revision]) -> Plan | None:
        """Return the plan as it would be without a person's edits; None if there are none."""
        return (
            plan_without_edits((one, self.plan(one.revision)) for one in revisions) if _is_edited(revisions) else None
        )


def _is_edited(revisions: Sequence[Revision]) -> bool:
    return any(revision.trigger == "edited" for revision in revisions)


# ── edits of clients ─────────────────────────────────────────────────────────────────────────────────────


def note_client(folder: Path, base: bytes, new: bytes) -> None:
    """Note that a client, not a person, is about to make this edit of plan.json."""
    replace(folder / paths.CLIENT_EDIT, canonical([sha256_bytes(base), sha256_bytes(new)]))


def is_by_client(folder: Path, base_sha256: str | None, plan_sha256: str) -> bool:
    """Whether a client made an edit of plan.json."""
    try:
        return read_whole(folder / paths.CLIENT_EDIT) == canonical([base_sha256, plan_sha256])
    except OSError:
        return False


def forget_client(folder: Path) -> None:
    """Remove the note of a client's edit: a person may make the same edit later."""
    (folder / paths.CLIENT_EDIT).unlink(missing_ok=True)
