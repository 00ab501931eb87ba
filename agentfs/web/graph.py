"""The plan as a picture: nodes with state, attempt and time, in layers; many alike are folded into one. Pure."""

import itertools
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agentfs.core.attention import shown_state
from agentfs.core.steps import StepView
from agentfs.core.text import cut, duration, first_line, mark_of, plural, without_colours
from agentfs.web.gather import RunPage
from agentfs.web.html import Child, Html, el
from agentfs.web.layout import Layout, lay_out
from agentfs.web.marks import QUIET, items_words, step_anchor, tone_of
from agentfs.web.site import Site
from agentfs.web.steps import does

FOLD_OVER = 24  # nodes above which those alike are folded
ALIKE = 4  # so many
MOST = 60  # nodes that are drawn
HEIGHT, ROW_GAP, GAP, EDGE = 54.0, 40.0, 22.0, 10.0
WIDTHS = {1: 440.0, 2: 300.0, 3: 240.0}  # of a node, by how many stand beside each other
LEAST_WIDTH = 204.0
NARROW = 520.0  # a picture up to so wide is made smaller where there is less room; a wider one is moved
ID_CHARACTER, TEXT_CHARACTER = 7.7, 6.4  # rough widths of a letter


@dataclass(frozen=True, slots=True)
class Node:
    """One step, or several alike."""

    name: str
    word: str
    below: str = ""  # what it does, or why it is in its state
    beside: str = ""  # attempt and time
    members: tuple[str, ...] = ()
    gate: bool = False
    child: str | None = None  # the run that it is
    enter: str | None = None  # where that is shown

    @property
    def title(self) -> str:
        return plural(len(self.members), "step") if self.members else self.name


def plan_graph(page: RunPage, site: Site) -> Html | None:
    """Return the plan as SVG; None where there is none, or nothing to see."""
    graph = page.state.graph
    if graph is None or not page.state.steps:
        return None
    views = page.state.steps
    every = {name: _node(page, views[name], site) for name in graph.order}
    nodes, needs, left_out = drawable(*fold_nodes(every, {name: tuple(graph.needs[name]) for name in graph.order}))
    return el(
        "figure",
        el(
            "div",
            _svg(nodes, needs, *_fitting(needs)),
            class_="scroll",
            tabindex="0",
            role="group",
            aria_label="Plan",
        ),
        el("figcaption", f"{plural(left_out, 'more step')} not drawn: all are listed below.") if left_out else None,
        class_="graph",
    )


def _node(page: RunPage, view: StepView, site: Site) -> Node:
    word = shown_state(view, asks=view.id in page.asking)
    tries = f"attempt {view.attempt}" if view.attempt > 1 or (word in ("running", "failed") and view.attempt) else ""
    taken = duration(view.result.duration_s) if view.result is not None and view.result.started_at else ""
    inside = page.below.get(view.id)
    telling = word in ("failed", "blocked", "rejected", "interrupted", "asks", "gated", "stale")
    words = f"{inside.state}: {inside.why}" if inside else view.why if telling else view.step.description
    below = first_line(without_colours(words or does(view.step)))
    beside = ", ".join(filter(None, (items_words(view), tries, taken)))
    child = page.child(view.id)
    enter = site.other(child) if child else None
    return Node(view.id, word, below, beside, gate=bool(view.step.gate), child=child, enter=enter)


# ── folding ───────────────────────────────────────────────────────────────────────────────────────────────


Nodes = Mapping[str, Node]
Needs = Mapping[str, tuple[str, ...]]


def fold_nodes(nodes: Nodes, needs: Needs) -> tuple[Nodes, Needs]:
    """Return the graph with nodes alike folded: those with the same neighbours, then those in a row, then again.

    What was folded can be alike in its turn: ten shards of a read, its parts and a close become one node.
    """
    if len(nodes) <= FOLD_OVER:
        return nodes, needs
    for least in (ALIKE, 2):
        for find in (_siblings, partial(_chains, least=least), _siblings):
            for group in find(nodes, needs):
                nodes, needs = _merge_group(nodes, needs, group)
        if len(nodes) <= FOLD_OVER:
            break
    return nodes, needs


