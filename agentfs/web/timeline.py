"""When what happened: attempts, planner's calls, waiting for a person, on one axis; silence is folded. Pure."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agentfs.core import paths
from agentfs.core.text import age, cut, duration, first_line, plural
from agentfs.web.gather import RunPage
from agentfs.web.html import Child, Html, el
from agentfs.web.marks import step_anchor, tone_of

NAMES, WIDTH, ROW, BAR, HEAD = 170.0, 820.0, 24.0, 14.0, 26.0  # of the picture, in its own units
NAME_LETTERS = 21  # so many stand beside a row
LEAST = 3.0  # how wide a bar is at least: nothing that happened is invisible
FOLD = 0.12  # a silence that takes more than this part of all is folded
FOLDED = 34.0
MOST_ROWS = 60
SHOWN_ITEMS = 8  # of a step with `each`: of more, only those that did not go well have a row
SHORT = 120.0  # seconds
PLANNER = "planner"


@dataclass(frozen=True, slots=True)
class Bar:
    """A time in which something was done, or waited for."""

    row: str
    start: float
    end: float
    tone: str
    words: str
    anchor: str | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """Moments to places: straight where something happened, short where nothing did."""

    points: tuple[tuple[float, float], ...]  # (moment, place), both growing
    gaps: tuple[tuple[float, float, float], ...]  # (place, width, seconds) of what is folded

    @property
    def stretches(self) -> list[tuple[float, float]]:
        """The times between what is folded."""
        moments = [moment for moment, _ in self.points]
        return list(zip(moments[::2], moments[1::2], strict=True))

    @property
    def worked(self) -> float:
        """How many seconds are not folded."""
        return sum(end - start for start, end in self.stretches)

    def place(self, moment: float) -> float:
        points = self.points
        for (start, left), (end, right) in itertools.pairwise(points):
            if moment <= end:
                part = (moment - start) / (end - start) if end > start else 0.0
                return left + max(0.0, part) * (right - left)
        return points[-1][1]


def timeline(page: RunPage) -> Html | None:
    """Return the time of a run as SVG; None where nothing has happened yet."""
    folded = {view.id for view in page.steps if len(view.items) > SHOWN_ITEMS}  # their own row tells it
    found = (bar for bar in _bars(page) if bar.tone != "good" or paths.step_of(bar.row) not in folded - {bar.row})
    bars = sorted(found, key=lambda bar: bar.start)
    if not bars:
        return None
    rows = list(dict.fromkeys(bar.row for bar in bars))
    shown = _choose_rows(rows, bars)
    axis = make_axis([span for bar in bars for span in _spans(bar)], WIDTH)
    height = HEAD + len(shown) * ROW + 6
    place = {row: number for number, row in enumerate(shown)}
    svg = el(
        "svg",
        _ticks(page, axis, height),
        _names(shown, place),
        (_bar(bar, axis, place[bar.row]) for bar in bars if bar.row in place),
        viewBox=f"0 0 {NAMES + WIDTH + 20:.0f} {height:.0f}",
        width=f"{NAMES + WIDTH + 20:.0f}",
        height=f"{height:.0f}",
        class_="times",
    )
    left = len(rows) - len(shown)
    return el(
        "figure",
        el("div", svg, class_="scroll", tabindex="0", role="group", aria_label="Timeline"),
        el("figcaption", f"{plural(left, 'row')} of steps that went well {'is' if left == 1 else 'are'} left out.")
        if left
        else None,
        class_="timeline",
    )


def _spans(bar: Bar) -> list[tuple[float, float]]:
    """Return the times in which something went on: while a person is asked, only the beginning and the end count."""
    return [(bar.start, bar.start), (bar.end, bar.end)] if bar.tone == "person" else [(bar.start, bar.end)]


def _choose_rows(rows: Sequence[str], bars: Sequence[Bar]) -> list[str]:
    """Return the rows there is room for: the planner, what went wrong or still runs, then the longest."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    pressing = {bar.row for bar in bars if bar.tone != "good"} | {PLANNER}
    longest = dict.fromkeys(rows, 0.0)
    for bar in bars:
        longest[bar.row] = max(longest[bar.row], bar.end - bar.start)
    ranked = sorted(rows, key=lambda row: (row not in pressing, -longest[row]))
    kept = frozenset(ranked[:MOST_ROWS])
    return [row for row in rows if row in kept]


def _bars(page: RunPage) -> Iterator[Bar]:
    facts, now = page.state.facts, page.now.timestamp()
    for call in facts.calls:
        answer, asked = call.answer, call.call
        why = first_line(asked.detail) if asked else ""
        if answer is not None and answer.started_at:
            start = _seconds(answer.started_at)
            tone = "bad" if answer.verdict in ("failed", "interrupted") else "planner"
            words = f"call {call.number}, {answer.verdict} after {duration(answer.duration_s)}: {why}"
            yield Bar(PLANNER, start, start + answer.duration_s, tone, words)
    for step, attempts in facts.attempts.items():
        for attempt in attempts:
            result = attempt.result
            if result is not None and result.started_at:
                words = f"{step}, attempt {attempt.number}: {result.status} after {duration(result.duration_s)}"
                error = f": {first_line(result.error.message)}" if result.error else ""
                start, end = _seconds(result.started_at), _seconds(result.ended_at)
                yield Bar(step, start, end, tone_of(result.status), words + error, step_anchor(step))
            elif result is None and attempt.order is not None and attempt.claimed and attempt.asks is None:
                start = _seconds(attempt.order.issued_at)
                words = f"{step}, attempt {attempt.number}: running for {duration(max(0.0, now - start))}"
                yield Bar(step, start, max(now, start), "busy", words, step_anchor(step))
    yield from _waiting_bars(page, now)


