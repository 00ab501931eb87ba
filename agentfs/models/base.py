"""What a language model is to agentfs: messages in, one whole message out, or an exception that says why not.

    Request ──► Model.complete(request, session) ──► Reply
                        │
                        └── session: the log, the limits, the deadline and the stop signal of one call or one attempt

A model knows nothing of plans, steps or tools that run. It never runs a tool: it returns the calls it wants made.

The log of a session is exact, and does not repeat itself: a `request` says how many messages of the request before it
are kept, and lists those that follow. `body` is what else was sent: left out where it stayed the same.

    {"event": "request", "number": 2, "role": "executor", "model": "…", "keep": 3, "messages": […], …}
    {"event": "reply",   "number": 2, "message": {…}, "finish": "stop", "usage": {…}, "seconds": 1.2, …}
    {"event": "failed",  "number": 2, "error": {…}, "usage": {…}, "again_in": 2.0}

A request is written before it is sent, so that one whose end was never recorded is still counted.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentfs.core.records import Failure, JsonObject, Usage
from agentfs.core.run_state import Spent
from agentfs.models.budget import Budget, BudgetExceeded, Role, Tokens, add_usage, usage_of
from agentfs.storage.files import read_lines

# ── why there is no reply ─────────────────────────────────────────────────────────────────────────────────


class ModelError(Exception):
    """There is no reply. What to write down is in `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Unreachable(ModelError):
    """No model was reached: wrong key, unknown model, wrong address, no network. A person must fix that."""


class Refused(ModelError):
    """The model, or a filter in front of it, declined to answer."""


class Garbled(ModelError):
    """What came back is no whole reply: cut short, malformed, too large."""


class LimitReached(ModelError):
    """A limit of the run leaves no room for another request."""


class Stopped(ModelError):
    """The run is being stopped, or the time is up."""


# ── requests and replies ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Form:
    """JSON of one form is wanted, and nothing else."""

    name: str  # letters, digits and _
    schema: JsonObject  # closed at every level, every property required: what strict endpoints accept


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as it is offered to a model."""

    name: str
    description: str
    parameters: JsonObject  # a closed JSON Schema object


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model: the whole conversation so far, in chat form."""

    role: Role
    messages: tuple[JsonObject, ...]
    offers: tuple[Offer, ...] = ()
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants to be called; the arguments are its own text, JSON or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole message of a model."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"  # why it ended; "length": it was cut short
    tokens: Tokens = field(default_factory=Tokens)
    spoken: bool = False  # its endpoint makes no native calls: they are read from its text
    restart: bool = False  # that was found out by this reply: it runs nothing, and the conversation begins again

    def message(self) -> JsonObject:
        """Return it as it goes into the conversation."""
        message: JsonObject = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return message


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────

Log = Callable[[str, Mapping[str, Any]], None]
NO_ROOM = Spent()


class StopSignal(Protocol):
    """Anything with `is_set()`: a threading.Event will do."""

    def is_set(self) -> bool: ...


def ignore_progress(_characters: int) -> None:
    """Show nothing."""


@dataclass(slots=True)
class ModelSession:
    """The log, the limits, the deadline and the stop signal of one call, or of one attempt."""

    log: Log
    budget: Budget
    stop: StopSignal
    deadline: float  # time.monotonic()
    on_progress: Callable[[int], None] = ignore_progress  # how many characters of a reply have arrived
    name: str = ""  # which is its log's: planning/2, steps/total.1
    deadline_error: ModelError | None = None  # raised at the deadline; None: that the time was up
    number: int = 0  # of the latest request
    usage: Usage | None = None  # everything so far
    _reserved: Spent = field(default_factory=Spent)  # for the request under way
    _messages: dict[str, tuple[JsonObject, ...]] = field(default_factory=dict)  # by role: those sent last
    _body: dict[str, Any] = field(default_factory=dict)  # by role: what was sent last beside the messages

    def log_request(
        self, role: str, model: str, messages: tuple[JsonObject, ...], body: Mapping[str, Any] | None = None
    ) -> None:
        """Record a request that is about to be sent; raises LimitReached if the run has no room for it."""
        try:
            self._reserved = self.budget.reserve(messages)
        except BudgetExceeded as limit:
            hint = "raise it in plan.json, or where there is none yet in agentfs.toml for a new run"
            raise LimitReached(Failure(kind="limit", message=str(limit), hint=hint)) from None
        self.number += 1
        keep = _count_shared(self._messages.get(role, ()), messages)
        is_new = body is not None and body != self._body.get(role)
        self._messages[role], self._body[role] = messages, body
        entry = {"number": self.number, "role": role, "model": model, "keep": keep, "messages": [*messages[keep:]]}
        self.log("request", {**entry, "body": body} if is_new else entry)

    def log_reply(self, message: JsonObject, usage: Usage, details: Mapping[str, Any]) -> None:
        """Record a reply, whole or not, and what it took."""
        self.count(usage, self._reserved)
        self.log("reply", {"number": self.number, "message": message, "usage": _dump(usage), **details})

    def log_failure(self, usage: Usage, details: Mapping[str, Any]) -> None:
        """Record a request that brought no reply; it was made, so it counts."""
        self.count(usage, self._reserved)
        self.log("failed", {"number": self.number, "usage": _dump(usage), **details})

    def count(self, usage: Usage, reserved: Spent = NO_ROOM) -> None:
        """Add what was spent, by another program on this session's behalf too; `reserved`: what was kept for it."""
        self.budget.spend(usage, reserved)
        self.usage = add_usage(self.usage, usage)

    def is_over(self) -> bool:
        """Whether the run is being stopped, or the time is up."""
        return self.stop.is_set() or time.monotonic() >= self.deadline

    def stop_error(self) -> ModelError:
        """Return why it is over."""
        if self.stop.is_set():
            return Stopped(Failure(kind="interrupted", message="it was stopped"))
        late = Failure(kind="timeout", message="its time was up while a model was asked")
        return self.deadline_error or Stopped(late)


def _dump(usage: Usage) -> JsonObject:
    """Return what the entry of a reply says of its usage; the entry of the request says the rest."""
    return usage.model_dump(exclude={"role", "requests"})


def _count_shared(before: tuple[JsonObject, ...], now: tuple[JsonObject, ...]) -> int:
    """Return how many messages two requests have in common at their start."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((place for place, (old, new) in pairs if old is not new and old != new), min(len(before), len(now)))


def usage_in(path: Path) -> Usage | None:
    """Return what the session of a log took; a request whose end was never recorded counts, its cost unknown."""
    usage, open_request = None, None
    for entry in read_lines(path):
        match entry.get("event"):
            case "request":
                usage = add_usage(usage, open_request) if open_request else usage
                open_request = usage_of(entry["role"], entry["model"])
            case "reply" | "failed" if open_request:
                recorded = {**open_request.model_dump(), **entry["usage"]}
                usage, open_request = add_usage(usage, Usage.model_validate(recorded)), None
            case _:
                pass
    return add_usage(usage, open_request) if open_request else usage


class Model(Protocol):
    """Anything that answers."""

    @property
    def name(self) -> str:
        """What it is called in records and prices."""
        ...

    def complete(self, request: Request, session: ModelSession) -> Reply:
        """Return one whole reply, its cost recorded in the session; raise ModelError when there is none."""
        ...