def _siblings(nodes: Nodes, needs: Needs) -> list[list[str]]:
    """Return groups of one state that come after the same steps, and before the same."""
    after = _dependents(needs)
    found: dict[tuple[frozenset[str], frozenset[str], str], list[str]] = {}
    for name, node in nodes.items():
        if node.word in QUIET:
            found.setdefault((frozenset(needs[name]), frozenset(after[name]), node.word), []).append(name)
    return [group for group in found.values() if len(group) >= ALIKE]


def _chains(nodes: Nodes, needs: Needs, least: int) -> list[list[str]]:
    """Return rows of one state in which each step has one before it and one after."""
    after = _dependents(needs)
    chains: dict[str, list[str]] = {}
    for name, node in nodes.items():
        above = needs[name][0] if len(needs[name]) == 1 else None
        if above and len(after[above]) == 1 and node.word in QUIET and nodes[above].word == node.word:
            chains[name] = chains.get(above, [above])
            chains[name].append(name)
    unique = {id(chain): chain for chain in chains.values()}
    return [chain for chain in unique.values() if len(chain) >= least]


def _dependents(needs: Needs) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for one in wanted:
            found[one].append(name)
    return found


def _merge_group(nodes: Nodes, needs: Needs, group: Sequence[str]) -> tuple[Nodes, Needs]:
    """Return the graph with a group in the place of its first member: what it needs comes before that."""
    gone, name = frozenset(group), f"{group[0]} … {group[-1]}"
    steps = tuple(member for one in group for member in (nodes[one].members or (one,)))
    made = Node(name, nodes[group[0]].word, f"{steps[0]} … {steps[-1]}", members=steps)
    new_nodes: dict[str, Node] = {}
    new_needs: dict[str, tuple[str, ...]] = {}
    outer = tuple(dict.fromkeys(one for member in group for one in needs[member] if one not in gone))
    for one, node in nodes.items():
        if one not in gone:
            new_nodes[one] = node
            new_needs[one] = tuple(dict.fromkeys(name if other in gone else other for other in needs[one]))
        elif one == group[0]:
            new_nodes[name], new_needs[name] = made, outer
    return new_nodes, new_needs


def drawable(nodes: Nodes, needs: Needs) -> tuple[Nodes, Needs, int]:
    """Return what there is room for: what runs or went wrong, and what is nearest; and how many are left out."""
    if len(nodes) <= MOST:
        return nodes, needs, 0
    kept = frozenset(itertools.islice(_nearest(nodes, needs), MOST))
    left_out = sum(len(node.members) or 1 for name, node in nodes.items() if name not in kept)
    return (
        {name: node for name, node in nodes.items() if name in kept},
        {name: tuple(one for one in wanted if one in kept) for name, wanted in needs.items() if name in kept},
        left_out,
    )


def _nearest(nodes: Nodes, needs: Needs) -> Iterator[str]:
    """Yield nodes by how many edges they are from what runs or went wrong, or from what is next, then the others."""
    after = _dependents(needs)
    pressing = [name for name, node in nodes.items() if node.word not in QUIET]
    coming = [name for name, node in nodes.items() if node.word not in ("done", "skipped")]
    found = dict.fromkeys(pressing or coming[:1] or list(nodes)[-1:])
    queue = deque(found)
    while queue:
        name = queue.popleft()
        yield name
        near = [one for one in (*needs[name], *after[name]) if one not in found]
        found.update(dict.fromkeys(near))
        queue.extend(near)
    yield from (name for name in nodes if name not in found)


# ── drawing ───────────────────────────────────────────────────────────────────────────────────────────────


