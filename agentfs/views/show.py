"""What `show` prints: a run's plan with states and outputs, or one step in full."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentfs.storage.safe_open import reading
from agentfs.views.marks import RUN_COLOURS, mark_of, painted, wrong_first
from agentfs.views.status import shown_state
from agentfs.views.table import columned
from agentfs.views.words import block, cut, duration, first_line, inert, json_text, left_words

OUTPUT_LINES, INPUT_LINES, LOG_LINES = 3, 4, 12
ROWS = 4  # of a terminal that one line may take
TAIL_BYTES = 65_536
_KERNEL = ("driver", "pgid", "start_time", "boot_id")  # of a claim: for finding survivors, not for people


def run_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return a run's steps, what went wrong first, each with its state and the beginning of its output."""
    state = painted(shown_state(page), RUN_COLOURS.get(page["state"]), colours=colours)
    lines = [f"{page['run']}: {state}, {first_line(page['why'])}"]
    if page.get("goal"):
        lines.append(f"  goal      {first_line(str(page['goal']))}")
    if page["revision"] is not None:
        lines.append(f"  plan      revision {page['revision']}, {first_line(str(page.get('status')))}")
    if page["workdir"]:
        lines.append(f"  works in  {inert(page['workdir'])}")
    lines += _proof(page.get("outcome"))
    for step in wrong_first([*page["steps"], *page["left"]], lambda step: str(step["state"])):
        head, *more = _step(step, colours=colours)
        lines += ["", head, *(cut(line, most_of(width)) for line in more)]
    return lines


def _proof(outcome: object) -> Iterator[str]:
    """Yield what shows that a run is done, or which part of it failed."""
    match outcome:
        case {"proof": {"level": str() as level, "by": {"person": person, "planner": planner, "judge": judge}}}:
            counts = (
                (person, "of yours"),
                (planner, "by a model that failed before the work"),
                (judge, "by a judge"),
            )
            listed = ", ".join(f"{count} {whose}" for count, whose in counts if count)
            yield f"  proof     {inert(level)}{f': checks that hold: {listed}' if listed else ''}"
        case {"blame": str() as blame}:
            yield f"  failed in {inert(blame)}"


def most_of(width: int | None) -> int | None:
    """Return how much of one line is shown: on a terminal a few of its rows, elsewhere all of it."""
    return None if width is None else width * ROWS


def _step(step: dict[str, Any], *, colours: bool) -> Iterator[str]:
    """Yield a step as a paragraph of a few lines."""
    mark, result = mark_of(step["state"]), step["result"] or {}
    time = f" in {duration(result['duration_s'])}" if _is_number(result.get("duration_s")) else ""
    yield painted(f"{mark.sign} {first_line(str(step.get('id')))}", mark.colour, colours=colours) + (
        f"  {step['state']}{time if step['state'] in ('done', 'failed') else ''}{left_words(step.get('left_in'))}"
    )
    if step.get("description"):
        yield f"    {first_line(str(step['description']))}"
    if step.get("input") is not None or step.get("left_in") is None:
        yield from _does(step)
    if step["state"] != "done":
        yield f"    {first_line(step['because'])}"
    if step["output"] not in (None, "") and step["state"] == "done":
        yield from _short("output", _text(step["output"]), OUTPUT_LINES)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _does(step: dict[str, Any]) -> list[str]:
    """Return what a step does: its tool, and the one text it is given, or all of its input."""
    raw = step.get("input")
    given: dict[str, Any] = raw if isinstance(raw, dict) else {}
    tool = first_line(str(step.get("tool") or "model"))
    if len(given) == 1 and isinstance(text := next(iter(given.values())), str):
        return _short(tool, text, INPUT_LINES)
    return _short(tool, json.dumps(given, ensure_ascii=False) if given else "", INPUT_LINES)


