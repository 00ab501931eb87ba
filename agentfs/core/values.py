"""Values as JSON has them: what a text says, if it says one that can be kept; what lies inside one. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

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
        raise ValueError("a key occurs twice")
    return made


def _depth_is_fine(value: Any, left: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left > 0 and all(_depth_is_fine(item, left - 1) for item in items)


# ── inside a value ────────────────────────────────────────────────────────────────────────────────────────


SHOWN_KEYS = 12
_INDEX = re.compile(r"(0|[1-9][0-9]{0,8})\Z")


@dataclass(frozen=True, slots=True)
class NoPart:
    """A path that leads nowhere: how far it was walked, what is not there, and what is there instead."""

    walked: tuple[str, ...]
    part: str
    there: str

    def words(self, subject: str) -> str:
        return f"{'.'.join([subject, *self.walked])} has no {self.part!r}: it is {self.there}"


def value_inside(value: JsonValue, path: Sequence[str]) -> JsonValue | NoPart:
    """Return what lies at a path of keys and indices in a value."""
    for place, part in enumerate(path):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _INDEX.match(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return NoPart(tuple(path[:place]), part, describe(value))
    return value


def as_text(value: JsonValue) -> str:
    """Return a value as it is in a text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def describe(value: JsonValue) -> str:
    """Return in words what a value is, so that the right path can be found."""
    if isinstance(value, dict):
        keys = ", ".join(list(value)[:SHOWN_KEYS]) + (", …" if len(value) > SHOWN_KEYS else "")
        return f"an object with the keys {keys}" if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}, counted from 0" if value else "an empty list"
    if isinstance(value, str):
        return "text"
    return json.dumps(value)
