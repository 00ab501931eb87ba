"""The JSON Schemas of every record, made from the records themselves. Pure: writes no file.

Pydantic's own schemas are right but made for programs. These are the same rules in the form that editors show
best and that gives one clear error per mistake: no titles made from field names, `["string", "null"]` where
pydantic writes a choice of two schemas, nothing about `discriminator`, which JSON Schema does not know.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from agentfs.core.config import Settings
from agentfs.core.records import Answer, Call, Goal, GoalChecks, Order, Outcome, Plan, Record, Result, Revision, Run

RECORDS: Final[Mapping[str, type[Record]]] = {
    "plan": Plan,
    "goal": Goal,
    "run": Run,
    "call": Call,
    "answer": Answer,
    "revision": Revision,
    "order": Order,
    "result": Result,
    "outcome": Outcome,
    "checks": GoalChecks,
    "settings": Settings,
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_Schema = dict[str, Any]
# `$` lets a line break through at the end in Python's dialect; this says "the whole string" in every dialect.
_ONE_LINE = {"type": "string", "pattern": "\\n"}
_FIRST = {key: place for place, key in enumerate(("description", "type", "const", "enum", "default", "required"))}
# Keywords that say nothing about values of another type: only these may share one schema under a list of types.
_OF_ONE_TYPE = frozenset(
    {
        *("type", "enum", "minLength", "pattern", "not", "minimum", "maximum", "exclusiveMinimum", "items"),
        *("minItems", "additionalProperties", "propertyNames"),
    }
)


def file_name(name: str) -> str:
    return f"{name}.schema.json"


@cache
def schema_for(name: str) -> _Schema:
    """Return the schema of one record by its name; treat it as frozen."""
    made = RECORDS[name].model_json_schema(by_alias=True)
    schema = _tidied(made)
    defs = {key: value for key, value in schema.pop("$defs", {}).items() if key != "JsonValue"}
    head = {"$schema": DIALECT, "$id": f"urn:agentfs:schema:{name}-1", "title": f"agentfs {name}"}
    return {**head, **schema, **({"$defs": defs} if defs else {})}


def all_schemas() -> dict[str, bytes]:
    """Return the files of `schemas/` by name."""
    return {file_name(name): _rendered(schema_for(name)) for name in RECORDS}


def _rendered(schema: _Schema) -> bytes:
    return (json.dumps(schema, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _tidied(schema: _Schema) -> _Schema:
    """Return a schema with every schema inside it rewritten by the rules below."""
    tidy = {key: _inner(key, value) for key, value in schema.items()}
    for rule in _RULES:
        tidy = rule(tidy)
    return tidy


def _inner(key: str, value: Any) -> Any:
    match key:
        case "properties" | "$defs" | "patternProperties":
            return {name: _tidied(inner) for name, inner in value.items()}
        case "items" | "additionalProperties" | "propertyNames" if isinstance(value, dict):
            return _tidied(value)
        case "anyOf" | "oneOf":
            return [_tidied(inner) for inner in value]
        case _:
            return value


def _readable(schema: _Schema) -> _Schema:
    """Put what a person looks for first."""
    return {key: schema[key] for key in sorted(schema, key=lambda key: _FIRST.get(key, len(_FIRST)))}


def _without_noise(schema: _Schema) -> _Schema:
    """Drop what is of no use to a person: titles, OpenAPI's discriminator, a default that means absent."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "discriminator")}
    return {key: value for key, value in kept.items() if (key, value) != ("default", None)}


def _first_kind(schema: _Schema) -> _Schema:
    """Let a validator stop at the first branch that fits: kinds exclude each other, nothing else can fit too."""
    return {"anyOf" if key == "oneOf" else key: value for key, value in schema.items()}


def _any_json(schema: _Schema) -> _Schema:
    """Say "any value" by saying nothing."""
    if schema.get("$ref") == "#/$defs/JsonValue":
        return {key: value for key, value in schema.items() if key != "$ref"}
    if schema.get("additionalProperties") == {}:
        return {key: value for key, value in schema.items() if key != "additionalProperties"}
    return schema


def _closed_names(schema: _Schema) -> _Schema:
    """Say of a table with patterned names that other names are mistakes, which `patternProperties` does not."""
    patterns: Mapping[str, _Schema] = schema.get("patternProperties", {})
    if not patterns:
        return schema
    ((pattern, value),) = patterns.items()
    names = {"propertyNames": {"pattern": pattern, "not": _ONE_LINE}, "additionalProperties": value}
    return {**{key: inner for key, inner in schema.items() if key != "patternProperties"}, **names}


def _whole_strings(schema: _Schema) -> _Schema:
    return {**schema, "not": _ONE_LINE} if "pattern" in schema and schema != _ONE_LINE else schema


def _one_choice(schema: _Schema) -> _Schema:
    """Turn a choice between types into one schema with a list of types."""
    choices: list[_Schema] = schema.get("anyOf", [])
    if not choices or any("type" not in choice or not choice.keys() <= _OF_ONE_TYPE for choice in choices):
        return schema
    merged: _Schema = {"type": [choice["type"] for choice in choices]}
    for choice in choices:
        merged |= {key: value for key, value in choice.items() if key != "type"}
    if "enum" in merged:  # an enum binds values of every type: null must be one of them
        merged["enum"] = [*merged["enum"], None]
    return {**{key: value for key, value in schema.items() if key != "anyOf"}, **merged}


_RULES: tuple[Callable[[_Schema], _Schema], ...] = (
    _without_noise,
    _first_kind,
    _any_json,
    _closed_names,
    _whole_strings,
    _one_choice,
    _readable,
)
