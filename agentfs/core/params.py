"""Parameters of a goal: what it takes, the values a run is given, and words with those filled in. Pure.

`params` of a goal maps names to JSON Schemas; a run freezes one value for each in run.json. In inputs and checks a
value is resolved like any other reference (`resolve`), never as code; in words it becomes text, once.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from agentfs.core import conformance
from agentfs.core.documents import read_yaml
from agentfs.core.plan_schemas import Schemas
from agentfs.core.problems import Problem, Rejected, did_you_mean, pointer_to, show_value
from agentfs.core.records import JsonObject, Step
from agentfs.core.references import find
from agentfs.core.values import NoPart, as_text, value_inside

TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
EMPTY: Mapping[str, JsonValue] = {}

Fits = Callable[[Any, Any], str | None]  # a schema and a value -> how the value violates it; None: it does not
Schema = Mapping[str, Any]


def quick_fit(schema: Any, value: Any) -> str | None:
    """Judge here what is quick to judge; a schema that may take long is for the caller's process."""
    return conformance.mismatch(schema, value) if conformance.is_quick(schema, value) else None


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a goal takes under one name."""

    name: str
    schema: Schema

    @property
    def is_required(self) -> bool:
        return "default" not in self.schema

    @property
    def description(self) -> str:
        said = self.schema.get("description")
        return said if isinstance(said, str) else ""

    @property
    def kind(self) -> str:
        """What a value has to be, in a few words."""
        if isinstance(choices := self.schema.get("enum"), list) and choices:
            return "one of " + ", ".join(as_text(one) for one in choices)
        return " or ".join(_WORDS.get(one, one) for one in types_of(self.schema)) or "any value"


_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
_WORDS |= {"array": "a list", "object": "an object"}


def types_of(schema: Schema) -> tuple[str, ...]:
    """Return the types that a schema names; none: it takes any."""
    given = schema.get("type")
    return (given,) if isinstance(given, str) else tuple(one for one in given or () if isinstance(one, str))


def parameters_in(declared: Mapping[str, Any] | None) -> dict[str, Parameter]:
    """Return the parameters that the field `params` of a goal declares; those that are none are left out."""
    found = {name: _full_schema(schema) for name, schema in (declared or {}).items()}
    return {name: Parameter(name, schema) for name, schema in found.items() if schema is not None}


def _full_schema(schema: Any) -> Schema | None:
    """Return a schema in full: a bare type name is short for one, and `true` takes anything."""
    if isinstance(schema, str):
        return {"type": schema} if schema in TYPES else None
    if schema is True:
        return {}
    return schema if isinstance(schema, dict) else None


def declaration_problems(declared: Mapping[str, Any] | None, fits: Fits = quick_fit) -> Iterator[Problem]:
    """Yield what is wrong with the field `params` itself: what is no schema, and defaults that break their own."""
    schemas = Schemas()
    for name, written in (declared or {}).items():
        pointer = pointer_to("params", name)
        if (schema := _full_schema(written)) is None:
            yield _no_schema(name, written, pointer)
        elif wrong := schemas.problems(dict(schema), pointer):
            yield from wrong
        elif "default" in schema and (why := fits(schema, schema["default"])):
            message = f"the default of the parameter {name!r} breaks its own schema: {why}"
            yield Problem(message, "change the default or the schema", f"{pointer}/default")


def _no_schema(name: str, written: Any, pointer: str) -> Problem:
    otherwise = f"write a type ({', '.join(TYPES[:6])}) or a JSON Schema"
    fix = did_you_mean(written, TYPES, otherwise) if isinstance(written, str) else otherwise
    return Problem(f"the parameter {name!r}: {show_value(written)} is neither a type nor a schema", fix, pointer)


# ── the values ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Values:
    """The value of every parameter, or what is wrong: missing, unknown and unfit ones, all of them."""

    values: dict[str, JsonValue] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def values_for(parameters: Mapping[str, Parameter], given: Mapping[str, JsonValue], fits: Fits = quick_fit) -> Values:
    """Return the value of each parameter: what is given, text taken as the schema's type; else its default."""
    values: dict[str, JsonValue] = {}
    problems = [_unknown(name, parameters) for name in given if name not in parameters]
    for name, parameter in parameters.items():
        if name not in given and parameter.is_required:
            problems.append(_problem(parameter, "has no value", f"for example {placeholder(parameter)}"))
            continue
        value = parse_typed(given[name], parameter.schema, fits) if name in given else parameter.schema["default"]
        if why := fits(parameter.schema, value):
            problems.append(
                _problem(parameter, f"cannot be {show_value(value)}: {why}", f"it takes {parameter.kind}")
            )
        values[name] = value
    return Values(values, tuple(problems))


def frozen_problems(parameters: Mapping[str, Parameter], given: Mapping[str, JsonValue]) -> list[Problem]:
    """Return where an edited goal does not go with the values that its run began with: those never change."""
    fix, found = "a run keeps the values it began with: agentfs fork RUN -p NAME=VALUE begins one with others", []
    for name, parameter in parameters.items():
        if name not in given:
            found.append(
                Problem(f"this run has no value for the parameter {name!r}", fix, pointer_to("params", name))
            )
        elif why := quick_fit(parameter.schema, given[name]):
            message = f"the value {show_value(given[name])} of the parameter {name!r} does not fit: {why}"
            found.append(Problem(message, fix, pointer_to("params", name)))
    return found


