"""`show-goal`, `save` and `schedule`: the goals of a workspace, what they take, and when they run."""

import json
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agentfs.commands.check import Surroundings, judge, surroundings, verdict
from agentfs.commands.common import (
    colours,
    here,
    print_json,
    print_lines,
    print_page,
    say,
    short_path,
    start_folder,
    width,
)
from agentfs.commands.editing import OpenRun, catalogue_for, open_run
from agentfs.core import paths
from agentfs.core.documents import read_yaml
from agentfs.core.goal_file import RUNBOOKS, ParsedGoal, parse_goal
from agentfs.core.params import Parameter, as_json, example_arguments
from agentfs.core.schedule import FIELDS, FOLDER, ScheduledRun
from agentfs.core.text import Cell, block, inert, table
from agentfs.core.values import as_text
from agentfs.daemon.schedules import RunsOfSchedules, due_now, fields_in, read_file, schedule_names
from agentfs.engine.goal_source import goal_from, goal_in, with_used_goal
from agentfs.errors import BadFile, UserError
from agentfs.storage.clock import format_moment
from agentfs.storage.files import publish, read_whole
from agentfs.storage.locks import is_watched
from agentfs.storage.workspace import goal_path

# ── show-goal ─────────────────────────────────────────────────────────────────────────────────────────────


def show_goal(arguments: Namespace) -> int:
    """`agentfs show-goal FILE`: what a goal takes, its steps, and a command that runs it."""
    around = surroundings(start_folder(arguments))
    source = goal_from(arguments.goal, start_folder(arguments), lambda: b"")
    given = with_used_goal(source, around.root)
    goal = judge(source, around, with_values=False)
    values = given.used_by.request.values if given.used_by else {}
    page = _goal_page(arguments.goal, goal.parsed, values)
    return print_page(arguments, page, lambda: _goal_lines(page, goal.parsed.params))


def _goal_page(shown: str, goal: ParsedGoal, values: Mapping[str, JsonValue]) -> dict[str, Any]:
    own = "" if values else example_arguments(goal.params, values)
    return {
        "file": shown,
        "title": goal.title,
        "params": [
            {**as_json(one), **({"value": values[one.name]} if one.name in values else {})}
            for one in goal.params.values()
        ],
        "steps": [step.id for step in goal.placed],
        "command": f"agentfs run {shlex.quote(shown)} {own}".rstrip(),
    }


def _goal_lines(page: Mapping[str, Any], params: Mapping[str, Parameter]) -> list[str]:
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


# ── save: the plan of a run that is done becomes a goal ────────────────────────────────────────────────────

_QUOTED = re.compile(r"[\"'`“]([^\"'`”\n]{2,200})[\"'`”]")
_WORD = re.compile(r"[^\s,;()\"'`“”]+")
_VALUE = re.compile(r".*[/.@:\d_-].*")  # a path, an address, a number: what a person may want to be another
_STEPS = re.compile(r"(?m)^## +Steps\b")
_MOST = 10  # parameters that are suggested


def save(arguments: Namespace) -> int:
    """`agentfs save RUN NAME`"""
    workspace = here(arguments)
    run = open_run(workspace, workspace.find_run(arguments.run))
    if run.outcome is None or run.outcome.status != "done":
        raise UserError(f"{run.run} is not done: only a plan that worked is saved")
    if (name := paths.plain_name(arguments.name, paths.NAME_LENGTH)) != arguments.name:
        raise UserError(
            f"{arguments.name!r} is not a name: use lower case letters, digits and -, for example {name!r}"
        )
    target, around = workspace.root / RUNBOOKS / f"{name}.yaml", surroundings(workspace.root)
    if target.exists():
        raise UserError(f"{short_path(target)} is there already: choose another name")
    goal = _with_suggestions(_goal_of(run), run, name, around)
    params = _check(goal, name, around)
    print_lines(_commands(goal))
    target.parent.mkdir(exist_ok=True)
    publish(target, _render_goal(goal), durable=True)
    suggested = ", ".join(goal.get("params", {}))
    say(f"saved {short_path(target)}{f', with the parameters {suggested}' if suggested else ''}")
    say(f"run it: agentfs run {short_path(target)} {example_arguments(params, {})}".rstrip())
    return 0


_KEPT = ("workdir", "isolate", "protect", "tools", "limits", "executor", "params")  # fields that shape what steps do


