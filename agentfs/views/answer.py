"""A run's answer as text for stdout."""

import json

from pydantic import JsonValue


def answer_text(answer: JsonValue) -> str:
    """Return text as it is, anything else as JSON."""
    return answer if isinstance(answer, str) else json.dumps(answer, indent=2, ensure_ascii=False)
