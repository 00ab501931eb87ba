"""The JSON Schemas of every record, and a value against a schema with every mistake in words. Pure.

The schemas are made from the records. Pydantic's own are right but made for programs. These are the same rules in the
form that editors show best and that gives one clear error per mistake: no titles made from field names,
`["string", "null"]` where pydantic writes a choice of two schemas, nothing about `discriminator`, which JSON Schema
does not know.

jsonschema finds the mistakes; this module says them as a person would: what is wrong, and how to fix it. Of a choice
(`anyOf`, `oneOf`) it reports the branch that was meant, never "is not valid under any of the schemas".
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final

from agentfs.core.config import Settings
from agentfs.core.conformance import validator_class
from agentfs.core.paths import plain_name
from agentfs.core.problems import Problem, did_you_mean, pointer_to, show_value
from agentfs.core.records import (
    ID_PATTERN,
    PARAM_NAME,
    SHA256_PATTERN,
    TIME_PATTERN,
    Answer,
    Call,
    Goal,
    GoalChecks,
    Order,
    Outcome,
    Plan,
    Record,
    Result,
    Revision,
    Run,
)

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
    schema = _tidy(made)
    defs = {key: value for key, value in schema.pop("$defs", {}).items() if key != "JsonValue"}
    head = {"$schema": DIALECT, "$id": f"urn:agentfs:schema:{name}-1", "title": f"agentfs {name}"}
    return {**head, **schema, **({"$defs": defs} if defs else {})}


def all_schemas() -> dict[str, bytes]:
    """Return the files of `schemas/` by name."""
    texts = {file_name(name): json.dumps(schema_for(name), indent=2, ensure_ascii=False) + "\n" for name in RECORDS}
    return {name: text.encode("utf-8") for name, text in texts.items()}


def _tidy(schema: _Schema) -> _Schema:
    """Return a schema with every schema inside it rewritten, and what a person looks for first.

    Titles, OpenAPI's discriminator and a default that means absent are of no use to a person. A validator may stop at
    the first kind that fits (`anyOf`): kinds exclude each other.
    """
    tidy = {
        "anyOf" if key == "oneOf" else key: _inner(key, value)
        for key, value in schema.items()
        if key not in ("title", "discriminator") and (key, value) != ("default", None)
    }
    if tidy.get("$ref") == "#/$defs/JsonValue":  # any value: that is said by saying nothing
        del tidy["$ref"]
    if tidy.get("additionalProperties") == {}:
        del tidy["additionalProperties"]
    for pattern, value in tidy.pop("patternProperties", {}).items():  # which does not say that other names are wrong
        tidy |= {"propertyNames": {"pattern": pattern, "not": _ONE_LINE}, "additionalProperties": value}
    if "pattern" in tidy and tidy != _ONE_LINE:
        tidy["not"] = _ONE_LINE
    tidy |= _one_choice(tidy)
    return {key: tidy[key] for key in sorted(tidy, key=lambda key: _FIRST.get(key, len(_FIRST)))}


def _inner(key: str, value: Any) -> Any:
    match key:
        case "properties" | "$defs" | "patternProperties":
            return {name: _tidy(inner) for name, inner in value.items()}
        case "items" | "additionalProperties" | "propertyNames" if isinstance(value, dict):
            return _tidy(value)
        case "anyOf" | "oneOf":
            return [_tidy(inner) for inner in value]
        case _:
            return value


def _one_choice(schema: _Schema) -> _Schema:
    """Take a choice between types out of a schema, and return it as one schema with a list of types."""
    choices: list[_Schema] = schema.get("anyOf", [])
    if not choices or any("type" not in choice or not choice.keys() <= _OF_ONE_TYPE for choice in choices):
        return {}
    merged: _Schema = {"type": [choice["type"] for choice in schema.pop("anyOf")]}
    for choice in choices:
        merged |= {key: value for key, value in choice.items() if key != "type"}
    if "enum" in merged:  # an enum binds values of every type: null must be one of them
        merged["enum"] = [*merged["enum"], None]
    return merged


# ── a value against a schema, in words ───────────────────────────────────────────────────────────────────


# jsonschema's own, imported where they are made: it takes a tenth of a second
_Error = Any  # ValidationError
_Validator = Any

MOST = 1000  # problems worth telling of one document

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object {…}",
    "array": "a list […]",
    "null": "null",
}
_PATTERNS = {
    ID_PATTERN: ("is not a step id", "use lower case letters, digits and -, at most 63: for example {example!r}"),
    TIME_PATTERN: ("is not a time", "write it like 2026-11-16T04:05:06.000000Z"),
    f"^{PARAM_NAME}$": ("is not a parameter's name", "use lower case letters, digits and _, at most 32"),
    SHA256_PATTERN: ("is not a SHA-256 hash", "write 64 digits and letters a to f"),
}


@cache
def _validator_class() -> Any:
    """Return the validator whose types are those of the strict records: 1.0 is no integer, true no number."""
    from jsonschema import validators

    def is_integer(_checker: object, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    checker = validator_class().TYPE_CHECKER.redefine("integer", is_integer)
    extend: Callable[..., Any] = validators.extend  # it has no types of its own
    return extend(validator_class(), type_checker=checker)


def validator_for(schema: Mapping[str, Any]) -> _Validator:
    """Return a validator to be kept and used again: making one costs more than using it."""
    return _validator_class()(schema)


@cache
def _record_validator(name: str) -> _Validator:
    return validator_for(schema_for(name))


def record_problems(value: Any, name: str) -> list[Problem]:
    """Return what is wrong with a value as a record of `schemas/`."""
    return describe_errors(_record_validator(name).iter_errors(value))


def describe_errors(errors: Iterable[_Error]) -> list[Problem]:
    """Return errors in words: all unknown and missing fields, and one mistake per value."""
    found: list[Problem] = []
    wrong_values: set[str] = set()
    incomplete: set[tuple[str, ...]] = set()  # objects whose missing fields are listed: there is an error for each
    for error in islice(_leaves(errors), MOST):
        if error.validator == "additionalProperties":
            found.extend(islice(_unknown_fields(error), MOST))
        elif error.validator == "required":
            where = (_pointer(error), *map(str, error.absolute_schema_path))
            found.extend(() if where in incomplete else _missing_fields(error))
            incomplete.add(where)
        elif (pointer := _pointer(error)) not in wrong_values:
            wrong_values.add(pointer)
            found.append(Problem(*_wrong_value(error), pointer, in_name=_is_of_name(error)))
    return found


def _pointer(error: _Error) -> str:
    named = (error.instance,) if _is_of_name(error) else ()
    return pointer_to(*error.absolute_path, *named)


def _is_of_name(error: _Error) -> bool:
    """Whether it is the name of a field that is wrong, not its value."""
    return "propertyNames" in error.absolute_schema_path


# ── choices ───────────────────────────────────────────────────────────────────────────────────────────────


def _leaves(errors: Iterable[_Error]) -> Iterator[_Error]:
    for error in errors:
        if error.validator not in ("anyOf", "oneOf"):
            yield error
        elif branch := _meant(error):
            yield from _leaves(branch)
        else:
            yield _other_kind(error) or error


def _meant(error: _Error) -> Sequence[_Error] | None:
    """Return the errors of the one branch that fits the value's type and kind; None if no single one does."""
    branches: dict[Any, list[_Error]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.relative_schema_path[0], []).append(inner)
    fitting = [found for found in branches.values() if not any(_is_other(inner) for inner in found)]
    return fitting[0] if len(fitting) == 1 else None


