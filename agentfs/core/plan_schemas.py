"""What a plan brings of other languages: regular expressions and JSON Schemas. Pure: reads them, never runs them."""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from agentfs.core.hashing import canonical
from agentfs.core.json_schema import describe_errors, validator_for
from agentfs.core.problems import Problem, pointer_to, pointer_tokens
from agentfs.core.references import find_circle
from agentfs.core.values import NoPart, value_inside

MAX_PATTERN = 1000
MAX_SCHEMA_BYTES = 65536
MAX_PARTS = 2000  # objects and lists of one schema; each takes a tenth of a millisecond or two
MAX_PARTS_OF_ALL = 5000  # of all different schemas of one document
_FLATTER = "make it smaller and flatter"
_ENDLESS = Problem("the schema is nested too deep, or refers to itself without end", _FLATTER)


def regex_problem(pattern: str, pointer: str) -> Problem | None:
    """Return why a regular expression cannot be used; None if it can."""
    if len(pattern) > MAX_PATTERN:
        return Problem(f"the regular expression is longer than {MAX_PATTERN} characters", "make it shorter", pointer)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a later Python may read differently is no mistake today
            re.compile(pattern)
    except re.error as error:
        where = f" at character {error.pos + 1}" if error.pos is not None else ""
        fix = "put a \\ before a character that stands for itself"
        return Problem(f"not a regular expression: {error.msg}{where}", fix, pointer)
    except (RecursionError, OverflowError):
        return Problem("the regular expression is too large", _FLATTER, pointer)
    return None


@dataclass(slots=True)
class Schemas:
    """Judges the schemas of one document, which together may be so large and no larger; each is looked at once."""

    left: int = MAX_PARTS_OF_ALL
    _known: dict[bytes, tuple[Problem, ...]] = field(default_factory=dict)

    def problems(self, schema: Mapping[str, Any] | bool, pointer: str) -> list[Problem]:
        """Return why a JSON Schema cannot be used, with pointers into the document it is in."""
        if isinstance(schema, bool):
            return []
        text = canonical(schema)
        if text not in self._known:
            self._known[text] = self._look_at(text)
        return [problem.below(pointer) for problem in self._known[text]]

    def _look_at(self, text: bytes) -> tuple[Problem, ...]:
        parts = text.count(b"{") + text.count(b"[")
        self.left -= parts
        if len(text) > MAX_SCHEMA_BYTES:
            return (Problem(f"the schema is larger than {MAX_SCHEMA_BYTES // 1024} KiB", _FLATTER),)
        if parts > MAX_PARTS:
            return (Problem(f"the schema has more than {MAX_PARTS} parts", _FLATTER),)
        if self.left < 0:
            return (Problem("the schemas before this one are too large already", _FLATTER),)
        return _schema_problems(text)


@lru_cache(maxsize=1024)
def _schema_problems(text: bytes) -> tuple[Problem, ...]:
    """Look at one schema once: the same few are in many steps. It is never run: that may take for ever."""
    import json

    from jsonschema import Draft202012Validator

    schema = json.loads(text)
    try:
        wrong = describe_errors(validator_for(Draft202012Validator.META_SCHEMA).iter_errors(schema))
        found = [Problem(f"not a JSON Schema: {one.message}", one.fix, one.pointer) for one in wrong]
        if found or (found := [*(root := _Root.of(schema)).problems()]):
            return tuple(found)
    except RecursionError:
        return (_ENDLESS,)
    return (_ENDLESS,) if _is_endless(root) else ()


@dataclass(frozen=True, slots=True)
class _Root:
    """A schema as a whole, and where references within it lead."""

    schema: Any
    parts: Mapping[str, Mapping[str, Any]]  # all objects in it, by their pointers
    anchors: Mapping[str, Any]

    @staticmethod
    def of(schema: Any) -> "_Root":
        parts = dict(_objects(schema, ""))
        names = ((one.get(key), one) for one in parts.values() for key in ("$anchor", "$dynamicAnchor"))
        return _Root(schema, parts, {name: one for name, one in names if isinstance(name, str)})

    def target(self, reference: str) -> Any:
        """Return what a reference leads to; None if that is nothing."""
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            return self.anchors.get(fragment)
        found = value_inside(self.schema, pointer_tokens(fragment))
        return None if isinstance(found, NoPart) else found

    def problems(self) -> Iterator[Problem]:
        """Yield what the schema of schemas does not say: bad patterns, references that lead nowhere."""
        for pointer, part in self.parts.items():
            for name, value in part.items():
                yield from _keyword_problems(name, value, self, pointer + pointer_to(name))


def _objects(value: Any, pointer: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, dict):
        yield pointer, value
        for name, inner in value.items():
            yield from _objects(inner, pointer + pointer_to(name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _objects(inner, f"{pointer}/{place}")


def _keyword_problems(name: str, value: Any, root: _Root, pointer: str) -> Iterator[Problem]:
    patterns: list[str] = []
    match name, value:
        case "pattern", str():
            patterns = [value]
        case "patternProperties", dict():
            patterns = list(value)
        case (("$ref" | "$dynamicRef"), str()) if not value.startswith("#"):
            yield Problem(
                f"the schema refers to another document, {value[:80]!r}", "copy that part into $defs", pointer
            )
        case (("$ref" | "$dynamicRef"), str()) if not isinstance(root.target(value), dict | bool):
            yield Problem(f"the schema has nothing at {value[:80]!r}", "add it under $defs", pointer)
        case "$id", str() if pointer != "/$id":
            yield Problem("an $id inside a schema is not read here", "remove it", pointer)
    yield from (problem for one in patterns if (problem := regex_problem(one, pointer)))


# ── schemas that never end ────────────────────────────────────────────────────────────────────────────────


def _is_endless(root: _Root) -> bool:
    """Whether a schema comes back to itself without having gone into the value: it can judge nothing."""
    leads = {id(one): [id(to) for to in _subschemas(one, root)] for one in root.parts.values()}
    return find_circle(leads) is not None


def _subschemas(schema: Mapping[str, Any], root: _Root) -> Iterator[Any]:
    """Yield the parts of a schema that look at the same value as it does."""
    for name in ("$ref", "$dynamicRef"):
        if isinstance(reference := schema.get(name), str):
            yield root.target(reference)
    yield from (schema[name] for name in ("not", "if", "then", "else") if name in schema)
    for name in ("allOf", "anyOf", "oneOf"):
        choices = schema.get(name)
        yield from choices if isinstance(choices, list) else ()
