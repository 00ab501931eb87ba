"""What tokens cost: as the settings say, else as genai-prices knows. What nobody knows is unknown, never nothing."""

from collections.abc import Callable

from agentfs.core.config import ModelSettings, PriceSettings
from agentfs.models.address import Address
from agentfs.models.base import Tokens

Price = Callable[[Tokens], float | None]
_MILLION = 1_000_000


def unknown(_tokens: Tokens) -> None:
    """Nobody knows."""


def price_of(settings: ModelSettings, name: str, where: Address | None) -> Price:
    """Return what a model costs; where: None for a command. A machine of one's own has no known price."""
    if settings.price is not None:
        return _as_set(settings.price)
    if where is None or where.is_local:
        return unknown
    return lambda tokens: _as_listed(tokens, name, where.url)


def _as_set(price: PriceSettings) -> Price:
    cached = price.input if price.cached is None else price.cached

    def cost(tokens: Tokens) -> float:
        fresh = max(tokens.input - tokens.cached, 0)
        return (fresh * price.input + tokens.cached * cached + tokens.output * price.output) / _MILLION

    return cost


def _as_listed(tokens: Tokens, name: str, url: str) -> float | None:
    """Return the cost by the list that comes with genai-prices; it asks nobody."""
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=tokens.input, cache_read_tokens=tokens.cached, output_tokens=tokens.output)
    try:
        return float(calc_price(usage, model_ref=name, provider_api_url=url).total_price)
    except (LookupError, ValueError):
        return None
