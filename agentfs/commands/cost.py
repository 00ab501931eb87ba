"""`cost` and `compare`: what a run has asked of models, and two runs side by side. Reads only."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.commands.common import colours, here, print_lines, width
from agentfs.commands.reading import plain_json, read_run, run_id
from agentfs.core import paths
from agentfs.core.costs import Asked, Conversation, Costs, as_page, asked_by, asked_in, costs_of
from agentfs.core.paths import is_fork_source
from agentfs.core.plan_diff import changed_lines
from agentfs.core.table import RUN_COLOURS, painted
from agentfs.core.text import (
    columns,
    counted,
    counts_words,
    cut,
    cut_middle,
    duration,
    first_line,
    inert,
    json_text,
    padded,
)
from agentfs.storage.jsonl import read_lines
from agentfs.storage.safe_open import names_in
from agentfs.storage.workspace import Workspace

if TYPE_CHECKING:
    from agentfs.core.run_state import RunState


def cost(arguments: Namespace) -> int:
    """`agentfs cost RUN`"""
    folder = here(arguments).find_run(arguments.run)
    page = as_page(run_id(folder), costs_of(conversations(folder)))
    if arguments.json:
        return print_lines([json_text(page)])
    return print_lines(cost_lines(page, width()))


def conversations(folder: Path) -> Iterator[Conversation]:
    """Yield everything that a run has asked of models: the planner's calls in order, then the steps."""
    yield from _calls(folder / paths.PLANNING)
    yield from _attempts(folder / paths.STEPS)


def _calls(planning: Path) -> Iterator[Conversation]:
    found = {parsed.call for name in _listed(planning) if (parsed := paths.parse_call_file(name))}
    for call in sorted(found):
        record = plain_json(planning / paths.call_file(call, "call"))
        trigger = record.get("trigger") if isinstance(record, dict) else None
        judged = _asked(planning / paths.checks_log_file(call), planning / paths.call_file(call, "checks"))
        yield Conversation(judged, call=call, trigger="goal checks")
        asked = _asked(planning / paths.call_file(call, "log"), planning / paths.call_file(call, "answer"))
        yield Conversation(asked, call=call, trigger=trigger if isinstance(trigger, str) else None)


def _attempts(steps: Path) -> Iterator[Conversation]:
    found = {(parsed.step, parsed.attempt) for name in _listed(steps) if (parsed := paths.parse_step_file(name))}
    for step, attempt in sorted(found):
        log = steps / paths.step_file(step, attempt, "log")
        asked = _asked(log, steps / paths.step_file(step, attempt, "result"))
        yield Conversation(asked, step=step, attempt=attempt)


def _asked(log: Path, record: Path) -> tuple[Asked, ...]:
    """Return what a conversation asked, as its log tells; where that is gone, as its result sums it up."""
    if asked := tuple(asked_in(read_lines(log))):
        return asked
    settled = plain_json(record)
    return tuple(asked_by(settled.get("usage"))) if isinstance(settled, dict) else ()


def _listed(folder: Path) -> list[str]:
    try:
        return names_in(folder)
    except OSError:
        return []


# ── cost: what it prints ──────────────────────────────────────────────────────────────────────────────────


HEAD = ("requests", "input", "cached", "output", "reasoning", "cost", "waited")
LEAST_NAME = 10
UNKNOWN = "unknown"


def cost_lines(page: Mapping[str, Any], width: int | None) -> list[str]:
    """Return the lines of `agentfs cost`."""
    total = page["total"]
    if not total["requests"]:
        return [f"{page['run']} has asked no model"]
    rows = [
        ("by role", None),
        *((one["role"], one) for one in page["by_role"]),
        ("by call", None),
        *((" ".join(filter(None, (str(one["call"]), one["trigger"]))), one) for one in page["by_call"]),
        ("by step", None),
        *((_step_name(one), one) for one in page["by_step"]),
        ("total", total),
    ]
    said = f"{page['run']}: {counted(total['requests'], 'request')} to models, {money(total['cost_usd'])}"
    return [said, "", *_table(rows, width), *_unknown(page)]


