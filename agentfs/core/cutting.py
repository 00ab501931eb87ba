"""Long texts made short for a reader with little room: head and tail, and how much is missing. Pure."""

import json
import re
from typing import Any

_SPACES = re.compile(r"\s+")


def head_and_tail(text: str, most: int, whole: int = 0) -> str:
    """Return at most so many characters of a text, two thirds from its head, the rest from its tail, saying so.

    `whole`: how long it was before its middle was lost, if that was longer.
    """
    if len(text) <= most:
        return text
    head, tail = text[: most * 2 // 3], text[len(text) - most // 3 :]
    return f"{head}\n… {max(whole, len(text)) - len(head) - len(tail)} characters cut …\n{tail}"


def as_text(value: Any) -> str:
    """Return a JSON value as a reader wants it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def one_line(text: str, most: int) -> str:
    """Return a text on one line, its spaces made one, at most so long."""
    flat = _SPACES.sub(" ", text).strip()
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def fenced(text: str) -> str:
    """Return a text between fences that nothing inside it can close."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
