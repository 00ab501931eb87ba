"""What a run cost, as a table of at most the terminal's width. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentfs.views.words import columns, counted, cut, duration, inert, padded

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
        *((_step(one), one) for one in page["by_step"]),
        ("total", total),
    ]
    said = f"{page['run']}: {counted(total['requests'], 'request')} to models, {money(total['cost_usd'])}"
    return [said, "", *_table(rows, width), *_unknown(page)]


def _step(one: Mapping[str, Any]) -> str:
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
