"""How states look in a browser: a word, a sign and a tone each; and what moments and durations look like. Pure."""

from datetime import UTC, datetime, tzinfo

from agentfs.core import paths
from agentfs.core.steps import StepView
from agentfs.core.text import ASKS, RUN_MARKS, mark_of, plural
from agentfs.ui.reading import time_of
from agentfs.web.gather import Step
from agentfs.web.html import Html, el

TONES = {
    "done": "good",
    "ordered": "busy",
    "running": "busy",
    "planning": "busy",
    "gated": "person",
    ASKS: "person",
    "interrupted": "person",
    "draft": "person",
    "paused": "person",
    "not driven": "person",
    "failed": "bad",
    "blocked": "bad",
    "rejected": "bad",
    "cancelled": "bad",
    "skipped": "out",
}


QUIET = frozenset(("done", "waiting", "ready", "skipped", "stale"))  # what need not be seen one by one


def tone_of(word: str) -> str:
    """Return how a state is coloured: good, busy, person, bad, out, or quiet."""
    return TONES.get(word, "quiet")


def run_tone(word: str) -> str:
    """Return how the state of a run is coloured: one that waits, waits for a person."""
    return "person" if word == "waiting" else tone_of(word)


def run_pill(word: str) -> Html:
    """Return the state of a run."""
    return _pill(RUN_MARKS[word].sign if word in RUN_MARKS else "‖", word, run_tone(word))


def step_pill(word: str) -> Html:
    """Return the state of a step, or of an attempt that ended."""
    return _pill(mark_of(word).sign, word, tone_of(word))


def _pill(sign: str, word: str, tone: str) -> Html:
    return el("span", el("span", sign, aria_hidden="true"), f" {word}", class_=f"pill {tone}")


def share_el(*parts: tuple[float, str]) -> Html:
    """Return parts of a hundred as a bar, each in its tone; what is left is empty."""
    x, bars = 0.0, []
    for part, tone in parts:
        bars.append(el("rect", x=f"{x:.1f}", width=f"{part:.1f}", height=6, class_=f"bar {tone}"))
        x += part
    track = el("rect", width=100, height=6, class_="track")
    return el("svg", track, bars, viewBox="0 0 100 6", preserveAspectRatio="none", aria_hidden="true", class_="share")


def items_words(view: StepView) -> str:
    """Return how far a step with `each` has come: `3 of 5 items`."""
    done = sum(one.status == "done" for one in view.items)
    return f"{done} of {plural(len(view.items), 'item')}" if view.items else ""


def time_el(moment: datetime | float | str | None, zone: tzinfo | None, *, form: str = "full") -> Html | None:
    """Return a moment; a browser with scripts shows it in its own time zone."""
    if moment is None:
        return None
    when = time_of(moment) if isinstance(moment, str) else moment
    when = datetime.fromtimestamp(when, UTC) if isinstance(when, float) else when
    if when is None:
        return el("span", str(moment))
    shown = when.astimezone(zone or UTC).strftime("%Y-%m-%d %H:%M" if form == "short" else "%Y-%m-%d %H:%M:%S")
    stamp = when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return el("time", shown, datetime=stamp, data_form=form)


def step_anchor(step: Step) -> str:
    """Return where a step is on its run's page; an item of `each` is there with its step."""
    return f"#step-{paths.step_of(step)}"
