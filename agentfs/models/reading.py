"""What a reply of an endpoint means for the request it answers. Pure."""

from agentfs.core.records import Failure, JsonObject
from agentfs.models.actions import actions_in, json_in, without_thoughts
from agentfs.models.assembly import Said
from agentfs.models.base import Form, Reply, Request, Tokens, ToolCall
from agentfs.models.errors import Garbled, Refused
from agentfs.models.ladder import Habits, Rung, rung_of

SHOWN = 300  # characters of a model's words in a message


class FormIgnored(Exception):
    """The endpoint was asked for a form and answered as if it had not heard: it does not know of this way to ask."""


def message_of(said: Said) -> JsonObject:
    """Return what an endpoint said as a message, as it was said."""
    message = Reply(text=said.text, tool_calls=said.tool_calls).message()
    return {**message, "refusal": said.refusal} if said.refusal else message


def reply_of(request: Request, habits: Habits, said: Said, request_id: str | None) -> Reply:
    """Return the reply; raises Refused, Garbled, or FormIgnored where another way to ask may help."""
    if said.refusal or said.finish == "content_filter":
        raise Refused(_refusal(said))
    if said.finish == "length" and said.tool_calls:
        raise Garbled(_failure("its tool call was cut short", "the model's limit on output is too small for this"))
    text, calls = _meant(request, habits, said)
    return Reply(
        text=text,
        tool_calls=calls,
        finish=said.finish or "stop",
        tokens=said.tokens or Tokens(),
        model=said.model,
        request_id=request_id,
    )


def _meant(request: Request, habits: Habits, said: Said) -> tuple[str, tuple[ToolCall, ...]]:
    if request.form:
        return _formed(request.form, rung_of(request, habits), said), ()
    text = without_thoughts(said.text)
    if not request.offers or said.tool_calls:
        return text, said.tool_calls
    written = actions_in(text, {offer.name for offer in request.offers}) if said.finish != "length" else ()
    return text, tuple(ToolCall(f"call_{n}", name, given) for n, (name, given) in enumerate(written, 1))


def _formed(form: Form, rung: Rung, said: Said) -> str:
    """Return the JSON text of an answer; words, where no other way to ask is left: the caller asks for a repair."""
    given = next((call.arguments for call in said.tool_calls if call.name == form.name), None)
    text = json_in(given if given is not None else said.text)
    if text is None and said.finish != "length" and rung in ("schema", "tool"):
        raise FormIgnored  # what is JSON, but of another form, is the caller's to judge and to have repaired
    return text if text is not None else without_thoughts(said.text)


def _refusal(said: Said) -> Failure:
    if said.refusal:
        return _failure(f"the model refused: {said.refusal[:SHOWN]}", "say it in other words")
    return _failure("a content filter stopped the reply", "say it in other words")


def _failure(message: str, hint: str) -> Failure:
    return Failure(kind="model", message=message, hint=hint)
