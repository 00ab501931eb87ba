"""What a run may still ask of models, what it took, and what that cost: unknown where no price is known, never 0."""

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from agentfs.core.config import ModelSettings, PriceSettings
from agentfs.core.records import JsonObject, Usage
from agentfs.core.run_state import Bounds, Spent, no_room, total

Role = Literal["planner", "executor", "judge"]  # who asks a model

CHARACTERS_PER_TOKEN = 4  # an estimate for what is about to be sent; what was sent is counted as the endpoint reports
MAKER = "openai"  # whose models the protocol is most often used for, also through a proxy
_OPEN_WEIGHTS = re.compile(r"\boss\b")  # its models that anyone may serve
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one reply took, as far as the endpoint reports it."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


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


def add_usage(sum_so_far: Usage | None, more: Usage) -> Usage:
    """Return the sum; a cost that is unknown anywhere is unknown in the sum. The first one names role and model."""
    if sum_so_far is None:
        return more
    known = sum_so_far.cost_usd is not None and more.cost_usd is not None
    counts = ("requests", "input_tokens", "cached_tokens", "output_tokens")
    sums = {name: getattr(sum_so_far, name) + getattr(more, name) for name in counts}
    cost = (sum_so_far.cost_usd or 0.0) + (more.cost_usd or 0.0) if known else None
    return sum_so_far.model_copy(update={**sums, "cost_usd": cost})


class BudgetExceeded(Exception):
    """A limit of the run leaves no room for another request."""


@dataclass(slots=True)
class Budget:
    """Holds all model sessions of one run to its limits, together. Any thread may use it."""

    bounds: Bounds  # replaced whenever the plan's limits change
    spent: Spent = field(default_factory=Spent)
    reserved: Spent = field(default_factory=Spent)  # for requests under way
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, messages: Sequence[JsonObject]) -> Spent:
        """Keep room for one request and return it; raises BudgetExceeded where there is none."""
        characters = sum(len(str(message.get("content") or "")) for message in messages)
        room = Spent(requests=1, tokens=characters // CHARACTERS_PER_TOKEN)
        with self._lock:
            under_way = total(self.spent, self.reserved)
            if limit := no_room(self.bounds, replace(under_way, tokens=under_way.tokens + room.tokens)):
                raise BudgetExceeded(str(limit))
            self.reserved = total(self.reserved, room)
        return room

    def spend(self, usage: Usage, room: Spent) -> None:
        """Count what a request really took, and give back the room kept for it."""
        with self._lock:
            self.spent = self.spent.plus_usage(usage)
            self.reserved = Spent(
                requests=self.reserved.requests - room.requests, tokens=self.reserved.tokens - room.tokens
            )


# ── prices ────────────────────────────────────────────────────────────────────────────────────────────────

Price = Callable[[Tokens], float | None]


def unknown_price(_tokens: Tokens) -> None:
    """Return that the cost is unknown."""


def price_of(settings: ModelSettings, name: str, url: str | None) -> Price:
    """Return what a model costs at an endpoint; url: None for a command.

    A model that only its maker serves costs what its maker asks, whatever proxy is in between; any other is priced by
    who serves it, and on a private machine it has no known price.
    """
    if settings.price is not None:
        return _read_price(settings.price)
    if url is None or (_OPEN_WEIGHTS.search(name) and _is_private(url)):
        return unknown_price
    if _OPEN_WEIGHTS.search(name):
        return lambda tokens: _list_price(tokens, name, provider_api_url=url)
    return lambda tokens: (
        _list_price(tokens, name, provider_api_url=url) or _list_price(tokens, name, provider_id=MAKER)
    )


def _read_price(price: PriceSettings) -> Price:
    cached = price.input if price.cached is None else price.cached

    def cost(tokens: Tokens) -> float:
        fresh = max(tokens.input - tokens.cached, 0)
        return (fresh * price.input + tokens.cached * cached + tokens.output * price.output) / _MILLION

    return cost


def _list_price(tokens: Tokens, name: str, **provider: str) -> float | None:
    """Return the cost by the list that comes with genai-prices; nothing is downloaded."""
    from genai_prices import Usage as Counts
    from genai_prices import calc_price

    counts = Counts(input_tokens=tokens.input, cache_read_tokens=tokens.cached, output_tokens=tokens.output)
    try:
        return float(calc_price(counts, model_ref=name, **provider).total_price)  # type: ignore[call-overload]
    except (LookupError, ValueError):
        return None


def _is_private(url: str) -> bool:
    host = ""
    try:
        host = urlsplit(url).hostname or ""
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".localhost"))