def _is_other(error: _Error) -> bool:
    """Return whether an error means that another branch was meant: a value of another type, another kind."""
    path = list(error.relative_path)
    return (not path and error.validator == "type") or (path == ["kind"] and error.validator == "const")


def _other_kind(error: _Error) -> _Error | None:
    """Return the error of a `kind` that no branch has, as one choice between all of them; None if it is not that."""
    wrong = [inner for inner in error.context if inner.validator == "const" and _is_other(inner)]
    if not wrong:
        return None
    wrong[0].validator, wrong[0].validator_value = "enum", [inner.validator_value for inner in wrong]
    return wrong[0]


def _kinds(error: _Error) -> list[str]:
    """Return the kinds among which a choice is made; none if it is no choice by kind."""
    fields = (inner.schema.get("properties", {}) for inner in error.context)
    return list(dict.fromkeys(field["kind"]["const"] for field in fields if "const" in field.get("kind", {})))


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────────


def _unknown_fields(error: _Error) -> Iterator[Problem]:
    known = sorted(error.schema.get("properties", ()))
    for name in error.instance:
        if name not in known:
            fix = did_you_mean(name, known, f"the fields here are {', '.join(known)}" if known else "remove it")
            pointer = _pointer(error) + pointer_to(name)
            yield Problem(f"unknown field {name!r}", fix, pointer, in_name=True)


def _missing_fields(error: _Error) -> Iterator[Problem]:
    for name in error.validator_value:
        if name not in error.instance:
            field = error.schema.get("properties", {}).get(name, {})
            words = field.get("description", "…")
            hint = _any_of(field["enum"]) if "enum" in field else words[:1].lower() + words[1:]
            yield Problem(f"the field {name!r} is missing", f'add "{name}": {hint}', _pointer(error))


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────


