"""What an endpoint takes with one model, and the fallbacks where it takes less.

JSON of one form is asked for in the best way the endpoint takes:

    schema    response_format json_schema, strict
    tool      one tool, forced; its arguments are the answer
    object    response_format json_object, the schema in the prompt
    text      the schema in the prompt, and JSON found in the text

In the same way tools are offered natively, or in text (`text_protocol`) where an endpoint makes no native calls: it
refuses them, or was offered them and answers with a call written out as text, having never made one natively.

What was found out is cached for a week, in a file that may be deleted at any time.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from agentfs.core.records import Failure, JsonObject, Usage
from agentfs.models.base import Form, Garbled, ModelError, ModelSession, Offer, Refused, Reply, Request, ToolCall
from agentfs.models.budget import Tokens
from agentfs.models.endpoint import Response
from agentfs.models.text_protocol import (
    FINISH,
    describe_tools,
    find_json,
    has_no_tools,
    read_calls,
    strip_thoughts,
    write_as_text,
)
from agentfs.storage.safe_open import MOST_SOURCE, read_regular

JsonMode = Literal["schema", "tool", "object", "text"]
CACHE = "agentfs/endpoints.json"  # under the user's cache folder
KEPT_FOR = timedelta(days=7)  # then everything is tried again: servers learn
SHOWN = 300  # characters of a model's words in a message
_FALLBACK: dict[JsonMode, JsonMode] = {"schema": "tool", "tool": "object", "object": "text"}
_NAMED = {
    "schema": re.compile(r"response_format|json_schema|structured.?output|schema|grammar|guided", re.IGNORECASE),
    "tool": re.compile(r"tool|function", re.IGNORECASE),
    "object": re.compile(r"response_format|json_object|json mode", re.IGNORECASE),
    "temperature": re.compile(r"temperature", re.IGNORECASE),
    "usage": re.compile(r"stream_options|include_usage", re.IGNORECASE),
}
_UNSUPPORTED = re.compile(r"not support|unsupported|does not allow|not allowed|requires? |not enabled", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an endpoint takes, with one model: everything, until it is found not to."""

    json_mode: JsonMode = "schema"
    tools: bool = True  # False: tools are offered in text, and calls are read from text
    native: bool = False  # it has made a native call: what it writes as text is text
    temperature: bool = True
    usage: bool = True  # stream_options: it reports what a stream took


# ── how a request is sent ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Payload:
    """A request as it is sent: the messages, and everything beside them."""

    messages: tuple[JsonObject, ...]
    options: dict[str, Any]


def build_payload(request: Request, capabilities: Capabilities, temperature: float | None) -> Payload:
    """Return a request as this endpoint takes it."""
    options: dict[str, Any] = {}
    messages = request.messages
    if capabilities.usage:
        options["stream_options"] = {"include_usage": True}
    if temperature is not None and capabilities.temperature:
        options["temperature"] = temperature
    if request.offers and capabilities.tools:
        options["tools"] = [tool_schema(offer) for offer in request.offers]
    elif request.offers:
        messages = _extend_system(write_as_text(messages, request.offers), describe_tools(request.offers))
    if request.form:
        words, more = _ask_for_json(request.form, _json_mode(request, capabilities))
        messages = _extend_system(messages, words) if words else messages
        options |= more
    return Payload(messages, options)


def tool_schema(offer: Offer) -> JsonObject:
    """Return a tool as the protocol offers it."""
    function: JsonObject = {"name": offer.name, "description": offer.description, "parameters": offer.parameters}
    return {"type": "function", "function": function}


def _json_mode(request: Request, capabilities: Capabilities) -> JsonMode:
    """Return how JSON is asked for; no tool can be forced beside others."""
    return "object" if capabilities.json_mode == "tool" and request.offers else capabilities.json_mode


def _ask_for_json(form: Form, mode: JsonMode) -> tuple[str, dict[str, Any]]:
    """Return what is added to the prompt, and what is sent beside it."""
    if mode == "schema":
        named = {"name": form.name, "schema": form.schema, "strict": True}
        return "", {"response_format": {"type": "json_schema", "json_schema": named}}
    if mode == "tool":
        forced = {"type": "function", "function": {"name": form.name}}
        return "", {"tools": [tool_schema(Offer(form.name, "Give the answer.", form.schema))], "tool_choice": forced}
    schema = json.dumps(form.schema, ensure_ascii=False)
    words = f"Answer with one JSON object and nothing else. It must satisfy this JSON Schema:\n{schema}"
    return words, {"response_format": {"type": "json_object"}} if mode == "object" else {}


