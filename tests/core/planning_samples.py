"""What tests of planners share: the tools, a standing, steps as a model writes them."""

from typing import Any

from agentfs.core.records import JsonObject
from agentfs.core.tool_spec import Catalogue, ToolSpec
from agentfs.planner.answer import PlanContext
from agentfs.planner.prompt import Surroundings
from agentfs.tools.registry import specs

ADD = ToolSpec(
    "add",
    "Add two numbers",
    {
        "type": "object",
        "properties": {
            "a": {"type": "number", "description": "the first"},
            "b": {"type": "number"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "table": {"type": "object", "additionalProperties": {"type": "integer"}},
            "place": {"$ref": "#/$defs/place"},
            "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "choice": {"enum": ["x", "y"]},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
        "$defs": {
            "place": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "deeper": {"$ref": "#/$defs/place"}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    },
    effects="none",
    repeatable=True,
)
TOOLS = {**specs(), "add": ADD}
CATALOGUE = Catalogue(TOOLS, frozenset(TOOLS), network=False, model=True, models=("mini", "nano"))
NO_MODEL = Catalogue(TOOLS, frozenset(TOOLS), network=True, model=False)
AROUND = Surroundings(
    "/w", ("/srv/shared",), frozenset({"a.txt", "src/x.py"}), frozenset({"src", "empty"}), complete=True
)


def step(name: str, **fields: Any) -> dict[str, Any]:
    """A step as a good planner writes it: a note, with a condition that proves something."""
    given = {"id": name, "tool": "note", "input": {"text": name}, "success_condition": f"{name} is written down"}
    return {key: one for key, one in (given | fields).items() if one is not ...}


def shell(name: str, command: str, **fields: Any) -> dict[str, Any]:
    return step(name, tool="shell", input={"command": command}, **fields)


def write(name: str, path: str, content: str = "x", **fields: Any) -> dict[str, Any]:
    return step(name, tool="write_file", input={"path": path, "content": content}, **fields)


def read(name: str, path: str, **fields: Any) -> dict[str, Any]:
    return step(name, tool="read_file", input={"path": path}, **fields)


def by_model(name: str, **fields: Any) -> dict[str, Any]:
    return step(name, **{"tool": ..., "input": {"material": "m"}, "tools": [], "description": name, **fields})


def a_plan_value(*steps: dict[str, Any], **more: Any) -> JsonObject:
    head: JsonObject = {"$schema": "../../../schemas/plan.schema.json", "goal": "Title", "status": "approved"}
    return head | more | {"steps": list(steps)}


def standing(*steps: dict[str, Any], done: tuple[str, ...] = (), **more: Any) -> PlanContext:
    """How things stand after a step failed, with this plan."""
    plan = a_plan_value(*steps, **more.pop("plan", {}))
    given = {"status": "approved", "triggers": frozenset(("step_failed",))} | more
    return PlanContext("Title", plan=plan, done=frozenset(done), steps=tuple(_spelled(steps)), **given)


def _spelled(steps: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    from agentfs.core.hashing import spell_out

    return spell_out(list(steps))
