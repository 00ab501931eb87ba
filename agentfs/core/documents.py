"""Bytes -> a value that knows where each part of it is: JSON, YAML and TOML. Pure: is given bytes, opens nothing.

What is not plain JSON (or the part of YAML or TOML that means JSON) is refused here, in words and with its place, so
that everything behind this module deals with trees of bounded depth, unique names and finite numbers.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from functools import cache
from typing import Any

from agentfs.core.json_text import (
    MAX_DEPTH,
    MAX_DIGITS,
    JsonText,
    Lines,
    find_faults,
    grammar_problem,
    plain_value,
    too_deep,
)
from agentfs.core.problems import Locate, Places, Problem, Rejected, pointer_to, refuse

MAX_BYTES = 4 * 1024 * 1024
MAX_YAML_BYTES = 1024 * 1024  # PyYAML takes seconds for a megabyte


@dataclass(frozen=True, slots=True)
class Document:
    """A value, and where its parts are in the text it was read from."""

    value: Any
    places: Locate = lambda _pointer, _key: (1, 1)
    text: str = ""  # all of the file, where that is what the places are in

    def locate(self, pointer: str, *, key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of a value (or of its name); of the nearest parent if it is not there."""
        return self.places(pointer, key)

    def place(self, problem: Problem) -> Problem:
        """Return a problem of the value with its place in the text."""
        return problem.at(*self.places(problem.pointer, problem.in_name))

    def with_value(self, value: Any) -> "Document":
        """Return the same text read as another value, for what a reader made more regular."""
        return replace(self, value=value)

    def wrapped(self, name: str) -> "Document":
        """Return `{name: value}`: a bare list of steps as a plan with steps."""
        places = Places(self.locate(""), inside={pointer_to(name): self.places})
        return Document({name: self.value}, places.locate)


def _too_large(limit: int) -> tuple[str, str]:
    return f"larger than {limit // 1024} KiB", "keep large texts in files of their own, and name those"


def decode_text(source: bytes, limit: int) -> str:
    """Return bytes as text; refuse what is too large or is not UTF-8."""
    if len(source) > limit:
        refuse(*_too_large(limit))
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        good = source[: error.start].decode("utf-8")
        line, column = good.count("\n") + 1, len(good) - good.rfind("\n")
        refuse(f"byte 0x{source[error.start]:02x} is not UTF-8", "save the file as UTF-8 text", line, column)


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────


def read_json(source: bytes, *, lenient_bom: bool = False) -> Document:
    """Return the document in these bytes, or raise `Rejected` with what is wrong and where."""
    text = decode_text(source, MAX_BYTES)
    if text.startswith("\ufeff"):
        if not lenient_bom:
            refuse("the file begins with a byte order mark", "save it as UTF-8 without BOM")
        text = text[1:]
    if not text.strip():
        refuse("the file is empty", "write a JSON document into it")
    try:
        return Document(plain_value(text), _lazily(text), text)
    except json.JSONDecodeError as error:
        raise Rejected([grammar_problem(text, error)]) from None
    except (ValueError, RecursionError):
        raise Rejected(find_faults(text)) from None


def _lazily(text: str) -> Locate:
    """Return a locator that reads the text only when there is a problem to report."""
    places = cache(lambda: JsonText(text))
    return lambda pointer, key: places().locate(pointer, key)


# ── YAML ──────────────────────────────────────────────────────────────────────────────────────────────────


def read_yaml(source: bytes | str, *, first_line: int = 1) -> Document:
    """Return the document in this YAML, or raise `Rejected`; an empty text is a document without fields.

    Only what JSON could say too: no anchors, no tags, no second document, names are text.
    """
    from agentfs.core.yaml_text import YamlReader

    text = decode_text(source, MAX_YAML_BYTES) if isinstance(source, bytes) else source
    if len(text) > MAX_YAML_BYTES:
        refuse(*_too_large(MAX_YAML_BYTES))
    reader = YamlReader(text, first_line)
    return Document(reader.value(), reader.places.locate)


# ── TOML ─────────────────────────────────────────────────────────────────────────────────────────────────


_TOML_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_TOML_KEYS = rf"{_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY})*"
_TOML_LINE = re.compile(
    rf"^[ \t]*(?:\[[ \t]*(?P<table>{_TOML_KEYS})[ \t]*\]|(?P<key>{_TOML_KEYS})[ \t]*=[ \t]*)", re.MULTILINE
)
_TOML_AT = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)\Z")


def read_toml(source: bytes) -> Document:
    """Return the document in this TOML, or raise `Rejected` with what is wrong and where."""
    text = decode_text(source, MAX_BYTES)
    document = Document(_toml_value(text), _toml_places(text))
    if problems := [document.place(problem) for problem in _not_json(document.value, "")]:
        raise Rejected(problems)
    return document


def _toml_value(text: str) -> dict[str, Any]:
    import tomllib

    try:
        value = tomllib.loads(text)
    except ValueError as error:  # also for an integer of more digits than Python converts
        where = _TOML_AT.search(str(error))
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
            yield Problem("a date or time is not allowed here", 'put it in quotes: "…"', pointer)


def _toml_places(text: str) -> Locate:
    """Return the locator of tables and keys."""
    lines, table, places = Lines(text), "", Places()
    for match in _TOML_LINE.finditer(text):
        if match["table"]:
            table = _toml_pointer(match["table"])
            places.marks.setdefault(table, lines.at(match.start("table")))
        else:
            pointer = table + _toml_pointer(match["key"])
            if pointer not in places.marks:
                places.marks[pointer], places.names[pointer] = lines.at(match.end()), lines.at(match.start("key"))
    return places.locate


def _toml_pointer(dotted: str) -> str:
    return pointer_to(*(part.strip("\"'") for part in re.findall(_TOML_KEY, dotted)))
