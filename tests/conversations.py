"""Sessions and models for tests: a session that keeps what was logged, models on a scripted server."""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core.config import ExecutorSettings, LimitSettings, ModelSettings
from agentfs.core.records import JsonObject
from agentfs.core.run_state import Bounds
from agentfs.models import create_model
from agentfs.models.base import Form, Model, ModelSession, Offer, Request
from agentfs.models.budget import Budget
from agentfs.models.endpoint import RequestPolicy

QUICK = RequestPolicy(connect=5, first_byte=10, between=10, whole=20, first_wait=0.01, longest_wait=0.05)


def bounds(**changed: Any) -> Bounds:
    limits = LimitSettings().model_dump(exclude={"output_bytes", "day_usd"})
    return Bounds(**{**limits, "output_bytes": 65536, **changed})


@dataclass
class Talk:
    """A session, and everything that was logged and reported in it."""

    deadline: float = math.inf
    limits: Bounds = field(default_factory=bounds)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    progress: list[int] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.budget = Budget(self.limits)
        self.line = ModelSession(self._log, self.budget, self.stop, self.deadline, self.progress.append)

    def _log(self, event: str, fields: Mapping[str, Any]) -> None:
        self.events.append((event, dict(fields)))

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]

    @property
    def story(self) -> list[str]:
        return [name for name, _ in self.events]


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


def a_model(
    home: Path,
    url: str = "",
    *,
    name: str = "tiny",
    policy: RequestPolicy = QUICK,
    temperature: float | None = None,
    key: str = "sk-very-secret",
    **settings: Any,
) -> Model:
    """Return a model as the settings of an executor name it."""
    made: ModelSettings = ExecutorSettings(base_url=url, **settings)
    environment = {"HOME": str(home), "OPENAI_API_KEY": key, "PATH": "/usr/bin:/bin"}
    return create_model(made, name, temperature, environment, policy)


def ask(text: str = "What is it?", *, offers: tuple[Offer, ...] = (), form: Form | None = None) -> Request:
    return Request("executor", (message("system", "You are brief."), message("user", text)), offers, form)


def message(role: str, content: str) -> JsonObject:
    return {"role": role, "content": content}


def tool_result(call: str, content: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": call, "content": content}


def offer(name: str, *fields: str) -> Offer:
    properties: dict[str, Any] = {field: {"type": "string"} for field in fields}
    return Offer(name, f"Does {name}.", closed(properties))


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


CITY = Form("city", closed({"name": {"type": "string"}, "people": {"type": "integer"}}))
