"""What `blame` prints: a line for each field, who set it, in which revision, and why."""

from typing import Any

from agentfs.views.table import Cell, table
from agentfs.views.words import first_line, inert

BOLD, FAINT = 1, 2
WIDEST = 22


def blame_lines(page: dict[str, Any], width: int | None, *, colours: bool, edited: bool) -> list[str]:
    """Return a table that fits a width; a step is named once."""
    head: list[Cell] = [(name, FAINT) for name in ("step", "field", "by", "rev", "why")]
    rows, before = [head], object()
    for entry in page["fields"]:
        name = "" if entry["step"] == before else entry["step"] or "(the plan)"
        before = entry["step"]
        rows.append(
            [
                (inert(name), BOLD),
                (inert(entry["field"]), None),
                (who(entry["by"]), None),
                (str(entry["revision"]), None),
                (first_line(entry["why"]), None),
            ]
        )
    lines = table(rows, width, colours=colours, widest=WIDEST, wrap=True)
    note = f"plan.json has been edited since: agentfs diff {page['run']} {page['revision']}"
    return [*lines, *(["", note] if edited else [])]


def who(by: dict[str, Any]) -> str:
    """Return a person by name, a model by its role and name, a runbook by its role."""
    if by["role"] == "person":
        return first_line(by["name"]) or "a person"
    return first_line(f"{by['role']} {by['model'] or ''}")
