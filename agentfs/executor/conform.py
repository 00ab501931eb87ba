"""Whether a value satisfies a JSON Schema, answered in bounded time. Reads no files, fetches nothing."""

from pathlib import Path
from typing import Any

from agentfs.tools.base import StopSign
from agentfs.tools.bounded import TookTooLong, ask

WORKER = Path(__file__).with_name("schema_worker.py")
_EXPLOSIVE = frozenset({"pattern", "patternProperties", "$ref", "$dynamicRef"})


def mismatch(schema: Any, value: Any, *, deadline: float, stop: StopSign) -> str | None:
    """Return how a value violates a schema; None if it does not.

    Only patterns and references can take exponential time: a schema that has one is judged in a process
    of its own, which can be ended.
    """
    if not _may_explode(schema):
        from agentfs.executor import schema_worker

        return schema_worker.mismatch(schema, value)
    try:
        answer: str | None = ask(WORKER, {"schema": schema, "value": value}, deadline=deadline, stop=stop)
    except TookTooLong:
        return "the schema took too long to judge; simplify its patterns and references"
    return answer


def _may_explode(schema: Any) -> bool:
    if isinstance(schema, dict):
        return not _EXPLOSIVE.isdisjoint(schema) or any(map(_may_explode, schema.values()))
    return isinstance(schema, list) and any(map(_may_explode, schema))
