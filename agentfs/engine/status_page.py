"""STATUS.md: what a run is doing, what it waits for, what to type or edit, a picture, and logs. Never read back."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.core.attention import all_steps, choose_steps, phase, places_in_use, reason, shown_state
from agentfs.core.facts import gate_word
from agentfs.core.outcome import left_steps, tally
from agentfs.core.planner_calls import question_of
from agentfs.core.run_state import RunState
from agentfs.core.steps import StepView
from agentfs.core.text import (
    NOT_DRIVEN,
    WRONG,
    duration,
    first_line,
    in_markdown,
    inert,
    left_words,
    log_line,
    mark_of,
    state_and_why,
)
from agentfs.engine.report import what_to_do
from agentfs.storage.files import replace
from agentfs.storage.safe_open import reading
from agentfs.storage.timing import TIMING

MOST_ROWS = 200  # a table of a thousand rows is no help
MOST_LOGS, LOG_LINES = 8, 6
LOG_WIDTH = 200  # of a line of a log that grows: all of it is in the log
FENCE = "~~~"
TAIL_BYTES, TAIL_LINES = 65_536, 12  # read, and shown, of the end of a log


@dataclass(slots=True)
class StatusFile:
    """Keeps STATUS.md current, at most once a second."""

    folder: Path
    clock: Callable[[], float] = time.monotonic
    _written: str = field(default="", repr=False)
    _at: float = field(default=float("-inf"), repr=False)

    def keep(self, state: RunState, *, now: bool = False, driven: bool = True) -> None:
        """Write the page if it has changed and the last one is old enough, or if it has to be right now."""
        if not now and self.clock() - self._at < TIMING.status_page:
            return
        self._at, page = self.clock(), status_page(self.folder, state, driven=driven)
        if page != self._written:
            replace(self.folder / paths.STATUS, page.encode("utf-8", "replace"))
            self._written = page


def status_page(folder: Path, state: RunState, *, driven: bool = True) -> str:
    """Return the page; `driven`: whether a process goes on with the run after it is written."""
    return "\n".join(_lines(folder, state, driven=driven)) + "\n"


def _lines(folder: Path, state: RunState, *, driven: bool) -> Iterator[str]:
    facts, run = state.facts, state.facts.run.run
    yield f"# {_cell(facts.goal.title)}"
    now = phase(state)
    stands_still = not driven and facts.outcome is None
    word = NOT_DRIVEN if stands_still and now in ("running", "planning") else now
    yield from ("", f"**{word}**: {_cell(state_and_why(word, reason(state)).removeprefix(f'{word}, '))}")
    if facts.outcome is None:
        yield from _section("Waits for you", [*what_to_do(folder, state), *_list_outdated(state)])
    if stands_still:
        yield from ("", f"Nothing drives it; go on with: `agentfs resume {run}`")
    if facts.plan_file.problems:
        yield from ("", "plan.json is not valid, so the last revision holds; see plan.error.md.")
    yield from _section("Places", [one.in_words() for one in places_in_use(state)])
    yield from _plan(state)
    for name, lines in _logs(folder, state):
        yield from _section(name, lines)
    yield from ("", f"`agentfs show {run}` has the outputs, `agentfs log {run}` the revisions.")


def _section(title: str, lines: list[str]) -> Iterator[str]:
    """Yield words as they are under a title: in a block that nothing in them can end."""
    if lines:
        yield from ("", f"## {title}", "", FENCE, *(inert(line).replace(FENCE, "~ ~") for line in lines), FENCE)


def _plan(state: RunState) -> Iterator[str]:
    counts, views = tally(state), all_steps(state)
    yield from ("", f"## Steps ({counts.done} of {counts.total} done{counts.more})")
    if drawn := picture(state):
        yield from ("", "```mermaid", *drawn, "```")
    yield from ("", "| | step | state | attempt | time | |", "|---|---|---|---|---|---|")
    asking = {view.id for view in state.moving("person")}
    yield from (_row(view, asks=view.id in asking) for view in views[:MOST_ROWS])
    if len(views) > MOST_ROWS:
        yield from ("", f"and {len(views) - MOST_ROWS} more: `agentfs show {state.facts.run.run}`")


def _logs(folder: Path, state: RunState) -> Iterator[tuple[str, list[str]]]:
    """Yield the end of the log of everything that is under way."""
    if (one := state.calls.open) is not None:
        path = folder / paths.PLANNING / paths.call_file(one.number, "log")
        yield f"The planner, call {one.number}", _tail(path)
    for view in state.running[:MOST_LOGS]:
        path = folder / paths.STEPS / paths.step_file(view.id, view.attempt, "log")
        yield f"{view.id}, attempt {view.attempt}", _tail(path)


def _tail(path: Path) -> list[str]:
    return log_tail(path, LOG_WIDTH)[-LOG_LINES:] if path.exists() else []


def log_tail(path: Path, most: int | None) -> list[str]:
    """Return the last lines of an attempt's log in words; torn ones are passed over."""
    try:
        with reading(path) as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            source = file.read()
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]
    lines = [words for line in source.splitlines() if (words := log_line(line, most))]
    return lines if len(lines) <= TAIL_LINES else ["…", *lines[-TAIL_LINES:]]


def _list_outdated(state: RunState) -> Iterator[str]:
    """Yield that a yes was for a plan that is no longer there."""
    if (one := state.calls.unapplied) is None:
        return
    asked = question_of(one, state.facts)
    for talk in one.talks:
        if talk is not asked and gate_word(talk.reply) == "approve":
            file = paths.call_path(one.number, "reply", talk.count)
            yield f"  the yes in {file} does not apply: the plan has changed since it was asked for"


def _row(view: StepView, *, asks: bool) -> str:
    taken = duration(view.result.duration_s) if view.result and view.result.started_at else ""
    attempt, word = str(view.attempt) if view.attempt else "", shown_state(view, asks=asks)
    about = f"{view.step.description or '' if word == 'running' else first_line(view.why)}{left_words(view.left)}"
    return f"| {mark_of(word).sign} | {view.id} | {word} | {attempt} | {taken} | {_cell(about)} |"


def _cell(text: str) -> str:
    return in_markdown(first_line(text))


# ── the plan as a Mermaid flowchart ───────────────────────────────────────────────────────────────────────


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
    shown = choose_steps(views, MOST_STEPS)
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
    return f"{mark_of(word).sign} {view.id}: {word}"


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
