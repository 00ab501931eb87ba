"""Many runs at a glance: what is going on, what waits for whom, what has ended. Pure: states in, lines out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from agentfs.core.openings import openings, ways_on
from agentfs.core.phase import Phase, phase, reason
from agentfs.core.records import Outcome
from agentfs.core.state import RunState
from agentfs.core.steps import StepView
from agentfs.core.tally import tally
from agentfs.ui.table import BOLD, DIM, GAP, RUN_COLOURS, Cell, line_of, mark_of_run, painted
from agentfs.ui.text import age, answer_text, columns, counted, cut, cut_front, cut_middle, first_line, inert, padded

FOR_A_PERSON: frozenset[Phase] = frozenset(("waiting", "draft", "paused"))
STATE_WIDTH, STEPS_WIDTH, AGE_WIDTH = 8, 5, 6  # fixed: a table that shifts by itself is not calm
NAME_STEP = 8  # for the same reason names get more room by so many columns at once
LEAST_NAME = 16
NARROW = 48  # columns below which only names and states are told
TIGHT = 10  # lines below which there are no blank ones, and nothing that has ended
TODO = "    "


@dataclass(frozen=True, slots=True)
class Row:
    """One run in a line."""

    name: str
    state: Phase
    done: int
    total: int
    words: str  # what it does, what it waits for, or how it ended
    at: datetime  # when it began; once it has ended, when that was
    ways: tuple[str, ...] = ()  # what a person types to have it go on
    for_a_person: bool = False
    under_way: bool = False  # an attempt runs
    next: str = ""  # the step that only needs a place


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything the view tells."""

    workspace: str
    since: datetime
    used: int
    places: int
    how: str  # how it learns of files, where that is not the usual way
    rows: Sequence[Row]
    ended: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Look:
    """What a terminal is able to show, and the moment it shows."""

    width: int
    height: int
    now: datetime  # in local time
    colours: bool = False
    plain: bool = False  # ASCII only


# ── from states ───────────────────────────────────────────────────────────────────────────────────────────


def row_of(state: RunState, today: str) -> Row:
    """Return the line of a run that has not ended. `today`: the local day, on which a run's short name is enough."""
    facts, now, name = state.facts, phase(state), short_name(state.facts.run.run, today)
    counts = tally(state)
    asks = now in FOR_A_PERSON or bool(openings(state)) or bool(facts.plan_file.problems)
    ready = state.moving("order", "start", most=1)
    idle = now == "running" and not state.running and ready
    return Row(
        name=name,
        state=now,
        done=counts.done,
        total=counts.total,
        words=_what_runs(state.running) if state.running else _what_is_asked(state) or first_line(reason(state)),
        at=datetime.fromisoformat(facts.run.started_at),
        ways=ways_on(state, name) if asks else (),
        for_a_person=asks,
        under_way=bool(state.running),
        next=ready[0].id if idle else "",
    )


def ended_row(state: RunState, outcome: Outcome, today: str) -> Row:
    """Return the line of a run that has ended: its answer, or why it has none."""
    done, counts = outcome.status == "done" and outcome.answer is not None, tally(state, outcome.status)
    answer = first_line(answer_text(outcome.answer, terminal=True)) if done else ""
    return Row(
        name=short_name(outcome.run, today),
        state=outcome.status,
        done=counts.done,
        total=counts.total,
        words=answer or first_line(outcome.summary),
        at=datetime.fromisoformat(outcome.ended_at),
    )


def short_name(run: str, today: str) -> str:
    """Return what is enough to type: the last part of an id means the newest run of that name."""
    return run.removeprefix(f"{today}/")


def _what_runs(views: Sequence[StepView]) -> str:
    if len(views) == 1:
        again = f" (attempt {views[0].attempt})" if views[0].attempt > 1 else ""
        about = first_line(views[0].step.description or "")
        return f"{views[0].id}{again}: {about}" if about else f"{views[0].id}{again}"
    more = f" and {len(views) - 3} more" if len(views) > 3 else ""
    return ", ".join(view.id for view in views[:3]) + more


def _what_is_asked(state: RunState) -> str:
    """Return what a step wants to do, or to know, that waits for a person's word; that it waits is told elsewhere."""
    asking = [view for view in state.moving("person") if view.status != "interrupted"]
    if not asking or phase(state) != "waiting":
        return ""
    one = asking[0]
    went_wrong = one.result is not None and one.result.status != "done"  # that is what a person has to know first
    return f"{one.id}: {first_line(one.why if went_wrong else one.step.description or one.why)}"


# ── to lines ──────────────────────────────────────────────────────────────────────────────────────────────


