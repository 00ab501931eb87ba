"""A run's answer as text for stdout."""

import json
import sys

from pydantic import JsonValue

from agentfs.views.words import block, json_text


def answer_text(answer: JsonValue, *, terminal: bool | None = None) -> str:
    """Return text as it is, anything else as JSON; on a terminal both inert, for an answer may come from anywhere."""
    terminal = sys.stdout.isatty() if terminal is None else terminal
    if isinstance(answer, str):
        return "\n".join(block(answer)) if terminal else answer
    return json_text(answer) if terminal else json.dumps(answer, indent=2, ensure_ascii=False)
