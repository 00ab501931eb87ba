"""Where a model is asked, and with which key: what settings and environment say together. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit, urlunsplit

from agentfs.core.config import ModelSettings, PlannerSettings

DEFAULT_URL = "https://api.openai.com/v1"
NO_KEY = "none"  # servers of one's own want none, the package wants some


@dataclass(frozen=True, slots=True)
class Address:
    """An endpoint, and how to speak of it. The key is shown nowhere."""

    url: str
    key: str = field(repr=False)
    table: str  # of agentfs.toml
    key_name: str  # the variable that holds the key

    @property
    def shown(self) -> str:
        """The address without a user's name and password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def is_local(self) -> bool:
        """Whether it is a machine of one's own."""
        host = urlsplit(self.url).hostname or ""
        try:
            return not ip_address(host).is_global
        except ValueError:
            return "." not in host or host.endswith((".local", ".lan", ".internal", ".localhost"))

    def hidden(self, text: str) -> str:
        """Return a server's words without the key it may quote."""
        return text.replace(self.key, f"[secret {self.key_name}]") if len(self.key) > len(NO_KEY) else text


def address_of(settings: ModelSettings, environment: Mapping[str, str]) -> Address:
    """Return where the model of these settings is asked."""
    url = settings.base_url or environment.get("OPENAI_BASE_URL") or DEFAULT_URL
    key = environment.get(settings.api_key_env) or NO_KEY
    return Address(url.rstrip("/"), key, table_of(settings), settings.api_key_env)


def table_of(settings: ModelSettings) -> str:
    """Return the table of agentfs.toml that settings stand in."""
    return "planner" if isinstance(settings, PlannerSettings) else "executor"
