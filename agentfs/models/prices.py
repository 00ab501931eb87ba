"""What tokens cost: as the settings say, else as genai-prices knows. What nobody knows is unknown, never nothing."""

import re
from collections.abc import Callable

from agentfs.core.config import ModelSettings, PriceSettings
from agentfs.models.address import Address
from agentfs.models.base import Tokens

Price = Callable[[Tokens], float | None]
MAKER = "openai"  # whose models the protocol is most often used for, also through a proxy
_OPEN = re.compile(r"\boss\b")  # its models that anybody may serve
_MILLION = 1_000_000


def unknown(_tokens: Tokens) -> None:
    """Nobody knows."""


def price_of(settings: ModelSettings, name: str, where: Address | None) -> Price:
    """Return what a model costs; where: None for a command.

    A model that only its maker serves costs what its maker asks, whatever stands in between; any other is priced by
    who serves it, and on a machine of one's own it has no known price.
    """
    if settings.price is not None:
        return _as_set(settings.price)
    if where is None:
        return unknown
    if _OPEN.search(name):
        return unknown if where.is_local else lambda tokens: _as_listed(tokens, name, provider_api_url=where.url)
    return lambda tokens: (
        _as_listed(tokens, name, provider_api_url=where.url) or _as_listed(tokens, name, provider_id=MAKER)
    )


def _as_set(price: PriceSettings) -> Price:
    cached = price.input if price.cached is None else price.cached

    def cost(tokens: Tokens) -> float:
        fresh = max(tokens.input - tokens.cached, 0)
        return (fresh * price.input + tokens.cached * cached + tokens.output * price.output) / _MILLION

    return cost


def _as_listed(tokens: Tokens, name: str, **provider: str) -> float | None:
    """Return the cost by the list that comes with genai-prices; it asks nobody."""
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=tokens.input, cache_read_tokens=tokens.cached, output_tokens=tokens.output)
    try:
        return float(calc_price(usage, model_ref=name, **provider).total_price)  # type: ignore[call-overload]
    except (LookupError, ValueError):
        return None
