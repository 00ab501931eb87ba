"""What a plan brings of other languages: regular expressions and JSON Schemas. Pure: compiles, never matches."""

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from agentfs.core.canonical import canonical
from agentfs.core.check_schema import told, validator_for
from agentfs.core.json_text import pointer_to, pointer_tokens
from agentfs.core.problems import Problem

MAX_PATTERN = 1000
MAX_SCHEMA_BYTES = 65536
_FLATTER = "make it smaller and flatter"


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
        mend = "put a \\ before a character that stands for itself"
        return Problem(f"not a regular expression: {error.msg}{where}", mend, pointer)
    except (RecursionError, OverflowError):
        return Problem("the regular expression is too large", _FLATTER, pointer)
    return None


def schema_problems(schema: Mapping[str, Any] | bool, pointer: str) -> list[Problem]:
    """Return why a JSON Schema cannot be used, with pointers into the document it stands in."""
    if isinstance(schema, bool):
        return []
    text = canonical(schema)
    if len(text) > MAX_SCHEMA_BYTES:
        return [Problem(f"the schema is larger than {MAX_SCHEMA_BYTES // 1024} KiB", _FLATTER, pointer)]
    return [_below(pointer, problem) for problem in _schema_problems(text)]


def _below(pointer: str, problem: Problem) -> Problem:
    return Problem(problem.message, problem.mend, pointer + problem.pointer)


@lru_cache(maxsize=1024)
def _schema_problems(text: bytes) -> tuple[Problem, ...]:
    """Look at one schema once: the same few stand in many steps."""
    import json

    from jsonschema import Draft202012Validator

    schema = json.loads(text)
    try:
        wrong = told(validator_for(Draft202012Validator.META_SCHEMA).iter_errors(schema))
        found = [Problem(f"not a JSON Schema: {one.message}", one.mend, one.pointer) for one, _ in wrong]
        found = found or [*_inner_problems(schema, schema, "")]
        if not found:
            validator_for(schema).is_valid(None)  # a schema that is only a reference to itself never ends
    except RecursionError:
        return (Problem("the schema is nested too deep, or refers to itself without end", _FLATTER),)
    return tuple(found)


def _inner_problems(value: Any, root: Any, pointer: str) -> Iterator[Problem]:
    """Yield what the schema of schemas does not say: patterns that do not compile, references that lead nowhere."""
    if isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _inner_problems(inner, root, f"{pointer}/{place}")
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        here = pointer + pointer_to(name)
        yield from _keyword_problems(name, inner, root, here)
        yield from _inner_problems(inner, root, here)


def _keyword_problems(name: str, value: Any, root: Any, pointer: str) -> Iterator[Problem]:
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
        case (("$ref" | "$dynamicRef"), str()) if not _leads_somewhere(value, root):
            yield Problem(f"the schema has nothing at {value[:80]!r}", "add it under $defs", pointer)
        case "$id", str() if pointer != "/$id":
            yield Problem("an $id inside a schema is not read here", "remove it", pointer)
    yield from (problem for one in patterns if (problem := regex_problem(one, pointer)))


def _leads_somewhere(reference: str, root: Any) -> bool:
    from urllib.parse import unquote

    fragment = unquote(reference[1:])
    if fragment and not fragment.startswith("/"):
        return _has_anchor(root, fragment)
    value = root
    for token in pointer_tokens(fragment):
        if isinstance(value, list) and token.isdigit() and int(token) < len(value):
            value = value[int(token)]
        elif isinstance(value, dict) and token in value:
            value = value[token]
        else:
            return False
    return isinstance(value, dict | bool)


def _has_anchor(value: Any, name: str) -> bool:
    if isinstance(value, list):
        return any(_has_anchor(inner, name) for inner in value)
    if not isinstance(value, dict):
        return False
    if name in (value.get("$anchor"), value.get("$dynamicAnchor")):
        return True
    return any(_has_anchor(inner, name) for inner in value.values())
