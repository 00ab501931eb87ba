"""One response out of the chunks of a stream. Pure. Endpoints differ in what they leave out: none is trusted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentfs.core.documents import too_deep
from agentfs.core.json_text import MAX_DEPTH
from agentfs.core.problems import show_value
from agentfs.core.records import JsonObject
from agentfs.models.base import Reply, ToolCall
from agentfs.models.budget import Tokens

LARGEST_RESPONSE = 4 * 1024 * 1024  # characters, of everything a model writes in one response
MOST_CALLS = 256  # in one response
MOST_TOKENS = 10**9  # that one response may claim to have taken
LONGEST_NAME = 200  # characters of what an endpoint calls a model, or the end of a response


class Malformed(Exception):
    """What came is not in the form of a response; the message says in which way."""


class TooLarge(Exception):
    """More came than any model writes."""


@dataclass(frozen=True, slots=True)
class Response:
    """What an endpoint sent, as it sent it."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str = ""
    reasoning: str = ""
    finish: str | None = None  # None: the end never came
    tokens: Tokens | None = None  # None: the endpoint does not report them
    model: str | None = None

    def message(self) -> JsonObject:
        """Return it as a message of the protocol."""
        message = Reply(text=self.text, tool_calls=self.tool_calls).message()
        return {**message, "refusal": self.refusal} if self.refusal else message


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ResponseBuilder:
    """Puts chunks together. What it holds is bounded."""

    characters: int = 0  # received so far
    _parts: dict[str, list[str]] = field(default_factory=dict)  # of the text, the refusal and the reasoning
    _calls: list[_Call] = field(default_factory=list)
    _at: dict[int | None, _Call] = field(default_factory=dict)  # the latest call of each index the endpoint gives
    _finish: str | None = None
    _tokens: Tokens | None = None
    _model: str | None = None

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Add one chunk, or a whole completion: both have choices. Raises Malformed or TooLarge."""
        if too_deep(chunk):
            raise Malformed(f"nested more than {MAX_DEPTH} levels deep")
        self._model = self._model or _name(chunk.get("model"))
        self._tokens = _read_tokens(chunk.get("usage")) or self._tokens
        choices = chunk.get("choices")
        for choice in choices[:1] if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._finish = _name(choice.get("finish_reason")) or self._finish
                delta = choice.get("delta") or choice.get("message")
                self._add_delta(delta if isinstance(delta, dict) else {})

    def _add_delta(self, delta: Mapping[str, Any]) -> None:
        self._keep("text", _text(delta.get("content")))
        self._keep("refusal", _text(delta.get("refusal")))
        self._keep("reasoning", _text(delta.get("reasoning_content") or delta.get("reasoning")))
        if isinstance(legacy := delta.get("function_call"), dict):
            self._add_call({"function": legacy})
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._add_call(call)

    def _keep(self, part: str, text: str) -> None:
        self._count(text)
        if text:
            self._parts.setdefault(part, []).append(text)

    def _count(self, *texts: str) -> None:
        self.characters += sum(map(len, texts))
        if self.characters > LARGEST_RESPONSE:
            raise TooLarge

    def _add_call(self, delta: Mapping[str, Any]) -> None:
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        call, given = self._find_call(delta, _text(function.get("name"))), function.get("arguments")
        arguments = (
            given if isinstance(given, str) else "" if given is None else json.dumps(given, ensure_ascii=False)
        )
        self._count(arguments)
        call.arguments.append(arguments)

    def _find_call(self, delta: Mapping[str, Any], name: str) -> _Call:
        """Return the call a delta belongs to: some endpoints give every call the same index, some give none."""
        index, own_id = delta.get("index"), _text(delta.get("id"))
        if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
            raise Malformed(f"the index of a tool call is {show_value(index)}")
        known = self._at.get(index)
        if known is not None and not (name and known.name and own_id != known.id):
            self._count("" if known.name else name)
            known.name = known.name or name
            return known
        if len(self._calls) >= MOST_CALLS:
            raise TooLarge
        self._count(own_id, name)
        call = self._at[index] = _Call(own_id or f"call_{len(self._calls) + 1}", name)
        self._calls.append(call)
        return call

    def response(self) -> Response:
        """Return everything so far."""
        calls = (ToolCall(_clean(call.id), _clean(call.name), _clean(*call.arguments)) for call in self._calls)
        text, refusal, reasoning = (_clean(*self._parts.get(part, ())) for part in ("text", "refusal", "reasoning"))
        return Response(text, tuple(calls), refusal, reasoning, self._finish, self._tokens, self._model)


def _read_tokens(usage: Any) -> Tokens | None:
    """Return the tokens an endpoint reports; details may be missing, and a program may leave out the nesting."""
    if not isinstance(usage, dict):
        return None
    details = (usage.get("prompt_tokens_details"), usage.get("completion_tokens_details"))
    flat = {**usage, **{name: value for one in details if isinstance(one, dict) for name, value in one.items()}}
    return Tokens(
        input=_count_in(flat, "prompt_tokens", "input_tokens"),
        cached=_count_in(flat, "cached_tokens"),
        output=_count_in(flat, "completion_tokens", "output_tokens"),
        reasoning=_count_in(flat, "reasoning_tokens"),
    )


def _count_in(usage: Mapping[str, Any], *names: str) -> int:
    """Return a count of tokens, by the first of these names that has one; a number that cannot be one is refused."""
    name = next((name for name in names if usage.get(name)), names[0])
    value = usage.get(name)
    if isinstance(value, bool) or (isinstance(value, int | float) and value > MOST_TOKENS):
        raise Malformed(f"{name} of its usage is {show_value(value)}")
    return value if isinstance(value, int) and value > 0 else 0


def _name(value: Any) -> str | None:
    return _clean(_text(value)[:LONGEST_NAME]) or None


def _text(value: Any) -> str:
    """Return text; parts of a message are joined, everything else is empty."""
    if isinstance(value, list):
        parts = (part.get("text") for part in value if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _clean(*parts: str) -> str:
    """Return text that can be written: half a surrogate pair cannot."""
    return "".join(parts).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
