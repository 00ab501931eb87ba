"""Holds a value against a JSON Schema, in a process of its own: a schema that explodes can be ended from outside.

Run as a script: {"schema", "value"} on stdin, what is wrong (or null) on stdout. Nothing of agentfs is imported.
"""

import json
import sys
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable


def mismatch(schema: Any, value: Any) -> str | None:
    """Return how a value violates a schema; None if it does not. Fetches nothing: a reference must lie within."""
    try:
        Draft202012Validator.check_schema(schema)
        error = best_match(Draft202012Validator(schema, registry=Registry()).iter_errors(value))
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
    where = "/".join(map(str, error.absolute_path))
    return f"{where + ': ' if where else ''}{_short(error.message)}"


def _short(message: str) -> str:
    return message if len(message) <= 400 else f"{message[:200]} … {message[-200:]}"


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump(mismatch(asked["schema"], asked["value"]), sys.stdout)
