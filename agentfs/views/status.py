"""What `status` prints: the runs of a workspace, or one run step by step."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from agentfs.views.marks import RUN_COLOURS, mark_of, wrong_first
from agentfs.views.table import Cell, table
from agentfs.views.words import ago, counts_words, first_line, left_words


def runs_table(runs: Sequence[dict[str, Any]], now: datetime, width: int | None, *, colours: bool) -> list[str]:
    """Return a line per run, under a heading."""
    heading: list[Cell] = [(word, None) for word in ("RUN", "STATE", "STEPS", "WHEN", "WHY")]
    rows = [heading, *(_run_row(run, now) for run in runs)]
    return table(rows, width, colours=colours)


def _run_row(run: dict[str, Any], now: datetime) -> list[Cell]:
    steps = run["steps"]
    return [
        (run["run"], None),
        (run["state"], RUN_COLOURS.get(run["state"])),
        (f"{steps['done']}/{steps['total']}", None),
        (moment(run["at"], now), None),
        (_why(run), None),
    ]


def _why(run: dict[str, Any]) -> str:
    """Return why, and before it that nobody drives a run that could go on."""
    why = first_line(run["why"])
    return f"not driven; {why}" if run["state"] in ("running", "planning") and not run["driven"] else why


def moment(timestamp: str, now: datetime) -> str:
    """Return when something was; nothing where that is not known."""
    try:
        return ago((now - datetime.fromisoformat(timestamp).astimezone(UTC)).total_seconds())
    except ValueError:
        return ""


def run_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return one run step by step: what state each is in, and why."""
    rows: list[list[Cell]] = []
    for step in wrong_first(page["by_step"], lambda step: str(step["state"])):
        mark = mark_of(step["state"])
        rows.append(
            [
                (mark.sign, mark.colour),
                (first_line(step["id"]), None),
                (step["state"], mark.colour),
                (f"{first_line(step['why'])}{left_words(step['left_in'])}", None),
            ]
        )
    heading = f"{page['run']}: {page['state']}, {counts_words(page['steps'])}"
    room = None if width is None else width - 2
    lines = [heading, *(f"  {line}" for line in table(rows, room, colours=colours, wrap=True))]
    return lines if page["outcome"] is None and page["state"] != "running" else [*lines, first_line(page["why"])]
