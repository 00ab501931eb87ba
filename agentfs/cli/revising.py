"""Plans that may become a run's: the bytes of a revision, judged by the run's own tools. Reads only."""

from pathlib import Path

from agentfs.cli.common import environment, short_path
from agentfs.cli.reading import settings_of
from agentfs.core import names
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Plan
from agentfs.errors import BadFile, UserError
from agentfs.means import reader_for
from agentfs.workspace import Workspace


def revision_bytes(folder: Path, run: str, revision: int) -> bytes:
    """Return the exact bytes of a revision; it must be there."""
    recorded = revisions_of(folder)
    if revision not in recorded:
        known = f"it has 1 to {recorded[-1]}" if recorded else "there is no plan yet"
        raise UserError(f"{run} has no revision {revision} ({known})")
    path = folder / names.REVISIONS / names.revision_plan_file(revision)
    try:
        return path.read_bytes()
    except OSError:
        raise UserError(f"{short_path(path)} does not read: take it back from the ledger") from None


def revisions_of(folder: Path) -> list[int]:
    """Return the numbers that revisions have been given."""
    parsed = [names.parse_revision_file(path.name) for path in (folder / names.REVISIONS).iterdir()]
    return sorted(found[0] for found in parsed if found and found[1] == "record")


def judged(folder: Path, workspace: Workspace, source: bytes, shown: str) -> Plan:
    """Return the plan that bytes are to a run; raise BadFile with all that is wrong for it."""
    if problems := problems_of(folder, workspace, source):
        raise BadFile(shown, problems, source)
    return Plan.model_validate_json(source)


def problems_of(folder: Path, workspace: Workspace, source: bytes) -> tuple[Problem, ...]:
    """Return what is wrong with a plan, given the tools that a run began with."""
    judge = reader_for(folder, settings_of(workspace)[0], environment(), patient=False).judge
    try:
        judge.plan(source)
    except Rejected as rejected:
        return rejected.problems
    return ()
