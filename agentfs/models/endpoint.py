"""An endpoint: where a model is asked, what its errors mean, what to change, and when to ask again. Pure."""

import random
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agentfs.core.config import ModelSettings, PlannerSettings
from agentfs.core.documents import too_deep
from agentfs.core.records import Failure
from agentfs.models.base import Garbled, ModelError, Refused, Unreachable
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


# ── what went wrong, what to change, and whether to ask again ─────────────────────────────────────────────

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
