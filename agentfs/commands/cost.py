"""`cost` and `compare`: what runs have asked of models, and two runs side by side. Reads only."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.commands.common import colours, here, print_page, width
from agentfs.core.costs import PARTS, Asked, Charge, Costs, as_page, charges_page, costs_of, goal_name
from agentfs.core.paths import is_fork_source, run_id
from agentfs.core.plan_diff import changed_lines
from agentfs.core.text import (
    columns,
    counts_words,
    cut,
    cut_middle,
    duration,
    first_line,
    inert,
    mark_of_run,
    pad,
    paint,
    plural,
)
from agentfs.errors import UserError
from agentfs.storage.clock import format_moment, local_day
from agentfs.storage.workspace import Workspace
from agentfs.ui.reading import Glance, ended, list_runs, moment_of, read_run, time_of
from agentfs.ui.run_history import conversations

if TYPE_CHECKING:
    from agentfs.core.run_state import RunState


def cost(arguments: Namespace) -> int:
    """`agentfs cost RUN`, or `agentfs cost --since WHEN` for all runs."""
    if bool(arguments.run) == bool(arguments.since):
        raise UserError("name a run (agentfs cost RUN), or sum up all runs (agentfs cost --since 30d)")
    if arguments.since:
        return _cost_of_all(here(arguments), arguments)
    folder = here(arguments).find_run(arguments.run)
    page = as_page(run_id(folder), costs_of(conversations(folder)))
    return print_page(arguments, page, lambda: cost_lines(page, width()))


def _cost_of_all(workspace: Workspace, arguments: Namespace) -> int:
    since = format_moment(moment_of(arguments, "since") or datetime.now(UTC))
    page = charges_page(since, _charges(workspace, since))
    return print_page(arguments, page, lambda: period_lines(page, local_day(since), width()))


def _charges(workspace: Workspace, since: str) -> Iterator[Charge]:
    """Yield every request that ended since then, or is still open."""
    found = list_runs(workspace.runs)
    names: dict[str, set[str]] = {}
    folders = [*map(str, found.open), *(folder for _, folder in found.ended)]
    for folder in folders:
        day, name = run_id(folder).split("/")
        names.setdefault(day, set()).add(name)
    for folder in sorted(folders):
        end = ended(folder)
        if end is not None and end.at < since:
            continue
        day, name = run_id(folder).split("/")
        goal = goal_name(name, names[day])
        for talk in conversations(Path(folder), below=False):
            for one in talk.asked:
                if (at := _time_of(one, end, folder)) >= since:
                    yield Charge(run_id(folder), goal, local_day(at), one)


def _time_of(one: Asked, end: Glance | None, folder: str) -> str:
    """Return when a request ended; if that is not known, when its run ended, or else the day it began."""
    if one.at and time_of(one.at):
        return one.at
    return end.at if end and time_of(end.at) else f"{run_id(folder)[:10]}T12:00:00.000000Z"


# ── cost: what it prints ──────────────────────────────────────────────────────────────────────────────────


HEAD = ("requests", "input", "cached", "output", "reasoning", "cost", "waited")
LEAST_NAME = 10
UNKNOWN = "unknown"


def cost_lines(page: Mapping[str, Any], width: int | None) -> list[str]:
    """Return the lines of `agentfs cost`."""
    total = page["total"]
    if not total["requests"]:
        return [f"{page['run']} asked no model"]
    rows = [
        ("by role", None),
        *((one["role"], one) for one in page["by_role"]),
        ("by call", None),
        *((" ".join(filter(None, (str(one["call"]), one["trigger"]))), one) for one in page["by_call"]),
        ("by step", None),
        *((_tries(one), one) for one in page["by_step"]),
        ("total", total),
    ]
    said = f"{page['run']}: {plural(total['requests'], 'request')} to models, {money(total['cost_usd'])}"
    return [said, "", *_table(rows, width), *_find_unpriced(page)]


def _tries(one: Mapping[str, Any]) -> str:
    return f"{one['step']} ({one['attempts']} attempts)" if one["attempts"] > 1 else str(one["step"])


def period_lines(page: Mapping[str, Any], since: str, width: int | None) -> list[str]:
    """Return the lines of `agentfs cost --since`."""
    total, began = page["total"], f"since {since}"
    if not total["requests"]:
        return [f"no run asked a model {began}"]
    rows: list[tuple[str, Mapping[str, Any] | None]] = []
    for part in PARTS:
        rows += [(f"by {part}", None), *((one[part], one) for one in page[f"by_{part}"])]
    asked, runs = plural(total["requests"], "request"), plural(page["runs"], "run")
    said = f"{began}: {asked} to models by {runs}, {money(total['cost_usd'])}"
    return [said, "", *_table([*rows, ("total", total)], width), *_find_unpriced(page)]


def _table(rows: Sequence[tuple[str, Mapping[str, Any] | None]], width: int | None) -> list[str]:
    """Return a table. A row without figures is a heading; one with no rows below it is left out."""
    after = [*rows[1:], ("total", None)]  # a heading with nothing below it is left out
    kept = [row for row, (name, spend) in zip(rows, after, strict=True) if row[1] or (spend and name != "total")]
    cells = [(inert(name), _cells(spend) if spend else HEAD) for name, spend in kept]
    sizes = [max(columns(row[n]) for _, row in cells) for n in range(len(HEAD))]
    widest = max(columns(name) for name, _ in cells)
    left = widest if width is None else width - sum(sizes) - 2 * len(sizes)
    room = max(LEAST_NAME, min(widest, left))
    lines: list[str] = []
    for name, row in cells:
        if row is HEAD or name == "total":
            lines += [""] if lines else []
        shown = "".join(f"  {cell:>{size}}" for cell, size in zip(row, sizes, strict=True))
        lines.append(f"{pad(cut(name, room), room)}{shown}".rstrip())
    return lines


def _cells(spend: Mapping[str, Any]) -> tuple[str, ...]:
    seconds = spend["seconds"]
    return (
        str(spend["requests"]),
        short(spend["input_tokens"]),
        short(spend["cached_tokens"]),
        short(spend["output_tokens"]),
        short(spend["reasoning_tokens"]),
        money(spend["cost_usd"]),
        UNKNOWN if seconds is None else duration(seconds),
    )


def _find_unpriced(page: Mapping[str, Any]) -> list[str]:
    """Return what to do about unknown prices."""
    models = [one["model"] for one in page["by_model"] if one["cost_usd"] is None]
    if not models:
        return []
    return [
        "",
        f"not every cost of {', '.join(map(inert, models))} is known: a model's price can be set, in USD per million",
        "tokens, price = {input = 1.25, cached = 0.125, output = 10} under [planner] or [executor] in agentfs.toml;",
        "of a coding agent it is what the agent reports",
    ]


def money(cost: float | None) -> str:
    """Return an amount of money as people read it; unknown is not 0."""
    if cost is None:
        return UNKNOWN
    return f"${cost:.2f}" if cost == 0 or cost >= 1 else f"${cost:.4f}"


def short(tokens: int | None) -> str:
    """Return a number of tokens in at most six characters."""
    if tokens is None:
        return UNKNOWN
    for size, mark in ((1_000_000, "M"), (10_000, "k")):
        if tokens >= size:
            return f"{tokens / (1000 if mark == 'k' else size):.1f}{mark}"
    return f"{tokens:,}"


# ── compare ───────────────────────────────────────────────────────────────────────────────────────────────


def compare(arguments: Namespace) -> int:
    """`agentfs compare RUN RUN`"""
    from agentfs.core.costs import compare_runs

    workspace = here(arguments)
    page = compare_runs(_read(workspace, arguments.run), _read(workspace, arguments.other))
    return print_page(arguments, page, lambda: compare_lines(page, width(), colours=colours()))


def _read(workspace: Workspace, name: str) -> tuple["RunState", Costs]:
    folder = workspace.find_run(name)
    return read_run(folder, workspace).readable(), costs_of(conversations(folder))


Side = dict[str, Any]
Row = tuple[str, str, str]
GAP = 2


def compare_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return the table, then how the plans differ."""
    first, second = page["runs"]
    rows = [*_about(first, second), *_asked_rows(first, second)]
    lines = _side_by_side([("", first["run"], second["run"]), *rows], width)
    lines[1] = _colour(lines[1], first["state"], second["state"], colours=colours)
    return [*lines, *_notes(page), "", *_plans(page, colours=colours)]


