"""The tools a model is offered in a loop: those of its step, and the ones that end it. Runs none of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentfs.core.catalogue import ToolSpec
from agentfs.core.cutting import as_text, head_and_tail
from agentfs.models.base import Offer
from agentfs.tools.values import NotJson, json_value

FINISH, HAND_OVER = "finish", "hand_over"
MOST_EVIDENCE, EVIDENCE_LENGTH = 20, 2000
_NOTHING = ("", "null", "none", "no", "false", "n/a")  # how models say null in words
_WHY = {"type": ["string", "null"]}

_FINISH_FIELDS: Mapping[str, Any] = {
    "ok": {"type": "boolean", "description": "true: the step is done; false: it is not"},
    "output": {
        "type": "string",
        "description": "What the step gives back, as text, or JSON as text; with ok false: what went wrong",
    },
    "surprising": _WHY | {"description": "Why the result is not what one would expect, though it is right; or null"},
    "blocked": _WHY | {"description": "Why the step cannot be done as it stands, by anyone; or null"},
    "evidence": {
        "type": "array",
        "items": {"type": "string"},
        "description": "What shows that the step is done: lines quoted from what the tools gave back",
    },
}
# What is offered is closed and complete, as strict servers want it; what is taken leaves out what says nothing.
_OFFERED: dict[str, Any] = {
    "type": "object",
    "properties": dict(_FINISH_FIELDS),
    "required": list(_FINISH_FIELDS),
    "additionalProperties": False,
}
_TAKEN: dict[str, Any] = {
    **_OFFERED,
    "required": ["ok"],
    "properties": {**_FINISH_FIELDS, "output": {}, "evidence": {"type": ["array", "string", "null"]}},
}
FINISH_SPEC = ToolSpec(FINISH, "End the step, and say how it ended", _TAKEN, "none", repeatable=True)


def hand_over_spec(split_over: int) -> ToolSpec:
    """Return the tool by which a model gives a goal to the planner."""
    return ToolSpec(
        HAND_OVER,
        f"Give the goal to a planner: if it takes more than {split_over} separate pieces of work, or you are stuck",
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
        Offer(name, spec.summary, dict(_OFFERED if name == FINISH else spec.input_schema))
        for name, spec in specs.items()
    )


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a call; raises NotJson."""
    value = json_value(text) if text.strip() else {}
    if not isinstance(value, dict):
        raise NotJson("it is another value")
    return value


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


def _why(given: str | None) -> str | None:
    return None if given is None or given.strip().casefold() in _NOTHING else given.strip()
