"""Tools and a goal that the tests of goals and runbooks share."""

from typing import Any

from agentfs.core.goal_file import ParsedGoal, parse_goal
from agentfs.core.tool_spec import Catalogue, Effects, ToolSpec

from agentfs.core.problems import Rejected


def a_tool(
    name: str, required: str, *more: str, effects: Effects = "read", text_field: str | None = None
) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {field: {"type": "string"} for field in (*required.split(), *more)},
        "required": required.split(),
        "additionalProperties": False,
    }
    return ToolSpec(name, name, schema, effects, repeatable=effects == "read", text_field=text_field)


TOOLS = (
    a_tool("shell", "command", "interpreter", effects="execute", text_field="command"),
    a_tool("python", "code", effects="execute", text_field="code"),
    a_tool("read_file", "path", text_field="path"),
    a_tool("write_file", "path content", effects="write"),
    a_tool("http_get", "url", effects="network", text_field="url"),
    a_tool("note", "text", effects="none", text_field="text"),
)
CATALOGUE = Catalogue({tool.name: tool for tool in TOOLS}, frozenset(tool.name for tool in TOOLS), network=True)

MIGRATION = """\
---
workdir: shop
---
# Move users to the new table

## Steps

### inspect
Find out how many rows there are.
```sh
sqlite3 app.db 'select count(*) from users'
```

### backfill
Copy the old rows.
```sh
sqlite3 app.db < backfill.sql
```
check: `test "$(sqlite3 app.db 'select count(*) from users_new')" = "{{steps.inspect.output}}"`
retries: 1

### rollback
on failure of: backfill
```sh
sqlite3 app.db 'drop table users_new'
```
"""


def parsed(text: str, filename: str = "goal.md") -> ParsedGoal:
    return parse_goal(text.encode(), filename, CATALOGUE)


def refused(source: str | bytes, filename: str = "goal.md") -> list[str]:
    """Return what is wrong with a goal, as a person sees it; empty if nothing is."""
    try:
        parse_goal(source.encode() if isinstance(source, str) else source, filename, CATALOGUE)
    except Rejected as rejected:
        return [problem.shown(filename) for problem in rejected.problems]
    return []


def runbook(*steps: str) -> str:
    """Return a goal whose steps begin on line 3."""
    return "\n".join(["# Goal", "## Steps", *steps]) + "\n"


def sh(name: str, command: str, *lines: str) -> str:
    """Return a step of six lines and more: heading, lines, fence."""
    return "\n".join([f"### {name}", *lines, "```sh", command, "```"])


def steps_of(goal: ParsedGoal) -> list[dict[str, Any]]:
    assert goal.steps is not None
    steps: list[dict[str, Any]] = goal.steps.value["steps"]
    return steps
