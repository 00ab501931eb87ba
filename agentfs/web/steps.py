"""The steps of a run one by one: what each is and was given, how every attempt ended, its output. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentfs.core import paths
from agentfs.core.attention import shown_state
from agentfs.core.facts import Attempt
from agentfs.core.records import CheckResult, Result, Step
from agentfs.core.references import ITEM
from agentfs.core.steps import StepView
from agentfs.core.text import WRONG, duration, first_line, json_text, left_words, plural, without_colours, wrong_first
from agentfs.core.values import as_text
from agentfs.web.gather import RunPage
from agentfs.web.html import Html, between, el, join
from agentfs.web.log_lines import colour_output
from agentfs.web.marks import QUIET, items_words, step_anchor, step_pill, time_el
from agentfs.web.site import Site

ALL_ROOM, MOST_ROOM, LEAST_ROOM = 80_000, 12_000, 400  # characters of output: of all steps, and of one
OPEN_AT_ONCE = 40  # steps whose details are part of a live page: of more, each is loaded when it is opened
SHOWN_ATTEMPTS = 20
SHOWN_ITEMS, OPEN_ITEMS = 100, 8  # of a step with `each`


@dataclass(frozen=True, slots=True)
class _Room:
    """How much of each text is shown."""

    output: int
    other: int


def room_for(count: int) -> _Room:
    output = max(LEAST_ROOM, min(MOST_ROOM, ALL_ROOM // max(1, count)))
    return _Room(output, max(LEAST_ROOM // 2, output // 2))


def steps_section(page: RunPage, site: Site) -> Html:
    """Return every step, those that went wrong first; the first failure is open."""
    views, room = page.steps, room_for(len(page.steps))
    first_wrong = next((view.id for view in views if view.status in WRONG), None)
    lazy = site.is_live and len(views) > OPEN_AT_ONCE
    rows: dict[str, list[Html]] = {}
    for view in views:
        word = shown_state(view, asks=view.id in page.asking)
        is_open = view.id == first_wrong or (not lazy and view.id in page.asking)
        if later := lazy and not is_open:
            body = el("div", el("p", el("a", "Show this step", href=site.step(view.id))), class_="body later")
        else:
            body = step_body(page, view, site, room)
        row = _row(page, view, word, body, is_open=is_open, lazy=later, site=site)
        rows.setdefault(word if len(views) > OPEN_AT_ONCE and word in QUIET else "", []).append(row)
    return el(
        "div",
        (join(*group) if not word else _group(word, group) for word, group in rows.items()),
        class_="rows steps",
    )


def _group(word: str, rows: list[Html]) -> Html:
    """Return steps of one state, folded: many that need nobody's attention."""
    return el(
        "details",
        el("summary", step_pill(word), " ", plural(len(rows), "step")),
        rows,
        class_="group",
        id=f"all-{word}",
    )


def _row(page: RunPage, view: StepView, word: str, body: Html, *, is_open: bool, lazy: bool, site: Site) -> Html:
    parts = (
        step_pill(word),
        el("code", view.id, class_="name"),
        el("span", about(view, word), class_="about"),
        el("span", _time(page, view), class_="time"),
    )
    return el(
        "details",
        el("summary", between(parts)),
        body,
        open=is_open,
        id=step_anchor(view.id)[1:],
        class_="step",
        data_load=site.step_part(view.id) if lazy else None,
    )


def about(view: StepView, word: str) -> str:
    """Return the most telling line about a step."""
    telling = word not in ("done", "running", "waiting") or (view.result is not None and view.result.surprising)
    error = view.result.error if view.result is not None and word in WRONG else None
    text = error.message if error else view.why if telling else view.step.description or does(view.step)
    return f"{first_line(without_colours(text))}{left_words(view.left)}"


def does(step: Step) -> str:
    """Return what a step without a description does, in a line."""
    given = next((one for one in (step.input or {}).values() if isinstance(one, str)), "") if step.tool else ""
    return first_line(f"{step.tool} {first_line(given)}") if given else step.tool or "a model does it"


