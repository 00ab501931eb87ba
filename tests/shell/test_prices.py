"""What tokens cost, and that what nobody knows is not nothing."""

import pytest

from agentfs.core.config import ExecutorSettings, PriceSettings
from agentfs.models.budget import Tokens, price_of
from agentfs.models.endpoint import Endpoint

TOKENS = Tokens(input=1_000_000, cached=400_000, output=100_000)


def cost(name: str, url: str = "", price: PriceSettings | None = None) -> float | None:
    settings = ExecutorSettings(base_url=url, price=price)
    return price_of(settings, name, Endpoint.of(settings, {}).url)(TOKENS)


def test_the_list_price() -> None:
    assert cost("gpt-5") == pytest.approx(0.6 * 1.25 + 0.4 * 0.125 + 0.1 * 10)


def test_a_price_of_ones_own() -> None:
    assert cost("gpt-5", price=PriceSettings(input=2, cached=1, output=3)) == pytest.approx(1.2 + 0.4 + 0.3)
    assert cost("mine", "http://127.0.0.1:1/v1", PriceSettings(input=2, output=3)) == pytest.approx(2.0 + 0.3)


ELSEWHERE = (
    "https://models.example.com/v1",
    "http://127.0.0.1:8080/v1",
    "http://localhost:11434/v1",
    "http://[::1]:8000/v1",
    "http://192.168.1.7/v1",
    "http://gpu.lan/v1",
)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_what_only_its_maker_serves_costs_what_the_maker_asks(url: str) -> None:
    assert cost("gpt-5", url) == cost("gpt-5")


@pytest.mark.parametrize(
    ("name", "url"),
    [("no-such-model", ""), *((name, url) for name in ("llama3", "gpt-oss-20b") for url in ELSEWHERE)],
)
def test_what_nobody_knows_is_unknown(name: str, url: str) -> None:
    assert cost(name, url) is None


def test_a_program_has_no_known_price() -> None:
    assert price_of(ExecutorSettings(kind="command"), "gpt-5", None)(TOKENS) is None
