"""Plans that came out of an exchange: an editor that had one open may have saved into it. No save is lost."""

from pathlib import Path

from agentfs.core import paths
from agentfs.storage.completeness import Stillness, being_written
from agentfs.storage.files import Leftover, install, listing, publish, read_whole

KEPT = "plan.saved-{}.json"


def look_after(folder: Path, leftovers: list[Leftover], still: Stillness) -> list[Leftover]:
    """Return those that must be looked at again; whatever was saved into one of the others is back in a plan."""
    waiting: list[Leftover] = []
    for leftover in leftovers:
        if not _closed(leftover.path, still):
            waiting.append(leftover)
        elif (saved := leftover.rescued()) is None:
            leftover.remove()
        else:
            waiting += _put_back(folder, leftover, saved)
    return waiting


def _closed(path: Path, still: Stillness) -> bool:
    """Whether no writer has it open; where that cannot be known, whether it has held still long enough."""
    writing = being_written(path)
    return still.is_complete(path) if writing is None else not writing


def _put_back(folder: Path, leftover: Leftover, saved: bytes) -> list[Leftover]:
    """Put a save that missed plan.json into it; if plan.json holds another one by now, keep this one beside it."""
    plan = folder / paths.PLAN
    current = read_whole(plan) if plan.is_file() else None
    latest = _last_revision(folder)
    if current is not None and current == latest:
        placed, another = install(plan, saved, current)
        if placed:
            leftover.remove()
            return [another] if another else []
        if another is not None:
            return [leftover, another]
    keep_beside(folder, saved)
    leftover.remove()
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


def _last_revision(folder: Path) -> bytes | None:
    parsed = map(paths.parse_revision_file, listing(folder / paths.REVISIONS))
    numbers = [found[0] for found in parsed if found and found[1] == "plan"]
    return read_whole(folder / paths.REVISIONS / paths.revision_plan_file(max(numbers))) if numbers else None