def _time(page: RunPage, view: StepView) -> str:
    result = view.result
    if result is not None and result.started_at:
        tries = f" · attempt {view.attempt}" if view.attempt > 1 else ""
        return f"{duration(result.duration_s)}{tries}"
    if view.status in ("ordered", "running"):
        order = page.state.facts.attempt(view.id, view.attempt).order
        return f"attempt {view.attempt}" if order else ""
    return ""


# ── one step ──────────────────────────────────────────────────────────────────────────────────────────────


def step_body(page: RunPage, view: StepView, site: Site, room: _Room) -> Html:
    """Return everything about a step: what it is, its last attempt in full, those before in a line each."""
    attempts = page.state.facts.attempts.get(view.id, ())
    made = [one for one in attempts if one.result is not None or one.is_unfinished]
    run = page.child(view.id)
    child = join(el("dt", "is the run"), el("dd", run_link(site, run))) if run else None
    return el(
        "div",
        site.step_acts(page, view),
        el("p", view.why, class_="because") if view.status not in ("done", "failed", "waiting") else None,
        _attempt(page, view.id, made[-1], site, room) if made else None,
        _items(page, view, site),
        _earlier(page, made[:-1][-SHOWN_ATTEMPTS:], len(made) - 1),
        input_el(view.step, made[-1] if made else None, room.other),
        el("dl", _fields(view.step), child, class_="fields"),
        class_="body",
    )


def run_link(site: Site, run: str, step: str = "") -> Html:
    """Return the name of another run, and the way to it, or to a step of it, where there is one."""
    name, where = el("code", f"{run} {step}".rstrip()), site.other(run)
    return el("a", name, href=f"{where}#step-{step}" if step else where) if where else name


def _items(page: RunPage, view: StepView, site: Site) -> Html | None:
    """Return the items of a step with `each`, what went wrong first; many are folded."""
    if not view.items:
        return None
    shown = wrong_first(view.items, lambda item: item.status)[:SHOWN_ITEMS]
    pressing = [one for one in shown if one.status not in QUIET]
    quiet = [one for one in shown if one.status in QUIET]
    more = len(view.items) - len(shown)
    rows = [_item(page, one, site) for one in quiet]
    rows += [el("li", f"and {plural(more, 'more item')}", class_="quiet")] if more else []
    return join(
        el("ul", (_item(page, one, site) for one in pressing), class_="items") if pressing else None,
        el(
            "details",
            el("summary", items_words(view), " done"),
            el("ul", rows, class_="items"),
            id=f"items-{view.id}",
            open=len(view.items) <= OPEN_ITEMS,
        )
        if rows
        else None,
    )


def _item(page: RunPage, one: StepView, site: Site) -> Html:
    """Return an item in a line: its own text says more than the description that it shares with all others."""
    word, where = shown_state(one, asks=one.id in page.asking), site.item(one.id)
    name = el("code", one.id)
    value = (one.params or {}).get(ITEM) if word in QUIET else None
    words = about(one, word) if value is None else first_line(as_text(value))
    link = el("a", name, href=where) if where else name
    parts = (step_pill(word), link, el("span", words, class_="about"), el("span", _time(page, one), class_="time"))
    return el("li", between(parts))


def _fields(step: Step) -> Iterator[Html]:
    after = ", ".join(step.depends_on) if step.depends_on else "nothing" if step.depends_on is not None else None
    rows = {
        "does": step.description,
        "why": step.why,
        "runs after": after,
        "done by": f"agent {step.agent}" if step.agent else step.tool or "a model",
        "succeeds when": step.success_condition,
        "skipped": step.skip,
        "gate": "a person approves every attempt" if step.gate else None,
    }
    for name, value in rows.items():
        if value:
            yield el("dt", name)
            yield el("dd", value)


def input_el(step: Step, attempt: Attempt | None, room: int) -> Html | None:
    """Return what a step is given: what its last order says, else the plan."""
    given: Any = attempt.order.input if attempt is not None and attempt.order is not None else step.input
    if not given:
        return None
    texts = {name: value if isinstance(value, str) else json_text(value) for name, value in given.items()}
    each = room // len(texts)
    parts = ((el("h3", name), el("pre", clip(text, each), tabindex="0")) for name, text in texts.items())
    return join(*(el("div", part, class_="block") for part in parts))


