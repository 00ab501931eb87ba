"""Plans that may become a run's: the bytes of a revision, judged by the run's own tools. Reads only."""

from pathlib import Path

from agentfs.cli.common import short_path
from agentfs.cli.reading import settings_of
from agentfs.core import paths
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Plan, Run
from agentfs.disk import read_whole
from agentfs.errors import BadFile, UserError
from agentfs.judge import FileJudge
from agentfs.means import catalogue_of_run, reader_for
from agentfs.reader import Judge
from agentfs.tools.registry import known_tools
from agentfs.workspace import Workspace


def revision_bytes(folder: Path, run: str, revision: int) -> bytes:
    """Return the exact bytes of a revision; it must be there."""
    recorded = revisions_of(folder)
    if revision not in recorded:
        known = f"it has 1 to {recorded[-1]}" if recorded else "there is no plan yet"
        raise UserError(f"{run} has no revision {revision} ({known})")
    path = folder / paths.REVISIONS / paths.revision_plan_file(revision)
    try:
        return read_whole(path)
    except OSError:
        raise UserError(f"{short_path(path)} does not read: take it back from the ledger") from None


def revisions_of(folder: Path) -> list[int]:
    """Return the numbers that revisions have been given."""
    parsed = [paths.parse_revision_file(path.name) for path in (folder / paths.REVISIONS).iterdir()]
    return sorted(found[0] for found in parsed if found and found[1] == "record")


def judged(folder: Path, workspace: Workspace, source: bytes, shown: str, begins: Run | None = None) -> Plan:
    """Return the plan that bytes are to a run; raise BadFile with all that is wrong for it.

    `begins`: how a new run of these files begins; None: they are judged for the run itself.
    """
    if problems := problems_of(folder, workspace, source, begins):
        raise BadFile(shown, problems, source)
    return Plan.model_validate_json(source)


def problems_of(folder: Path, workspace: Workspace, source: bytes, begins: Run | None = None) -> tuple[Problem, ...]:
    """Return what is wrong with a plan, given the tools that a run began with, or begins with."""
    settings = settings_of(workspace)[0]
    if begins is None:
        judge: Judge = reader_for(folder, settings, patient=False).judge
    else:
        known = known_tools(workspace.root, begins.tools)
        judge = FileJudge(catalogue_of_run(begins, settings, known))
    try:
        judge.plan(source)
    except Rejected as rejected:
        return rejected.problems
    return ()
