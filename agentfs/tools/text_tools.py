"""The tools that touch nothing: note records a text, ask asks a person, summarize a model, run is another run."""

from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import StepContext, ToolResult, closed_schema, fail
from agentfs.tools.output import text_result

LONGEST_TEXT = 200_000  # characters: about 50,000 tokens
NO_MODEL = Failure(
    kind="unreachable", message="there is no model to ask", hint="set OPENAI_API_KEY, or base_url under [executor]"
)


class Note:
    """Gives back the text."""

    spec = ToolSpec(
        name="note",
        summary="Record a text; nothing else happens",
        input_schema=closed_schema({"text": {"type": "string"}}, "text"),
        effects="none",
        repeatable=True,
        text_field="text",
    )

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        context.claim(None)
        return text_result(str(given["text"]), context)


class Ask:
    """Describes the tool: a person carries it out, and the question waits as a file until then."""

    spec = ToolSpec(
        name="ask",
        summary="Ask a person; their reply is the output",
        input_schema=closed_schema({"question": {"type": "string", "minLength": 1}}, "question"),
        effects="none",
        repeatable=True,
        text_field="question",
    )

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        context.claim(None)
        words = f"nobody is there to answer: {given['question']}"
        return fail("input", words, "make it a step of its own: tool `ask`")


class RunRunbook:
    """Describes the tool: the engine begins the run, and its end is that of the attempt."""

    spec = ToolSpec(
        name="run",
        summary="Run a goal of runbooks/ as a run of its own; its answer is the output",
        input_schema=closed_schema(
            {"uses": {"type": "string", "minLength": 1}, "params": {"type": "object"}}, "uses"
        ),
        effects="none",
        repeatable=False,
        text_field="uses",
        step_only=True,
    )

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        context.claim(None)
        return fail("input", f"{given['uses']} can only be run as a step")


class Summarize:
    """Says in few words what a text says; the model sees the text and the focus and nothing else."""

    spec = ToolSpec(
        name="summarize",
        summary="Summarize a text, with regard to a focus, by one request to the executor's model",
        input_schema=closed_schema({"text": {"type": "string", "minLength": 1}, "focus": {"type": "string"}}, "text"),
        effects="none",
        repeatable=True,
        text_field="text",
        needs_model=True,
    )

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        from agentfs.models.base import Garbled, ModelError, Request
        from agentfs.prompts import load_prompt

        context.claim(None)
        if context.model is None or context.session is None:
            return ToolResult(failure=NO_MODEL)
        prompt = load_prompt("summarize", context.confinement.workspace)
        asked = (
            _message("system", prompt.filled(focus=_focus(given))),
            _message("user", _shorten(str(given["text"]))),
        )
        try:
            reply = context.model.complete(Request("executor", asked), context.session)
            if reply.finish == "length":
                raise Garbled(
                    Failure(kind="model", message="the summary was cut short", hint="ask for less at a time")
                )
        except ModelError as error:
            return ToolResult(failure=error.failure, prompt_sha256=prompt.sha256)
        made = text_result(reply.text, context)
        return ToolResult(made.output, made.cut, prompt_sha256=prompt.sha256)


def _message(role: str, content: str) -> JsonObject:
    return {"role": role, "content": content}


def _focus(given: JsonObject) -> str:
    return str(given.get("focus") or "").strip() or "what matters most in it"


def _shorten(text: str) -> str:
    """Return as much of a text as one request holds, saying what is missing."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out here …\n{text[-half:]}"
