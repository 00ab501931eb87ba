"""TOML text -> a value, and where its keys stand. Pure: is given bytes, opens nothing.

`tomllib` reads the value but forgets where it stood. Keys are found again by looking at the lines, which is right for
tables and `key = value` on a line of its own; anything finer has the place of the key it belongs to.
"""

import re
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any

from agentfs.core.documents import MAX_BYTES, Document, decoded, too_deep
from agentfs.core.json_text import MAX_DEPTH, MAX_DIGITS, Lines
from agentfs.core.problems import Problem, Rejected, pointer_to, pointer_tokens, refuse

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_LINE = re.compile(rf"^[ \t]*(?:\[[ \t]*(?P<table>{_DOTTED})[ \t]*\]|(?P<key>{_DOTTED})[ \t]*=[ \t]*)", re.MULTILINE)
_AT = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)\Z")

_Place = tuple[int, int]


def read_toml(source: bytes) -> Document:
    """Return the document in this TOML, or raise `Rejected` with what is wrong and where."""
    text = decoded(source, MAX_BYTES)
    value, places = _value(text), _Places(text)
    if problems := [problem.at(*places.locate(problem.pointer, key=False)) for problem in _not_json(value, "")]:
        raise Rejected(problems)
    return Document(value, places.locate)


def _value(text: str) -> dict[str, Any]:
    import tomllib

    try:
        value = tomllib.loads(text)
    except ValueError as error:  # also for an integer of more digits than Python converts
        where = _AT.search(str(error))
        place = (int(where[1]), int(where[2])) if where and where[1] else Lines(text).at(len(text))
        said = str(error)[: where.start()] if where else "a number that is too large"
        refuse(f"not TOML: {said}", "text goes in double quotes; true and false in lower case", *place)
    except RecursionError:
        refuse(f"nested more than {MAX_DEPTH} levels deep", "make it flatter")
    if too_deep(value):
        refuse(f"nested more than {MAX_DEPTH} levels deep", "make it flatter")
    return value


def _not_json(value: Any, pointer: str) -> Iterator[Problem]:
    """Yield what TOML can say and JSON cannot."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from _not_json(inner, pointer + pointer_to(name))
        case list():
            for place, inner in enumerate(value):
                yield from _not_json(inner, f"{pointer}/{place}")
        case float() if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - it is NaN
            yield Problem(f"{value} is not a number that JSON knows", "write a number", pointer)
        case int() if abs(value) >= 10**MAX_DIGITS:
            yield Problem("the number is too large", "write a smaller one", pointer)
        case datetime() | date() | time():
            yield Problem("a date or time cannot stand here", 'put it in quotes: "…"', pointer)


class _Places:
    """Where tables and keys stand."""

    def __init__(self, text: str) -> None:
        lines, table = Lines(text), ""
        self._found: dict[str, tuple[_Place, _Place]] = {}
        for match in _LINE.finditer(text):
            if match["table"]:
                table = _pointer(match["table"])
                place = lines.at(match.start("table"))
                self._found.setdefault(table, (place, place))
            else:
                places = (lines.at(match.start("key")), lines.at(match.end()))
                self._found.setdefault(table + _pointer(match["key"]), places)

    def locate(self, pointer: str, key: bool) -> _Place:
        tokens = pointer_tokens(pointer)
        for length in range(len(tokens), 0, -1):
            if found := self._found.get(pointer_to(*tokens[:length])):
                return found[0 if key else 1]
        return 1, 1


def _pointer(dotted: str) -> str:
    return pointer_to(*(part.strip("\"'") for part in re.findall(_KEY, dotted)))
