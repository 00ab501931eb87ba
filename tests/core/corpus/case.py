"""The shape of one document of the corpus, and how to make one by naming what is special about it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentfs.core.tool_spec import Catalogue, Effects, ToolSpec

TEXT = {"type": "string"}


def a_tool(name: str, properties: Mapping[str, Any], *required: str, effects: Effects = "none") -> ToolSpec:
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolSpec(name, name, schema, effects, repeatable=True)


_PICKY = {
    "count": {"type": "integer", "minimum": 1, "maximum": 9},
    "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "size": {"enum": ["small", "large"]},
    "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
    "names": {"type": "array", "items": TEXT, "maxItems": 2},
    "either": {"anyOf": [TEXT, {"type": "array", "items": TEXT}]},
    "shape": {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
}
TOOLS = {
    tool.name: tool
    for tool in (
        a_tool("shell", {"command": TEXT, "interpreter": TEXT}, "command", effects="execute"),
        a_tool("python", {"code": TEXT}, "code", effects="execute"),
        a_tool("note", {"text": TEXT}, "text"),
        a_tool("read_file", {"path": TEXT}, "path", effects="read"),
        a_tool("edit_file", {"path": TEXT}, "path", effects="write"),
        a_tool("http_get", {"url": TEXT}, "url", effects="network"),
        a_tool("picky", _PICKY, "count"),
        ToolSpec("summarize", "", {"type": "object"}, "none", repeatable=True, needs_model=True),
    )
}
ALLOWED = frozenset(TOOLS) - {"edit_file"}
BARE = Catalogue(TOOLS, ALLOWED)
FULL = Catalogue(TOOLS, ALLOWED, network=True, model=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A document, and what the check says of it: None if it is good, else a part of a message."""

    name: str
    source: bytes
    says: str | None
    world: Catalogue = BARE


def a_step(step_id: Any = "a", **fields: Any) -> dict[str, Any]:
    return {"id": step_id, "tool": "note", "input": {"text": "x"}, **fields}


def a_plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"status": "approved", "steps": list(steps or [a_step()]), **fields}


def written(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8")


def case(name: str, value: Any, says: str | None = None, world: Catalogue = BARE) -> Case:
    return Case(name, written(value), says, world)


def of_step(name: str, fields: Mapping[str, Any], says: str | None = None, world: Catalogue = BARE) -> Case:
    """A plan of one good step but for these fields."""
    return case(name, a_plan(a_step(**fields)), says, world)


def of_check(name: str, check: Any, says: str | None = None, world: Catalogue = BARE) -> Case:
    """A plan of one good step with this check."""
    return of_step(name, {"checks": [check]}, says, world)
