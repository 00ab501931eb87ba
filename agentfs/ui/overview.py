"""What the live view shows: many runs at a glance, or one step by step. Pure: states in, lines out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from agentfs.core import paths
from agentfs.core.attention import (
    PRESSING,
    Phase,
    all_steps,
    choose_steps,
    open_questions,
    phase,
    reason,
    ways_on,
)
from agentfs.core.outcome import tally
from agentfs.core.records import Outcome
from agentfs.core.run_state import RunState
from agentfs.core.steps import StepView
from agentfs.core.text import (
    BOLD,
    DIM,
    GAP,
    GREEN,
    RED,
    Cell,
    age,
    answer_text,
    columns,
    cut,
    cut_front,
    cut_middle,
    duration,
    first_line,
    inert,
    left_words,
    line_of,
    mark_of,
    mark_of_run,
    pad,
    paint,
    plural,
)
from agentfs.ui.prompt import typed_line
from agentfs.ui.screen import Look

FOR_A_PERSON: frozenset[Phase] = frozenset(("waiting", "draft", "paused"))
STATE_WIDTH, STEPS_WIDTH, AGE_WIDTH = 8, 5, 6  # fixed: a table that shifts by itself is not calm
NAME_STEP = 8  # for the same reason names get more room by so many columns at once
LEAST_NAME = 16
NARROW = 48  # columns below which only names and states are shown
TIGHT = 10  # lines below which there are no blank ones, and nothing that has ended
TODO = "    "
AROUND = 7  # lines of one run that are no step: two of heading, the rest of the steps, bar, what it waits for, blanks
STEP_STATE_WIDTH, TRY_WIDTH, TIME_WIDTH = 12, 5, 8


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
    """Everything the view shows."""

    workspace: str
    since: datetime
    used: int
    places: int
    how: str  # how it learns of files, where that is not the usual way
    rows: Sequence[Row]
    ended: Sequence[Row]


# ── from states ───────────────────────────────────────────────────────────────────────────────────────────


def row_of(state: RunState, today: str) -> Row:
    """Return the line of a run that has not ended. `today`: the local day, on which a run's short name is enough."""
    facts, now, name = state.facts, phase(state), short_name(state.facts.run.run, today)
    counts = tally(state)
    asks = now in FOR_A_PERSON or bool(open_questions(state)) or bool(facts.plan_file.problems)
    ready = state.moving("order", "start", most=1)
    idle = now == "running" and not state.running and ready
    return Row(
        name=name,
        state=now,
        done=counts.done,
        total=counts.total,
        words=_what_runs(state.running) if state.running else _describe_question(state) or first_line(reason(state)),
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


def _describe_question(state: RunState) -> str:
    """Return what a step wants to do, or to know, where that waits for a person; that it waits is shown elsewhere."""
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
    chosen = choose_runs(view.rows, look.height - len(head) - foot)
    names = _name_width([*chosen, *ended], look.width)
    lines = [line for row in chosen for line in _lines_of(row, view, look, names)]
    lines += _left_out_lines(view.rows, chosen, look)
    tail = [_line(row, f"{row.at.astimezone(look.now.tzinfo):%H:%M}", look, names) for row in ended]
    return [*head, *lines, *(blank if lines and tail else []), *tail][: look.height]


def choose_runs(rows: Sequence[Row], room: int) -> list[Row]:
    """Return the runs there is room for: first those that wait for a person, but always some of the others."""
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
        f"{plural(len(view.rows), 'open run')}{_waiting(view.rows, ', ')}",
        f"{view.used} of {plural(view.places, 'place')} used",
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
        row = replace(row, words=words, ways=())
    lines = [_line(row, age((look.now - row.at).total_seconds()), look, names)]
    if row.ways:
        more = f"  (and {len(row.ways) - 1} more)" if len(row.ways) > 1 else ""
        way = cut(f"{TODO}{inert(row.ways[0])}{more}", look.width)
        lines.append(paint(way, mark_of_run("waiting").colour, colours=look.colours))
    return lines


def _line(row: Row, when: str, look: Look, names: int) -> str:
    mark = mark_of_run(row.state)
    cells: list[Cell] = [
        (f"{mark.plain if look.plain else mark.sign} ", mark.colour),
        (pad(cut_middle(row.name, names), names + GAP), None),
        (pad(row.state, STATE_WIDTH + GAP), mark.colour),
    ]
    if look.width >= NARROW:
        steps = f"{row.done}/{row.total}" if row.total else ""
        cells += [
            (pad(steps, STEPS_WIDTH + GAP), None),
            (pad(when, AGE_WIDTH + GAP), DIM),
            (inert(row.words), DIM),
        ]
    return line_of(cells, look.width, colours=look.colours)


def _name_width(rows: Sequence[Row], width: int) -> int:
    """Return the room for names: what the longest needs, in steps, but no more than a quarter of the line."""
    longest = max((len(row.name) for row in rows), default=0)
    return max(NAME_STEP, min(-(-longest // NAME_STEP) * NAME_STEP, max(LEAST_NAME, width // 4)))


def _left_out_lines(rows: Sequence[Row], chosen: Sequence[Row], look: Look) -> list[str]:
    if len(chosen) == len(rows):
        return []
    shown = {row.name for row in chosen}
    left = [row for row in rows if row.name not in shown]
    words = f"  and {len(left)} more{_waiting(left, ', of which ')}: agentfs status"
    return [paint(cut(words, look.width), DIM, colours=look.colours)]


# ── one run, step by step ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything the view shows of one run."""

    state: RunState
    where: str  # the folder it works in
    waits: str  # for a person or the planner, in words
    due: float | None  # seconds until a step is tried again
    received: Mapping[str, int]  # by conversation: characters of the reply that is coming
    doing: Mapping[str, str]  # by conversation: what an agent does now
    elapsed: float
    prompt: str = ""
    typed: tuple[str, int] = ("", 0)  # and where the cursor is


def run_lines(view: RunView, look: Look) -> list[str]:
    """Return the steps of a run, how far it is, what it waits for, and what is asked."""
    state, steps = view.state, all_steps(view.state)
    prompt: list[str] = []
    if view.prompt:
        head = line_of([(view.prompt, mark_of("gated").colour)], look.width, colours=look.colours)
        prompt = ["", head, typed_line(view.typed, look.width, colours=look.colours)]
    chosen = choose_steps(steps, max(1, look.height - AROUND - len(prompt)))
    shown = {step.id for step in chosen}
    left_out = [step for step in steps if step.id not in shown]
    coming = view.received.get(paths.call_conversation(state.calls.open.number), 0) if state.calls.open else 0
    now = "" if state.facts.outcome else first_line(view.waits or reason(state))
    now += f": {plural(coming, 'character')} so far" if now and coming else ""  # of the planner's reply
    now += f" (in {duration(view.due)})" if now and view.due is not None else ""
    id_width = min(max((len(step.id) for step in chosen), default=0), max(8, look.width // 3))
    more: list[list[Cell]] = [[(f"  and {rest_words(left_out)}", DIM)]] if left_out else []
    last: list[list[Cell]] = [[(now, DIM)]] if now else []
    rows: list[list[Cell]] = [
        [(state.facts.run.run, BOLD), ("  works in ", DIM), (inert(view.where), None)],
        [],
        *(_step_row(view, step, id_width, look) for step in chosen),
        *more,
        [],
        _bar(view, look),
        *last,
    ]
    lines = [line_of(cells, look.width, colours=look.colours) for cells in rows]
    return [*lines, *prompt][-look.height :] if prompt else lines


def _bar(view: RunView, look: Look) -> list[Cell]:
    counts, outcome = tally(view.state), view.state.facts.outcome
    long = min(40, max(8, look.width - 40))
    wrong = -(-long * counts.failed // max(1, counts.total))  # rounded up: one of a hundred is seen too
    full = min(long - wrong, long * counts.done // max(1, counts.total))
    colour = GREEN if outcome is None or outcome.status == "done" else RED
    bar, rest = ("#", "-") if look.plain else ("━", "─")
    failed = bar if look.colours and not look.plain else "x"
    words = f"  {counts.done} of {counts.total} steps{counts.more}" if counts.total else "  no plan yet"
    return [
        (failed * wrong, RED),
        (bar * full, colour),
        (rest * (long - wrong - full), DIM),
        (words, None),
        (f"  {duration(view.elapsed)}", DIM),
    ]


def _step_row(view: RunView, step: StepView, id_width: int, look: Look) -> list[Cell]:
    mark = mark_of(step.status)
    colour, quiet = mark.colour or DIM, DIM if mark.colour is None else None
    whose = paths.conversation(step.id, step.attempt) if step.status in ("ordered", "running") else ""
    characters, doing = view.received.get(whose, 0), view.doing.get(whose)
    writing = f"  ({plural(characters, 'character')} so far)" if characters else ""
    order = view.state.facts.attempt(step.id, step.attempt).order if doing else None
    words = f"{order.agent if order else 'agent'} {inert(doing)}" if doing else about(step) + writing
    return [
        (f"{mark.plain if look.plain else mark.sign} ", colour),
        (pad(cut(step.id, id_width), id_width + 2), quiet),
        (pad("running" if step.status == "ordered" else step.status, STEP_STATE_WIDTH), colour),
        (pad(_tries(view.state, step), TRY_WIDTH), DIM),
        (pad(_time(view.state, step, look.now), TIME_WIDTH), DIM),
        (words, colour if step.status in PRESSING else DIM),
    ]


def _time(state: RunState, step: StepView, now: datetime) -> str:
    if step.status in ("ordered", "running"):
        order = state.facts.attempt(step.id, step.attempt).order
        return duration(max(0.0, (now - datetime.fromisoformat(order.issued_at)).total_seconds())) if order else ""
    return duration(step.result.duration_s) if step.result and step.result.started_at else ""


def _tries(state: RunState, view: StepView) -> str:
    """Return which attempt of how many; nothing for a step that has not begun."""
    allowed = state.around.allowed(view.step) if state.around else 1
    begun = view.attempt and (view.status != "waiting" or view.not_before is not None)
    return f"{view.attempt}/{max(allowed, view.attempt)}" if begun else ""


def about(view: StepView) -> str:
    """Return the most important line about a step: why it failed or waits, else what it does."""
    return f"{_about(view)}{left_words(view.left)}"


def _about(view: StepView) -> str:
    result = view.result
    if view.status in ("done", "ordered", "running"):
        surprising = result is not None and result.surprising and view.status == "done"
        return first_line(view.why if surprising else view.step.description or "")
    if result is not None and result.error is not None and view.status in ("ready", "failed", "blocked", "rejected"):
        again = "tried again: " if view.status == "ready" else ""
        return again + first_line(result.error.message)
    return first_line(view.why)


def rest_words(views: list[StepView]) -> str:
    """Return how many steps are not shown, by state."""
    by_state = Counter(view.status for view in views)
    return f"{len(views)} more: " + ", ".join(f"{count} {status}" for status, count in by_state.most_common())
