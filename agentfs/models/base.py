"""What a language model is to agentfs: messages in, one whole message out, or an exception that says why not.

    Request ──► Model.complete(request, line) ──► Reply
                        │
                        └── line: the log, the limits, the deadline and the stop sign of one call or one attempt

A model knows nothing of plans, steps or tools that run. It never runs a tool: it returns the calls it was asked for.
"""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from agentfs.core.records import JsonObject, Usage
from agentfs.models.line import Line

Role = Literal["planner", "executor", "judge"]


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

    role: Role  # who asks
    messages: tuple[JsonObject, ...]
    offers: tuple[Offer, ...] = ()
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants to be called; the arguments are its own words, JSON or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one reply took, as far as the endpoint tells."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole message of a model."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"  # why it ended; "length": it was cut short
    tokens: Tokens = field(default_factory=Tokens)
    model: str | None = None  # as the endpoint names it
    request_id: str | None = None
    spoken: bool = False  # its endpoint makes no native calls: they are read from its words
    restart: bool = False  # that was found out by this reply: it runs nothing, and the conversation begins again

    def message(self) -> JsonObject:
        """Return it as it goes into the conversation."""
        said: JsonObject = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            said["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return said


def usage_of(role: Role, model: str, tokens: Tokens | None = None, cost_usd: float | None = None) -> Usage:
    """Return what one request took, as records write it."""
    tokens = tokens or Tokens()
    return Usage(
        role=role,
        model=model,
        requests=1,
        input_tokens=tokens.input,
        cached_tokens=tokens.cached,
        output_tokens=tokens.output,
        cost_usd=cost_usd,
    )


class Model(Protocol):
    """Anything that answers."""

    @property
    def name(self) -> str:
        """What it is called in records and prices."""
        ...

    def complete(self, request: Request, line: Line) -> Reply:
        """Return one whole reply, its cost told to the line; raise ModelError when there is none."""
        ...
