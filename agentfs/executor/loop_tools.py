"""The tools of a loop: what a model is offered, how its arguments are read, and PLAN.md, which it keeps for itself.

Arguments are read as a person would: what is plainly meant is taken, nothing is guessed. Runs no tool.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentfs.core.excerpts import as_text, fence_text, head_and_tail
from agentfs.core.records import Failure
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.models.base import Offer
from agentfs.models.text_protocol import parse_object, parse_truth
from agentfs.tools.base import StepContext, ToolResult
from agentfs.tools.files import read_beneath
from agentfs.tools.output import text_result, value_result
from agentfs.tools.registry import input_problems

FINISH, HAND_OVER = "finish", "hand_over"
MOST_EVIDENCE, EVIDENCE_LENGTH = 20, 2000
OUTPUT_LENGTH = 8_000  # characters of one output that a model is shown, or of why it gave up
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
FINISH_FORM: dict[str, Any] = {
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


def fits_finish(given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the arguments of `finish`, in words."""
    return input_problems(FINISH_SPEC, given)


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
        Offer(name, spec.summary, _brief(FINISH_FORM if name == FINISH else spec.input_schema))
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

    def result(self, kind: Literal["model", "agent"], context: StepContext) -> ToolResult:
        """Return what the step came to by these words; `kind`: whose they are."""
        if self.blocked:
            return ToolResult(blocked=self.blocked, evidence=self.evidence)
        if not self.ok:
            words = as_text(self.output or f"the {kind} gave up and did not say why")
            failure = Failure(kind=kind, message=head_and_tail(words, OUTPUT_LENGTH))
            return ToolResult(failure=failure, evidence=self.evidence)
        give = text_result if isinstance(self.output, str) else value_result
        return replace(give(self.output, context), surprise=self.surprising, evidence=self.evidence)


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


# ── arguments ───────────────────────────────────────────────────────────────────────────────────────────

# said beside the arguments of a call, and of no effect on what it does
_REMARKS = frozenset({"comment", "description", "explanation", "reason", "reasoning", "thought", "thoughts", "why"})


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a call; raises NotJson."""
    return parse_object(text)


def fit_arguments(spec: ToolSpec, given: Mapping[str, Any]) -> dict[str, Any]:
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
        return parse_truth(value)
    if "integer" in _types(schema) and isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    return value


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    given = schema.get("type", ())
    return (given,) if isinstance(given, str) else tuple(given)


# ── PLAN.md: always in the run's own folder, wherever its tools work ────────────────────────────────────

PLAN = "PLAN.md"
LENGTH, LARGEST = 8_000, 1024 * 1024


def is_plan(given: Mapping[str, object]) -> bool:
    """Whether a call speaks of the plan."""
    return given.get("path") in (PLAN, f"./{PLAN}")


def writes_plan(tool: str, arguments: str) -> bool:
    """Whether a call writes the plan, whole."""
    try:
        return tool == "write_file" and is_plan(arguments_of(arguments))
    except NotJson:
        return False


def at_plan(context: StepContext) -> StepContext:
    """Return a context where the plan is."""
    return replace(context, confinement=replace(context.confinement, workdir=context.confinement.run_files))


def plan_shown(context: StepContext) -> str | None:
    """Return the plan as it is now, as a model is shown it; None if it has not been written."""
    found = read_beneath(PLAN, at_plan(context), LARGEST)
    if isinstance(found, Failure):
        return None
    return fence_text(context.mask.text(head_and_tail(found[1].decode("utf-8", "replace"), LENGTH)))
