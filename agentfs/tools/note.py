"""The tool `note`: a step that is only recorded. It has no effect."""

from agentfs.core.records import JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, ToolResult
from agentfs.tools.capture import text_result


class Note:
    """Gives back the text."""

    spec = ToolSpec(
        name="note",
        summary="Record a text; nothing else happens",
        input_schema={
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        effects="none",
        repeatable=True,
        text_field="text",
    )

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        bench.claim(None)
        return text_result(str(given["text"]), bench)
