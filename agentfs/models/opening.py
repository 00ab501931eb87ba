"""Make the model that settings name. What speaks to models is imported only then: most commands ask none."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentfs.core.config import ModelSettings
from agentfs.models.base import Model

if TYPE_CHECKING:
    from agentfs.models.retrying import Patience


def model_for(
    settings: ModelSettings,
    name: str,
    temperature: float | None,
    environment: Mapping[str, str],
    patience: "Patience | None" = None,
) -> Model:
    """Return the model `name` as these settings reach it; the key is read from the environment and kept nowhere."""
    if settings.kind == "command":
        return _program(settings, name, temperature, environment)
    return _endpoint(settings, name, temperature, environment, patience)


def _program(settings: ModelSettings, name: str, temperature: float | None, environment: Mapping[str, str]) -> Model:
    from agentfs.models.address import table_of
    from agentfs.models.command import CommandModel
    from agentfs.models.prices import price_of

    return CommandModel(
        name,
        settings.command or (),
        environment,
        table=table_of(settings),
        temperature=temperature,
        price=price_of(settings, name, None),
    )


def _endpoint(
    settings: ModelSettings,
    name: str,
    temperature: float | None,
    environment: Mapping[str, str],
    patience: "Patience | None",
) -> Model:
    from agentfs.models.address import address_of
    from agentfs.models.habits import Endpoint, cache_file
    from agentfs.models.openai_client import OpenAIModel
    from agentfs.models.prices import price_of
    from agentfs.models.retrying import Patience

    where = address_of(settings, environment)
    endpoint = Endpoint(cache_file(environment), where.shown, name)
    endpoint.recall()
    return OpenAIModel(
        name,
        where,
        endpoint,
        temperature=temperature,
        extra_body=settings.extra_body,
        price=price_of(settings, name, where),
        patience=patience or Patience(),
    )
