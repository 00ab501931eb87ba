"""How states look (mark, colour, place in a list) and plain tables cut to a width. Pure, and quick to import."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentfs.core.text import columns, cut, pad, wrap_line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mark:
    """A sign for a state, one for terminals that know only ASCII, and a colour by its ANSI number."""

    sign: str
    plain: str
    colour: int | None = None


GOOD, BAD, _PERSON, _BUSY, _QUIET = 32, 31, 33, 36, None
WRONG = frozenset(("failed", "blocked", "rejected"))

MARKS: dict[str, Mark] = {
    "waiting": Mark("·", ".", _QUIET),
    "ready": Mark("○", "o", _QUIET),
    "gated": Mark("?", "?", _PERSON),
    "ordered": Mark("▸", ">", _BUSY),
    "running": Mark("▸", ">", _BUSY),
    "done": Mark("✓", "+", GOOD),
    "failed": Mark("✗", "x", BAD),
    "blocked": Mark("✗", "x", BAD),
    "interrupted": Mark("!", "!", _PERSON),
    "rejected": Mark("✗", "x", BAD),
    "skipped": Mark("-", "-", _QUIET),
    "stale": Mark("○", "o", _QUIET),
}
RUN_MARKS: dict[str, Mark] = {
    "planning": Mark("▸", ">", _BUSY),
    "draft": Mark("?", "?", _PERSON),
    "running": Mark("▸", ">", _BUSY),
    "waiting": Mark("?", "?", _PERSON),
    "paused": Mark("‖", "=", _PERSON),
    "done": Mark("✓", "+", GOOD),
    "failed": Mark("✗", "x", BAD),
    "cancelled": Mark("✗", "x", BAD),
}
BOLD, DIM = 1, 2  # in the place of a colour
UNKNOWN = Mark("?", "?")


def mark_of(state: str) -> Mark:
    return MARKS.get(state, UNKNOWN)


def mark_of_run(state: str) -> Mark:
    return RUN_MARKS.get(state, UNKNOWN)


def wrong_first(steps: Iterable[T], state: Callable[[T], str]) -> list[T]:
    """Return steps as people are shown them: what went wrong first, the rest in its order."""
    return sorted(steps, key=lambda step: state(step) not in WRONG)


def paint(text: str, colour: int | None, *, colours: bool) -> str:
    """Return text in a colour, where colours are wanted."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colours and colour is not None else text


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────


GAP = 2
LEAST = 8  # columns that the last one is worth having with
Cell = tuple[str, int | None]  # text, colour


def table(
    rows: Sequence[Sequence[Cell]], width: int | None, *, colours: bool, widest: int = 40, wrap: bool = False
) -> list[str]:
    """Return lines that fit a width: the last column takes what is left, and a long cell is cut.

    Where there is not enough room, columns are left out from the right; two stay, and the wider one is cut. `wrap`:
    the last column goes on below instead. With no width every cell is whole.
    """
    if not rows:
        return []
    sizes = [max(columns(row[n][0]) for row in rows) for n in range(len(rows[0]))]
    if width is not None:
        sizes = _fit([min(widest, size) for size in sizes[:-1]], width)
    wraps = wrap and width is not None and len(sizes) == len(rows[0])
    lines = [part for row in rows for part in (_wrap(row, sizes[-1]) if wraps else [row])]
    return [_row_line(row[: len(sizes)], sizes, colours=colours).rstrip() for row in lines]


def _wrap(row: Sequence[Cell], size: int) -> list[Sequence[Cell]]:
    """Return a row as several: what the last cell has no room for goes on below."""
    text, colour = row[-1]
    first, *more = wrap_line(text, size)
    blank: list[Cell] = [("", None)] * (len(row) - 1)
    return [[*row[:-1], (first, colour)], *([*blank, (line, colour)] for line in more)]


def _fit(sizes: list[int], width: int) -> list[int]:
    """Return how wide the columns are that fit, given those before the last."""
    room = width - sum(sizes) - GAP * len(sizes)
    if room >= LEAST:
        return [*sizes, room]
    while len(sizes) > 2 and sum(sizes) + GAP * (len(sizes) - 1) > width:
        sizes = sizes[:-1]
    over = sum(sizes) + GAP * (len(sizes) - 1) - width
    return [max(1, size - over) if over > 0 and size == max(sizes) else size for size in sizes]


def _row_line(row: Sequence[Cell], sizes: Sequence[int], *, colours: bool) -> str:
    cells = []
    for (text, colour), size in zip(row, sizes, strict=True):
        shown = cut(text, size)
        cells.append(paint(shown, colour, colours=colours) + " " * (size - columns(shown)))
    return (" " * GAP).join(cells)


def line_of(cells: Sequence[Cell], width: int, *, colours: bool) -> str:
    """Return cells in a row, with no gaps but their own blanks; what goes beyond the width is cut."""
    parts, room = [], width
    for text, colour in cells:
        shown = cut(text, room)
        parts.append(paint(shown, colour, colours=colours and bool(shown.strip())))
        room -= columns(shown)
    return "".join(parts).rstrip()


def align_columns(pairs: Sequence[tuple[str, str]], indent: int = 2) -> list[str]:
    """Return `name  words` lines, the names in a column."""
    widest = max((columns(name) for name, _ in pairs), default=0)
    return [f"{' ' * indent}{pad(name, widest)}  {words}".rstrip() for name, words in pairs]


NOT_DRIVEN = "not driven"


def shown_state(run: Mapping[str, Any]) -> str:
    """Return the state of a run as people see it: what could go on is not running while nothing drives it."""
    return NOT_DRIVEN if run["state"] in ("running", "planning") and not run["driven"] else str(run["state"])