def _problem(parameter: Parameter, what: str, fix: str) -> Problem:
    about = f": {parameter.description}" if parameter.description else ""
    message = f"the parameter {parameter.name!r} ({parameter.kind}) {what}{about}"
    return Problem(message, fix, pointer_to("params", parameter.name))


def _unknown(name: str, parameters: Mapping[str, Parameter]) -> Problem:
    known = "it takes " + ", ".join(parameters) if parameters else "it takes none"
    return Problem(
        f"there is no parameter {name!r}", did_you_mean(name, parameters, known), pointer_to("params", name)
    )


def parse_typed(value: JsonValue, schema: Schema, fits: Fits = quick_fit) -> JsonValue:
    """Return a value as the schema's type if it is text: of several types the first that fits, else the first."""
    if not isinstance(value, str):
        return value
    read = [one for kind in types_of(schema) or ("string", "number") for one in _read_as(kind, value)]
    if len(read) < 2:
        return read[0] if read else value  # nothing to choose from: judging it twice may take long
    return next((one for one in read if fits(schema, one) is None), read[0])


def _read_as(kind: str, text: str) -> Iterator[JsonValue]:
    """Yield what a text is as a type; nothing if it is none."""
    if kind == "string":
        yield text
        return
    try:
        value = read_yaml(text).value if kind in ("array", "object") else json.loads(text, parse_constant=_refuse)
    except (Rejected, ValueError, RecursionError):
        return
    if kind in ("integer", "number", "boolean", "null") and isinstance(value, str | list | dict):
        return
    yield value


def _refuse(word: str) -> None:
    raise ValueError(word)


def parse_assignments(pairs: Sequence[str]) -> dict[str, JsonValue]:
    """Return what was typed as NAME=VALUE, the last of a name; raise `Rejected` if one is not of that form."""
    wrong = [pair for pair in pairs if not pair.partition("=")[0] or "=" not in pair]
    if wrong:
        raise Rejected(
            [Problem(f"-p {one}: a parameter is NAME=VALUE", "write it like -p env=prod") for one in wrong]
        )
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


# ── an example of a command ───────────────────────────────────────────────────────────────────────────────


def example_arguments(parameters: Mapping[str, Parameter], given: Mapping[str, JsonValue]) -> str:
    """Return the `-p` arguments of a command that would be taken: what was given and fits, examples of the rest."""
    parts = []
    for name, parameter in parameters.items():
        value = parse_typed(given[name], parameter.schema) if name in given else None
        if name in given and quick_fit(parameter.schema, value) is None:
            parts.append(f"{name}={as_text(value)}")
        elif name in given or parameter.is_required:
            parts.append(f"{name}={placeholder(parameter)}")
    return " ".join(f"-p {shlex.quote(part)}" for part in parts)


def placeholder(parameter: Parameter) -> str:
    """Return a value that a parameter would take, as text; VALUE where nothing is known to fit."""
    schema = parameter.schema
    samples = [schema[name] for name in ("default", "const") if name in schema]
    for name in ("examples", "enum"):
        samples += schema[name][:1] if isinstance(schema.get(name), list) else []
    samples += [schema[name] for name in ("minimum", "maximum") if name in schema]
    samples += [_OF_TYPE[kind] for kind in types_of(schema) if kind in _OF_TYPE]
    fitting = (one for one in samples if conformance.is_quick(schema, one) and not conformance.mismatch(schema, one))
    return next(map(as_text, fitting), "VALUE")


_OF_TYPE: dict[str, JsonValue] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None}


# ── in words ──────────────────────────────────────────────────────────────────────────────────────────────


def fill(text: str, values: Mapping[str, JsonValue]) -> str:
    """Return words with the text of each value in place of its reference; what is put in is not looked at again."""
    if not values or "{{" not in text:
        return text
    parts, at = [], 0
    for reference in find(text):
        if reference.kind != "param" or reference.path[0] not in values:
            continue
        inner = value_inside(values[reference.path[0]], reference.path[1:])
        if not isinstance(inner, NoPart):
            parts += [text[at : reference.start], as_text(inner)]
            at = reference.end
    return "".join([*parts, text[at:]])


def with_words(step: Step, values: Mapping[str, JsonValue]) -> Step:
    """Return a step whose words, description and success condition, have the values filled in."""
    if not values:
        return step
    words = {name: getattr(step, name) for name in ("description", "success_condition")}
    filled = {name: fill(text, values) for name, text in words.items() if text and "{{" in text}
    return step.model_copy(update=filled) if filled else step


def as_json(parameter: Parameter) -> JsonObject:
    """Return what `show-goal --json` says of a parameter."""
    return {"name": parameter.name, "required": parameter.is_required, "schema": dict(parameter.schema)}
