"""`doctor` and `verify`: what is wrong with a machine and a workspace; whether files and ledger agree."""

from argparse import Namespace
from collections import Counter

from agentfs.commands.common import environment, here, print_json, print_lines, say, start_folder
from agentfs.core.agreement import Disagreement
from agentfs.core.problems import Finding, is_well
from agentfs.core.text import inert, plural
from agentfs.storage.workspace import find_workspace


def doctor(arguments: Namespace) -> int:
    """`agentfs doctor`"""
    import agentfs
    from agentfs.doctor import examine

    workspace = find_workspace(start_folder(arguments))
    findings = list(examine(workspace, environment()))
    if arguments.json:
        page = {
            "agentfs": agentfs.__version__,
            "workspace": str(workspace.root) if workspace else None,
            "well": is_well(findings),
            "findings": [one.as_json() for one in findings],
        }
        print_json(page)
    else:
        print_lines(inert(line) for line in doctor_lines(findings))
        if workspace is None:
            say("there is no workspace here: only the machine was looked at (`agentfs init` makes one)")
    return 0 if is_well(findings) else 2


MARKS = {"fine": "ok", "remark": "note", "wrong": "WRONG"}


def doctor_lines(findings: list[Finding]) -> list[str]:
    """Return a line for each finding, its fix below it, and a last one that sums up."""
    widest, lines = max((len(one.about) for one in findings), default=0), []
    for one in findings:
        lines.append(f"{MARKS[one.grade]:<5}  {one.about:<{widest}}  {one.what}")
        if one.fix:
            lines.append(f"{'':<5}  {'':<{widest}}  → {one.fix}")
    return [*lines, "", summary(findings)]


def summary(findings: list[Finding]) -> str:
    """Return the verdict in a line."""
    grades = [one.grade for one in findings]
    bad, notes = grades.count("wrong"), grades.count("remark")
    if not is_well(findings):
        verb = "is" if bad == 1 else "are"
        return f"{plural(bad, 'thing')} {verb} wrong, {plural(notes, 'note')}"
    return f"all is well, {plural(notes, 'note')}" if notes else "all is well"


# ── verify ────────────────────────────────────────────────────────────────────────────────────────────────


def verify(arguments: Namespace) -> int:
    """`agentfs verify [RUN]`"""
    from agentfs.ledger.verify import Verification

    workspace = here(arguments)
    work = Verification(workspace, workspace.find_run(arguments.run) if arguments.run else None)
    kept, grades = [], Counter[str]()
    for one in work.disagreements():
        grades[one.grade] += 1
        if arguments.json:
            kept.append(one.as_json())
        else:
            print_lines([inert(line_of(one))])
    if arguments.json:
        counts = {"runs": work.runs, "commits": work.commits, "revisions": work.revisions, "tip": work.tip}
        print_json({"agrees": not grades["wrong"], **counts, "disagreements": kept})
    say(_verify_summary(grades["wrong"], grades["later"], work.runs, work.commits, work.revisions, work.tip))
    return 2 if grades["wrong"] else 0


_MARKS = {"wrong": "", "later": "(later) ", "note": "(note) "}


def line_of(one: Disagreement) -> str:
    return f"{_MARKS[one.grade]}{one.file}: {one.what} ({one.fix})"


def _verify_summary(wrong: int, later: int, runs: int, commits: int, revisions: int, tip: str | None) -> str:
    """Return the verdict in a line. The name of the last commit is worth keeping elsewhere."""
    looked = f"{plural(runs, 'run')}, {plural(revisions, 'revision')}, {plural(commits, 'commit')}"
    at = f", main at {tip}" if tip else ""
    pending = f"; {plural(later, 'commit')} still to come" if later else ""
    if wrong:
        return f"{looked}{at}: {plural(wrong, 'disagreement')}{pending}"
    return f"{looked}{at}: files and ledger agree{pending}"
