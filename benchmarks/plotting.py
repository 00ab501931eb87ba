"""A plot of a few lines as SVG, made of text and nothing else. Each line bears its name at its end."""

import math
from collections.abc import Iterator
from html import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 24, 52  # room around the lines; the right one is for their names
COLOURS = ("#999999", "#c0392b", "#1f6fb2", "#7fb3e0", "#2e8b57")
APART = 17  # between two names
Lines = dict[str, list[tuple[float, float]]]


def plot(lines: Lines, x_title: str, y_title: str) -> str:
    """Return the picture."""
    points = [point for line in lines.values() for point in line]
    most_x, most_y = max(x for x, _ in points), _round(max(y for _, y in points))
    xs = sorted({x for x, _ in points})
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_axes(xs, most_x, most_y, x_title, y_title),
        *_drawn(lines, most_x, most_y),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _place(x: float, y: float, most_x: float, most_y: float) -> tuple[float, float]:
    across, up = (WIDTH - LEFT - RIGHT) * x / most_x, (HEIGHT - TOP - BOTTOM) * y / most_y
    return round(LEFT + across, 1), round(HEIGHT - BOTTOM - up, 1)


def _round(most: float) -> float:
    """Return the next number whose fifths are round."""
    scale = 10 ** math.floor(math.log10(most))
    return next(scale * part for part in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if scale * part >= most)


def _axes(xs: list[float], most_x: float, most_y: float, x_title: str, y_title: str) -> Iterator[str]:
    for number in range(6):
        value = most_y * number / 5
        left, y = _place(0, value, most_x, most_y)
        yield f'<line x1="{left}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#dddddd"/>'
        yield f'<text x="{left - 8}" y="{y + 4}" text-anchor="end" fill="#555555">{value:,.0f}</text>'
    for x in xs:
        at, bottom = _place(x, 0, most_x, most_y)
        yield f'<text x="{at}" y="{bottom + 18}" text-anchor="middle" fill="#555555">{x:g}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_title)}</text>'
    turned = f'transform="rotate(-90 18 {HEIGHT / 2})"'
    yield f'<text x="18" y="{HEIGHT / 2}" text-anchor="middle" {turned}>{escape(y_title)}</text>'


def _drawn(lines: Lines, most_x: float, most_y: float) -> Iterator[str]:
    ends = {name: _place(*line[-1], most_x, most_y) for name, line in lines.items()}
    heights = _spread({name: y for name, (_, y) in ends.items()})
    for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
        places = [_place(x, y, most_x, most_y) for x, y in line]
        path = " ".join(f"{x},{y}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        for x, y in places:
            yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>'
        label = f"{name}: {line[-1][1]:,.0f}"
        yield f'<text x="{ends[name][0] + 10}" y="{heights[name] + 4}" fill="{colour}">{escape(label)}</text>'


def _spread(heights: dict[str, float]) -> dict[str, float]:
    """Return where names stand so that none covers another: from the bottom up."""
    placed: dict[str, float] = {}
    below = float("inf")
    for name, y in sorted(heights.items(), key=lambda item: -item[1]):
        below = min(y, below - APART)
        placed[name] = below
    return placed
