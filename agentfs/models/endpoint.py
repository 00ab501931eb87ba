"""An endpoint: where a model is asked, what its errors mean, when to ask again, and one response out of chunks. Pure.

Endpoints differ in what they leave out of a response: none is trusted.
"""

import json
import random
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agentfs.core.config import ModelSettings, PlannerSettings
from agentfs.core.problems import show_value
from agentfs.core.records import Failure, JsonObject
from agentfs.core.values import MAX_DEPTH, too_deep
from agentfs.models.base import Garbled, ModelError, Refused, Reply, ToolCall, Unreachable
from agentfs.models.budget import Tokens
from agentfs.storage.timing import TIMING

DEFAULT_URL = "https://api.openai.com/v1"
NO_KEY = "none"  # a local server wants none, the package wants some
UNCOMPRESSED = {"Accept-Encoding": "identity"}  # what is packed could become anything, whatever its size
INVALID_KEY = "holds a line break, or another character that no key has"
SHOWN = 300  # characters of an endpoint's words in a message


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked, and how to speak of it. The key is shown nowhere."""

    url: str
    key: str = field(repr=False)
    table: str  # of agentfs.toml
    key_name: str  # the variable that holds the key

    @classmethod
    def of(cls, settings: ModelSettings, environment: Mapping[str, str]) -> "Endpoint":
        """Return the endpoint that settings and environment name together."""
        url = settings.base_url or environment.get("OPENAI_BASE_URL") or DEFAULT_URL
        key = environment.get(settings.api_key_env) or NO_KEY
        return cls(url.rstrip("/"), key, table_of(settings), settings.api_key_env)

    @property
    def shown(self) -> str:
        """The address without a user's name and password."""
        return re.sub(r"(?<=//)[^/?#]*@", "", self.url, count=1)

    @property
    def has_valid_key(self) -> bool:
        """Whether the key can be sent; an error of the HTTP client would quote one that cannot."""
        return self.key.isascii() and self.key.isprintable()

    @property
    def key_hint(self) -> str:
        """What to do about a key that is refused."""
        return f"set {self.key_name} to a key of that endpoint, or api_key_env under [{self.table}] in agentfs.toml"

    @property
    def url_hint(self) -> str:
        """What to do about an address where no model answers."""
        return f"set base_url under [{self.table}] in agentfs.toml; it often ends in /v1"

    def mask(self, text: str) -> str:
        """Return an endpoint's words without the key it may quote."""
        return text.replace(self.key, f"[secret {self.key_name}]") if len(self.key) > len(NO_KEY) else text


def table_of(settings: ModelSettings) -> str:
    """Return the table of agentfs.toml that holds these settings."""
    return "planner" if isinstance(settings, PlannerSettings) else "executor"


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How long to wait for what, and how often to try. Seconds."""

    connect: float = TIMING.connect
    first_byte: float = TIMING.first_byte  # a long prompt on a small machine is read for minutes
    between: float = TIMING.between_pieces  # two pieces of a reply
    whole: float = TIMING.whole_reply  # one reply
    tries: int = 5
    connect_tries: int = 3  # where no connection is made
    first_wait: float = TIMING.retry_first  # before the second try; doubled for each one more
    longest_wait: float = TIMING.retry_longest  # also of what a server asks for
    chance: Callable[[], float] = field(default=random.random)

    def wait_after(self, fault: "Fault", count: int) -> float | None:
        """Return how long to wait after the count-th fault in a row; None: it is time to give up."""
        if not fault.again or count >= (self.tries if fault.reached else self.connect_tries):
            return None
        if fault.retry_after is not None:
            return min(max(fault.retry_after, 0.0), self.longest_wait)
        step = min(self.first_wait * 2.0 ** (count - 1), self.longest_wait)
        return step * (0.5 + self.chance() / 2)


# ── what went wrong, and whether to ask again ────────────────────────────────────────────────────────────

_NO_MODEL = re.compile(
    r"model.{0,80}(not found|does not exist|not exist|not a valid|unknown|not available|no access)"
    r"|not a valid model|model_not_found|DeploymentNotFound|unknown model|no such model",
    re.IGNORECASE | re.DOTALL,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|insufficient.{0,10}credit|exceeded your current quota|billing", re.IGNORECASE
)
_FILTERED = re.compile(
    r"content_filter|content_policy|content management policy|invalid_prompt|safety", re.IGNORECASE
)
_TOO_LONG = re.compile(
    r"context.?length|context.?window|too many tokens|prompt is too long|exceed.{0,30}context", re.IGNORECASE
)


@dataclass(eq=False)
class Fault(Exception):
    """One try that brought no reply: the error to raise if it is the last, and whether to try again."""

    error: ModelError
    again: bool
    reached: bool = True  # something answered
    begun: bool = False  # a reply had begun: it cost something, and how much is unknown
    retry_after: float | None = None
    status: int | None = None
    words: str = ""  # of the server


def unreachable(message: str, hint: str, **more: Any) -> Fault:
    """Return a fault that a person must fix if it stays."""
    return Fault(Unreachable(Failure(kind="unreachable", message=message, hint=hint)), **more)


def broken(message: str) -> Fault:
    """Return a fault where no whole reply was sent: if it stays, a person must look at the endpoint."""
    hint = "the endpoint, or what is between, breaks its replies off or does not keep to the protocol; then resume"
    return unreachable(message, hint, again=True, begun=True)


def garbled_fault(message: str, *, again: bool) -> Fault:
    """Return a fault where a whole reply came that is of no use: the model's doing."""
    return Fault(Garbled(Failure(kind="model", message=message)), again=again, begun=True)


