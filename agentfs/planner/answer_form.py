"""The form in which a model answers a call: a closed JSON Schema for the tools of a run; and the way back. Pure.

Strict endpoints want every object closed and every property required, so what may be absent is null here, and what
has no fixed shape (`expects`, the schema of an `output` check, an open object in a tool's input) is JSON as text.
A number, a truth value or a list may also be text: a reference may become a value of any type.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from agentfs.core.documents import read_json
from agentfs.core.problems import Rejected
from agentfs.core.records import JsonObject
from agentfs.core.references import find
from agentfs.core.tool_spec import Catalogue, ToolSpec

NAME = "answer"
LONGEST_STEP_S = 3600  # timeout_s of a step that a planner writes
MORE = "more"  # a step's fields that few steps need
MATERIAL = "material"  # the input of a step that a model does: one text, which may hold references

_WORDS, _LINE, _TEXT = 500, 300, 20_000  # the longest of descriptions, paths and patterns, texts
_DEEPEST = 4  # levels of a tool's own objects; what lies deeper is JSON as text
_JSON_TEXT = "JSON, written as text"
_LISTS = 100
_LIST = r"^\{\{(steps|params)\.[A-Za-z0-9_.-]{1,100}\}\}$"  # a weak model would write a sentence
MOST_CHECKS = 5  # acceptance checks of one goal

Schema = dict[str, Any]


def answer_form(catalogue: Catalogue, *, keep: bool, finished: bool, checks: bool = False) -> JsonObject:
    """Return the form, with the verdicts that are allowed. `checks`: acceptance checks of the goal are wanted.

    The steps come first, and what gives up comes last: a weak model fills in what it is asked for next.
    """
    steps = _list({"$ref": "#/$defs/step"})
    others = [*(["keep"] if keep else []), *(["finished"] if finished else [])]
    fields: Schema = {"steps": _or_null(steps) if others else steps}
    if checks:
        fields["checks"] = _nullable_list({"$ref": "#/$defs/acceptance"}, most=MOST_CHECKS)
    if others:
        words = "plan: the steps are the answer; keep: the plan stays; finished: the goal is reached"
        fields["verdict"] = {"type": "string", "enum": ["plan", *others, "impossible"], "description": words}
    if finished:
        fields["answer"] = _nullable("string", "with finished: the answer to the goal", maxLength=_TEXT)
    fields["impossible"] = _nullable("string", "null, or why no steps can reach the goal", maxLength=_WORDS)
    kinds = _checks(catalogue)
    defs = {
        "step": _step(catalogue),
        "check": {"anyOf": [*kinds.values()]},
        "condition": {"anyOf": [kinds["command"], kinds["file"]]},
        "need": {"anyOf": [one for kind, one in kinds.items() if kind not in ("output", "judge")]},
    }
    if checks:
        defs["acceptance"] = _acceptance(catalogue)
    return _closed_object(fields) | {"$defs": defs}


def input_form(spec: ToolSpec) -> JsonObject:
    """Return the form in which a model answers with another input for a step that failed."""
    return _closed_object({"input": _or_null(_tool_input(spec)), "why": _text("what was wrong", _WORDS)})


def _acceptance(catalogue: Catalogue) -> Schema:
    """Return the checks that a model may write for a goal: those that look at what was made, not at a claim."""
    return {"anyOf": [one for kind, one in _checks(catalogue).items() if kind in ("command", "file", "judge")]}


def _step(catalogue: Catalogue) -> Schema:
    usable = sorted(catalogue.usable())
    tool: Schema = {"type": "string", "enum": usable}
    fields: Schema = {
        "id": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,62}$"},
        "description": _text("what the step does", _WORDS),
        "tool": _or_null(tool) if catalogue.may_lack_tool() else tool,
        "input": _input(catalogue, usable),
        "depends_on": _nullable_list({"type": "string", "maxLength": 63}),
        "success_condition": _text("what is true when it succeeded, so that it can be checked", _WORDS),
    }
    return _closed_object(fields | {MORE: _seldom(catalogue)})


def _seldom(catalogue: Catalogue) -> Schema:
    """Return the fields of a step that few need: a list with an object for each one that is set.

    A list may be empty. An object with a field for each would be filled in by a weak model, to the last of them.
    """
    fields: Schema = {}
    if catalogue.model and catalogue.agent is None:
        fields["tools"] = _list({"type": "string", "enum": sorted(catalogue.for_loops())})
    fields |= {
        "checks": _list({"$ref": "#/$defs/check"}, most=10),
        "why": _text("why it is in the plan", _WORDS),
        "each": {
            "type": "string",
            "pattern": _LIST,
            "description": "a list of an earlier step; each item is {{item}}",
        },
        "when": {"$ref": "#/$defs/condition"},
        "needs": _list({"$ref": "#/$defs/need"}, most=10),
        "expects": _text(f"JSON Schema of an unsurprising output: {_JSON_TEXT}", _TEXT),
        "gate": {"type": "boolean", "description": "true: a person must approve it first"},
        "on_failure": {"type": "string", "enum": ["replan", "stop", "continue"]},
        "timeout_s": {"type": "integer", "description": "default 600", "minimum": 1, "maximum": LONGEST_STEP_S},
    }
    if catalogue.model and len(catalogue.models) > 1:
        fields["model"] = {"type": "string", "enum": [*catalogue.models]}
    if catalogue.usable_agents():
        fields["agent"] = {"type": "string", "enum": [*catalogue.usable_agents()]}
    if catalogue.places:
        fields["place"] = {"type": "string", "enum": [*catalogue.places]}
    return _list({"anyOf": [_closed_object({name: one}) for name, one in fields.items()]}, most=len(fields))


def _checks(catalogue: Catalogue) -> dict[str, Schema]:
    kinds: dict[str, Schema] = {
        "command": {"run": _text("shell text that must exit with 0", _TEXT)},
        "file": {
            "path": _text("relative to the working folder", _LINE),
            "contains": _nullable("string", "a piece of its text, word for word", maxLength=_WORDS),
        },
        "output": {"schema": _text(f"JSON Schema of the output: {_JSON_TEXT}", _TEXT)},
    }
    if catalogue.network is True:
        kinds["http"] = {"url": _text("http:// or https://", _LINE), "status": _nullable("integer", "default 200")}
    if catalogue.model:
        kinds["judge"] = {"condition": _text("what must be true, for a model to judge", _WORDS)}
    return {
        kind: _closed_object({"kind": {"type": "string", "enum": [kind]}, **fields}) for kind, fields in kinds.items()
    }


def _input(catalogue: Catalogue, usable: Iterable[str]) -> Schema:
    branches: list[Schema] = []
    for name in usable:
        if (closed := _tool_input(catalogue.tools[name])) not in branches:
            branches.append(closed)
    if catalogue.may_lack_tool():
        words = "only without a tool: what the step works on; may hold references"
        branches.append(_closed_object({MATERIAL: _text(words, _TEXT)}))
    return {"anyOf": [*branches, {"type": "null"}]}


def _tool_input(spec: ToolSpec) -> Schema:
    schema, required = spec.input_schema, set(spec.input_schema.get("required", ()))
    defs = schema.get("$defs", {})
    return _closed_object(
        {
            name: _close(field, defs) if name in required else _or_null(_close(field, defs))
            for name, field in schema.get("properties", {}).items()
        }
    )


# ── closing ───────────────────────────────────────────────────────────────────────────────────────────────


def _close(schema: Any, defs: Mapping[str, Any], depth: int = 0) -> Schema:
    """Return a schema as strict endpoints take it: what cannot be closed becomes text."""
    schema = _look_up(schema, defs)
    described = {"description": schema["description"][:_LINE]} if isinstance(schema.get("description"), str) else {}
    if depth > _DEEPEST:
        return _text(_JSON_TEXT, _TEXT)
    match schema:
        case {"enum": [*values]} if all(isinstance(one, str) for one in values):
            return {"type": "string", "enum": values} | described
        case {"type": "string"}:
            return {"type": "string", "maxLength": min(schema.get("maxLength", _TEXT), _TEXT)} | described
        case {"type": "number" | "integer" | "boolean" as kind}:
            return {"type": [kind, "string"]} | described
        case {"type": "array", "items": items}:
            return {
                "anyOf": [{"type": "array", "items": _close(items, defs, depth + 1)}, _text("", _TEXT)]
            } | described
        case {"type": "object", "properties": fields, "additionalProperties": False}:
            return _closed_fields(fields, set(schema.get("required", ())), defs, depth) | described
        case {"anyOf": [*branches]} if all(_look_up(one, defs).get("type") != "null" for one in branches):
            return {"anyOf": [_close(one, defs, depth + 1) for one in branches]} | described
        case {"anyOf": [one, {"type": "null"}]}:
            return _or_null(_close(one, defs, depth)) | described
        case _:
            return _text(_JSON_TEXT, _TEXT)


def _closed_fields(fields: Schema, required: set[str], defs: Mapping[str, Any], depth: int) -> Schema:
    closed = {name: _close(one, defs, depth + 1) for name, one in fields.items()}
    return _closed_object({name: one if name in required else _or_null(one) for name, one in closed.items()})


def _look_up(schema: Any, defs: Mapping[str, Any]) -> Schema:
    """Return what a reference within a tool's schema means; an empty schema where it means nothing."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        schema = defs.get(str(schema["$ref"]).removeprefix("#/$defs/"), {})
    return schema if isinstance(schema, dict) else {}


