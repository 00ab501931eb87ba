"""A model that answers from a list."""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from agentfs.core.records import Failure
from agentfs.models.base import Garbled, ModelError, ModelSession, Reply, Request
from agentfs.models.budget import usage_of

Answer = Reply | str | Mapping[str, Any] | BaseException
Item = Answer | Callable[[Request], Answer]


class Scripted:
    """Answers each request with the next item: a reply, text, a value to write as JSON, an exception to raise,
    or a function of the request that returns one of these. `cost_usd` is what each reply costs.
    """

    def __init__(self, *items: Item, name: str = "scripted", cost_usd: float | None = None) -> None:
        self.requests: list[Request] = []
        self._items = list(items)
        self._name, self._cost = name, cost_usd
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: Request, session: ModelSession) -> Reply:
        """Return the next answer of the script."""
        session.log_request(request.role, self.name, request.messages)
        item = self._next(request)
        answer = item(request) if callable(item) else item
        if isinstance(answer, BaseException):
            session.log_failure(
                usage_of(request.role, self.name, cost_usd=0.0), {"error": _failure(answer).model_dump()}
            )
            raise answer
        reply = _reply(answer)
        usage = usage_of(request.role, self.name, reply.tokens, self._cost)
        session.log_reply(reply.message(), usage, {"finish": reply.finish, "seconds": 0.0})
        return reply

    def _next(self, request: Request) -> Item:
        with self._lock:
            self.requests.append(request)
            if self._items:
                return self._items.pop(0)
        return Garbled(Failure(kind="model", message=f"nothing is scripted for request {len(self.requests)}"))

    def done(self) -> None:
        """Raise AssertionError if something of the script was never asked for."""
        if self._items:
            raise AssertionError(f"{len(self._items)} of the script were never asked for: {self._items!r}")


def _failure(error: BaseException) -> Failure:
    return error.failure if isinstance(error, ModelError) else Failure(kind="model", message=str(error))


def _reply(answer: Reply | str | Mapping[str, Any]) -> Reply:
    match answer:
        case Reply():
            return answer
        case str():
            return Reply(text=answer)
        case _:
            return Reply(text=json.dumps(answer, ensure_ascii=False))