def _about(first: Side, second: Side) -> Iterator[Row]:
    def row(name: str, say: Callable[[Side], str]) -> Row:
        return name, say(first), say(second)

    yield row("state", lambda side: side["state"])
    yield row("", lambda side: first_line(side["why"]))
    yield row("mode", lambda side: side["mode"])
    yield row("planner", lambda side: first_line(side["planner"] or "no model asked"))
    yield row("executor", lambda side: first_line(side["executor"] or "no model asked"))
    yield row("steps done", lambda side: counts_words(side["steps"]).replace(" steps done", ""))
    yield row("attempts", lambda side: str(side["attempts"]))
    yield row("revisions", lambda side: str(side["revisions"]))
    yield row("calls (replans)", lambda side: f"{side['calls']} ({side['replans']})")
    yield row("time working", lambda side: _seconds(side["seconds"]["working"]))
    yield row("time planning", lambda side: _seconds(side["seconds"]["planning"]))
    yield row("start to end", lambda side: _seconds(side["seconds"]["elapsed"]))


def _seconds(seconds: float | None) -> str:
    return "not ended" if seconds is None else duration(seconds)


def _asked_rows(first: Side, second: Side) -> Iterator[Row]:
    """Yield what models were asked, by role and in total."""
    for role in [*dict.fromkeys([*first["by_role"], *second["by_role"]]), "total"]:
        sides = [side["total"] if role == "total" else side["by_role"].get(role) for side in (first, second)]
        yield "", "", ""
        for name, key, shown in _SPENT:
            left, right = (shown(spend[key]) if spend else "-" for spend in sides)
            yield name.format(role), left, right


