"""`show`: a run's plan with states and outputs, or one step in full. Reads only."""

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentfs.commands.common import colours, here, print_page, report_unreadable, width
from agentfs.core.params import fill
from agentfs.core.text import (
    align_columns,
    block,
    cut,
    duration,
    first_line,
    inert,
    json_text,
    left_words,
    mark_of,
    mark_of_run,
    most_of,
    paint,
    plural,
    shown_run_state,
    state_and_why,
    wrong_first,
)
from agentfs.core.values import as_text
from agentfs.engine.status_page import log_tail
from agentfs.ui import reading

OUTPUT_LINES, INPUT_LINES = 3, 4


def show(arguments: Namespace) -> int:
    """`agentfs show RUN [STEP]`"""
    workspace = here(arguments)
    found = reading.read_run(workspace.find_run(arguments.run), workspace)
    page = reading.plan_page(found, workspace)
    if arguments.step is None:
        filled = {**page, "steps": [_with_words(step, page["params"] or {}) for step in page["steps"]]}
        print_page(arguments, page, lambda: run_lines(filled, width(), colours=colours()))
        return report_unreadable(found, page["broken"])
    one = reading.step_page(found, page, arguments.step)
    if one is None:
        known = [*(str(step.get("id")) for step in page["steps"]), *reading.step_files(found.folder)]
        raise reading.no_such_step(found.run, arguments.step, known)
    filled = _with_words(one, page["params"] or {})
    print_page(arguments, one, lambda: step_lines(filled, width(), colours=colours()))
    return report_unreadable(found, page["broken"])


