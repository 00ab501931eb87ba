"""Positions and mistakes in JSON text. Pure: reads no files.

The standard library's decoder is fast but says neither where a value is nor that a key came twice. So a good
document is decoded by it alone, and this module walks the text only when there is a problem to report.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentfs.core.problems import Problem, pointer_to, pointer_tokens

MAX_DEPTH = 100
MAX_DIGITS = 308  # more than any double holds, and than other readers of the file will keep

_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'[ \t\n\r]*(?:([{}\[\]:,])|(")|([^\s{}\[\]:,"]+))')
_NUMBER = re.compile(  # as the decoder reads it: what follows is the grammar's business
    r"(?P<name>NaN|-?Infinity)|(?P<whole>-?(?:0|[1-9][0-9]*))(?P<rest>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
)
_MARK, _QUOTE = 1, 2  # the groups of _TOKEN
_SURROGATE = re.compile("[\ud800-\udfff]")
_DECODER = json.JSONDecoder()


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


def members_of(text: str, start: int) -> Iterator[Member]:
    """Yield the children of the container at an offset of a valid JSON text; nothing if a plain value is there."""
    if text[start] not in "{[":
        return
    is_object, at, count = text[start] == "{", skip_space(text, start + 1), 0
    while text[at] not in "}]":
        name, begin, name_end = str(count), at, at
        if is_object:
            name, name_end = _DECODER.raw_decode(text, at)
            at = skip_space(text, skip_space(text, name_end) + 1)
        _, end = _DECODER.raw_decode(text, at)
        yield Member(name, begin, name_end, at, end)
        at, count = skip_space(text, end), count + 1
        if text[at] == ",":
            at = skip_space(text, at + 1)


def skip_space(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


class JsonPlaces:
    """Where the values of a valid JSON text are; each container is read once, when it is first asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = Lines(text)
        self._known: dict[int, dict[str, Member]] = {}

    def locate(self, pointer: str, key: bool = False) -> tuple[int, int]:
        """Return the place of a value or its name; of the nearest parent if there is no such value."""
        offset = found = skip_space(self._text, 0)
        for token in pointer_tokens(pointer):
            member = self._members(offset).get(token)
            if member is None:
                break
            offset, found = member.start, member.begin if key else member.start
        return self._lines.at(found)

    def _members(self, offset: int) -> dict[str, Member]:
        if offset not in self._known:
            self._known[offset] = {member.name: member for member in members_of(self._text, offset)}
        return self._known[offset]


# ── mistakes that the decoder lets through ────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Open:
    """A container that is being read."""

    is_object: bool
    part: str | int = 0  # the name or index of the child being read
    names: set[str] = field(default_factory=set)
    wants_name: bool = True


def scan(text: str, most: int = 50) -> list[Problem]:
    """Return what is wrong with a text beyond its grammar: doubles, depth, numbers, lone surrogates.

    A text that is not JSON gives some list, never an exception.
    """
    lines, found, stack = Lines(text), list[Problem](), list[_Open]()

    def report(offset: int, message: str, fix: str) -> None:
        pointer = pointer_to(*(level.part for level in stack))
        found.append(Problem(message, fix, pointer, *lines.at(offset)))

    offset = 0
    while len(found) < most and (match := _TOKEN.match(text, offset)):
        offset, kind = match.end(), match.lastindex
        if kind == _QUOTE:
            try:
                value, offset = _DECODER.raw_decode(text, offset - 1)
            except ValueError:
                return found
            _string(stack, value, match.start(2), report)
        elif kind == _MARK:
            mark = match[1]
            if mark in "{[" and len(stack) == MAX_DEPTH:
                report(match.start(1), f"nested more than {MAX_DEPTH} levels deep", "make it flatter")
                return found
            _mark(stack, mark)
        elif problem := _number(match[3]):
            report(match.start(3), *problem)
    return found


def _mark(stack: list[_Open], mark: str) -> None:
    if mark in "{[":
        stack.append(_Open(mark == "{"))
    elif stack and mark in "}]":
        stack.pop()
    elif stack and mark == "," and stack[-1].is_object:
        stack[-1].wants_name = True
    elif stack and mark == "," and isinstance(stack[-1].part, int):
        stack[-1].part += 1


def _string(stack: list[_Open], value: str, offset: int, report: Any) -> None:
    """Look at a string: is it a name that came before, does it hold half a character?"""
    level = stack[-1] if stack else None
    is_name = level is not None and level.is_object and level.wants_name
    if level is not None and is_name:
        level.part, level.wants_name = value, False
        if value in level.names:
            report(offset, f"the field {value!r} is there twice", "keep one of the two")
        level.names.add(value)
    if _SURROGATE.search(value):
        report(offset, "half of a character pair: a lone surrogate", "write the character itself, or both \\u halves")


def _number(word: str) -> tuple[str, str] | None:
    """Return what is wrong with the number that a bare word begins with, and how to fix it."""
    if not (match := _NUMBER.match(word)):
        return None
    if match["name"]:
        return f"{match['name']} is not JSON", "write a number, null, or put it in quotes"
    whole, rest = match["whole"], match["rest"]
    too_large = abs(float(whole + rest)) == float("inf") if rest else len(whole.lstrip("-")) > MAX_DIGITS
    return ("the number is too large", 'put it in quotes: "…"') if too_large else None


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
