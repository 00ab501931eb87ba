"""Where the nodes of a plan go: in layers, what depends on others below them, with few crossings. Pure.

The way of Sugiyama: the longest path gives the layer, an edge over several layers gets a bend in each, neighbours are
sorted by the middle of what they hang on, and places are the least-squares ones that keep that order.
"""

import itertools
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SWEEPS = 8
BEND = 14.0  # room that a passing edge takes


@dataclass(frozen=True, slots=True)
class Layout:
    """The layer and the centre of every node, the bends of every edge, and the width of all."""

    layers: Mapping[str, int]
    centres: Mapping[str, float]
    bends: Mapping[tuple[str, str], tuple[float, ...]]  # of an edge: where it passes each layer in between
    width: float

    @property
    def depth(self) -> int:
        return max(self.layers.values(), default=-1) + 1


def lay_out(needs: Mapping[str, Sequence[str]], width: float, gap: float) -> Layout:
    """Return places for nodes of one width. `needs`: each node with those above it, in an order without cycles."""
    needs = reduce_edges(needs)
    layers: dict[str, int] = {}
    for node, wanted in needs.items():
        layers[node] = max((layers[one] + 1 for one in wanted), default=0)
    rows, links = _with_bends(needs, layers)
    rows = _sort_rows(rows, links)
    half = {name: (BEND if isinstance(name, tuple) else width) / 2 for row in rows for name in row}
    places = _place_spots(rows, links, half, gap)
    left = min((places[name] - half[name] for name in places), default=0.0)
    right = max((places[name] + half[name] for name in places), default=0.0)
    bends: dict[tuple[str, str], tuple[float, ...]] = {}
    for name in sorted(name for name in places if isinstance(name, tuple)):
        bends[name[:2]] = (*bends.get(name[:2], ()), places[name] - left)
    centres = {name: places[name] - left for name in places if isinstance(name, str)}
    return Layout(layers, centres, bends, right - left)


def reduce_edges(needs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the edges that say something: what is above a node's own needs need not be drawn."""
    above: dict[str, frozenset[str]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for node, wanted in needs.items():
        known = [one for one in wanted if one in above]
        beyond = frozenset().union(*(above[one] for one in known)) if known else frozenset()
        found[node] = tuple(one for one in dict.fromkeys(known) if one not in beyond)
        above[node] = beyond | frozenset(known)
    return found


Bend = tuple[str, str, int]  # an edge, and the layer in which it passes
Spot = str | Bend
Links = dict[Spot, list[Spot]]


def _with_bends(
    needs: Mapping[str, Sequence[str]], layers: Mapping[str, int]
) -> tuple[list[list[Spot]], tuple[Links, Links]]:
    rows: list[list[Spot]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    up: Links = {}
    down: Links = {}
    for node, wanted in needs.items():
        rows[layers[node]].append(node)
        for one in wanted:
            spots: list[Spot] = [one, *((one, node, n) for n in range(layers[one] + 1, layers[node])), node]
            for bend in spots[1:-1]:
                rows[bend[2] if isinstance(bend, tuple) else 0].append(bend)
            for higher, lower in itertools.pairwise(spots):
                down.setdefault(higher, []).append(lower)
                up.setdefault(lower, []).append(higher)
    return rows, (up, down)


def _sort_rows(rows: list[list[Spot]], links: tuple[Links, Links]) -> list[list[Spot]]:
    """Return the rows with each sorted by the middle of its neighbours, down and up until there is little to gain."""
    best, fewest = rows, _crossings(rows, links[1])
    for sweep in range(SWEEPS):
        if not fewest:
            break
        neighbours = links[sweep % 2]
        rows = [list(row) for row in rows]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            place = {spot: number for one in rows for number, spot in enumerate(one)}
            near = {spot: [place[one] for one in neighbours.get(spot, ())] or [place[spot]] for spot in row}
            row.sort(key=lambda spot: sum(near[spot]) / len(near[spot]))
        if (count := _crossings(rows, links[1])) < fewest:
            best, fewest = rows, count
    return best


def _crossings(rows: list[list[Spot]], down: Links) -> int:
    count = 0
    for above, below in itertools.pairwise(rows):
        place = {spot: number for number, spot in enumerate(below)}
        ends = [end for spot in above for end in sorted(place[one] for one in down.get(spot, ()))]
        count += _inversions(ends)
    return count


def _inversions(values: list[int]) -> int:
    """Return how many pairs are in the wrong order."""
    seen: list[int] = []
    count = 0
    for value in values:
        count += len(seen) - bisect_right(seen, value)
        insort(seen, value)
    return count


def _place_spots(
    rows: list[list[Spot]], links: tuple[Links, Links], half: Mapping[Spot, float], gap: float
) -> dict[Spot, float]:
    places: dict[Spot, float] = {}
    for row in rows:
        x = 0.0
        for spot in row:
            places[spot] = x + half[spot]
            x += 2 * half[spot] + gap
    for sweep in range(SWEEPS):
        neighbours = links[sweep % 2]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [
                sum(places[one] for one in near) / len(near) if (near := neighbours.get(spot)) else places[spot]
                for spot in row
            ]
            places.update(zip(row, _apart(wanted, [half[spot] for spot in row], gap), strict=True))
    return places


def _apart(wanted: list[float], half: list[float], gap: float) -> list[float]:
    """Return the places nearest to the wanted ones at which nothing overlaps, in the same order."""
    offsets = [0.0]
    for one, other in itertools.pairwise(half):
        offsets.append(offsets[-1] + one + gap + other)
    groups: list[tuple[float, int]] = []  # mean and size: neighbours that push each other move together
    for mean, size in ((place - offset, 1) for place, offset in zip(wanted, offsets, strict=True)):
        while groups and groups[-1][0] > mean:
            other, count = groups.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count  # noqa: PLW2901
        groups.append((mean, size))
    flat = [mean for mean, size in groups for _ in range(size)]
    return [place + offset for place, offset in zip(flat, offsets, strict=True)]