def overview_lines(view: Overview, look: Look) -> list[str]:
    """Return at most as many lines as there is height, each no wider than there is width."""
    blank = [""] if look.height >= TIGHT else []
    most = max(0, (look.height - TIGHT) // 4)
    ended = list(view.ended)[-most:] if most else []
    head = [*blank, *_heading(view, look), *blank]
    foot = len(ended) + len(blank) if ended else 0
    chosen = choose(view.rows, look.height - len(head) - foot)
    names = _name_width([*chosen, *ended], look.width)
    lines = [line for row in chosen for line in _lines_of(row, view, look, names)]
    lines += _left_out(view.rows, chosen, look)
    tail = [_line(row, f"{row.at.astimezone(look.now.tzinfo):%H:%M}", look, names) for row in ended]
    return [*head, *lines, *(blank if lines and tail else []), *tail][: look.height]


def choose(rows: Sequence[Row], room: int) -> list[Row]:
    """Return the runs there is room for: those that wait for a person first, but never only those if others work."""
    if sum(map(_height, rows)) > room:
        room = max(1, room - 1)  # a line says how many are left out
    asking = sorted(
        (row for row in rows if row.for_a_person), key=lambda row: (row.state == "paused", row.at, row.name)
    )
    others = sorted(
        (row for row in rows if not row.for_a_person), key=lambda row: (not row.under_way, row.at, row.name)
    )
    kept = min(len(others), room // 3)
    shown = _fitting(asking, room - kept)
    left = room - sum(map(_height, shown))
    return [*shown, *sorted(_fitting(others, left), key=lambda row: (row.at, row.name))]


def _fitting(rows: Sequence[Row], room: int) -> list[Row]:
    found = []
    for row in rows:
        room -= _height(row)
        if room < 0:
            break
        found.append(row)
    return found


def _height(row: Row) -> int:
    return 2 if row.ways else 1


def _heading(view: Overview, look: Look) -> list[str]:
    title, dot = "agentfs watch", " - " if look.plain else " · "
    where = cut_front(inert(view.workspace), max(0, look.width - len(title) - GAP))
    facts = [
        f"{counted(len(view.rows), 'open run')}{_waiting(view.rows, ', ')}",
        f"{view.used} of {counted(view.places, 'place')} used",
        *([inert(view.how)] if view.how else []),
        f"since {_moment(view.since, look.now)}",
    ]
    if not view.rows:
        facts[0] = "no open run: drop a goal into goals/"
    while len(facts) > 1 and columns(dot.join(facts)) > look.width:
        facts.pop()  # the least important ones come last
    lines: list[list[Cell]] = [[(title, BOLD), (" " * GAP, None), (where, DIM)], [(dot.join(facts), DIM)]]
    return [line_of(cells, look.width, colours=look.colours) for cells in lines]


def _waiting(rows: Sequence[Row], before: str) -> str:
    count = sum(row.for_a_person for row in rows)
    return f"{before}{count} {'waits' if count == 1 else 'wait'} for you" if count else ""


def _moment(moment: datetime, now: datetime) -> str:
    there = moment.astimezone(now.tzinfo)
    return there.strftime("%H:%M" if there.date() == now.date() else "%Y-%m-%d %H:%M")


def _lines_of(row: Row, view: Overview, look: Look, names: int) -> list[str]:
    if row.next and view.used >= view.places:
        words = f"waits for a place: {row.next} is next"
        row = Row(row.name, row.state, row.done, row.total, words, row.at)
    lines = [_line(row, age((look.now - row.at).total_seconds()), look, names)]
    if row.ways:
        more = f"  (and {len(row.ways) - 1} more)" if len(row.ways) > 1 else ""
        way = cut(f"{TODO}{inert(row.ways[0])}{more}", look.width)
        lines.append(painted(way, RUN_COLOURS["waiting"], colours=look.colours))
    return lines


def _line(row: Row, when: str, look: Look, names: int) -> str:
    mark = mark_of_run(row.state)
    cells: list[Cell] = [
        (f"{mark.plain if look.plain else mark.sign} ", mark.colour),
        (padded(cut_middle(row.name, names), names + GAP), None),
        (padded(row.state, STATE_WIDTH + GAP), mark.colour),
    ]
    if look.width >= NARROW:
        steps = f"{row.done}/{row.total}" if row.total else ""
        cells += [
            (padded(steps, STEPS_WIDTH + GAP), None),
            (padded(when, AGE_WIDTH + GAP), DIM),
            (inert(row.words), DIM),
        ]
    return line_of(cells, look.width, colours=look.colours)


def _name_width(rows: Sequence[Row], width: int) -> int:
    """Return the room for names: what the longest needs, in steps, but no more than a quarter of the line."""
    longest = max((len(row.name) for row in rows), default=0)
    return max(NAME_STEP, min(-(-longest // NAME_STEP) * NAME_STEP, max(LEAST_NAME, width // 4)))


def _left_out(rows: Sequence[Row], chosen: Sequence[Row], look: Look) -> list[str]:
    if len(chosen) == len(rows):
        return []
    shown = {row.name for row in chosen}
    left = [row for row in rows if row.name not in shown]
    words = f"  and {len(left)} more{_waiting(left, ', of which ')}: agentfs status"
    return [painted(cut(words, look.width), DIM, colours=look.colours)]
