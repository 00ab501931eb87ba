"""A plan as a Mermaid flowchart: what comes after what, and how far it is. Pure.

Nothing that a model or a tool wrote is in it: ids of steps have no signs that could mean anything, the rest is ours.
"""

from agentfs.core.outcome import left_steps
from agentfs.core.run_state import RunState
from agentfs.core.steps import StepView
from agentfs.views.live import choose
from agentfs.views.marks import WRONG, mark_of

ASKS = "asks"
MOST_STEPS = 60  # more cannot be looked at, and Mermaid draws no more than 500 arrows
_STYLES = {
    "done": "fill:#d3f9d8,stroke:#2b8a3e,color:#111",
    "now": "fill:#d0ebff,stroke:#1971c2,color:#111",
    "person": "fill:#fff3bf,stroke:#e67700,color:#111",
    "wrong": "fill:#ffe3e3,stroke:#c92a2a,color:#111",
    "out": "fill:#f1f3f5,stroke:#868e96,color:#495057,stroke-dasharray:4",
}
_STYLE_OF = {
    "done": "done",
    "ordered": "now",
    "running": "now",
    "gated": "person",
    "interrupted": "person",
    "failed": "wrong",
    "blocked": "wrong",
    "rejected": "wrong",
    "skipped": "out",
}


def picture(state: RunState) -> list[str]:
    """Return the lines of a flowchart; none where there is no plan, or nothing to see in it."""
    views = [*state.steps.values(), *(view for view in left_steps(state) if view.status in WRONG)]
    if state.graph is None or len(views) < 2:
        return []
    shown = choose(views, MOST_STEPS)
    nodes = {view.id: f"s{number}" for number, view in enumerate(shown)}  # an id such as `end` would mean something
    asking = {view.id for view in state.moving("person")}
    lines = ["flowchart TD", *(f'    {nodes[view.id]}["{_label(view, asking)}"]' for view in shown)]
    for view in shown:
        before = [nodes[name] for name in state.graph.needs.get(view.id, ()) if name in nodes]
        if before:
            lines.append(f"    {' & '.join(before)} --> {nodes[view.id]}")
    return [*lines, *_styles(shown, asking, nodes)]


def _label(view: StepView, asking: set[str]) -> str:
    word = shown_state(view, asks=view.id in asking)
    return f"{sign_of(word)} {view.id}: {word}"


def shown_state(view: StepView, *, asks: bool) -> str:
    """Return a step's state as people see it: an order is as good as begun, and who asks a person does not run."""
    if view.status in ("ordered", "running"):
        return ASKS if asks else "running"
    return view.status


def sign_of(word: str) -> str:
    return mark_of("gated" if word == ASKS else word).sign


def _styles(shown: list[StepView], asking: set[str], nodes: dict[str, str]) -> list[str]:
    found: dict[str, list[str]] = {}
    for view in shown:
        if style := "person" if view.id in asking else _STYLE_OF.get(view.status):  # an `ask` runs, and waits
            found.setdefault(style, []).append(nodes[view.id])
    return [
        line
        for style, members in found.items()
        for line in (f"    classDef {style} {_STYLES[style]}", f"    class {','.join(members)} {style}")
    ]