def _goal_of(run: OpenRun) -> dict[str, Any]:
    """Return the plan as a goal: its steps with gates and checks, and the fields that shape what they do."""
    plan = run.plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    catalogue = catalogue_for(run.state.facts.run, run.workspace)
    goal = parse_goal(read_whole(path := goal_path(run.folder)), path.name, catalogue, planned=True)
    fields = goal.fields.model_dump(mode="json", exclude_none=True)
    made: dict[str, Any] = {"goal": goal.text if goal.kind == "words" else goal.title}
    made |= {name: fields[name] for name in _KEPT if fields.get(name)}
    return {**made, **{name: plan[name] for name in ("checks", "steps") if plan.get(name)}}


def _commands(goal: dict[str, Any]) -> Iterator[str]:
    """Yield every command, of checks too, and every other input of the steps, as they are saved."""
    for step in goal["steps"]:
        gate = ", after a person's yes" if step.get("gate") else ""
        does = step.get("tool") or step.get("agent") or "model"
        yield f"{inert(step['id'])} ({inert(str(does))}{gate})"
        texts = step.get("input") or {"does": step.get("description", "")}
        for value in texts.values():
            yield from (f"    {line}" for line in block(value if isinstance(value, str) else json.dumps(value)))
        yield from _checks(step)
    yield from _checks(goal)


def _checks(holder: dict[str, Any]) -> Iterator[str]:
    for name in ("when", "needs", "checks"):
        found = holder.get(name) or []
        for one in [found] if isinstance(found, dict) else found:
            text = one.get("run") or json.dumps(one, ensure_ascii=False)
            yield from (f"    {name}: {line}" for line in block(text))


# ── parameters ────────────────────────────────────────────────────────────────────────────────────────────


def _with_suggestions(goal: dict[str, Any], run: OpenRun, name: str, around: Surroundings) -> dict[str, Any]:
    """Return the goal with parameters for values that came from its words; each has the value as its default."""
    _check(goal, name, around)
    words = _STEPS.split(run.state.facts.goal.text)[0]  # what is asked: the steps are the answer
    for value in list(_values(words))[:_MOST]:
        taken = goal.get("params", {})
        param = _name_of(value, taken)
        made = _with_parameter(goal, value, param)
        if made is None:
            continue
        try:
            _check(made, name, around)
        except BadFile:  # it is where only text may be, in single quotes for example
            continue
        goal = made
    return goal


def _check(goal: dict[str, Any], name: str, around: Surroundings) -> Mapping[str, Parameter]:
    """Return what the goal takes; raise if it is not valid."""
    path = around.root / RUNBOOKS / f"{name}.yaml"
    source = goal_in(path, _render_goal(goal), f"{RUNBOOKS}/{name}.yaml")
    return judge(source, around, with_values=False).parsed.params


def _values(words: str) -> Iterator[str]:
    """Yield the words of a goal that look like values, each once."""
    plain = (word.strip(".:!?") for word in _WORD.findall(words))
    found = [*_QUOTED.findall(words), *(word for word in plain if _VALUE.fullmatch(word))]
    yield from dict.fromkeys(one for one in found if len(one) > 2 and one[0] != "-" and "{{" not in one)


def _name_of(value: str, taken: dict[str, Any]) -> str:
    parts = [paths.plain_name(part, 28).replace("-", "_").lstrip("0123456789_") for part in value.split("/")]
    plain = next((part for part in reversed(parts) if part), "value")
    return next(one for n in range(1, 200) if (one := plain if n == 1 else f"{plain}_{n}") not in taken)


def _with_parameter(goal: dict[str, Any], value: str, param: str) -> dict[str, Any] | None:
    """Return a goal whose steps and checks name a parameter where they had its value; None if it cannot be one.

    All or nothing: were `data` to stay in `data/north`, another value would do half of the work elsewhere.
    """
    whole = re.compile(rf"(?<![\w/.-]){re.escape(value)}(?![\w/-]|\.\w)")

    def replaced(one: Any) -> Any:
        if isinstance(one, str):
            return whole.sub(lambda _: f"{{{{params.{param}}}}}", one)
        if isinstance(one, list):
            return [replaced(item) for item in one]
        return {key: replaced(item) for key, item in one.items()} if isinstance(one, dict) else one

    steps = [{key: replaced(one) if key in _VALUED else one for key, one in step.items()} for step in goal["steps"]]
    made = {**goal, **({"checks": replaced(goal["checks"])} if "checks" in goal else {}), "steps": steps}
    left = [made.get("checks"), *([step.get(key) for key in _VALUED] for step in steps)]
    if made == goal or value in json.dumps(left, ensure_ascii=False):
        return None
    params = {**goal.get("params", {}), param: {"type": "string", "default": value}}
    return {"goal": made.pop("goal"), "params": params, **{key: one for key, one in made.items() if key != "params"}}


