"""The arguments of a call, read as a person would: what is plainly meant is taken, nothing is guessed. Pure."""

from collections.abc import Mapping
from typing import Any

from agentfs.core.tool_spec import ToolSpec
from agentfs.models.loose_json import loose_object, truth_of

# said beside the arguments of a call, and of no effect on what it does
_REMARKS = frozenset({"comment", "description", "explanation", "reason", "reasoning", "thought", "thoughts", "why"})


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a call; raises NotJson."""
    return loose_object(text)


def fitted(spec: ToolSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as the tool takes them, as far as they plainly mean that.

    Null and an empty text are nothing where nothing may be given; an empty path is the working folder; "true" is
    true; remarks about a call are no part of it. Whatever else does not fit is left as it is, and told.
    """
    fields, required = spec.input_schema.get("properties", {}), spec.input_schema.get("required", ())
    return {
        name: _as_typed(fields.get(name, {}), "." if name == "path" and value == "" else value)
        for name, value in given.items()
        if not (name not in required and _is_nothing(fields.get(name, {}), value))
        and not (name not in fields and name in _REMARKS)
    }


def _is_nothing(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value says nothing where a field of that schema may be left out."""
    if value is None:
        return "null" not in _types(schema) and bool(_types(schema) or "enum" in schema)
    return value == "" and (schema.get("minLength", 0) > 0 or "enum" in schema)


def _as_typed(schema: Mapping[str, Any], value: Any) -> Any:
    if "boolean" in _types(schema) and "string" not in _types(schema):
        return truth_of(value)
    if "integer" in _types(schema) and isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    return value


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    given = schema.get("type", ())
    return (given,) if isinstance(given, str) else tuple(given)
