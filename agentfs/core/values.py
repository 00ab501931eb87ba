"""Values as JSON has them: what a text says, if it says one that can be kept; what lies inside one. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any, NoReturn

from pydantic import JsonValue

MAX_DEPTH = 100
MAX_DIGITS = 308  # more than any double holds, and than other readers of the file will keep


class NotJson(Exception):
    """The text is not a JSON value, or one that could not be kept."""


def json_value(text: str, *, raw_line_ends: bool = False) -> Any:
    """Return the value a text is; NotJson for an infinity, a lone surrogate, a double key or nesting without end."""
    try:
        return plain_value(text, strict=not raw_line_ends)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def plain_value(text: str, *, strict: bool = True) -> Any:
    """Return the value of a JSON text; raise ValueError, or RecursionError, if it is none or cannot be kept as it is.

    Refused are a name that occurs twice, numbers that are none or too large, half of a surrogate pair, and depth.
    `strict`: no line breaks inside quotes.
    """
    value = json.loads(
        text, strict=strict, object_pairs_hook=_unique, parse_int=_int, parse_float=_float, parse_constant=_constant
    )
    if too_deep(value):
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    if "\\u" in text or not text.isascii():
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # fails for half of a surrogate pair
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice")
    return table


def _int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError("a number is too large")
    return int(digits)


def _float(digits: str) -> float:
    if isinf(number := float(digits)):
        raise ValueError("a number is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def too_deep(value: Any, most: int = MAX_DEPTH) -> bool:
    """Return whether a tree has more than so many levels of objects and lists; without recursion."""
    level = [value]
    for _ in range(most + 1):
        containers = [one for one in level if isinstance(one, dict | list)]
        if not containers:
            return False
        level = [inner for one in containers for inner in (one.values() if isinstance(one, dict) else one)]
    return True


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
