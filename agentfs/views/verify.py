"""What `verify` prints: a line for each disagreement, and one that sums up."""

from agentfs.core.agreement import Disagreement
from agentfs.views.words import counted

_MARKS = {"wrong": "", "later": "(later) ", "note": "(note) "}


def line_of(one: Disagreement) -> str:
    return f"{_MARKS[one.grade]}{one.file}: {one.what} ({one.fix})"


def summary(wrong: int, later: int, runs: int, commits: int, revisions: int, tip: str | None) -> str:
    """Return how it stands, in a line. The name of the last commit is worth keeping elsewhere."""
    looked = f"{counted(runs, 'run')}, {counted(revisions, 'revision')}, {counted(commits, 'commit')}"
    at = f", main at {tip}" if tip else ""
    pending = f"; {counted(later, 'commit')} still to come" if later else ""
    if wrong:
        return f"{looked}{at}: {counted(wrong, 'disagreement')}{pending}"
    return f"{looked}{at}: files and ledger agree{pending}"
