"""The tool `ask`: a person carries it out. Its question waits as a file until `orders` settles it."""

from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, ToolResult


class Ask:
    """Describes the tool; nobody but a person can answer."""

    spec = ToolSpec(
        name="ask",
        summary="Ask a person; their reply is the output",
        input_schema={
            "type": "object",
            "properties": {"question": {"type": "string", "minLength": 1}},
            "required": ["question"],
            "additionalProperties": False,
        },
        effects="none",
        repeatable=True,
        text_field="question",
    )

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        bench.claim(None)
        words = f"nobody is there to answer: {given['question']}"
        return ToolResult(failure=Failure(kind="input", message=words, hint="make it a step of its own: tool `ask`"))
