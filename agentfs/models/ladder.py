"""How a request is put to an endpoint, by what that endpoint is known to take. Pure.

JSON of one form is asked for on the highest rung that holds:

    schema    response_format json_schema, strict
    tool      one tool, forced; its arguments are the answer
    object    response_format json_object, the schema in the prompt
    text      the schema in the prompt, and JSON found in the text

In the same way tools are offered natively, or in words where an endpoint makes no native calls (`spoken`): it refuses
them, or was offered them and answers with a call written out as text, having never made one natively.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentfs.core.records import JsonObject
from agentfs.models.actions import actions_in
from agentfs.models.assembly import Said
from agentfs.models.base import Form, Offer, Request
from agentfs.models.spoken import described, in_words

Rung = Literal["schema", "tool", "object", "text"]
_LOWER: dict[Rung, Rung] = {"schema": "tool", "tool": "object", "object": "text"}
_NAMED = {
    "schema": re.compile(r"response_format|json_schema|structured.?output|schema|grammar|guided", re.IGNORECASE),
    "tool": re.compile(r"tool|function", re.IGNORECASE),
    "object": re.compile(r"response_format|json_object|json mode", re.IGNORECASE),
    "temperature": re.compile(r"temperature", re.IGNORECASE),
    "usage": re.compile(r"stream_options|include_usage", re.IGNORECASE),
}
_UNSUPPORTED = re.compile(r"not support|unsupported|does not allow|not allowed|requires? |not enabled", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Habits:
    """What an endpoint takes, with one model: everything, until it is found not to."""

    rung: Rung = "schema"
    tools: bool = True  # False: tools are offered in words, and calls are read from words
    native: bool = False  # it has made a native call: what it writes as text is text
    temperature: bool = True
    usage: bool = True  # stream_options: it tells what a stream took


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it is sent: the messages, and everything beside them."""

    messages: tuple[JsonObject, ...]
    options: dict[str, Any]


def asked(request: Request, habits: Habits, temperature: float | None) -> Asked:
    """Return a request as this endpoint takes it."""
    options: dict[str, Any] = {}
    messages = request.messages
    if habits.usage:
        options["stream_options"] = {"include_usage": True}
    if temperature is not None and habits.temperature:
        options["temperature"] = temperature
    if request.offers and habits.tools:
        options["tools"] = [tool_of(offer) for offer in request.offers]
    elif request.offers:
        messages = with_words(in_words(messages, request.offers), described(request.offers))
    if request.form:
        words, more = _form(request.form, rung_of(request, habits))
        messages = with_words(messages, words) if words else messages
        options |= more
    return Asked(messages, options)


def rung_of(request: Request, habits: Habits) -> Rung:
    """Return the rung a request is put on; no tool can be forced beside others."""
    return "object" if habits.rung == "tool" and request.offers else habits.rung


def tool_of(offer: Offer) -> JsonObject:
    """Return a tool as the protocol offers it."""
    function: JsonObject = {"name": offer.name, "description": offer.description, "parameters": offer.parameters}
    return {"type": "function", "function": function}


def _form(form: Form, rung: Rung) -> tuple[str, dict[str, Any]]:
    """Return what is said in the prompt, and what is sent beside it."""
    if rung == "schema":
        named = {"name": form.name, "schema": form.schema, "strict": True}
        return "", {"response_format": {"type": "json_schema", "json_schema": named}}
    if rung == "tool":
        forced = {"type": "function", "function": {"name": form.name}}
        return "", {"tools": [tool_of(Offer(form.name, "Give the answer.", form.schema))], "tool_choice": forced}
    schema = json.dumps(form.schema, ensure_ascii=False)
    words = f"Answer with one JSON object and nothing else. It must satisfy this JSON Schema:\n{schema}"
    return words, {"response_format": {"type": "json_object"}} if rung == "object" else {}


def with_words(messages: tuple[JsonObject, ...], words: str) -> tuple[JsonObject, ...]:
    """Return messages whose first, the system's, says something more: many models take one at the start only."""
    if messages and messages[0].get("role") == "system":
        first, rest = str(messages[0].get("content") or ""), messages[1:]
        return ({"role": "system", "content": f"{first}\n\n{words}"}, *rest)
    return ({"role": "system", "content": words}, *messages)


def lesson(
    request: Request, habits: Habits, status: int | None, words: str, temperature: float | None
) -> Habits | None:
    """Return what an error teaches about an endpoint; None if it does not mean "not supported"."""
    if status not in (400, 404, 405, 415, 422) and not (status in (500, 501) and _UNSUPPORTED.search(words)):
        return None
    if "context length" in words.lower() or "context_length" in words:
        return None  # it may count the tokens "in the functions"
    if temperature is not None and habits.temperature and _NAMED["temperature"].search(words):
        return replace(habits, temperature=False)
    if habits.usage and _NAMED["usage"].search(words):
        return replace(habits, usage=False)
    rung = rung_of(request, habits)
    if request.form and rung != "text" and _NAMED[rung].search(words):
        return lower(replace(habits, rung=rung))
    if request.offers and habits.tools and _NAMED["tool"].search(words):
        return replace(habits, tools=False)
    return None


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a reply teaches about an endpoint."""

    habits: Habits
    sure: bool = True  # it holds for other runs, too


def taught_by(request: Request, habits: Habits, said: Said) -> Learnt | None:
    """Return what a reply to an offer of tools teaches; None: nothing new."""
    if not request.offers or not habits.tools or habits.native:
        return None
    if said.tool_calls:
        return Learnt(replace(habits, native=True))
    if said.finish == "length" or said.refusal:
        return None
    if actions_in(said.text, {offer.name for offer in request.offers}):
        return Learnt(replace(habits, tools=False))
    spoke = [message for message in request.messages if message.get("role") == "assistant"]
    if spoke and not any(message.get("tool_calls") for message in spoke):
        return Learnt(replace(habits, tools=False), sure=False)  # it was told, and only talks
    return None


def lower(habits: Habits) -> Habits:
    """Return habits one rung down; the lowest rung holds for everyone."""
    return replace(habits, rung=_LOWER.get(habits.rung, "text"))
