"""The tool summarize: one request to the executor's model, which sees the text and the focus and nothing else."""

from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, ToolResult
from agentfs.tools.capture import text_result

LONGEST_TEXT = 200_000  # characters: about 50,000 tokens
NO_MODEL = Failure(
    kind="unreachable", message="there is no model to ask", hint="set OPENAI_API_KEY, or base_url under [executor]"
)


class Summarize:
    """Says in few words what a text says."""

    spec = ToolSpec(
        name="summarize",
        summary="Summarize a text, with regard to a focus, by one request to the executor's model",
        input_schema={
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 1}, "focus": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        effects="none",
        repeatable=True,
        text_field="text",
        needs_model=True,
    )

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        from agentfs.models.base import Request
        from agentfs.models.errors import Garbled, ModelError
        from agentfs.prompts import load_prompt

        bench.claim(None)
        if bench.model is None or bench.line is None:
            return ToolResult(failure=NO_MODEL)
        prompt = load_prompt("summarize", bench.confinement.workspace)
        asked = (_said("system", prompt.filled(focus=_focus(given))), _said("user", _bounded(str(given["text"]))))
        try:
            reply = bench.model.complete(Request("executor", asked), bench.line)
            if reply.finish == "length":
                raise Garbled(
                    Failure(kind="model", message="the summary was cut short", hint="ask for less at a time")
                )
        except ModelError as error:
            return ToolResult(failure=error.failure, prompt_sha256=prompt.sha256)
        made = text_result(reply.text, bench)
        return ToolResult(made.output, made.cut, prompt_sha256=prompt.sha256)


def _said(role: str, content: str) -> JsonObject:
    return {"role": role, "content": content}


def _focus(given: JsonObject) -> str:
    return str(given.get("focus") or "").strip() or "what matters most in it"


def _bounded(text: str) -> str:
    """Return as much of a text as one request holds, saying what is missing."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out here …\n{text[-half:]}"
