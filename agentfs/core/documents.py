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
from itertools import islice
from math import isinf
from typing import Any, NamedTuple

from agentfs.core.problems import Lines, Locate, Places, Problem, Rejected, pointer_to, pointer_tokens, refuse
from agentfs.core.values import MAX_DEPTH, MAX_DIGITS, plain_value, too_deep

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


# ── where the parts of a JSON text are, and what is wrong with it ────────────────────────────────────────


# The standard library's decoder is fast but says neither where a value is nor that a key came twice. So a good text
# is decoded by it alone, and walked only to report a problem or to edit it.

MOST_FAULTS = 50  # reported of one document

_SPACE = re.compile(r"[ \t\n\r]*")
_BRACKET = re.compile(r'"(?:[^"\\]+|\\.)*"?|[{}\[\]]', re.DOTALL)  # or a string, in which brackets mean nothing
_SURROGATE = re.compile("[\ud800-\udfff]")
_Fault = tuple[str, str]  # what is wrong, and how to fix it
_HALF_A_PAIR = ("half of a character pair: a lone surrogate", "write the character itself, or both \\u halves")
_DECODER = json.JSONDecoder(parse_int=float)  # says where a value ends, however many digits it has


class Member(NamedTuple):
    """A child of an object or a list: where its name is (in a list: its value), and where its value is."""

    name: str
    begin: int
    name_end: int
    start: int
    end: int


class JsonText:
    """A text that follows the grammar of JSON, and where its values are."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = skip_space(text, 0)
        self._lines = Lines(text)
        self._ends = _container_ends(text)
        self._known: dict[int, dict[str, Member]] = {}

    def end_of(self, start: int) -> int:
        """Return where the value ends that begins at an offset."""
        return self._ends.get(start) or _DECODER.raw_decode(self.text, start)[1]

    def members(self, start: int) -> Iterator[Member]:
        """Yield the children of the container at an offset; nothing if a plain value is there."""
        text = self.text
        if text[start] not in "{[":
            return
        at, count = skip_space(text, start + 1), 0
        while text[at] not in "}]":
            name, begin, name_end = str(count), at, at
            if text[start] == "{":
                name, name_end = _DECODER.raw_decode(text, at)
                at = skip_space(text, skip_space(text, name_end) + 1)
            end = self.end_of(at)
            yield Member(name, begin, name_end, at, end)
            at, count = skip_space(text, end), count + 1
            if text[at] == ",":
                at = skip_space(text, at + 1)

    def locate(self, pointer: str, key: bool = False) -> tuple[int, int]:
        """Return line and column of a value or its name; of the nearest parent if there is no such value."""
        start = found = self.start
        for token in pointer_tokens(pointer):
            if start not in self._known:
                self._known[start] = {member.name: member for member in self.members(start)}
            if (member := self._known[start].get(token)) is None:
                break
            start, found = member.start, member.begin if key else member.start
        return self._lines.at(found)

    def faults(self) -> list[Problem]:
        """Return what the text holds that a decoder takes and no document may hold."""
        found = islice(self._faults_at(self.start, ()), MOST_FAULTS)
        return [Problem(message, fix, pointer_to(*path), *self._lines.at(at)) for at, path, (message, fix) in found]

    def _faults_at(self, start: int, path: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...], _Fault]]:
        if self.text[start] not in "{[" and (fault := _plain_fault(self.text[start : self.end_of(start)])):
            yield start, path, fault
        names: set[str] = set()
        for member in self.members(start):
            inner = (*path, member.name)
            if member.name in names:
                yield member.begin, inner, (f"the field {member.name!r} is there twice", "keep one of the two")
            elif _SURROGATE.search(member.name):
                yield member.begin, inner, _HALF_A_PAIR
            names.add(member.name)
            yield from self._faults_at(member.start, inner)


def skip_space(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


def _container_ends(text: str) -> dict[int, int]:
    """Return where each object and list ends by where it begins; raise `Rejected` if they are too deep."""
    ends, outer = dict[int, int](), list[int]()
    for match in _BRACKET.finditer(text):
        if match[0] in ("{", "["):
            if len(outer) == MAX_DEPTH:
                refuse(f"nested more than {MAX_DEPTH} levels deep", "make it flatter", *Lines(text).at(match.start()))
            outer.append(match.start())
        elif match[0] in ("}", "]") and outer:
            ends[outer.pop()] = match.end()
    return ends


def find_faults(text: str) -> list[Problem]:
    """Return why `plain_value` refuses a text, with places: its grammar, or else all that it holds beside."""
    found = JsonText(text)  # raises Rejected if it is too deep
    try:
        _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return [grammar_problem(text, error)]
    return found.faults()


def _plain_fault(word: str) -> _Fault | None:
    """Return what is wrong with a value, as it is written, that is no container."""
    digits = word.lstrip("-")
    if word[0] == '"':
        return _HALF_A_PAIR if _SURROGATE.search(json.loads(word, strict=False)) else None
    if digits in ("NaN", "Infinity"):
        return f"{word} is not JSON", "write a number, null, or put it in quotes"
    if digits[0].isdigit() and (len(digits) > MAX_DIGITS if digits.isdigit() else isinf(float(digits))):
        return "the number is too large", 'put it in quotes: "…"'
    return None


def grammar_problem(text: str, error: json.JSONDecodeError) -> Problem:
    """Return a decoder's error as a person would say it."""
    message, fix = _in_words(text, error)
    return Problem(message, fix, "", *Lines(text).at(error.pos))


def _in_words(text: str, error: json.JSONDecodeError) -> tuple[str, str]:
    rest = text[error.pos :].lstrip()
    before = text[: error.pos].rstrip()
    if error.msg.startswith("Unterminated string"):
        return "the text in quotes that begins here does not end", 'close it with "'
    if not rest:
        return "the file ends in the middle", "close what is open: a } or a ] is missing"
    if error.msg.startswith("Extra data"):
        return "something follows the end of the document", "remove it, or close the last } or ] later"
    if error.msg.startswith("Invalid control character"):
        return "a line break or control character inside quotes", "write \\n for a line break, \\t for a tab"
    if "escape" in error.msg:
        return "a \\ that means nothing in JSON", "write \\\\ for a backslash itself"
    if rest[0] in "}]" and (before.endswith(",") or "trailing comma" in error.msg):
        return f"a comma before {rest[0]}", "remove the comma"
    return _describe_unexpected(rest, error.msg)


def _describe_unexpected(rest: str, said: str) -> tuple[str, str]:
    """Return what is wrong where the grammar wants something else."""
    if rest[0] in "'\u2018\u2019\u201c\u201d":
        return "text must be in double quotes", 'write "…"'
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments", "remove it"
    if word := re.match(r"(True|False|None|undefined|nil)\b", rest):
        return f"{word[1]} is not JSON", "write true, false or null"
    if "',' delimiter" in said:
        return f"a comma is missing before {rest[0]!r}", "put a comma between the two"
    if "':' delimiter" in said:
        return "a colon is missing after the field's name", 'write "name": value'
    if "property name" in said:
        return f"a field's name in double quotes is expected here, not {rest[0]!r}", 'write "name": value'
    return f"a value is expected here, not {rest[0]!r}", "text goes in double quotes"


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
