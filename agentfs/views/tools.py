"""What `tools` prints: every tool with its input, its effects, and whether runs may use it."""

from collections.abc import Iterator
from typing import Any

from agentfs.views.words import first_line

EFFECTS = {
    "read": "reads files",
    "write": "writes files",
    "execute": "runs programs",
    "network": "uses the network",
    "none": "touches nothing",
}
OWN = "Your own tools are told by their source alone: nothing in tools/ was run. A run knows their inputs exactly."


def tools_lines(tools: list[dict[str, Any]]) -> list[str]:
    """Return a paragraph per tool."""
    lines = [line for tool in tools for line in (*_tool(tool), "")]
    return [
        *lines,
        *([OWN, ""] if any(tool.get("own") for tool in tools) else []),
        "* must be given. A step names its tool in `tool`, and gives it `input`; in a runbook a fence does.",
    ]


def _tool(tool: dict[str, Any]) -> Iterator[str]:
    yield f"{tool['name']}: {first_line(tool['summary'])}"
    required = tool["input_schema"].get("required", [])
    fields = tool["input_schema"].get("properties", {})
    widest = max((len(name) for name in fields), default=0) + 1
    for place, (name, schema) in enumerate(fields.items()):
        shown = f"{name}*" if name in required else name
        yield f"  {'input' if not place else '':<9} {shown:<{widest}}  {_kind(schema)}".rstrip()
    again = "repeatable" if tool["repeatable"] else "not repeatable"
    yield f"  effects   {EFFECTS[tool['effects']]}; {again}"
    if not tool["allowed"]:
        yield f"  NOT ALLOWED: {tool['why']}"


def _kind(schema: dict[str, Any]) -> str:
    kind = " or ".join(map(str, schema["enum"])) if "enum" in schema else str(schema.get("type", "anything"))
    return f"{kind}. {schema['description']}" if schema.get("description") else kind
