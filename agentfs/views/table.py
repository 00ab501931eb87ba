"""Plain tables for stdout, cut to a width. Pure, and quick to import."""

from collections.abc import Sequence

from agentfs.views.marks import painted
from agentfs.views.words import columns, cut, padded, wrapped

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
        sizes = _fitted([min(widest, size) for size in sizes[:-1]], width)
    wraps = wrap and width is not None and len(sizes) == len(rows[0])
    lines = [part for row in rows for part in (_wrapped(row, sizes[-1]) if wraps else [row])]
    return [_line(row[: len(sizes)], sizes, colours=colours).rstrip() for row in lines]


def _wrapped(row: Sequence[Cell], size: int) -> list[Sequence[Cell]]:
    """Return a row as several: what the last cell has no room for goes on below."""
    text, colour = row[-1]
    first, *more = wrapped(text, size)
    blank: list[Cell] = [("", None)] * (len(row) - 1)
    return [[*row[:-1], (first, colour)], *([*blank, (line, colour)] for line in more)]


def _fitted(sizes: list[int], width: int) -> list[int]:
    """Return how wide the columns are that fit, given those before the last."""
    room = width - sum(sizes) - GAP * len(sizes)
    if room >= LEAST:
        return [*sizes, room]
    while len(sizes) > 2 and sum(sizes) + GAP * (len(sizes) - 1) > width:
        sizes = sizes[:-1]
    over = sum(sizes) + GAP * (len(sizes) - 1) - width
    return [max(1, size - over) if over > 0 and size == max(sizes) else size for size in sizes]


def _line(row: Sequence[Cell], sizes: Sequence[int], *, colours: bool) -> str:
    cells = []
    for (text, colour), size in zip(row, sizes, strict=True):
        shown = cut(text, size)
        cells.append(painted(shown, colour, colours=colours) + " " * (size - columns(shown)))
    return (" " * GAP).join(cells)


def line_of(cells: Sequence[Cell], width: int, *, colours: bool) -> str:
    """Return cells in a row, with no gaps but their own blanks; what goes beyond the width is cut."""
    parts, room = [], width
    for text, colour in cells:
        shown = cut(text, room)
        parts.append(painted(shown, colour, colours=colours and bool(shown.strip())))
        room -= columns(shown)
    return "".join(parts).rstrip()


def columned(pairs: Sequence[tuple[str, str]], indent: int = 2) -> list[str]:
    """Return `name  words` lines, the names in a column."""
    widest = max((columns(name) for name, _ in pairs), default=0)
    return [f"{' ' * indent}{padded(name, widest)}  {words}".rstrip() for name, words in pairs]
