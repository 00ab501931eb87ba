"""Change one value in a JSON text and leave every other byte as it is. Pure: bytes in, bytes out.

A value that is there is replaced where it is. One that is missing is put into its object in the style of its
siblings: the same separators, the same indentation, in the order in which the records list their fields.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from pydantic import JsonValue

from agentfs.core.documents import JsonText, Member, read_json
from agentfs.core.hashing import OVERRIDES, canonical, field_names
from agentfs.core.problems import Lines, pointer_tokens, refuse
from agentfs.core.records import Plan, Step

_INDENT = re.compile(r"\n([ \t]+)")


def set_value(source: bytes, pointer: str, value: JsonValue) -> bytes:
    """Return the text with one value set; raise `Rejected` if it is no JSON, or there is nowhere to put the value."""
    tree = _read(source)
    try:
        canonical(value)
    except ValueError:
        refuse("the value cannot be written as JSON", "write plain UTF-8 text and finite numbers")
    if not pointer:
        return _replace(tree.text, tree.start, tree.end_of(tree.start), _quote(value))
    around = _container(tree, pointer)
    name = pointer_tokens(pointer)[-1]
    if member := around.find(name):
        return _replace(tree.text, member.start, member.end, around.render(value))
    if tree.text[around.start] == "[":
        _no_place(tree.text, around.start, pointer, "a list has only the members it has")
    return _insert(around, name, value, _field_order(pointer))


def remove_value(source: bytes, pointer: str) -> bytes:
    """Return the text without one member and the comma that goes with it; raise `Rejected` if it is not there."""
    tree = _read(source)
    if not pointer:
        refuse("a document cannot be without its value", "delete the file")
    around = _container(tree, pointer)
    member = around.find(pointer_tokens(pointer)[-1])
    if member is None:
        _no_place(tree.text, around.start, pointer, "there is nothing to remove")
    members = around.members
    number = members.index(member)
    if len(members) == 1:
        return _replace(tree.text, around.start + 1, around.end - 1)
    if number:
        return _replace(tree.text, members[number - 1].end, member.end)
    return _replace(tree.text, member.begin, members[1].begin)


def _read(source: bytes) -> JsonText:
    return JsonText(read_json(source).text)


def _replace(text: str, start: int, end: int, new: str = "") -> bytes:
    return (text[:start] + new + text[end:]).encode("utf-8")


def _no_place(text: str, start: int, pointer: str, why: str) -> NoReturn:
    line, column = Lines(text).at(start)
    refuse(f"there is no place for {pointer}: {why}", "look at the file", line, column, pointer)


# ── the container that holds, or would hold, a value ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Container:
    """An object or a list in a text: where it is, what it holds, and how that is written."""

    text: str
    start: int
    end: int
    members: tuple[Member, ...]

    def find(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)

    @property
    def lead(self) -> str:
        """The blank space before the first member; with a line break, all are on lines of their own."""
        return self.text[self.start + 1 : self.members[0].begin if self.members else self.end - 1]

    @property
    def line_break(self) -> str:
        """What a line of a member begins with."""
        return ("\r\n" if "\r\n" in self.text else "\n") + self.lead.rpartition("\n")[2]

    @property
    def unit(self) -> str:
        return min((match[1] for match in _INDENT.finditer(self.text)), key=len, default="  ")

    def colon(self, number: int) -> str:
        """Return what is between a member's name and its value."""
        if not self.members or self.text[self.start] == "[":
            return ": "
        return self.text[self.members[number].name_end : self.members[number].start]

    def separator(self, number: int) -> str:
        """Return a comma with the space around it that the siblings of a member have around theirs."""
        if len(self.members) > 1:
            return self.text[self.members[(number or 1) - 1].end : self.members[number or 1].begin]
        if "\n" in self.lead:
            return f",{self.lead}"
        return "," if self.colon(0).endswith(":") else ", "

    def render(self, value: JsonValue, deeper: str = "") -> str:
        """Return a value as one of the members is written, or so much deeper."""
        if "\n" in self.lead:
            text = json.dumps(value, indent=self.unit, ensure_ascii=False)
            return text.replace("\n", self.line_break + deeper)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":") if self.colon(0).endswith(":") else None)


def _container(tree: JsonText, pointer: str) -> _Container:
    """Return the container that holds, or would hold, the value of a pointer."""
    start = tree.start
    for token in pointer_tokens(pointer)[:-1]:
        member = _members(tree, start, pointer).find(token)
        if member is None:
            _no_place(tree.text, start, pointer, f"there is no {token!r}")
        start = member.start
    return _members(tree, start, pointer)


def _members(tree: JsonText, start: int, pointer: str) -> _Container:
    if tree.text[start] not in "{[":
        _no_place(tree.text, start, pointer, "a plain value holds nothing")
    return _Container(tree.text, start, tree.end_of(start), tuple(tree.members(start)))


# ── putting in ────────────────────────────────────────────────────────────────────────────────────────────


def _field_order(pointer: str) -> Sequence[str]:
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


def _insert(around: _Container, name: str, value: JsonValue, order: Sequence[str]) -> bytes:
    text, members = around.text, around.members
    if not members:
        return _insert_first(around, name, value)
    before = _find_before(members, name, order)
    member = f"{_quote(name)}{around.colon(max(before, 0))}{around.render(value)}"
    if before < 0:
        return _replace(text, members[0].begin, members[0].begin, member + around.separator(0))
    return _replace(text, members[before].end, members[before].end, around.separator(before) + member)


def _find_before(members: Sequence[Member], name: str, order: Sequence[str]) -> int:
    """Return the number of the member that a new one follows; -1: it comes first."""
    if name not in order:
        return len(members) - 1
    ranks = [order.index(one.name) if one.name in order else len(order) for one in members]
    earlier = [rank for rank in ranks if rank < order.index(name)]
    return ranks.index(max(earlier)) if earlier else -1


def _insert_first(around: _Container, name: str, value: JsonValue) -> bytes:
    """Write the first member of an object: on a line of its own if its braces are on two."""
    begin = around.line_break + around.unit if "\n" in around.lead else ""
    at = around.start + 1
    return _replace(around.text, at, at, f"{begin}{_quote(name)}: {around.render(value, around.unit)}")


def _quote(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
