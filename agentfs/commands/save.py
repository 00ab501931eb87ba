"""`save`: the plan of a run that is done becomes a goal in runbooks/, which runs without a planner."""

import json
import re
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from agentfs.commands.check import Surroundings, judge, surroundings
from agentfs.commands.common import here, print_lines, say, short_path
from agentfs.commands.editing import OpenRun, open_run
from agentfs.core import paths
from agentfs.core.documents import read_yaml
from agentfs.core.goal_file import RUNBOOKS, parse_goal
from agentfs.core.text import block, inert
from agentfs.engine.goal_source import goal_in
from agentfs.errors import BadFile, UserError
from agentfs.storage.files import publish, read_whole
from agentfs.storage.workspace import goal_path

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
    print_lines(_commands(goal))
    target.parent.mkdir(exist_ok=True)
    publish(target, _render_goal(goal), durable=True)
    suggested = ", ".join(goal.get("params", {}))
    say(f"saved {short_path(target)}{f', with the parameters {suggested}' if suggested else ''}")
    say(f"run it: agentfs run {short_path(target)}")
    return 0


_KEPT = ("workdir", "isolate", "protect", "tools", "limits", "executor", "params")  # fields that shape what steps do


def _goal_of(run: OpenRun) -> dict[str, Any]:
    """Return the plan as a goal of its own: its steps with gates and checks, where they work, what they take."""
    plan = run.plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    goal = parse_goal(read_whole(path := goal_path(run.folder)), path.name, _any_tools(run), planned=True)
    fields = goal.fields.model_dump(mode="json", exclude_none=True)
    made: dict[str, Any] = {"goal": goal.text if goal.kind == "words" else goal.title}
    made |= {name: fields[name] for name in _KEPT if fields.get(name)}
    return {**made, **{name: plan[name] for name in ("checks", "steps") if plan.get(name)}}


def _any_tools(run: OpenRun) -> Any:
    from agentfs.engine.means import catalogue_of_run
    from agentfs.tools.registry import known_tools
    from agentfs.ui.reading import settings_of

    record = run.state.facts.run
    return catalogue_of_run(record, settings_of(run.workspace)[0], known_tools(run.workspace.root, record.tools))


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
        except BadFile:  # it stands where only text may, in single quotes for example
            continue
        goal = made
    return goal


def _check(goal: dict[str, Any], name: str, around: Surroundings) -> None:
    path = around.root / RUNBOOKS / f"{name}.yaml"
    judge(goal_in(path, _render_goal(goal), f"{RUNBOOKS}/{name}.yaml"), around, with_values=False)


def _values(words: str) -> Iterator[str]:
    """Yield what of a goal's words looks like a value, each once."""
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
