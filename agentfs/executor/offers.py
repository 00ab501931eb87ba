"""The tools a model is offered in a loop: those of its step, and the ones that end it. Runs none of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentfs.core.excerpts import as_text, head_and_tail
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.models.base import Offer

FINISH, HAND_OVER = "finish", "hand_over"
MOST_EVIDENCE, EVIDENCE_LENGTH = 20, 2000
_NOTHING = ("", "null", "none", "no", "false", "n/a")  # how models say null in words
_BOUNDS = ("minLength", "maxLength")
_WHY = {"type": ["string", "null"]}

_FINISH_FIELDS: Mapping[str, Any] = {
    "ok": {"type": "boolean", "description": "true: the step is done"},
    "output": {"type": "string", "description": "The answer itself, as text or JSON; with ok false: what went wrong"},
    "surprising": _WHY | {"description": "Why a right result is not what the step expects; or null"},
    "blocked": _WHY | {"description": "What is missing, so that nobody could do the step; or null"},
    "evidence": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Lines of the tools' outputs that show it is done, word for word",
    },
}
# What is offered is closed and complete, as strict servers want it; what is taken is anything that can be understood.
_OFFERED: dict[str, Any] = {
    "type": "object",
    "properties": dict(_FINISH_FIELDS),
    "required": list(_FINISH_FIELDS),
    "additionalProperties": False,
}
_TAKEN: dict[str, Any] = {
    "type": "object",
    "required": ["ok"],
    "properties": {"ok": {"type": "boolean"}, "output": {}, "surprising": {}, "blocked": {}, "evidence": {}},
}
FINISH_SPEC = ToolSpec(FINISH, "End the step. Call it alone", _TAKEN, "none", repeatable=True)


def hand_over_spec(split_over: int) -> ToolSpec:
    """Return the tool by which a model gives a goal to the planner."""
    return ToolSpec(
        HAND_OVER,
        f"Give up the goal to a planner: it takes more than {split_over} pieces of work, or you are stuck",
        {
            "type": "object",
            "properties": {
                "why": {"type": "string", "minLength": 1, "description": "Why, and what you found so far"}
            },
            "required": ["why"],
            "additionalProperties": False,
        },
        "none",
        repeatable=True,
    )


def offers(specs: Mapping[str, ToolSpec]) -> tuple[Offer, ...]:
    """Return the tools as a model is shown them."""
    return tuple(
        Offer(name, spec.summary, _brief(_OFFERED if name == FINISH else spec.input_schema))
        for name, spec in specs.items()
    )


def _brief(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the bounds of its fields: they are checked, and small models read slowly."""
    fields: Mapping[str, Any] = schema.get("properties", {})
    kept = {
        name: {key: value for key, value in field.items() if key not in _BOUNDS} for name, field in fields.items()
    }
    return {**schema, "properties": kept}


def finish_arguments(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of `finish` with an `ok`: who gives an output, and names nothing missing, means done."""
    if given.get("ok") is not None or not given.keys() & {"output", "blocked"}:
        return given
    return {**given, "ok": _why(given.get("blocked")) is None}


@dataclass(frozen=True, slots=True)
class Finish:
    """How a model says a step ended."""

    ok: bool
    output: Any
    surprising: str | None
    blocked: str | None
    evidence: tuple[str, ...]

    @staticmethod
    def of(given: Mapping[str, Any]) -> "Finish":
        """Return it from the arguments of `finish`, which fit."""
        evidence = given.get("evidence") or []
        listed = evidence if isinstance(evidence, list) else [evidence]
        return Finish(
            given["ok"],
            _output(given.get("output")),
            _why(given.get("surprising")),
            _why(given.get("blocked")),
            tuple(head_and_tail(as_text(item), EVIDENCE_LENGTH) for item in listed[:MOST_EVIDENCE]),
        )


def _output(given: Any) -> Any:
    """Return the value that an output is: the object or array its text says, else the text."""
    if not isinstance(given, str):
        return given
    if not given.lstrip().startswith(("{", "[")):
        return given
    try:
        return json_value(given)
    except NotJson:
        return given


def _why(given: Any) -> str | None:
    text = as_text(given).strip() if given else ""
    return None if text.casefold() in _NOTHING else text