def silent(what: str, *, begun: bool) -> Fault:
    """Return a fault where an endpoint does not go on."""
    hint = "is the server busy, or the model too slow?"
    return unreachable(f"the endpoint is silent: {what}", hint, again=True, begun=begun)


def no_connection(endpoint: Endpoint, reason: str) -> Fault:
    """Return a fault where nothing answers."""
    hint = f"is the server running? its address is base_url under [{endpoint.table}] in agentfs.toml"
    message = f"{endpoint.shown} cannot be reached: {endpoint.mask(reason)}"
    return unreachable(message, hint, again=True, reached=False)


def explain_status(status: int, body: Any, headers: Any, model: str, endpoint: Endpoint, now: datetime) -> Fault:
    """Return what an answer with an error status means."""
    words = endpoint.mask(error_words(body))
    message, hint, again = _explain(status, words, body, model, endpoint)
    if status < 500 and (_FILTERED.search(words) or _TOO_LONG.search(words)):
        error: ModelError = Refused(Failure(kind="model", message=message, hint=hint))
        return Fault(error, again=False, status=status, words=words)
    after = seconds_after(headers.get("retry-after"), now) if again else None
    return unreachable(message, hint, again=again, retry_after=after, status=status, words=words)


def _explain(status: int, words: str, body: Any, model: str, endpoint: Endpoint) -> tuple[str, str, bool]:
    """Return the message, the hint, and whether to ask again."""
    own = endpoint.mask(error_words(body, ("message",))) or words
    where, table, why = endpoint.shown, f"[{endpoint.table}]", f"({status}: {own[:SHOWN]})" if own else f"({status})"
    is_request = status < 500
    if status in (401, 403) and not _NO_MODEL.search(words):
        return f"{where} refuses the key in {endpoint.key_name} {why}", endpoint.key_hint, False
    if is_request and _NO_MODEL.search(words):
        hint = f"set model under {table} in agentfs.toml to one that it has"
        return f"{where} has no model {model!r} {why}", hint, False
    if status in (404, 405) or is_page(body):
        return f"{where} is no address of a model: it answers {status}", endpoint.url_hint, is_retried(status)
    if status == 402 or _NO_CREDIT.search(words):
        return f"{where} wants to be paid first {why}", "add credit there, then resume", False
    if is_request and _FILTERED.search(words):
        return f"a content filter refused the request {why}", "say it in other words", False
    if is_request and _TOO_LONG.search(words):
        return f"the request is too long for {model} {why}", "use a model with more room", False
    if is_retried(status):
        return f"{where} is not able to answer {why}", "try again later: resume goes on", True
    return f"{where} does not take the request {why}", f"look at {table} in agentfs.toml", False


def error_words(body: Any, fields: tuple[str, ...] = ("message", "code", "param", "detail")) -> str:
    """Return what a server says of an error, in one line."""
    if too_deep(body):
        return ""
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            parts = (inner.get(name) for name in fields)
            return " ".join(" ".join(part.split()) for part in parts if isinstance(part, str) and part)
        body = inner
    return "" if is_page(body) else " ".join(str(body or "").split())


def is_page(body: Any) -> bool:
    """Whether a body is a web page."""
    text = body if isinstance(body, str) else ""
    return text.lstrip()[:15].lower().startswith(("<!doctype html", "<html", "<head", "<h1"))


def is_retried(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in (408, 409, 425, 429) or status >= 500


def seconds_after(header: str | None, now: datetime) -> float | None:
    """Return what a Retry-After asks for, given as seconds or as a date; None where it says nothing sensible."""
    try:
        seconds = float(header or "nan")
    except ValueError:
        with suppress(ValueError, TypeError, OverflowError):
            moment = parsedate_to_datetime(header or "")
            return max(((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds(), 0.0)
        return None
    return seconds if 0 <= seconds < float("inf") else None


# ── one response out of the chunks of a stream ────────────────────────────────────────────────────────────


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