def _extend_system(messages: tuple[JsonObject, ...], words: str) -> tuple[JsonObject, ...]:
    """Return messages whose first, the system's, says more: many models take only one, at the start."""
    if messages and messages[0].get("role") == "system":
        first, rest = str(messages[0].get("content") or ""), messages[1:]
        return ({"role": "system", "content": f"{first}\n\n{words}"}, *rest)
    return ({"role": "system", "content": words}, *messages)


# ── what is found out ─────────────────────────────────────────────────────────────────────────────────────


def learn_from_error(
    request: Request, capabilities: Capabilities, status: int | None, words: str, temperature: float | None
) -> Capabilities | None:
    """Return what an error shows about an endpoint; None if it does not mean "not supported"."""
    if status not in (400, 404, 405, 415, 422) and not (status in (500, 501) and _UNSUPPORTED.search(words)):
        return None
    if "context length" in words.lower() or "context_length" in words:
        return None  # it may count the tokens "in the functions"
    if temperature is not None and capabilities.temperature and _NAMED["temperature"].search(words):
        return replace(capabilities, temperature=False)
    if capabilities.usage and _NAMED["usage"].search(words):
        return replace(capabilities, usage=False)
    mode = _json_mode(request, capabilities)
    if request.form and mode != "text" and _NAMED[mode].search(words):
        return fall_back(request, capabilities)
    if request.offers and capabilities.tools and _NAMED["tool"].search(words):
        return replace(capabilities, tools=False)
    return None


def fall_back(request: Request, capabilities: Capabilities) -> Capabilities:
    """Return capabilities with the next way to ask for JSON; the last one works everywhere."""
    return replace(capabilities, json_mode=_FALLBACK.get(_json_mode(request, capabilities), "text"))


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a response shows about an endpoint."""

    capabilities: Capabilities
    is_certain: bool = True  # it holds for other runs, too


def learn_from_response(request: Request, capabilities: Capabilities, response: Response) -> Learnt | None:
    """Return what a response to an offer of tools shows; None: nothing new."""
    if not request.offers or not capabilities.tools or capabilities.native:
        return None
    if response.tool_calls:
        return Learnt(replace(capabilities, native=True))
    if response.finish == "length" or response.refusal:
        return None
    if read_calls(response.text, {offer.name for offer in request.offers}):
        return Learnt(replace(capabilities, tools=False))
    replies = [message for message in request.messages if message.get("role") == "assistant"]
    if replies and not any(message.get("tool_calls") for message in replies):
        return Learnt(replace(capabilities, tools=False), is_certain=False)  # asked for a call, it only talks
    return None


# ── how a response is read ────────────────────────────────────────────────────────────────────────────────


class FormIgnored(Exception):
    """The endpoint was asked for JSON and answered in words: it does not know this way to ask."""


def read_reply(
    request: Request, capabilities: Capabilities, response: Response, learnt: Learnt | None = None
) -> Reply:
    """Return the reply, `learnt` being what it showed; raises Refused, Garbled or FormIgnored."""
    if response.refusal or response.finish == "content_filter":
        refused = f"the model refused: {response.refusal[:SHOWN]}" if response.refusal else ""
        message = refused or "a content filter stopped the reply"
        raise Refused(Failure(kind="model", message=message, hint="say it in other words"))
    if response.finish == "length" and response.tool_calls and not request.offers:
        hint = "the model's limit on output is too small for this"
        raise Garbled(Failure(kind="model", message="its tool call was cut short", hint=hint))
    text, calls = _read(request, capabilities, response)
    restart = learnt is not None and capabilities.tools and not learnt.capabilities.tools
    return Reply(
        text=text,
        tool_calls=calls,
        finish=response.finish or "stop",
        tokens=response.tokens or Tokens(),
        spoken=restart or (bool(request.offers) and not capabilities.tools),
        restart=restart,
    )


def _read(request: Request, capabilities: Capabilities, response: Response) -> tuple[str, tuple[ToolCall, ...]]:
    if request.form:
        return _read_json(request.form, _json_mode(request, capabilities), response), ()
    text = strip_thoughts(response.text)
    if response.finish == "length":
        return text, ()  # no tool is ever called from half a message
    if not request.offers or capabilities.tools:
        return text, response.tool_calls  # what looks like a call in its text is text
    return _read_text(text, {offer.name for offer in request.offers})


def _read_text(text: str, tools: set[str]) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the calls that a text consists of, and no text beside them; or the text, if it holds anything else."""
    written = read_calls(text, tools)
    if not written and text and has_no_tools(tools):
        written = ((FINISH, json.dumps({"ok": True, "output": text}, ensure_ascii=False)),)
    calls = tuple(ToolCall(f"call_{n}", name, arguments) for n, (name, arguments) in enumerate(written, 1))
    return ("" if calls else text), calls


