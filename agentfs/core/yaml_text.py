"""YAML text -> a value, and where each part of it is. Pure: is given text, opens nothing.

Only PyYAML's parser is used, and the values are built here from its events. Its constructors read YAML 1.1 (`no` is
false, 2026-11-16 is a date), keep the last of two equal names and follow aliases without end. Its composer forgets
which anchors and tags were written, and recurses. libyaml reads some texts differently (docs/decisions/0072).
Imported only where there is YAML: PyYAML takes a while.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from agentfs.core.problems import Lines, Place, Places, pointer_to, refuse
from agentfs.core.values import MAX_DEPTH, MAX_DIGITS

# The core schema of YAML 1.2.
_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(?:(true|True|TRUE)|false|False|FALSE)\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_A_NUMBER = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _in_words(problem: str) -> tuple[str, str]:
    """Return a parser's complaint as a person would say it."""
    if "'\\t'" in problem:
        return "a tab where YAML wants spaces", "indent with spaces"
    if "mapping values are not allowed" in problem:
        return "a ': ' inside text without quotes, or a wrong indent", "put the text in quotes"
    if "could not find expected ':'" in problem:
        return "a field's name without ': '", "write name: value"
    if "that cannot start any token" in problem:
        return "text without quotes may not begin like this", "put the text in quotes"
    return f"not YAML: {problem}", "look at the indent and the quotes near here"


class YamlReader:
    """Builds the value of one document from the parser's events, and notes where each part is."""

    def __init__(self, text: str, first_line: int) -> None:
        self._text = text
        self._first_line = first_line
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self.places = Places((first_line, 1))

    def value(self) -> Any:
        """Return what the text says; `{}` if it says nothing. Raise `Rejected` if it is not plain YAML."""
        try:
            return self._document()
        except yaml.MarkedYAMLError as error:
            unfinished = error.context == "while scanning a simple key"  # noticed lines after it began
            mark = error.context_mark if unfinished else error.problem_mark
            place = self._at(mark.line, mark.column) if mark else (self._first_line, 1)
            refuse(*_in_words(error.problem or ""), *place)
        except yaml.reader.ReaderError as error:
            place = Lines(self._text, self._first_line).at(error.position)
            refuse("a control character that YAML does not allow", "remove it", *place)

    def _document(self) -> Any:
        next(self._events)  # the stream begins
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return {}
        value = self._node(next(self._events), "")
        next(self._events)  # the document ends
        after = next(self._events)
        if isinstance(after, yaml.DocumentStartEvent):
            refuse("a second document begins here", "keep one document in a file", *self._place(after))
        return value

    def _node(self, event: Any, pointer: str) -> Any:
        place = self._plain_place(event)
        self.places.marks[pointer] = place
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event, place)
        if pointer.count("/") >= MAX_DEPTH:
            refuse(f"nested more than {MAX_DEPTH} levels deep", "make it flatter", *place)
        return self._table(pointer) if isinstance(event, yaml.MappingStartEvent) else self._list(pointer)

    def _list(self, pointer: str) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.CollectionEndEvent):
            items.append(self._node(event, f"{pointer}/{len(items)}"))
        return items

    def _table(self, pointer: str) -> dict[str, Any]:
        table: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.CollectionEndEvent):
            place = self._plain_place(event)
            name = _name(event, place)
            inner = pointer + pointer_to(name)
            if name in table:
                refuse(f"the field {name!r} is there twice", "keep one of the two", *place, inner)
            self.places.names[inner] = place
            table[name] = self._node(next(self._events), inner)
        return table

    def _plain_place(self, event: Any) -> Place:
        """Return where a node begins; refuse one that says more than JSON could."""
        place = self._place(event)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            refuse("anchors (&) and aliases (*) are not read here", "write the value out", *place)
        if event.tag is not None:
            refuse("tags (!) are not read here", "remove it; text goes in quotes", *place)
        return place

    def _place(self, event: Any) -> Place:
        return self._at(event.start_mark.line, event.start_mark.column)

    def _at(self, line: int, column: int) -> Place:
        return line + self._first_line, column + 1


def _name(event: Any, place: Place) -> str:
    """Return the name of a field, which must be text."""
    if not isinstance(event, yaml.ScalarEvent):
        refuse("a field's name must be text, not a list or a table", "write name: value", *place)
    name = _scalar(event, place)
    if not isinstance(name, str):
        refuse("a field's name must be text", f'put it in quotes: "{event.value}"', *place)
    return name


def _scalar(event: Any, place: Place) -> Any:
    text: str = event.value
    if _SURROGATE.search(text):
        refuse("half of a character pair: a lone surrogate", "write the character itself", *place)
    if not event.implicit[0]:  # quoted, or a block: text whatever it looks like
        return text
    if _NOT_A_NUMBER.match(text):
        refuse(f"{text} is not a number that JSON knows", "write a number, or put it in quotes", *place)
    if (value := plain_scalar(text)) is None and not _NULL.match(text):
        refuse("the number is too large", 'put it in quotes: "…"', *place)
    return value


def plain_scalar(text: str) -> Any:
    """Return what a YAML 1.2 scalar without quotes means; None also for a number that is too large."""
    if _NULL.match(text):
        return None
    if match := _BOOL.match(text):
        return match[1] is not None
    if _INT.match(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) <= MAX_DIGITS else None
    if _FLOAT.match(text):
        number = float(text)
        return None if number in (float("inf"), float("-inf")) else number
    return text
