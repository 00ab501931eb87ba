"""Language models: the only place that talks to one. `base` says what a model is and what a session with it is.

What speaks to models is imported only when one is created: most commands need none.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentfs.core.config import ModelSettings
from agentfs.models.base import Model

if TYPE_CHECKING:
    from agentfs.models.endpoint import RequestPolicy


def create_model(
    settings: ModelSettings,
    name: str,
    temperature: float | None,
    environment: Mapping[str, str],
    policy: "RequestPolicy | None" = None,
) -> Model:
    """Return the model `name` as these settings reach it; the key is read from the environment and kept nowhere."""
    from agentfs.models.budget import price_of
    from agentfs.models.endpoint import Endpoint, RequestPolicy, table_of

    if settings.kind == "command":
        from agentfs.models.command import CommandModel

        price, table = price_of(settings, name, None), table_of(settings)
        command = settings.command or ()
        return CommandModel(name, command, environment, table=table, temperature=temperature, price=price)
    from agentfs.models.capabilities import CapabilityCache
    from agentfs.models.openai import OpenAIModel

    endpoint = Endpoint.of(settings, environment)
    return OpenAIModel(
        name,
        endpoint,
        CapabilityCache.of(environment, endpoint.shown, name),
        temperature=temperature,
        extra_body=settings.extra_body,
        price=price_of(settings, name, endpoint.url),
        policy=policy or RequestPolicy(),
    )
