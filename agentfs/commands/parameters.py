"""Values for parameters as commands take them, and `show-goal`: what a goal takes."""

import shlex
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from agentfs.commands.check import judge, surroundings
from agentfs.commands.common import print_json, print_lines, start_folder
from agentfs.core.documents import read_json, read_yaml
from agentfs.core.goal_file import ParsedGoal
from agentfs.core.params import Parameter, arguments_that_do, as_json, parse_assignments
from agentfs.core.problems import Problem, Rejected
from agentfs.core.text import inert
from agentfs.core.values import as_text
from agentfs.engine.goal_source import goal_from, with_used_goal
from agentfs.errors import BadFile, UserError
from agentfs.storage.safe_open import MOST_SOURCE, read_regular


def typed_values(arguments: Namespace) -> dict[str, JsonValue]:
    """Return what `-p NAME=VALUE` and `--params FILE` give; what was typed counts before what the file says."""
    from_file = _values_in(arguments) if arguments.params else {}
    try:
        return {**from_file, **parse_assignments(arguments.param or ())}
    except Rejected as rejected:
        raise UserError("; ".join(f"{one.message} ({one.fix})" for one in rejected.problems)) from None


def _values_in(arguments: Namespace) -> dict[str, JsonValue]:
    name = arguments.params
    try:
        source = read_regular(start_folder(arguments) / name, MOST_SOURCE, links=True)
    except OSError as error:
        raise UserError(f"--params {name}: {error.strerror}") from None
    try:
        document = read_json(source, lenient_bom=True) if name.lower().endswith(".json") else read_yaml(source)
    except Rejected as rejected:
        raise BadFile(name, rejected.problems, source) from None
    if not isinstance(document.value, dict):
        raise BadFile(name, [Problem("the values are no fields", "write each as name: value")], source)
    return document.value


# ── show-goal ─────────────────────────────────────────────────────────────────────────────────────────────


def show_goal(arguments: Namespace) -> int:
    """`agentfs show-goal FILE`: what a goal takes, its steps, and a command that runs it."""
    around = surroundings(start_folder(arguments))
    source = goal_from(arguments.goal, start_folder(arguments), lambda: b"")
    given = with_used_goal(source, around.root)
    goal = judge(source, around, with_values=False)
    values = given.used_by.request.values if given.used_by else {}
    page = _page(arguments.goal, goal.parsed, values)
    if arguments.json:
        print_json(page)
        return 0
    return print_lines(_lines(page, goal.parsed.params))


def _page(shown: str, goal: ParsedGoal, values: Mapping[str, JsonValue]) -> dict[str, Any]:
    own = "" if values else arguments_that_do(goal.params, values)
    return {
        "file": shown,
        "title": goal.title,
        "params": [{**as_json(one), **_value_of(one.name, values)} for one in goal.params.values()],
        "steps": [step.id for step in goal.placed],
        "command": f"agentfs run {shlex.quote(shown)} {own}".rstrip(),
    }


def _value_of(name: str, values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {"value": values[name]} if name in values else {}


def _lines(page: Mapping[str, Any], params: Mapping[str, Parameter]) -> list[str]:
    """Return the same for people: one line per parameter, its description below it."""
    lines = [inert(page["title"]), ""]
    for one in page["params"]:
        lines += _param_lines(params[one["name"]], one)
    if not params:
        lines.append("takes no parameters")
    if page["steps"]:
        lines += ["", f"steps: {', '.join(page['steps'])}"]
    return [*lines, "", inert(page["command"])]


def _param_lines(parameter: Parameter, page: Mapping[str, Any]) -> list[str]:
    if "value" in page:
        what = f"= {as_text(page['value'])}"
    elif parameter.is_required:
        what = "required"
    else:
        what = f"default {as_text(parameter.schema['default']) or '(empty)'}"
    about = [f"    {parameter.description}"] if parameter.description else []
    return [inert(line) for line in (f"  {parameter.name}  {parameter.kind}  ({what})", *about)]