def _fitting(needs: Needs) -> tuple[Layout, float]:
    """Return where nodes go, and how wide each is: the fewer stand beside each other, the wider."""
    rough = lay_out(needs, LEAST_WIDTH, GAP)
    width = WIDTHS.get(max(Counter(rough.layers.values()).values(), default=1), LEAST_WIDTH)
    return rough if width == LEAST_WIDTH else lay_out(needs, width, GAP), width


def _svg(nodes: Nodes, needs: Needs, layout: Layout, node_width: float) -> Html:
    width = layout.width + 2 * EDGE
    height = layout.depth * (HEIGHT + ROW_GAP) - ROW_GAP + 2 * EDGE
    pairs = [(one, name) for name in nodes for one in needs[name]]
    edges = [  # those that say something: of another, a longer way round says it as well
        _edge(layout, one, name, nodes)
        for one, name in pairs
        if layout.layers[name] - layout.layers[one] == 1 or (one, name) in layout.bends
    ]
    return el(
        "svg",
        el("g", edges, class_="edges"),
        (_box(layout, node, node_width) for node in nodes.values()),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        class_="plan narrow" if width <= NARROW else "plan",
    )


def _edge(layout: Layout, above: str, below: str, nodes: Nodes) -> Html:
    x, y = layout.centres[above] + EDGE, _top(layout.layers[above]) + HEIGHT
    path = f"M{x:.1f} {y:.1f}"
    layer = layout.layers[above] + 1
    for bend in (*layout.bends.get((above, below), ()), None):
        to_x = (layout.centres[below] if bend is None else bend) + EDGE
        to_y = _top(layer)
        middle = (y + to_y) / 2
        path += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
        if bend is not None:
            y += HEIGHT
            path += f"L{x:.1f} {y:.1f}"
        layer += 1
    return el("path", d=path, class_="walked" if nodes[above].word == "done" else None)


def _words(node: Node) -> str:
    """Return a node in words, for who does not see it."""
    run = f" It is the run {node.child}." if node.child else ""
    return f"{node.title}: {node.word}. {node.below}{f' ({node.beside})' if node.beside else ''}{run}"


def _top(layer: int) -> float:
    return EDGE + layer * (HEIGHT + ROW_GAP)


def _box(layout: Layout, node: Node, width: float) -> Html:
    x, y = layout.centres[node.name] + EDGE - width / 2, _top(layout.layers[node.name])
    room = width - 44
    beside = cut(node.beside, max(0, int((room - len(node.title) * ID_CHARACTER - 12) / TEXT_CHARACTER)))
    title = cut(node.title, int((room - len(beside) * TEXT_CHARACTER - 6) / ID_CHARACTER))
    words = node.word if not node.below else node.below
    inner: list[Child] = [
        el("title", _words(node)),
        el("rect", width=width, height=HEIGHT, rx=8, class_="box"),
        el("rect", width=width - 6, height=HEIGHT - 6, x=-3 + 6, y=3, rx=6, class_="again")
        if node.members or node.child
        else None,
        el("circle", cx=20, cy=HEIGHT / 2, r=10, class_="dot"),
        el("text", mark_of(node.word).sign, x=20, y=HEIGHT / 2 + 4.5, class_="sign", aria_hidden="true"),
        el("text", title, x=38, y=22, class_="id"),
        el("text", beside, x=width - 10, y=22, class_="beside") if beside else None,
        el("text", cut(words, int(room / TEXT_CHARACTER)), x=38, y=41, class_="below"),
        el(
            "path",
            d=f"M{width - 22} {HEIGHT - 20}h12v8h-12zM{width - 20} {HEIGHT - 20}v-3a4 4 0 0 1 8 0v3",
            class_="gate",
        )
        if node.gate
        else None,
    ]
    anchor = "#steps" if node.members else node.enter or step_anchor(node.name)
    link = el("a", *inner, href=anchor)
    return el("g", link, transform=f"translate({x:.1f} {y:.1f})", class_=f"node {tone_of(node.word)}")
