"""What `compare` prints: two runs side by side, in a table that fits the terminal. Pure."""

from collections.abc import Callable, Iterator
from typing import Any

from agentfs.core.paths import is_fork_source
from agentfs.views.cost import UNKNOWN, money, short
from agentfs.views.diff import changed_lines
from agentfs.views.marks import RUN_COLOURS, painted
from agentfs.views.words import columns, counts_words, cut, cut_middle, duration, first_line, padded

Side = dict[str, Any]
Row = tuple[str, str, str]
GAP = 2


def compare_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return the table, then how the plans differ."""
    first, second = page["runs"]
    rows = [*_about(first, second), *_took(first, second), *_asked(first, second)]
    lines = _table([("", first["run"], second["run"]), *rows], width)
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


def _asked(first: Side, second: Side) -> Iterator[Row]:
    """Yield what models were asked: by role, then in sum."""
    roles = list(dict.fromkeys([*first["by_role"], *second["by_role"]]))
    for role in [*roles, "total"]:
        left, right = (side["total"] if role == "total" else side["by_role"].get(role) for side in (first, second))
        yield "", "", ""
        yield f"{role}: requests", _number(left, "requests"), _number(right, "requests")
        yield "  tokens in", _tokens(left, "input_tokens"), _tokens(right, "input_tokens")
        yield "  tokens out", _tokens(left, "output_tokens"), _tokens(right, "output_tokens")
        yield "  cost", _cost(left), _cost(right)


def _number(spend: Side | None, name: str) -> str:
    return str(spend[name]) if spend else "-"


def _tokens(spend: Side | None, name: str) -> str:
    return short(spend[name]) if spend else "-"


def _cost(spend: Side | None) -> str:
    return money(spend["cost_usd"]) if spend else "-"


def _table(rows: list[Row], width: int | None) -> list[str]:
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