def _waiting_bars(page: RunPage, now: float) -> Iterator[Bar]:
    """Yield the times in which a person was asked; a question that was overtaken is left out."""
    for one in page.questions:
        end = one.replied_at or (now if one.open else None)
        if one.asked_at is None or end is None:
            continue
        waited = duration(max(0.0, end - one.asked_at))
        words = f"a person {'took' if one.replied_at else 'has been asked for'} {waited}"
        row = one.step or PLANNER
        yield Bar(row, one.asked_at, max(end, one.asked_at), "person", f"{row}: {words}", None)


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


# ── the axis ──────────────────────────────────────────────────────────────────────────────────────────────


def make_axis(spans: Iterable[tuple[float, float]], width: float) -> Axis:
    """Return an axis over all spans, in which a long time without any is folded."""
    busy = _merge_spans(sorted(spans))
    start, end = busy[0][0], max(busy[-1][1], busy[0][0] + 0.001)
    total = end - start
    silent = [(one[1], other[0]) for one, other in itertools.pairwise(busy)]
    folded = [gap for gap in silent if gap[1] - gap[0] > max(2.0, FOLD * total)]
    room = width - FOLDED * len(folded)
    straight = max(total - sum(end - start for start, end in folded), 0.001)
    points, gaps, place, at = [(start, 0.0)], [], 0.0, start
    for gap_start, gap_end in folded:
        place += (gap_start - at) / straight * room
        points.append((gap_start, place))
        gaps.append((place, FOLDED, gap_end - gap_start))
        place, at = place + FOLDED, gap_end
        points.append((gap_end, place))
    points.append((end, width))
    return Axis(tuple(points), tuple(gaps))


def _merge_spans(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found = [spans[0]]
    for start, end in spans[1:]:
        if start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


# ── drawing ───────────────────────────────────────────────────────────────────────────────────────────────


_STEPS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600,
    7200, 14400, 21600, 43200, 86400,
)  # fmt: skip


def _ticks(page: RunPage, axis: Axis, height: float) -> Iterator[Child]:
    for place, width, seconds in axis.gaps:
        x = NAMES + place
        yield el("rect", x=f"{x:.1f}", y=HEAD - 4, width=width, height=height - HEAD, class_="fold")
        yield el("text", age(seconds), x=f"{x + width / 2:.1f}", y=HEAD - 9, class_="folded")
    last = -200.0
    for moment, place in _tick_places(axis):
        if place - last < 90 or any(gap - 34 < place < gap + wide + 34 for gap, wide, _ in axis.gaps):
            continue
        last = place
        left = f"{NAMES + place:.1f}"
        yield el("line", x1=left, x2=left, y1=HEAD - 4, y2=f"{height - 6:.1f}", class_="tick")
        yield el("text", *_tick(page, axis, moment), x=left, y=HEAD - 9, class_="at")


def _tick(page: RunPage, axis: Axis, moment: float) -> Iterator[Child]:
    """Yield the label of a tick: of a short run how long it has taken by then, else the time of day."""
    start = axis.points[0][0]
    if axis.worked < SHORT:
        yield f"{round(moment - start, 3):g} s" if moment - start < SHORT else age(moment - start)
        return
    when = datetime.fromtimestamp(moment, UTC)
    stamp = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    yield el("tspan", when.astimezone(page.zone or UTC).strftime("%H:%M:%S"), data_time=stamp)


def _tick_places(axis: Axis) -> Iterator[tuple[float, float]]:
    """Yield round moments about a hand apart: since the beginning of a short run, else of the day."""
    apart = next((one for one in _STEPS if one >= axis.worked * 110 / WIDTH), _STEPS[-1])
    first = axis.points[0][0] if axis.worked < SHORT else axis.points[0][0] // apart * apart
    for start, end in axis.stretches:
        for number in range(math.ceil((start - first) / apart - 1e-6), math.floor((end - first) / apart + 1e-6) + 1):
            moment = first + number * apart
            yield moment, axis.place(moment)


def _names(rows: Sequence[str], place: dict[str, int]) -> Iterator[Html]:
    for row in rows:
        y = HEAD + place[row] * ROW
        text = el("text", cut(row, NAME_LETTERS), x=NAMES - 12, y=f"{y + ROW / 2 + 4:.1f}", class_="row")
        yield text if row == PLANNER else el("a", text, href=step_anchor(row))


def _bar(bar: Bar, axis: Axis, row: int) -> Html:
    x, end = axis.place(bar.start), axis.place(bar.end)
    y = HEAD + row * ROW + (ROW - BAR) / 2
    return el(
        "rect",
        el("title", bar.words),
        x=f"{NAMES + x:.1f}",
        y=f"{y:.1f}",
        width=f"{max(LEAST, end - x):.1f}",
        height=BAR,
        rx=3,
        class_=f"bar {bar.tone}",
    )
