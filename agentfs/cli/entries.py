"""A run's revisions and outcomes beside their commits, for `log`. Reads only."""

from pathlib import Path
from typing import Any

from agentfs.cli.reading import plain_json, run_id
from agentfs.core import paths
from agentfs.disk import read_whole


def entries_of(folder: Path, runs: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what the ledger should hold of a run, the newest last, and what of it does not read."""
    from agentfs.ledger import Ledger, LedgerCommit, LedgerError

    revisions, trouble = _revisions(folder)
    commits: list[LedgerCommit] = []
    try:
        commits = Ledger(runs).history(run_id(folder))[::-1]
    except LedgerError as error:
        trouble.append(str(error))
    entries: list[dict[str, Any]] = []
    for commit in commits:
        numbers = [n for n in commit.trailers.get("Agentfs-Revision", []) if n in revisions]
        entries += [{**revisions.pop(number), "commit": commit.sha} for number in numbers]
        for words in commit.trailers.get("Agentfs-Outcome", []):
            at = commit.at.strftime("%Y-%m-%dT%H:%M:%SZ")
            entries.append(_outcome(words.partition(" ")[0], commit.subject.partition(": ")[2], at, commit.sha))
    entries += [{**found, "commit": None} for found in revisions.values()]
    return [*entries, *_owed_outcome(folder, entries)], trouble


def _revisions(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the revisions by number, and the names of those that do not read."""
    from pydantic import ValidationError

    from agentfs.core.records import Revision

    found: dict[str, dict[str, Any]] = {}
    trouble: list[str] = []
    for number in sorted(_numbers(folder / paths.REVISIONS)):
        path = folder / paths.REVISIONS / paths.revision_file(number)
        try:
            record = Revision.model_validate_json(read_whole(path))
        except (OSError, ValidationError):
            trouble.append(f"{path} does not read: take it back from the ledger")
            continue
        found[str(number)] = {"kind": "revision", **record.model_dump(mode="json", exclude={"format"})}
    return found, trouble


def _numbers(folder: Path) -> list[int]:
    try:
        parsed = [paths.parse_revision_file(path.name) for path in folder.iterdir()]
    except OSError:
        return []
    return [found[0] for found in parsed if found and found[1] == "record"]


def _outcome(status: str, detail: str, at: str, commit: str | None) -> dict[str, Any]:
    return {"kind": "outcome", "status": status, "detail": detail, "at": at, "commit": commit}


def _owed_outcome(folder: Path, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outcome that stands in the folder and has no commit yet."""
    outcome = plain_json(folder / paths.OUTCOME)
    if not isinstance(outcome, dict) or any(entry["kind"] == "outcome" for entry in entries[-1:]):
        return []
    status = str(outcome.get("status"))
    return [_outcome(status, f"{status}, {outcome.get('summary')}", str(outcome.get("ended_at")), None)]
