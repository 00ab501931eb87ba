"""The tools that touch nothing: note records a text, ask asks a person, summarize a model, run is another run."""

from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import LocalTool, StepContext, ToolResult, closed_schema, fail
from agentfs.tools.output import text_result

LONGEST_TEXT = 200_000  # characters: about 50,000 tokens
NO_MODEL = Failure(
    kind="unreachable", message="there is no model to ask", hint="set OPENAI_API_KEY, or base_url under [executor]"
)
_TEXT = {"type": "string", "minLength": 1}


def _ask(given: JsonObject, _context: StepContext) -> ToolResult:
    message = f"nobody is there to answer: {given['question']}"
    return fail("input", message, "make it a step of its own: tool `ask`")


def _summarize(given: JsonObject, context: StepContext) -> ToolResult:
    """Ask the model, which sees the text and the focus and nothing else."""
    from agentfs.models.base import ModelError, Request
    from agentfs.prompts import load_prompt

    if context.model is None or context.session is None:
        return ToolResult(failure=NO_MODEL)
    prompt = load_prompt("summarize", context.confinement.workspace)
    focus = str(given.get("focus") or "").strip() or "what matters most in it"
    asked: tuple[JsonObject, ...] = (
        {"role": "system", "content": prompt.filled(focus=focus)},
        {"role": "user", "content": _shorten(str(given["text"]))},
    )
    try:
        reply = context.model.complete(Request("executor", asked), context.session)
    except ModelError as error:
        return ToolResult(failure=error.failure, prompt_sha256=prompt.sha256)
    if reply.finish == "length":
        cut_short = Failure(kind="model", message="the summary was cut short", hint="ask for less at a time")
        return ToolResult(failure=cut_short, prompt_sha256=prompt.sha256)
    summary = text_result(reply.text, context)
    return ToolResult(summary.output, summary.cut, prompt_sha256=prompt.sha256)


def _shorten(text: str) -> str:
    """Return as much of a text as one request holds, saying what is missing."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out here …\n{text[-half:]}"


note = LocalTool(
    ToolSpec(
        name="note",
        summary="Record a text; nothing else happens",
        input_schema=closed_schema({"text": {"type": "string"}}, "text"),
        effects="none",
        repeatable=True,
        text_field="text",
    ),
    lambda given, context: text_result(str(given["text"]), context),
)
# As a step: a person carries it out, and the question waits as a file until then.
ask = LocalTool(
    ToolSpec(
        name="ask",
        summary="Ask a person; their reply is the output",
        input_schema=closed_schema({"question": _TEXT}, "question"),
        effects="none",
        repeatable=True,
        text_field="question",
    ),
    _ask,
)
# As a step: the engine begins the run, and its end is that of the attempt.
run = LocalTool(
    ToolSpec(
        name="run",
        summary="Run a goal of runbooks/ as a run of its own; its answer is the output",
        input_schema=closed_schema({"uses": _TEXT, "params": {"type": "object"}}, "uses"),
        effects="none",
        repeatable=False,
        text_field="uses",
        step_only=True,
    ),
    lambda given, _context: fail("input", f"{given['uses']} can only be run as a step"),
)
summarize = LocalTool(
    ToolSpec(
        name="summarize",
        summary="Summarize a text, with regard to a focus, by one request to the executor's model",
        input_schema=closed_schema({"text": _TEXT, "focus": {"type": "string"}}, "text"),
        effects="none",
        repeatable=True,
        text_field="text",
        needs_model=True,
    ),
    _summarize,
)
