"""Change one value in a JSON text and leave every other byte as it is. Pure: bytes in, bytes out.

A value that is there is replaced where it is. One that is missing is put into its object in the manner of its
siblings: the same separators, the same indentation, in the order in which the records list their fields.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from pydantic import JsonValue

from agentfs.core.documents import read_json
from agentfs.core.hashing import OVERRIDES, canonical, field_names
from agentfs.core.json_text import Lines, Member, members_of, skip_space
from agentfs.core.problems import pointer_tokens, refuse
from agentfs.core.records import Plan, Step

_INDENT = re.compile(r"\n([ \t]+)")


@dataclass(frozen=True, slots=True)
class Place:
    """A container in a text: where it is, and what it holds."""

    text: str
    start: int
    end: int
    parts: tuple[Member, ...]

    @property
    def is_object(self) -> bool:
        return self.text[self.start] == "{"

    def part(self, name: str) -> Member | None:
        return next((part for part in self.parts if part.name == name), None)

    def lead(self) -> str:
        """Return the blank space before the first member."""
        return self.text[self.start + 1 : self.parts[0].begin if self.parts else self.end - 1]

    def gap(self, place: int) -> str:
        """Return what is between a member and the one before it: a comma, and the space around it."""
        return self.text[self.parts[place - 1].end : self.parts[place].begin]


def set_value(source: bytes, pointer: str, value: JsonValue) -> bytes:
    """Return the text with one value set; raise `Rejected` if it is no JSON, or there is nowhere to put the value."""
    text = _text(source)
    _check(value)
    if not pointer_tokens(pointer):
        begin = skip_space(text, 0)
        return _encode(text[:begin], _render(value, _Manner.of(text, "")), text[len(text.rstrip(" \t\n\r")) :])
    place, name = _parent(text, pointer)
    if part := place.part(name):
        return _encode(text[: part.start], _render(value, _manner(place)), text[part.end :])
    if not place.is_object:
        _no_such(text, place.start, pointer, "a list has only the members it has")
    return _insert(place, name, value, _order_at(pointer))


def remove_value(source: bytes, pointer: str) -> bytes:
    """Return the text without one member and the comma that goes with it; raise `Rejected` if it is not there."""
    text = _text(source)
    place, name = _parent(text, pointer)
    names = [part.name for part in place.parts]
    if name not in names:
        _no_such(text, place.start, pointer, "there is nothing to remove")
    number = names.index(name)
    if len(names) == 1:
        return _encode(text[: place.start + 1], "", text[place.end - 1 :])
    if number:
        return _encode(text[: place.parts[number - 1].end], "", text[place.parts[number].end :])
    return _encode(text[: place.parts[0].begin], "", text[place.parts[1].begin :])


# ── finding ───────────────────────────────────────────────────────────────────────────────────────────────


def _text(source: bytes) -> str:
    read_json(source)  # raises Rejected: what follows deals with good JSON only
    return source.decode("utf-8")


def _check(value: JsonValue) -> None:
    try:
        canonical(value)
    except ValueError:
        refuse("the value cannot be written as JSON", "write plain UTF-8 text and finite numbers")


def _parent(text: str, pointer: str) -> tuple[Place, str]:
    """Return the container that holds, or would hold, the value of a pointer, and its name there."""
    tokens = pointer_tokens(pointer)
    if not tokens:
        refuse("a document cannot be without its value", "delete the file")
    start = skip_space(text, 0)
    for token in tokens[:-1]:
        part = _place(text, start, pointer).part(token)
        if part is None:
            _no_such(text, start, pointer, f"there is no {token!r}")
        start = part.start
    return _place(text, start, pointer), tokens[-1]


def _place(text: str, start: int, pointer: str) -> Place:
    if text[start] not in "{[":
        _no_such(text, start, pointer, "a plain value holds nothing")
    parts = tuple(members_of(text, start))
    return Place(text, start, skip_space(text, parts[-1].end if parts else start + 1) + 1, parts)


def _no_such(text: str, start: int, pointer: str, why: str) -> NoReturn:
    line, column = Lines(text).at(start)
    refuse(f"there is no place for {pointer}: {why}", "look at the file", line, column, pointer)


# ── the manner of a text ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Manner:
    """How a container is written: its members on lines of their own, or all on one."""

    newline: str
    indent: str  # of its members
    unit: str
    broken: bool
    tight: bool  # no blank after a colon

    @staticmethod
    def of(text: str, lead: str, colon: str = ": ") -> "_Manner":
        unit = min((match[1] for match in _INDENT.finditer(text)), key=len, default="  ")
        newline = "\r\n" if "\r\n" in text else "\n"
        return _Manner(newline, lead.rpartition("\n")[2], unit, "\n" in lead, colon.endswith(":"))


def _manner(place: Place) -> _Manner:
    return _Manner.of(place.text, place.lead(), _colon(place, 0))


def _colon(place: Place, number: int) -> str:
    if not place.parts or not place.is_object:
        return ": "
    part = place.parts[number]
    return place.text[part.name_end : part.start]


def _render(value: JsonValue, manner: _Manner) -> str:
    """Return a value written in the manner of what is around it."""
    if manner.broken:
        text = json.dumps(value, indent=manner.unit, ensure_ascii=False)
        return text.replace("\n", manner.newline + manner.indent)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":") if manner.tight else None)


# ── putting in ────────────────────────────────────────────────────────────────────────────────────────────


def _order_at(pointer: str) -> Sequence[str]:
    """Return in which order the fields of the object around a pointer are listed; nothing: as they come."""
    match pointer_tokens(pointer)[:-1]:
        case []:
            return tuple(field_names(Plan))
        case [("limits" | "tools") as table]:
            return tuple(field_names(OVERRIDES[table]))
        case ["steps", _]:
            return tuple(field_names(Step))
        case _:
            return ()


def _insert(place: Place, name: str, value: JsonValue, order: Sequence[str]) -> bytes:
    text = place.text
    if not place.parts:
        return _into_empty(place, name, value)
    before = _comes_before(place, name, order)
    near = max(before, 0)
    member = f"{json.dumps(name, ensure_ascii=False)}{_colon(place, near)}{_render(value, _manner(place))}"
    if before < 0:
        at = place.parts[0].begin
        return _encode(text[:at], member + _separator(place, 0), text[at:])
    at = place.parts[before].end
    return _encode(text[:at], _separator(place, before) + member, text[at:])


def _comes_before(place: Place, name: str, order: Sequence[str]) -> int:
    """Return the number of the member that a new one follows; -1: it comes first."""
    if name not in order:
        return len(place.parts) - 1
    ranks = [order.index(part.name) if part.name in order else len(order) for part in place.parts]
    earlier = [rank for rank in ranks if rank < order.index(name)]
    return ranks.index(max(earlier)) if earlier else -1


def _separator(place: Place, number: int) -> str:
    """Return a comma with the space that its siblings have around theirs."""
    if len(place.parts) > 1:
        return place.gap(number or 1)
    lead = place.lead()
    if "\n" in lead:
        return f",{lead}"
    return "," if _manner(place).tight else ", "


def _into_empty(place: Place, name: str, value: JsonValue) -> bytes:
    """Write the first member of an object: on a line of its own if its braces are on two."""
    text, inside = place.text, place.lead()
    manner = _Manner.of(text, inside)
    if manner.broken:
        manner = _Manner(manner.newline, manner.indent + manner.unit, manner.unit, True, False)
    begin = manner.newline + manner.indent if manner.broken else ""
    member = f"{begin}{json.dumps(name, ensure_ascii=False)}: {_render(value, manner)}"
    return _encode(text[: place.start + 1], member, text[place.start + 1 :])


def _encode(*pieces: str) -> bytes:
    return "".join(pieces).encode("utf-8")
