"""Values as JSON has them: what a text says, if it says one that can be kept. Pure."""

import json
from typing import Any

DEEPEST = 100  # nesting of JSON that is taken as a value


class NotJson(Exception):
    """The text is no JSON value, or one that could not be kept."""


def json_value(text: str, *, raw_line_ends: bool = False) -> Any:
    """Return the value a text is; NotJson for an infinity, a lone surrogate, a double key or nesting without end."""
    try:
        value = json.loads(text, strict=not raw_line_ends, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None
    if not _depth_is_fine(value, DEEPEST):
        raise NotJson(f"it is nested more than {DEEPEST} deep")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")
    return made


def _depth_is_fine(value: Any, left: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left > 0 and all(_depth_is_fine(item, left - 1) for item in items)