def _short(name: str, text: str, limit: int) -> list[str]:
    """Return the beginning of a text under a name, and how much more there is."""
    lines = block(text)
    shown = [f"    {name:<7} {lines[0]}", *(f"            {line}" for line in lines[1:limit])]
    return shown if len(lines) <= limit else [*shown, f"            … {len(lines) - limit} more lines"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


# ── one step ──────────────────────────────────────────────────────────────────────────────────────────────


def step_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return everything about one step: what it is, and each attempt with order, result, log and files."""
    mark = mark_of(page["state"])
    name = painted(f"{mark.sign} {inert(str(page['id']))}", mark.colour, colours=colours)
    left = left_words(page.get("left_in"))
    lines = [f"{name}: {page['state']}, {first_line(page['because'])}{left}  ({page['run']})"]
    lines += columned([(name, first_line(str(page[key]))) for key, name in _FIELDS.items() if page.get(key)])
    if page.get("depends_on") is not None:
        listed = page["depends_on"] if isinstance(page["depends_on"], list) else []
        lines.append(f"  after: {', '.join(map(inert, map(str, listed))) or 'nothing'}")
    for attempt in page["attempts"]:
        lines += ["", f"attempt {attempt['attempt']}", *_attempt(attempt, most_of(width))]
    if not page["attempts"]:
        lines += ["", "no attempt yet", *_section("input", page.get("input") or {})]
    return lines


_FIELDS = {"description": "does", "why": "why", "tool": "tool", "success_condition": "success", "skip": "left out"}


def _attempt(attempt: dict[str, Any], most: int | None) -> Iterator[str]:
    order, result, files = attempt["order"], attempt["result"], attempt["files"]
    if isinstance(order, dict):
        yield from _section("order", order.get("input") or {})
    elif "order" in files:
        yield "  order: does not read (empty, or cut short)"
    if isinstance(result, dict):
        yield from _result(result)
    elif "result" in files:
        yield "  result: does not read"
    else:
        yield "  result: none yet"
    if "log" in files:
        yield from _section("log", "\n".join(log_tail(Path(files["log"]), most)))
    yield "  files:"
    yield from (f"    {inert(path)}" for path in files.values())


def _result(result: dict[str, Any]) -> Iterator[str]:
    time = f" in {duration(result['duration_s'])}" if _is_number(result.get("duration_s")) else ""
    yield f"  result: {inert(str(result.get('status')))}{time}, sandbox {inert(str(result.get('sandbox')))}"
    if isinstance(error := result.get("error"), dict):
        yield from _section(f"error ({inert(str(error.get('kind')))})", str(error.get("message")))
        if error.get("hint"):
            yield from _section("hint", str(error["hint"]))
    if result.get("surprising"):
        yield f"  surprising: {first_line(str(result.get('surprise')))}"
    for check in result.get("checks") or ():
        if isinstance(check, dict):
            yield from _check(check)
    if result.get("output") is not None:
        yield from _section("output, its head and tail" if result.get("cut") else "output", result["output"])


def _check(check: dict[str, Any]) -> list[str]:
    name = f"check ({inert(str(check.get('kind')))}) {'holds' if check.get('ok') else 'FAILS'}"
    return [
        *(_section(name, str(check["run"])) if check.get("run") else [f"  {name}"]),
        *(f"    {line}" for line in block(str(check.get("detail")))),
        *([f"    hint: {first_line(str(check['hint']))}"] if check.get("hint") else ()),
    ]


def _section(name: str, value: Any) -> list[str]:
    """Return a value under a name: an object field by field, text as it is."""
    if isinstance(value, dict):
        if not value:
            return [f"  {name}: nothing"]
        return [f"  {name}:", *(line for key, one in value.items() for line in _field(inert(str(key)), one))]
    lines = block(_text(value))
    return [f"  {name}: {lines[0]}"] if len(lines) == 1 else [f"  {name}:", *(f"    {line}" for line in lines)]


def _field(name: str, value: Any) -> list[str]:
    lines = block(_text(value))
    return [f"    {name}: {lines[0]}"] if len(lines) == 1 else [f"    {name}:", *(f"      {ln}" for ln in lines)]


def log_tail(path: Path, most: int | None) -> list[str]:
    """Return the last lines of an attempt's log in words; torn ones are passed over."""
    try:
        with reading(path) as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            source = file.read()
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]
    lines = [words for line in source.splitlines() if (words := log_line(line, most))]
    return lines[-LOG_LINES:] if len(lines) <= LOG_LINES else ["…", *lines[-LOG_LINES:]]


def log_line(line: bytes, most: int | None) -> str | None:
    """Return one line of a log in words, so much of it; None if it is torn."""
    try:
        entry = json.loads(line)
        event, at = str(entry.pop("event")), str(entry.pop("at"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if event == "output":
        words = f"{entry.get('stream')}: {str(entry.get('text', '')).rstrip()}"
    else:
        shown = {key: value for key, value in entry.items() if value is not None and key not in _KERNEL}
        words = " ".join(f"{key}={value}" for key, value in shown.items())
    return cut(inert(f"{at[11:19]} {event} {words}"), most)
