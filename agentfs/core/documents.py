"""Bytes -> a value that knows where each part of it stands. Pure: is given bytes, opens nothing.

What is not plain JSON (or the part of YAML that means JSON) is refused here, in words and with its place, so that
everything behind this module deals with trees of bounded depth, unique names and finite numbers.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from agentfs.core.json_text import MAX_DEPTH, MAX_DIGITS, JsonPlaces, grammar_problem, scan
from agentfs.core.problems import Problem, Rejected, pointer_to, refuse

MAX_BYTES = 4 * 1024 * 1024
MAX_YAML_BYTES = 1024 * 1024  # PyYAML takes seconds for a megabyte

Locate = Callable[[str, bool], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Document:
    """A value, and where its parts stand in the text it was read from."""

    value: Any
    places: Locate = lambda _pointer, _key: (1, 1)
    text: str = ""  # all of the file, where that is what the places are in

    def locate(self, pointer: str, *, key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of a value (or of its name); of the nearest parent if it is not there."""
        return self.places(pointer, key)

    def with_value(self, value: Any) -> "Document":
        """Return the same text read as another value, for what a reader made more regular."""
        return replace(self, value=value)

    def wrapped(self, name: str) -> "Document":
        """Return `{name: value}`: a bare list of steps as a plan with steps."""
        prefix = pointer_to(name)

        def places(pointer: str, key: bool) -> tuple[int, int]:
            inside = pointer == prefix or pointer.startswith(prefix + "/")
            return self.places(pointer[len(prefix) :] if inside else "", key)

        return Document({name: self.value}, places)


def _too_large(limit: int) -> tuple[str, str]:
    return f"larger than {limit // 1024} KiB", "keep large texts in files of their own, and name those"


def decoded(source: bytes, limit: int) -> str:
    """Return bytes as text; refuse what is too large or is not UTF-8."""
    if len(source) > limit:
        refuse(*_too_large(limit))
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Rejected([_not_utf8(source, error.start)]) from None


def _not_utf8(source: bytes, start: int) -> Problem:
    good = source[:start].decode("utf-8")
    line, column = good.count("\n") + 1, len(good) - good.rfind("\n")
    return Problem(f"byte 0x{source[start]:02x} is not UTF-8", "save the file as UTF-8", "", line, column)


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────


class _SuspiciousError(Exception):
    """The decoder met something it would let through; `scan` says what and where."""


def read_json(source: bytes, *, lenient_bom: bool = False, limit: int = MAX_BYTES) -> Document:
    """Return the document in these bytes, or raise `Rejected` with what is wrong and where."""
    text = decoded(source, limit)
    if text.startswith("\ufeff"):
        if not lenient_bom:
            refuse("the file begins with a byte order mark", "save it as UTF-8 without BOM")
        text = text[1:]
    if not text.strip():
        refuse("the file is empty", "write a JSON document into it")
    return Document(_value(text), _lazily(text), text)


def _value(text: str) -> Any:
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_int=_int, parse_float=_float, parse_constant=_suspicious
        )
    except json.JSONDecodeError as error:
        raise Rejected([grammar_problem(text, error)]) from None
    except (_SuspiciousError, RecursionError):
        raise Rejected(scan(text)) from None
    if too_deep(value) or ("\\u" in text and not _encodes(value)):
        raise Rejected(scan(text))
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise _SuspiciousError
    return table


def _int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise _SuspiciousError
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _SuspiciousError
    return number


def _suspicious(_word: str) -> NoReturn:
    raise _SuspiciousError


def _encodes(value: Any) -> bool:
    """Tell whether every string can be written again: half of a surrogate pair cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def too_deep(value: Any) -> bool:
    """Tell whether a tree has more than MAX_DEPTH levels of objects and lists; without recursion."""
    level = [[value]]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return False
        level = [_children(child) for parent in level for child in parent if isinstance(child, dict | list)]
    return bool(level)


def _children(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _lazily(text: str) -> Locate:
    """Return a way to locate that reads the text only when there is something to tell."""
    made: list[JsonPlaces] = []

    def places(pointer: str, key: bool) -> tuple[int, int]:
        if not made:
            made.append(JsonPlaces(text))
        return made[0].locate(pointer, key)

    return places


# ── YAML ──────────────────────────────────────────────────────────────────────────────────────────────────


def read_yaml(source: bytes | str, *, first_line: int = 1) -> Document:
    """Return the document in this YAML, or raise `Rejected`; an empty text is a document without fields.

    Only what JSON could say too: no anchors, no tags, no second document, names are text.
    """
    from agentfs.core.yaml_text import YamlReader

    text = decoded(source, MAX_YAML_BYTES) if isinstance(source, bytes) else source
    if len(text) > MAX_YAML_BYTES:
        refuse(*_too_large(MAX_YAML_BYTES))
    reader = YamlReader(text, first_line)
    return Document(reader.value(), reader.locate)