def _attempt(page: RunPage, step: str, attempt: Attempt, site: Site, room: _Room) -> Html:
    result = attempt.result
    log = site.log(step, attempt)
    if result is None:
        waits = "It waits for a person." if attempt.asks else "It is under way."
        return el("section", el("h3", f"Attempt {attempt.number}"), el("p", waits), log, class_="attempt")
    head = el(
        "h3",
        f"Attempt {attempt.number} ",
        step_pill(result.status),
        el("span", " ", _took(result), time_el(result.ended_at, page.zone), class_="quiet"),
    )
    return el(
        "section",
        head,
        _error(result, room),
        el("p", "surprising: ", result.surprise or "", class_="surprise") if result.surprising else None,
        el("ul", (_check(one, room) for one in result.checks), class_="checks") if result.checks else None,
        _output(step, result, room),
        _usage(result),
        log,
        class_="attempt",
    )


def _took(result: Result) -> str:
    sandbox = "" if result.sandbox == "bubblewrap" else ", no sandbox"
    place = f" at {result.place} ({result.host})" if result.place else ""
    return f"{duration(result.duration_s)}{place}{sandbox}, ended " if result.started_at else "never started, "


def _error(result: Result, room: _Room) -> Html | None:
    if (error := result.error) is None:
        return None
    hint = el("p", "hint: ", error.hint, class_="hint") if error.hint else None
    return el("div", error_el(error.message, room.other), hint)


def error_el(message: str, room: int) -> Html:
    """Return what went wrong, as it was reported."""
    return el("pre", clip(without_colours(message), room), class_="error", tabindex="0")


def _check(one: CheckResult, room: _Room) -> Html:
    """Return what a check found: one that holds needs a line, one that fails all it said."""
    first, _, rest = one.detail.partition("\n")
    more = None if one.ok or not rest else el("pre", clip(rest, room.other))
    said = el("span", f" {first}", class_="quiet") if first else None
    hint = el("p", "hint: ", one.hint, class_="hint") if one.hint else None
    return el("li", verdict_el(one), said, more, hint)


def verdict_el(one: CheckResult) -> Html:
    """Return whether a check holds, and which it is."""
    sign = el("span", "✓ holds" if one.ok else "✗ fails", class_=f"verdict {'good' if one.ok else 'bad'}")
    return join(sign, " ", el("code", one.run) if one.run else f"{one.kind} check")


def _output(step: str, result: Result, room: _Room) -> Html | None:
    if result.output in (None, ""):
        return None
    text = result.output if isinstance(result.output, str) else json_text(result.output)
    name = "output, its head and tail" if result.cut else "output"
    whole = paths.step_path(step, result.attempt, "result")
    return el(
        "div", el("h3", name), el("pre", colour_output(clip(text, room.output, whole)), tabindex="0"), class_="block"
    )


def _usage(result: Result) -> Html | None:
    if (usage := result.usage) is None or not usage.requests:
        return None
    cost = "cost unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    return el(
        "p", f"{usage.model or 'a model'}: {plural(usage.requests, 'request')}, {tokens}, {cost}", class_="quiet"
    )


def _earlier(page: RunPage, attempts: list[Attempt], total: int) -> Html | None:
    if not attempts:
        return None
    rows = []
    for one in reversed(attempts):
        result = one.result
        words = first_line(without_colours(result.error.message)) if result and result.error else ""
        aside = " (set aside by a person)" if one.again else ""
        pill = step_pill(result.status) if result else "no result"
        at = time_el(result.ended_at, page.zone) if result else None
        rows.append(el("li", f"attempt {one.number} ", pill, " ", at, f" {words}{aside}"))
    more = f" (the last {len(attempts)} of {total})" if total > len(attempts) else ""
    return el("div", el("h3", f"Earlier attempts{more}"), el("ul", rows, class_="earlier"))


def clip(text: str, room: int, whole: str | None = None) -> str:
    """Return a text, its head and tail where it is too long, and how much is missing."""
    if len(text) <= room:
        return text
    left = len(text) - room
    where = f"; all of it is in {whole}" if whole else ""
    return f"{text[: room * 2 // 3]}\n… {left:,} characters left out{where} …\n{text[-room // 3 :]}"