def _closed_object(fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _text(description: str, longest: int) -> Schema:
    described = {"description": description} if description else {}
    return {"type": "string", "maxLength": longest} | described


def _nullable(kind: str, description: str, **more: Any) -> Schema:
    return {"type": [kind, "null"], "description": description} | more


def _list(items: Schema, most: int = _LISTS) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


def _nullable_list(items: Schema, most: int = _LISTS) -> Schema:
    return _or_null(_list(items, most))


def _or_null(schema: Schema) -> Schema:
    match schema:
        case {"anyOf": [*branches]}:
            return schema | {"anyOf": branches if {"type": "null"} in branches else [*branches, {"type": "null"}]}
        case {"type": "object" | "array"} | {"$ref": _} | {"pattern": _}:
            return {"anyOf": [schema, {"type": "null"}]}
        case {"type": str() as kind, "enum": [*values]}:
            return schema | {"type": [kind, "null"], "enum": [*values, None]}
        case _:
            kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            return schema | {"type": [*dict.fromkeys([*kinds, "null"])]}


# ── the way back ──────────────────────────────────────────────────────────────────────────────────────────


def tool_input(given: Any, spec: ToolSpec) -> Any:
    """Return a tool's input as the tool itself takes it: nulls that mean absent are gone, JSON text is a value."""
    return _open_form(given, spec.input_schema, spec.input_schema.get("$defs", {}), 0)


def json_value(text: Any) -> Any:
    """Return the value that a JSON text holds; anything else as it is."""
    if not isinstance(text, str):
        return text
    try:
        return read_json(text.encode("utf-8", "surrogatepass")).value
    except Rejected:
        return text


def _open_form(value: Any, schema: Any, defs: Mapping[str, Any], depth: int) -> Any:
    schema = _look_up(schema, defs)
    if isinstance(value, dict) and "properties" in schema and depth <= _DEEPEST:
        required, fields = schema.get("required", ()), schema["properties"]
        return {
            name: _open_form(one, fields.get(name), defs, depth + 1)
            for name, one in value.items()
            if name in required or name not in fields or not _means_absent(one, fields[name], defs)
        }
    if isinstance(value, list) and "items" in schema and depth <= _DEEPEST:
        return [_open_form(one, schema["items"], defs, depth + 1) for one in value]
    if isinstance(value, str) and not find(value) and not _takes(schema, "string", defs):
        return json_value(value)
    return value


def _means_absent(value: Any, schema: Any, defs: Mapping[str, Any]) -> bool:
    """Whether this is how a model leaves out a field that it need not set."""
    if value == "":
        return bool(_look_up(schema, defs).get("minLength"))
    return value is None and not _takes(schema, "null", defs)


def _takes(schema: Any, kind: str, defs: Mapping[str, Any]) -> bool:
    """Whether a schema takes values of a kind, as far as one can tell without a value."""
    schema = _look_up(schema, defs)
    match schema:
        case {"enum": [*values]}:
            return any(one is None if kind == "null" else isinstance(one, str) for one in values)
        case {"anyOf": [*branches]}:
            return any(_takes(one, kind, defs) for one in branches)
        case {"type": [*kinds]}:
            return kind in kinds
        case {"type": own}:
            return bool(own == kind)
        case _:
            return True
