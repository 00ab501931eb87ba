"""What a reply of an endpoint means for the request it answers. Pure."""

import json

from agentfs.core.records import Failure, JsonObject
from agentfs.models.actions import FINISH, actions_in, json_in, without_thoughts
from agentfs.models.assembly import Said
from agentfs.models.base import Form, Reply, Request, Tokens, ToolCall
from agentfs.models.errors import Garbled, Refused
from agentfs.models.ladder import Habits, Rung, rung_of
from agentfs.models.spoken import has_no_tools

SHOWN = 300  # characters of a model's words in a message


class FormIgnored(Exception):
    """The endpoint was asked for a form and answered as if it had not heard: it does not know of this way to ask."""


def message_of(said: Said) -> JsonObject:
    """Return what an endpoint said as a message, as it was said."""
    message = Reply(text=said.text, tool_calls=said.tool_calls).message()
    return {**message, "refusal": said.refusal} if said.refusal else message


def taken_as(raw: JsonObject, reply: Reply) -> JsonObject:
    """Return what a log says of a reply that was taken for something else than was said, or was said in words."""
    taken = reply.message()
    flags = {"spoken": reply.spoken, "restart": reply.restart}
    return ({} if taken == raw else {"taken_as": taken}) | {name: True for name, is_set in flags.items() if is_set}


def reply_of(
    request: Request, habits: Habits, said: Said, request_id: str | None, learnt: Habits | None = None
) -> Reply:
    """Return the reply, `learnt` being what it taught; raises Refused, Garbled, or FormIgnored: ask otherwise."""
    if said.refusal or said.finish == "content_filter":
        raise Refused(_refusal(said))
    if said.finish == "length" and said.tool_calls and not request.offers:
        raise Garbled(_failure("its tool call was cut short", "the model's limit on output is too small for this"))
    text, calls = _meant(request, habits, said)
    restart = learnt is not None and habits.tools and not learnt.tools
    return Reply(
        text=text,
        tool_calls=calls,
        finish=said.finish or "stop",
        tokens=said.tokens or Tokens(),
        model=said.model,
        request_id=request_id,
        spoken=restart or (bool(request.offers) and not habits.tools),
        restart=restart,
    )


def _meant(request: Request, habits: Habits, said: Said) -> tuple[str, tuple[ToolCall, ...]]:
    if request.form:
        return _formed(request.form, rung_of(request, habits), said), ()
    text = without_thoughts(said.text)
    if said.finish == "length":
        return text, ()  # no tool is ever called from half a message
    if not request.offers or habits.tools:
        return text, said.tool_calls  # what looks like a call in its words is words
    return _spoken(text, {offer.name for offer in request.offers})


def _spoken(text: str, tools: set[str]) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the calls that a reply in words is, and no words beside them; or its words, if it is none."""
    written = actions_in(text, tools)
    if not written and text and has_no_tools(tools):
        written = ((FINISH, json.dumps({"ok": True, "output": text}, ensure_ascii=False)),)
    calls = tuple(ToolCall(f"call_{n}", name, given) for n, (name, given) in enumerate(written, 1))
    return ("" if calls else text), calls


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
