"""Run one tool for a model, and say what it gave back in words of bounded length."""

from dataclasses import dataclass, replace

from agentfs.core.excerpts import as_text, head_and_tail
from agentfs.core.records import Failure, JsonObject
from agentfs.storage.files import temp_name
from agentfs.tools.base import Bench, Tool

OUTPUT_LENGTH = 8_000  # characters of one output that a model is shown
KEPT_BYTES = 1024 * 1024  # of one output, before it is cut for the model


@dataclass(frozen=True, slots=True)
class Said:
    """What a call brought, as the model is told."""

    text: str
    ok: bool


def call_tool(tool: Tool, given: JsonObject, bench: Bench) -> Said:
    """Run a tool; what of its output does not fit into a message is kept nowhere."""
    spill = bench.output_file.with_name(temp_name("output"))
    try:
        result = tool.call(given, replace(bench, output_bytes=KEPT_BYTES, output_file=spill))
        whole = spill.stat().st_size if result.cut else 0
    finally:
        spill.unlink(missing_ok=True)
    text = _failed(result.failure) if result.failure else as_text(result.output)
    return Said(head_and_tail(bench.mask.text(text), OUTPUT_LENGTH, whole), ok=result.failure is None)


def _failed(failure: Failure) -> str:
    hint = (
        f" ({failure.hint})" if failure.hint and failure.kind != "exit" else ""
    )  # of a program's end it says it all
    return f"It failed ({failure.kind}): {failure.message}{hint}"
