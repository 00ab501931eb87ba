"""What `status` prints: the runs of a workspace, or one run step by step."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agentfs.views.marks import RUN_COLOURS, mark_of, wrong_first
from agentfs.views.table import Cell, table
from agentfs.views.words import ago, columns, counts_words, first_line, inert, left_words, wrapped

MOST_WAYS = 3  # that are listed below a run
NOT_DRIVEN = "not driven"


def runs_table(runs: Sequence[dict[str, Any]], now: datetime, width: int | None, *, colours: bool) -> list[str]:
    """Return a line per run, under a heading; below one that waits for somebody, what to type."""
    heading: list[Cell] = [(word, None) for word in ("RUN", "STATE", "STEPS", "WHEN", "WHY")]
    rows = [heading, *(_run_row(run, now) for run in runs)]
    first, *lines = table(rows, width, colours=colours)
    return [first, *(part for run, line in zip(runs, lines, strict=True) for part in (line, *_ways(run, width)))]


def _ways(run: dict[str, Any], width: int | None) -> list[str]:
    """Return what to type, each command whole."""
    ways = run.get("ways") or []
    if len(ways) > MOST_WAYS:
        ways = [*ways[: MOST_WAYS - 1], f"agentfs status {run['run']}"]  # it lists them all
    return [line for way in ways for line in command_lines(inert(way), width)]


def command_lines(command: str, width: int | None) -> list[str]:
    """Return a command below what it is for, in as many lines as a shell needs to take it for one."""
    indent, more = "  ", "      "
    if width is None or columns(command) + len(indent) <= width:
        return [f"{indent}{command}"]
    sign = " \\" if command.startswith("agentfs ") else ""
    first, *rest = wrapped(command, max(1, width - len(more) - len(sign)))
    parts = [f"{indent}{first}", *(f"{more}{part}" for part in rest)]
    return [*(f"{part}{sign}" for part in parts[:-1]), parts[-1]]


def _run_row(run: dict[str, Any], now: datetime) -> list[Cell]:
    steps = run["steps"]
    return [
        (run["run"], None),
        (shown_state(run), RUN_COLOURS.get("paused" if shown_state(run) == NOT_DRIVEN else run["state"])),
        (f"{steps['done']}/{steps['total']}", None),
        (moment(run["at"], now), None),
        (first_line(run["why"]), None),
    ]


def shown_state(run: Mapping[str, Any]) -> str:
    """Return the state of a run as people are told it: what could go on is not running while nothing drives it."""
    return NOT_DRIVEN if run["state"] in ("running", "planning") and not run["driven"] else str(run["state"])


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
    heading = f"{page['run']}: {shown_state(page)}, {counts_words(page['steps'])}"
    room = None if width is None else width - 2
    lines = [heading, *(f"  {line}" for line in table(rows, room, colours=colours, wrap=True))]
    return lines if page["outcome"] is None and page["state"] != "running" else [*lines, first_line(page["why"])]
