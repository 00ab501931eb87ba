"""`show`: a run's plan with states and outputs, or one step in full. Reads only."""

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentfs.commands import reading
from agentfs.commands.common import colours, here, print_lines, report_unreadable, width
from agentfs.core.table import RUN_COLOURS, columned, mark_of, painted, shown_state, wrong_first
from agentfs.core.text import block, cut, duration, first_line, inert, json_text, left_words, most_of, state_and_why
from agentfs.engine.status_page import log_tail

OUTPUT_LINES, INPUT_LINES = 3, 4


def show(arguments: Namespace) -> int:
    """`agentfs show RUN [STEP]`"""
    workspace = here(arguments)
    found = reading.read_run(workspace.find_run(arguments.run), workspace)
    page = reading.plan_page(found)
    if arguments.step is None:
        print_lines([json_text(page)] if arguments.json else run_lines(page, width(), colours=colours()))
        return report_unreadable(found, page["broken"])
    one = reading.step_page(found, page, arguments.step)
    if one is None:
        known = [*(str(step.get("id")) for step in page["steps"]), *reading.step_files(found.folder)]
        raise reading.no_such_step(found.run, arguments.step, known)
    print_lines([json_text(one)] if arguments.json else step_lines(one, width(), colours=colours()))
    return report_unreadable(found, page["broken"])


def run_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return a run's steps, what went wrong first, each with its state and the beginning of its output."""
    state = shown_state(page)
    why = state_and_why(state, first_line(page["why"])).removeprefix(state)
    lines = [f"{page['run']}: {painted(state, RUN_COLOURS.get(page['state']), colours=colours)}{why}"]
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
        yield "  order: cannot be read (empty, or cut short)"
    if isinstance(result, dict):
        yield from _result(result)
    elif "result" in files:
        yield "  result: cannot be read"
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
