"""Where a reference stands in Python code, and the literal a value becomes there. Pure: runs nothing."""

import math
import tokenize
from collections.abc import Iterator, Sequence
from token import ERRORTOKEN, tok_name

from pydantic import JsonValue

NOT_AN_EXPRESSION = "a reference in Python is a value, not text inside quotes"


def stands_as_value(code: str, spans: Sequence[tuple[int, int]]) -> tuple[bool, ...]:
    """Return for each span whether a value may stand there: as a token of its own, in no string or comment."""
    mark = "_ref"
    while mark in code:
        mark += "_"
    names = [f"{mark}{n}" for n in range(len(spans))]
    alone = frozenset(_lone_names(_with(code, spans, names)))
    return tuple(
        name in alone and not _joins(code[start - 1 : start]) for name, (start, _) in zip(names, spans, strict=True)
    )


def literal(value: JsonValue, following: str) -> str:
    """Return the value as Python writes it, so that it stays one operand before the text that follows."""
    text = _literal(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"({text})" if is_number and (text.startswith("-") or following.startswith(".")) else text


def _literal(value: JsonValue) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_literal(item)}' for key, item in value.items())}}}"
    return repr(value)


def _with(code: str, spans: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    parts, at = [], 0
    for (start, end), name in zip(spans, names, strict=True):
        parts += [code[at:start], name]
        at = end
    return "".join([*parts, code[at:]])


def _lone_names(code: str) -> Iterator[str]:
    """Yield the names of the code that stand outside strings and after no dot; nothing if it is no Python."""
    try:
        tokens = list(tokenize.generate_tokens((f"{line}\n" for line in code.split("\n")).__next__))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return
    if any(token.type == ERRORTOKEN for token in tokens):
        return
    depth, previous = 0, ""
    for token in tokens:
        kind = tok_name[token.type]
        depth += kind.endswith("STRING_START") - kind.endswith("STRING_END")
        if kind == "NAME" and not depth and previous != ".":
            yield token.string
        previous = token.string


def _joins(char: str) -> bool:
    """Return whether a character would become part of the literal after it: 1 and 5 would be 15."""
    return char.isalnum() or char == "_"
