"""Whether a value satisfies a JSON Schema, answered in bounded time and memory. Reads no files, fetches nothing."""

import time
from pathlib import Path
from typing import Any

from agentfs.core import conformance
from agentfs.tools.process import StopSign, TookTooLong, ask

WORKER = Path(__file__).with_name("schema_worker.py")
JUDGE_S = 10.0  # the most that one schema may take


def mismatch(schema: Any, value: Any, *, deadline: float, stop: StopSign) -> str | None:
    """Return how a value violates a schema; None if it does not. What may explode has a process of its own."""
    if conformance.is_quick(schema, value):
        return conformance.mismatch(schema, value)
    until = min(deadline, time.monotonic() + JUDGE_S)
    try:
        answer: str | None = ask(WORKER, {"schema": schema, "value": value}, deadline=until, stop=stop)
    except TookTooLong:
        if stop.is_set():
            return "it was stopped before the schema was judged"
        return "the schema took too long to judge; simplify its patterns, references and choices"
    return answer