def _with_words(step: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return a step as people read it: its words with the values of parameters filled in."""
    words = {name: step[name] for name in ("description", "success_condition") if isinstance(step.get(name), str)}
    return {**step, **{name: fill(text, values) for name, text in words.items()}}


def run_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return a run's steps, failed ones first, each with its state and the beginning of its output."""
    state = shown_run_state(page)
    why = state_and_why(state, first_line(page["why"])).removeprefix(state)
    lines = [f"{page['run']}: {paint(state, mark_of_run(page['state']).colour, colours=colours)}{why}"]
    if page.get("goal"):
        lines.append(f"  goal      {first_line(str(page['goal']))}")
    if page["revision"] is not None:
        lines.append(f"  plan      revision {page['revision']}, {first_line(str(page.get('status')))}")
    if page["workdir"]:
        lines.append(f"  works in  {inert(page['workdir'])}")
    if branch := (page.get("outcome") or {}).get("branch"):
        run, made = page["run"], plural(len(page["outcome"].get("commits") or ()), "commit")
        lines.append(f"  branch    {branch}, {made}: agentfs changes {run} (apply, discard)")
    if page["params"]:
        given = ", ".join(f"{name} = {first_line(as_text(value))}" for name, value in page["params"].items())
        lines.append(f"  params    {inert(given)}")
    lines += _proof(page.get("outcome"))
    for step in wrong_first([*page["steps"], *page["left"]], lambda step: str(step["state"])):
        head, *more = _step(step, colours=colours)
        lines += ["", head, *(cut(line, most_of(width)) for line in more)]
    return lines


def _proof(outcome: object) -> Iterator[str]:
    """Yield the proof that a run is done, or the part that failed."""
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
    yield paint(f"{mark.sign} {first_line(str(step.get('id')))}", mark.colour, colours=colours) + (
        f"  {step['state']}{time if step['state'] in ('done', 'failed') else ''}{left_words(step.get('left_in'))}"
    )
    if step.get("description"):
        yield f"    {first_line(str(step['description']))}"
    for name, text in _each_and_when(step):
        yield from _short(name, text, INPUT_LINES)
    if step.get("input") is not None or step.get("left_in") is None:
        yield from _does(step)
    if step["state"] != "done":
        yield f"    {first_line(step['because'])}"
    if step["output"] not in (None, "") and step["state"] == "done":
        yield from _short("output", _text(step["output"]), OUTPUT_LINES)


def _each_and_when(step: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the list that a step goes through, and its condition."""
    condition = step.get("when")
    found = [("each", as_text(step["each"]))] if step.get("each") else []
    if isinstance(condition, dict):
        words = condition.get("run") or ", ".join(f"{key} {as_text(one)}" for key, one in condition.items())
        found.append(("when", str(words)))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _does(step: dict[str, Any]) -> list[str]:
    """Return what a step does: its tool or agent, and its input."""
    raw = step.get("input")
    given: dict[str, Any] = raw if isinstance(raw, dict) else {}
    if agent := step.get("agent"):
        return [
            *_short("agent", str(agent), INPUT_LINES),
            *(_short("input", json_text(given), INPUT_LINES) if given else []),
        ]
    tool = first_line(str(step.get("tool") or "model"))
    if len(given) == 1 and isinstance(text := next(iter(given.values())), str):
        return _short(tool, text, INPUT_LINES)
    return _short(tool, json.dumps(given, ensure_ascii=False) if given else "", INPUT_LINES)


def _short(name: str, text: str, limit: int) -> list[str]:
    """Return the beginning of a text under a name, and how much more there is."""
    lines = block(text)
    shown = [f"    {name:<7} {lines[0]}", *(f"            {line}" for line in lines[1:limit])]
    return shown if len(lines) <= limit else [*shown, f"            … {plural(len(lines) - limit, 'more line')}"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


# ── one step ──────────────────────────────────────────────────────────────────────────────────────────────


def step_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return everything about one step: what it is, and each attempt with order, result, log and files."""
    mark = mark_of(page["state"])
    name = paint(f"{mark.sign} {inert(str(page['id']))}", mark.colour, colours=colours)
    left = left_words(page.get("left_in"))
    lines = [f"{name}: {page['state']}, {first_line(page['because'])}{left}  ({page['run']})"]
    fields = [(name, str(page[key])) for key, name in _FIELDS.items() if page.get(key)]
    lines += align_columns([(name, first_line(text)) for name, text in (*fields, *_each_and_when(page))])
    if page.get("depends_on") is not None:
        listed = page["depends_on"] if isinstance(page["depends_on"], list) else []
        lines.append(f"  after: {', '.join(map(inert, map(str, listed))) or 'nothing'}")
    lines += _items(page.get("items"), colours=colours)
    for attempt in page["attempts"]:
        lines += ["", f"attempt {attempt['attempt']}", *_attempt(attempt, most_of(width))]
    if not page["attempts"]:
        lines += ["", "no attempt yet", *_section("input", page.get("input") or {})]
    return lines


def _items(items: object, *, colours: bool) -> Iterator[str]:
    """Yield the items of a step with `each`, failed ones first."""
    if not isinstance(items, list) or not items:
        return
    yield ""
    yield f"items ({len(items)})"
    for item in wrong_first(items, lambda one: str(one["state"])):
        mark = mark_of(item["state"])
        why = "" if item["state"] == "done" else f", {first_line(item['because'])}"
        name = paint(f"{mark.sign} {inert(str(item['id']))}", mark.colour, colours=colours)
        yield f"  {name}: {item['state']}{why}"


_FIELDS = {"description": "does", "why": "why", "tool": "tool", "agent": "agent", "success_condition": "success"}
_FIELDS |= {"skip": "left out"}


def _attempt(attempt: dict[str, Any], most: int | None) -> Iterator[str]:
    order, result, files = attempt["order"], attempt["result"], attempt["files"]
    if isinstance(order, dict):
        if order.get("agent"):
            yield f"  agent: {inert(str(order['agent']))}, network on"
        if order.get("input") or not order.get("agent"):
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
    started = result.get("started_at") and _is_number(result.get("duration_s"))
    time = f" in {duration(result['duration_s'])}" if started else ""
    place = f" at {inert(str(result['place']))} ({inert(str(result.get('host')))})" if result.get("place") else ""
    yield f"  result: {inert(str(result.get('status')))}{time}{place}, sandbox {inert(str(result.get('sandbox')))}"
    if result.get("child"):
        yield f"  run: {inert(str(result['child']))} (agentfs show {inert(str(result['child']))})"
    if isinstance(error := result.get("error"), dict):
        yield from _section(f"error ({inert(str(error.get('kind')))})", str(error.get("message")))
        if error.get("hint"):
            yield from _section("hint", str(error["hint"]))
    if result.get("surprising"):
        yield f"  surprising: {first_line(str(result.get('surprise')))}"
    word = "condition" if result.get("status") == "skipped" else "check"
    for check in result.get("checks") or ():
        if isinstance(check, dict):
            yield from _check(check, word)
    if result.get("output") is not None:
        yield from _section("output, its head and tail" if result.get("cut") else "output", result["output"])


def _check(check: dict[str, Any], word: str) -> list[str]:
    name = f"{word} ({inert(str(check.get('kind')))}) {'holds' if check.get('ok') else 'FAILS'}"
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
        fields = (_section(inert(str(key)), _text(one)) for key, one in value.items())
        return [f"  {name}:", *(f"  {line}" for lines in fields for line in lines)]
    lines = block(_text(value))
    return [f"  {name}: {lines[0]}"] if len(lines) == 1 else [f"  {name}:", *(f"    {line}" for line in lines)]