def _wrong_value(error: _Error) -> tuple[str, str]:
    """Return what is wrong with one value, and how to fix it."""
    name, value, wanted = _subject(error), error.instance, error.validator_value
    match error.validator:
        case "type" if "enum" in error.schema:
            return _wrong_choice(name, value, error.schema["enum"])
        case "type":
            return _wrong_type(name, value, [wanted] if isinstance(wanted, str) else wanted)
        case "enum" | "const":
            return _wrong_choice(name, value, wanted if error.validator == "enum" else [wanted])
        case "anyOf" | "oneOf":
            return _no_branch(name, value, error)
        case "pattern" | "not" if error.schema.get("pattern") in _PATTERNS:
            what, fix = _PATTERNS[error.schema["pattern"]]
            return f"{name}: {show_value(value)} {what}", fix.format(
                example=plain_name(str(value), 63) or "copy-rows"
            )
        case "minLength" | "minItems" if len(value) == 0:
            return f"{name} must not be empty", "write something into it"
        case "maxProperties":
            return f"{name} has {len(value)} entries, more than {wanted}", f"keep {wanted} at most"
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum":
            return _out_of_range(name, value, str(error.validator), wanted)
        case _:
            return f"{name}: {error.message[:200]}", "look at the schema of this field"


def _subject(error: _Error) -> str:
    """Return what a person calls the value: 'timeout_s', 'depends_on[0]', the document."""
    words = ""
    for part in reversed(error.absolute_path):
        if isinstance(part, str):
            return repr(part + words)
        words = f"[{part}]{words}"
    return words or "the document"


def _wrong_type(name: str, value: Any, wanted: Sequence[str]) -> tuple[str, str]:
    allowed = " or ".join(_TYPES[one] for one in wanted if one != "null" or len(wanted) == 1)
    return f"{name} must be {allowed}, not {_type_of(value)}", _retype(value, wanted) or f"write {allowed}"


def _type_of(value: Any) -> str:
    match value:
        case bool() | float() | None:
            return json.dumps(value)
        case str():
            return "text"
        case int():
            return "a number"
        case Mapping():
            return "an object"
        case list():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def _retype(value: Any, wanted: Sequence[str]) -> str | None:
    """Return how to write the same value as the type that is wanted, where that is plain to see."""
    match value:
        case bool():
            return None
        case float() if "integer" in wanted and value.is_integer():
            return f"write {value:.0f}"
        case int() | float() if "string" in wanted:
            return f'put it in quotes: "{value}"'
        case str() if "boolean" in wanted and value.lower() in ("true", "false"):
            return f"write {value.lower()} without quotes"
        case str() if {"integer", "number"} & {*wanted} and value.strip().isdigit():
            return f"write {value.strip()[:40]} without quotes"
        case str() | Mapping() if "array" in wanted:
            return f"put it in a list: [{show_value(value)}]"
        case _:
            return None


def _wrong_choice(name: str, value: Any, wanted: Sequence[Any]) -> tuple[str, str]:
    words = _any_of(wanted)
    known = [one for one in wanted if isinstance(one, str)]
    fix = did_you_mean(value, known) if isinstance(value, str) else ""
    return f"{name} must be {words}, not {show_value(value)}", fix or f"write {words}"


def _no_branch(name: str, value: Any, error: _Error) -> tuple[str, str]:
    """Say that a value is none of the things it may be."""
    if (kinds := _kinds(error)) and isinstance(value, dict):
        return f"{name}: the field 'kind' is missing", f'add "kind": {_any_of(kinds)}'
    if kinds:
        fix = f'write {{"kind": …}}; the kinds are {", ".join(kinds)}'
        return f"{name} must be an object with a 'kind', not {_type_of(value)}", fix
    types = [inner.validator_value for inner in error.context if inner.validator == "type"]
    flat = [one for wanted in types for one in ([wanted] if isinstance(wanted, str) else wanted)]
    if flat:
        return _wrong_type(name, value, list(dict.fromkeys(flat)))
    return f"{name} has none of the forms it may have", "look at the schema of this field"


def _out_of_range(name: str, value: Any, bound: str, wanted: Any) -> tuple[str, str]:
    words = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}.get(bound, "less than")
    return f"{name} must be {words} {wanted}, not {show_value(value)}", f"write a number that is {words} {wanted}"


def _any_of(values: Iterable[Any]) -> str:
    words = [one if isinstance(one, str) else json.dumps(one) for one in values if one is not None]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
