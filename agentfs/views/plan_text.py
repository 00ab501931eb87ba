"""A plan as lines of text in which every difference is one of meaning: what git compares. Quick to import.

The order of keys, the layout, a `depends_on` that only spells out the step before: none of these shows. All else
does, a blank at the end of a line and a sign that nobody sees included.
"""

import json
from collections.abc import Iterator
from typing import Any

from agentfs.views.exact import exact, is_json, quoted
from agentfs.views.words import inert, json_text

FIRST = ("description", "why", "tool", "input")  # of a step, as plan.json has them; the rest by name
NESTED = ("input", "limits", "tools")


def plan_text(source: bytes) -> str:
    """Return a plan by meaning; raise if it is none."""
    plan = json.loads(source)
    return "".join(f"{line}\n" for line in _lines(plan))


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    for name in ("goal", "status", "limits", "tools"):
        yield from _field(name, plan.get(name))
    before: list[str] = []
    for step in plan["steps"]:
        yield from ("", f"step {inert(step['id'])}")
        given = step.get("depends_on")
        after = before if given is None else given
        yield f"  after {', '.join(sorted(map(inert, after))) or 'nothing'}"
        rest = sorted(step.keys() - {*FIRST, "id", "depends_on"})
        for name in (*FIRST, *rest):
            yield from (f"  {line}" for line in _field(name, step.get(name)))
        before = [step["id"]]


def _field(name: str, value: Any) -> Iterator[str]:
    if value is None:
        return
    if name in NESTED and isinstance(value, dict):
        for key in sorted(value):
            yield from _field(f"{name}.{key}", value[key])
        return
    lines = _shown(value)
    if len(lines) == 1:
        yield f"{exact(name)}: {lines[0]}"
    else:
        yield from (f"{exact(name)}:", *(f"  {line}" for line in lines))


def _shown(value: Any) -> list[str]:
    """Return a value as lines; a text that could be taken for another value is quoted."""
    if isinstance(value, str) and (is_json(value) or value.startswith(" ")):
        return [quoted(value)]
    text = value if isinstance(value, str) else json_text(_ordered(value))
    return [exact(line) for line in text.split("\n")]


def _ordered(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))