_VALUED = ("input", "checks", "needs", "when", "each")


def _render_goal(goal: dict[str, Any]) -> bytes:
    """Return the goal as YAML that reads back as it is; as JSON, which YAML takes too, where that does not."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, _value: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    made = yaml.dump(goal, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100).encode()
    return made if read_yaml(made).value == goal else json.dumps(goal, indent=2, ensure_ascii=False).encode() + b"\n"


# ── schedule ───────────────────────────────────────────────────────────────────────────────────────────────

_SAID = ("skipped", "missed", "queued", "new", "due")


def schedule(arguments: Namespace) -> int:
    """`agentfs schedule`"""
    workspace, now = here(arguments), datetime.now(UTC)
    runs = RunsOfSchedules(workspace.runs)
    names = schedule_names(workspace.root)
    around = surroundings(workspace.root) if names else None
    pages = [_schedule_page(name, now, runs, around) for name in names if around]
    if arguments.json:
        print_json(pages)
    elif pages:
        print_lines(table([_HEAD, *(_schedule_row(page) for page in pages)], width(), colours=colours(), wrap=True))
    else:
        say(f'no schedules: put a goal with `schedule: "0 3 * * *"` into {FOLDER}/')
    if pages and not is_watched(workspace.root):
        say("nothing starts them now; start: agentfs watch")
    return 2 if any(page["problems"] for page in pages) else 0


def _schedule_page(name: str, now: datetime, runs: RunsOfSchedules, around: Surroundings) -> dict[str, Any]:
    try:
        file = read_file(around.root, name)
    except OSError as error:
        page: dict[str, Any] = {"name": Path(name).stem, "file": f"{FOLDER}/{name}", **dict.fromkeys(FIELDS)}
        problems = [f"{FOLDER}/{name} cannot be read: {error.strerror}"]
        return {**page, "last": None, "next": None, "newest": None, "problems": problems}
    newest, began = due_now(file, now, runs), runs.of(file)
    following = file.schedule.next(now) if file.schedule else None
    judged = verdict(file.path, file.shown, around)
    return {
        "name": file.name,
        "file": file.shown,
        **{one: getattr(fields_in(file), one) for one in FIELDS},
        "last": _last(began[0]) if began else None,
        "next": format_moment(following) if following else None,
        "newest": {
            "time": format_moment(newest.time) if newest.time else None,
            "what": newest.word,
            "why": newest.why,
        },
        "problems": [one.shown(judged.shown) for one in judged.problems],
    }


def _last(run: ScheduledRun) -> dict[str, Any]:
    ended = format_moment(run.ended) if run.ended else None
    return {
        "run": run.run,
        "due": format_moment(run.due),
        "started_at": format_moment(run.started),
        "ended_at": ended,
    }


_HEAD: list[Cell] = [(word, None) for word in ("SCHEDULE", "TIMES", "LAST", "NEXT", "WHY")]


def _schedule_row(page: dict[str, Any]) -> list[Cell]:
    last, newest = page["last"], page["newest"] or {}
    ran = f"{_local(last['due'])}{'' if last['ended_at'] else ', under way'}" if last else "never"
    why = page["problems"][0] if page["problems"] else ""
    if not why and newest.get("what") in _SAID:
        reason = f": {newest['why']}" if newest["why"] else ""
        why = f"{_local(newest['time'])} {_WORDS.get(newest['what'], newest['what'])}{reason}"
    times = f"{page['schedule'] or ''} {page['timezone'] or ''}".strip()
    cells = (page["name"], times, ran, _local(page["next"]) if page["next"] else "", why)
    return [(inert(text), None) for text in cells]


_WORDS = {"new": "does not count"}


def _local(stamp: str) -> str:
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M")
