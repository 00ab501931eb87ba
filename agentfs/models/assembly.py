"""A whole message out of the chunks of a stream. Pure. Endpoints differ in what they leave out: none is trusted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentfs.core.documents import too_deep
from agentfs.core.json_text import MAX_DEPTH
from agentfs.core.problems import show_value
from agentfs.models.base import Tokens, ToolCall
from agentfs.models.bounding import TooLarge

LARGEST_REPLY = 4 * 1024 * 1024  # characters, of everything a model says in one reply
MOST_CALLS = 256  # in one reply
MOST_TOKENS = 10**9  # that one reply may claim to have taken
LONGEST_NAME = 200  # characters of what an endpoint calls a model, or the end of a reply


class Malformed(Exception):
    """What came is not in the form of a reply; says in which way."""


@dataclass(frozen=True, slots=True)
class Said:
    """What an endpoint said in one reply, as it said it."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    refusal: str
    reasoning: str
    finish: str | None  # None: the end never came
    tokens: Tokens | None  # None: the endpoint does not tell
    model: str | None


@dataclass(slots=True)
class _Call:
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Assembly:
    """Puts chunks together. What it holds is bounded."""

    heard: int = 0  # characters so far
    _text: list[str] = field(default_factory=list)
    _refusal: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _at: dict[int | None, _Call] = field(default_factory=dict)  # by the index the endpoint gives
    _finish: str | None = None
    _tokens: Tokens | None = None
    _model: str | None = None

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Add one chunk, or a whole completion: both have choices. Raises Malformed, or TooLarge."""
        if too_deep(chunk):
            raise Malformed(f"nested more than {MAX_DEPTH} levels deep")
        self._model = self._model or _name(chunk.get("model"))
        self._tokens = tokens_in(chunk.get("usage")) or self._tokens
        choices = chunk.get("choices")
        for choice in choices[:1] if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._finish = _name(choice.get("finish_reason")) or self._finish
                said = choice.get("delta") or choice.get("message")
                self._say(said if isinstance(said, dict) else {})

    def _say(self, delta: Mapping[str, Any]) -> None:
        self._hear(self._text, _text(delta.get("content")))
        self._hear(self._refusal, _text(delta.get("refusal")))
        self._hear(self._reasoning, _text(delta.get("reasoning_content") or delta.get("reasoning")))
        if isinstance(legacy := delta.get("function_call"), dict):
            self._call({"function": legacy})
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._call(call)

    def _hear(self, to: list[str], text: str) -> None:
        self._count(text)
        if text:
            to.append(text)

    def _count(self, text: str) -> None:
        self.heard += len(text)
        if self.heard > LARGEST_REPLY:
            raise TooLarge

    def _call(self, delta: Mapping[str, Any]) -> None:
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        call = self._found(delta, _text(function.get("name")))
        arguments = function.get("arguments")
        self._hear(call.arguments, arguments if isinstance(arguments, str) else _as_json(arguments))

    def _found(self, delta: Mapping[str, Any], name: str) -> _Call:
        """Return the call a delta belongs to: some endpoints give every call the same index, some give none."""
        index, own_id = _index(delta.get("index")), _text(delta.get("id"))
        known = self._at.get(index)
        begins = known is None or (name and known.name and own_id != known.id)
        if known is not None and not begins:
            if not known.name:
                self._count(name)
                known.name = name
            return known
        if len(self._calls) >= MOST_CALLS:
            raise TooLarge
        self._count(own_id)
        self._count(name)
        call = _Call(own_id or f"call_{len(self._calls) + 1}", name)
        self._calls.append(call)
        self._at[index] = call
        return call

    def said(self) -> Said:
        """Return everything so far."""
        calls = (ToolCall(_clean([call.id]), _clean([call.name]), _clean(call.arguments)) for call in self._calls)
        return Said(
            text=_clean(self._text),
            tool_calls=tuple(calls),
            refusal=_clean(self._refusal),
            reasoning=_clean(self._reasoning),
            finish=self._finish,
            tokens=self._tokens,
            model=self._model,
        )


def tokens_in(usage: Any) -> Tokens | None:
    """Return the tokens an endpoint tells of; details may be missing, and a program may say it plainly."""
    if not isinstance(usage, dict):
        return None
    sent, received = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    plain = {**usage, **(sent if isinstance(sent, dict) else {}), **(received if isinstance(received, dict) else {})}
    return Tokens(
        input=_tokens(plain, "prompt_tokens", "input_tokens"),
        cached=_tokens(plain, "cached_tokens"),
        output=_tokens(plain, "completion_tokens", "output_tokens"),
        reasoning=_tokens(plain, "reasoning_tokens"),
    )


def _tokens(usage: Mapping[str, Any], *names: str) -> int:
    """Return a count of tokens, by the first of these names that has one; a number that cannot be one is refused."""
    name = next((name for name in names if usage.get(name)), names[0])
    value = usage.get(name)
    if isinstance(value, bool) or (isinstance(value, int | float) and value > MOST_TOKENS):
        raise Malformed(f"{name} of its usage is {show_value(value)}")
    return value if isinstance(value, int) and value > 0 else 0


def _index(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise Malformed(f"the index of a tool call is {show_value(value)}")
    return value


def _name(value: Any) -> str | None:
    return _clean([_text(value)[:LONGEST_NAME]]) or None


def _text(value: Any) -> str:
    """Return text; parts of a message are joined, everything else is nothing."""
    if isinstance(value, list):
        parts = (part.get("text") for part in value if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _as_json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _clean(parts: list[str]) -> str:
    """Return text that can be written: half a surrogate pair cannot."""
    return "".join(parts).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