_SPENT: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("{}: requests", "requests", str),
    ("  tokens in", "input_tokens", short),
    ("  tokens out", "output_tokens", short),
    ("  cost", "cost_usd", money),
)


def _side_by_side(rows: list[Row], width: int | None) -> list[str]:
    label = max(columns(name) for name, _, _ in rows)
    left, room = max(columns(one) for _, one, _ in rows), None
    if width is not None:
        room = max(8, (width - label - 2 * GAP) // 2)
        left = min(room, left)
        room = max(room, width - label - left - 2 * GAP)
    lines = []
    for number, (name, one, other) in enumerate(rows):
        shorten = cut if number else cut_middle
        cells = (pad(name, label), pad(shorten(one, left), left), shorten(other, room))
        lines.append((" " * GAP).join(cells).rstrip())
    return lines


def _colour(line: str, *states: str, colours: bool) -> str:
    """Return the line of the states, each in its colour."""
    for state in dict.fromkeys(states):
        line = line.replace(f" {state}", f" {paint(state, mark_of_run(state).colour, colours=colours)}")
    return line


def _notes(page: dict[str, Any]) -> Iterator[str]:
    """Yield notes that explain the figures."""
    if not page["same_goal"]:
        yield from ("", "they have different goals")
    for side in page["runs"]:
        if is_fork_source(side["source"]):
            yield from ("", f"{side['run']} is a {side['source']}:")
            yield "what the results it kept took is counted in both"
    if any(side["total"]["cost_usd"] is None for side in page["runs"]):
        yield from ("", f"{UNKNOWN}: a price can be set (agentfs cost RUN says how)")


def _plans(page: dict[str, Any], *, colours: bool) -> list[str]:
    if page["steps"] is None:
        return ["plans: there are not two to compare yet"]
    first, second = page["runs"]
    return [f"plans: {first['run']} -> {second['run']}", *changed_lines(page, colours=colours)]
