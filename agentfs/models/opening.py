"""Make the model that settings name."""

from collections.abc import Mapping

from agentfs.core.config import ModelSettings
from agentfs.models.address import address_of, table_of
from agentfs.models.base import Model
from agentfs.models.command import CommandModel
from agentfs.models.habits import Endpoint, cache_file
from agentfs.models.openai_client import OpenAIModel
from agentfs.models.prices import price_of
from agentfs.models.retrying import Patience


def model_for(
    settings: ModelSettings,
    name: str,
    temperature: float | None,
    environment: Mapping[str, str],
    patience: Patience = Patience(),  # noqa: B008 - it is frozen
) -> Model:
    """Return the model `name` as these settings reach it; the key is read from the environment and kept nowhere."""
    if settings.kind == "command":
        return CommandModel(
            name,
            settings.command or (),
            environment,
            table=table_of(settings),
            temperature=temperature,
            price=price_of(settings, name, None),
        )
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
        patience=patience,
    )
