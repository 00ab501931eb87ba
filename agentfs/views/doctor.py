"""What `doctor` prints: what is wrong, what is worth a remark, and what is fine, each with its mend."""

from collections.abc import Iterator

from agentfs.core.problems import Finding, is_well
from agentfs.views.words import counted

MARKS = {"fine": "ok", "remark": "note", "wrong": "WRONG"}


def doctor_lines(findings: list[Finding]) -> list[str]:
    """Return a line for each finding, its mend below it, and a last one that sums up."""
    widest = max((len(one.about) for one in findings), default=0)
    return [*(line for one in findings for line in _lines(one, widest)), "", summary(findings)]


def _lines(one: Finding, widest: int) -> Iterator[str]:
    yield f"{MARKS[one.grade]:<5}  {one.about:<{widest}}  {one.what}"
    if one.fix:
        yield f"{'':<5}  {'':<{widest}}  → {one.fix}"


def summary(findings: list[Finding]) -> str:
    """Return how it stands, in a line."""
    grades = [one.grade for one in findings]
    bad, notes = grades.count("wrong"), grades.count("remark")
    if not is_well(findings):
        verb = "is" if bad == 1 else "are"
        return f"{counted(bad, 'thing')} {verb} wrong, {counted(notes, 'note')}"
    return f"all is well, {counted(notes, 'note')}" if notes else "all is well"
