"""JSON text: its value if it is one that can be kept, where each part of it is, what is wrong with it. Pure.

The standard library's decoder is fast but says neither where a value is nor that a key came twice. So a good
document is decoded by it alone, and the text is walked only to report a problem or to edit it.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from math import isinf
from typing import Any, NamedTuple, NoReturn

from agentfs.core.problems import Problem, pointer_to, pointer_tokens, refuse

MAX_DEPTH = 100
MAX_DIGITS = 308  # more than any double holds, and than other readers of the file will keep

MOST_FAULTS = 50  # reported of one document

_SPACE = re.compile(r"[ \t\n\r]*")
_BRACKET = re.compile(r'"(?:[^"\\]+|\\.)*"?|[{}\[\]]', re.DOTALL)  # or a string, in which brackets mean nothing
_SURROGATE = re.compile("[\ud800-\udfff]")
_Fault = tuple[str, str]  # what is wrong, and how to fix it
_HALF_A_PAIR = ("half of a character pair: a lone surrogate", "write the character itself, or both \\u halves")
_DECODER = json.JSONDecoder(parse_int=float)  # says where a value ends, however many digits it has


class Lines:
    """Offsets of a text as line and column, both from 1."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._first = first_line
        self._last = max(len(text.rstrip()) - 1, 0)

    def at(self, offset: int) -> tuple[int, int]:
        """Return where an offset is; a line break, or the end, counts as the last character before it."""
        offset = min(offset, self._last)
        line = bisect_right(self._starts, offset) - 1
        if line + 1 < len(self._starts):
            offset = min(offset, self._starts[line + 1] - 2)
        return line + self._first, max(offset - self._starts[line], 0) + 1


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


# ── values that JSON can say and agentfs refuses ──────────────────────────────────────────────────────────


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


def find_faults(text: str) -> list[Problem]:
    """Return why `plain_value` refuses a text, with places: its grammar, or else all that it holds beside."""
    found = JsonText(text)  # raises Rejected if it is too deep
    try:
        _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return [grammar_problem(text, error)]
    return found.faults()


# ── errors of grammar, in words ───────────────────────────────────────────────────────────────────────────


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
