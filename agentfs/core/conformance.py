"""Whether a value satisfies a JSON Schema that another user wrote, and whether that is quick to tell. Pure.

A schema may take exponential time, or any amount of memory: patterns, references, choices. Only one that is plain and
small, for a value that is not large, is judged in this process; any other in a process that can be ended
(`tools/bounded_worker`). Imports nothing else of agentfs: that process has to start quickly.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

LARGEST_PLAIN = 4096  # bytes of a schema that is judged in this process
MOST_WORK = 4_000_000  # bytes of the schema times bytes of the value: a few tenths of a second at worst
_PLAIN = {
    "type", "properties", "required", "items", "additionalProperties", "enum", "const", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties", "title", "description", "default", "examples",
}  # fmt: skip


def is_quick(schema: Any, value: Any) -> bool:
    """Whether a schema is judged in little time whatever it says: no part of it looks at a value twice."""
    size = len(json.dumps(schema))
    return size <= LARGEST_PLAIN and _is_plain(schema) and size * len(json.dumps(value)) <= MOST_WORK


def _is_plain(schema: Any) -> bool:
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or not schema.keys() <= _PLAIN:
        return False
    fields = schema.get("properties", {})
    inner = [*fields.values()] if isinstance(fields, dict) else [None]
    return all(map(_is_plain, [*inner, schema.get("items", True), schema.get("additionalProperties", True)]))


def mismatch(schema: Any, value: Any) -> str | None:
    """Return how a value violates a schema; None if it does not. Fetches nothing: a reference must lie within."""
    from jsonschema.exceptions import SchemaError, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        validator_class().check_schema(schema)
        error = best_match(validator_class()(schema, registry=Registry()).iter_errors(value))
    except SchemaError as invalid:
        return f"the schema itself is wrong: {_short(invalid.message)}"
    except Unresolvable as missing:
        return f"the schema refers to something that is not in it: {_short(str(missing))}"
    except RecursionError:
        return "the schema refers to itself without end, or the value is nested too deeply"
    except Exception as unexpected:  # noqa: BLE001 - a person's schema may make any part of the validator stumble
        return f"the schema cannot be used: {type(unexpected).__name__}: {_short(str(unexpected))}"
    if error is None:
        return None
    if value is None:
        return "there is no value"  # "None is not of type 'string'" would speak of Python
    where = "/".join(map(str, error.absolute_path))
    return f"{where + ': ' if where else ''}{_short(error.message)}"


@cache
def validator_class() -> Any:
    """Return jsonschema's validator, in linear time throughout."""
    from jsonschema import Draft202012Validator, validators

    extend: Any = validators.extend  # it has no types of its own
    return extend(Draft202012Validator, {"uniqueItems": _unique_items})


def _unique_items(validator: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[Any]:
    """`uniqueItems` in linear time; jsonschema's own compares each with each where they cannot be sorted."""
    from jsonschema import ValidationError

    if wanted is True and validator.is_type(value, "array") and len(set(map(_hashable, value))) < len(value):
        yield ValidationError(f"{_short(repr(value))} has non-unique elements")


def _hashable(value: Any) -> Any:
    """Return something that is equal for equal JSON, and for no other: 1 is 1.0, true is not 1."""
    match value:
        case bool():
            return (bool, value)
        case dict():
            return frozenset((name, _hashable(item)) for name, item in value.items())
        case list():
            return tuple(map(_hashable, value))
        case _:
            return value


def _short(message: str) -> str:
    return message if len(message) <= 400 else f"{message[:200]} … {message[-200:]}"