def _step_name(one: Mapping[str, Any]) -> str:
    tries = f" ({one['attempts']} attempts)" if one["attempts"] > 1 else ""
    return f"{one['step']}{tries}"


def _table(rows: Sequence[tuple[str, Mapping[str, Any] | None]], width: int | None) -> list[str]:
    """Return a table in which a row without figures heads those that follow; one with none below it is left out."""
    cells = [(inert(name), _cells(spend) if spend else HEAD) for name, spend in _needed(rows)]
    sizes = [max(columns(row[n]) for _, row in cells) for n in range(len(HEAD))]
    widest = max(columns(name) for name, _ in cells)
    left = widest if width is None else width - sum(sizes) - 2 * len(sizes)
    room = max(LEAST_NAME, min(widest, left))
    lines: list[str] = []
    for name, row in cells:
        if row is HEAD or name == "total":
            lines += [""] if lines else []
        shown = "".join(f"  {cell:>{size}}" for cell, size in zip(row, sizes, strict=True))
        lines.append(f"{padded(cut(name, room), room)}{shown}".rstrip())
    return lines


def _needed(
    rows: Sequence[tuple[str, Mapping[str, Any] | None]],
) -> list[tuple[str, Mapping[str, Any] | None]]:
    after = [*rows[1:], ("", None)]
    return [
        row
        for row, following in zip(rows, after, strict=True)
        if row[1] or (following[1] and following[0] != "total")
    ]


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


def _unknown(page: Mapping[str, Any]) -> list[str]:
    """Return what to do about prices that nobody knows."""
    models = [one["model"] for one in page["by_model"] if one["cost_usd"] is None]
    if not models:
        return []
    return [
        "",
        f"not every cost of {', '.join(map(inert, models))} is known: a price can be set, in USD per million tokens,",
        "price = {input = 1.25, cached = 0.125, output = 10} under [planner] or [executor] in agentfs.toml",
    ]


def money(cost: float | None) -> str:
    """Return an amount as people read it; what nobody knows is not nothing."""
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
    from agentfs.core.costs import compared

    workspace = here(arguments)
    page = compared(_read(workspace, arguments.run), _read(workspace, arguments.other))
    if arguments.json:
        return print_lines([json_text(page)])
    return print_lines(compare_lines(page, width(), colours=colours()))


def _read(workspace: Workspace, name: str) -> tuple["RunState", Costs]:
    folder = workspace.find_run(name)
    return read_run(folder, workspace).readable(), costs_of(conversations(folder))


Side = dict[str, Any]
Row = tuple[str, str, str]
GAP = 2


def compare_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return the table, then how the plans differ."""
    first, second = page["runs"]
    rows = [*_about(first, second), *_took(first, second), *_asked_rows(first, second)]
    lines = _side_by_side([("", first["run"], second["run"]), *rows], width)
    lines[1] = _coloured(lines[1], first["state"], second["state"], colours=colours)
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


def _took(first: Side, second: Side) -> Iterator[Row]:
    for name, key in (("time working", "working"), ("time planning", "planning"), ("start to end", "elapsed")):
        yield name, _seconds(first["seconds"][key]), _seconds(second["seconds"][key])


def _seconds(seconds: float | None) -> str:
    return "not ended" if seconds is None else duration(seconds)


def _asked_rows(first: Side, second: Side) -> Iterator[Row]:
    """Yield what models were asked: by role, then in sum."""
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
        cells = (padded(name, label), padded(shorten(one, left), left), shorten(other, room))
        lines.append((" " * GAP).join(cells).rstrip())
    return lines


def _coloured(line: str, *states: str, colours: bool) -> str:
    """Return the line of the states, each in its colour."""
    for state in dict.fromkeys(states):
        line = line.replace(f" {state}", f" {painted(state, RUN_COLOURS.get(state), colours=colours)}")
    return line


def _notes(page: dict[str, Any]) -> Iterator[str]:
    """Yield what has to be known to read the figures."""
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