def _read_json(form: Form, mode: JsonMode, response: Response) -> str:
    """Return the JSON text of an answer; words, where no other way to ask is left: the caller asks for a repair."""
    arguments = next((call.arguments for call in response.tool_calls if call.name == form.name), None)
    text = find_json(arguments if arguments is not None else response.text)
    if text is None and response.finish != "length" and mode in ("schema", "tool"):
        raise FormIgnored  # what is JSON, but of another form, is the caller's to judge and to have repaired
    return text if text is not None else strip_thoughts(response.text)


def log_reading(
    session: ModelSession, response: Response, usage: Usage, details: Mapping[str, Any], read: Callable[[], Reply]
) -> Reply:
    """Log a response and what it is read as; return the reply, or raise what reading it raises."""
    raw = response.message()
    try:
        reply = read()
    except FormIgnored:
        session.log_reply(raw, usage, {**details, "form": "ignored"})
        raise
    except ModelError as error:
        session.log_reply(raw, usage, {**details, "error": error.failure.model_dump(exclude_none=True)})
        raise
    taken_as = {} if reply.message() == raw else {"taken_as": reply.message()}
    flags = {name: True for name in ("spoken", "restart") if getattr(reply, name)}
    session.log_reply(raw, usage, {**details, **taken_as, **flags})
    return reply


# ── the cache ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class CapabilityCache:
    """What is known of one model at one endpoint, kept from run to run where there is a home to keep it in."""

    file: Path | None
    key: str  # the address and the model

    @classmethod
    def of(cls, environment: Mapping[str, str], url: str, model: str) -> "CapabilityCache":
        """Return the cache of this user."""
        home, folder = environment.get("HOME"), environment.get("XDG_CACHE_HOME", "")
        base = Path(folder) if folder.startswith("/") else Path(home) / ".cache" if home else None
        return cls(base / CACHE if base else None, f"{url} {model}")

    def load(self) -> Capabilities:
        """Return what an earlier run found out; everything is assumed where that is unknown, old or unreadable."""
        entry: Any = self._read().get(self.key)
        try:
            known: dict[str, Any] = {one.name: entry[one.name] for one in fields(Capabilities)}
            age = datetime.now(UTC) - datetime.fromisoformat(entry["on"]).replace(tzinfo=UTC)
        except (KeyError, TypeError, ValueError):
            return Capabilities()
        flags = (value for name, value in known.items() if name != "json_mode")
        is_valid = known["json_mode"] in get_args(JsonMode) and all(isinstance(flag, bool) for flag in flags)
        return Capabilities(**known) if is_valid and age <= KEPT_FOR else Capabilities()

    def save(self, capabilities: Capabilities) -> None:
        """Replace the file, if that can be; of two that write at once one is forgotten, and found out again."""
        if self.file is None:
            return
        known = self._read() | {self.key: {**asdict(capabilities), "on": datetime.now(UTC).date().isoformat()}}
        temporary = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(known, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            temporary.replace(self.file)
        except OSError:
            with suppress(OSError):
                temporary.unlink()

    def _read(self) -> dict[str, Any]:
        try:
            known = json.loads(read_regular(self.file, MOST_SOURCE, links=True)) if self.file else {}
        except (OSError, ValueError, RecursionError):
            return {}
        return known if isinstance(known, dict) else {}
