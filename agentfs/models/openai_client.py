"""A model behind an OpenAI-compatible endpoint: chat completions, streamed, through the openai package.

    complete ──► a try ──► a try … ──► Reply
                   └─ each is a request: logged before, logged after, counted against the limits

Retries and timeouts are here and nowhere else: the package's own are off. A try runs on an event loop of its own, so
that it can be let go of at any moment: cancelling it closes the connection.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentfs.core.records import Usage
from agentfs.models.address import Address
from agentfs.models.assembly import Said
from agentfs.models.base import Reply, Request, usage_of
from agentfs.models.bounding import UNCOMPRESSED, bound_response
from agentfs.models.errors import ModelError
from agentfs.models.habits import Endpoint
from agentfs.models.ladder import Habits, asked, lesson, lower, rung_of, taught_by
from agentfs.models.letting_go import stopped, until_stopped
from agentfs.models.line import Line
from agentfs.models.prices import Price, unknown
from agentfs.models.reading import FormIgnored, message_of, reply_of, taken_as
from agentfs.models.retrying import Mishap, Patience
from agentfs.models.streaming import Heard, Wire

if TYPE_CHECKING:
    import openai

KEPT_OF_A_FRAGMENT = 20_000  # characters of a reply that broke off, in the log


class _Again(Exception):
    """This try brought nothing; there will be another."""

    def __init__(self, wait: float) -> None:
        super().__init__(wait)
        self.wait = wait


class _AskOtherwise(Exception):
    """The endpoint does not take what it was asked; there is another way to ask."""

    def __init__(self, habits: Habits) -> None:
        super().__init__(habits)
        self.habits = habits


@dataclass(frozen=True, slots=True)
class _Try:
    """One request under way."""

    request: Request
    habits: Habits
    line: Line
    mishaps: int  # of the tries before it
    heard: Heard = field(default_factory=Heard)
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)


class OpenAIModel:
    """Any model behind any endpoint that speaks the protocol."""

    def __init__(
        self,
        name: str,
        where: Address,
        endpoint: Endpoint,
        *,
        temperature: float | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Price = unknown,
        patience: Patience = Patience(),  # noqa: B008 - it is frozen
    ) -> None:
        self._name, self._where, self._endpoint = name, where, endpoint
        self._temperature, self._extra = temperature, dict(extra_body or {})
        self._price, self._patience = price, patience

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: Request, line: Line) -> Reply:
        """Return one whole reply, however many tries it takes."""
        return until_stopped(self._complete(request, line), line)

    async def _complete(self, request: Request, line: Line) -> Reply:
        mishaps = 0
        async with self._client() as client:
            wire = Wire(client, self._where, self._patience)
            while True:
                try:
                    return await self._try(wire, _Try(request, self._endpoint.habits, line, mishaps))
                except _AskOtherwise as otherwise:
                    self._endpoint.remember(otherwise.habits)
                except _Again as again:
                    mishaps += 1
                    await asyncio.sleep(again.wait)

    async def _try(self, wire: Wire, one: _Try) -> Reply:
        """Make one request, noted on the line from its beginning to its end."""
        put = asked(one.request, one.habits, self._temperature)
        beside = {**put.options, **self._extra}
        one.line.request(one.request.role, self.name, put.messages, {"body": beside})
        try:
            said = await wire.say({"model": self.name, "messages": list(put.messages), **beside}, one.heard, one.line)
        except Mishap as mishap:
            raise self._after(mishap, one) from None
        except asyncio.CancelledError:
            self._note_failure(one, stopped(one.line), None, free=False)
            raise
        return self._read(said, one)

    def _after(self, mishap: Mishap, one: _Try) -> Exception:
        """Note a try that brought no reply; return what follows: another way to ask, another try, or the end."""
        learnt = lesson(one.request, one.habits, mishap.status, mishap.words, self._temperature)
        wait = 0.0 if learnt else self._patience.wait(mishap, one.mishaps + 1)
        self._note_failure(one, mishap.error, wait, free=not mishap.begun)
        if learnt:
            return _AskOtherwise(learnt)
        return mishap.error if wait is None else _Again(wait)

    def _note_failure(self, one: _Try, error: ModelError, wait: float | None, *, free: bool) -> None:
        said = one.heard.said
        usage = usage_of(one.request.role, self.name, cost_usd=0.0) if free else self._usage(one, said)
        told = {"error": error.failure.model_dump(exclude_none=True), "seconds": one.seconds, "again_in": wait}
        one.line.failed(usage, told | ({"fragment": said.text[:KEPT_OF_A_FRAGMENT]} if said.text else {}))

    def _read(self, said: Said, one: _Try) -> Reply:
        """Note what was said, and return what it means."""
        raw, usage, told = message_of(said), self._usage(one, said), _told(said, one)
        if learnt := taught_by(one.request, one.habits, said):
            self._endpoint.remember(learnt.habits, sure=learnt.sure)
        try:
            reply = reply_of(
                one.request, one.habits, said, one.heard.request_id or None, learnt.habits if learnt else None
            )
        except FormIgnored:
            one.line.reply(raw, usage, {**told, "form": "ignored"})
            raise _AskOtherwise(lower(replace(one.habits, rung=rung_of(one.request, one.habits)))) from None
        except ModelError as error:
            one.line.reply(raw, usage, {**told, "error": error.failure.model_dump(exclude_none=True)})
            raise
        one.line.reply(raw, usage, {**told, **taken_as(raw, reply)})
        return reply

    def _usage(self, one: _Try, said: Said) -> Usage:
        cost = self._price(said.tokens) if said.tokens else None
        return usage_of(one.request.role, self.name, said.tokens, cost)

    def _client(self) -> "openai.AsyncOpenAI":
        import openai

        timeout = openai.Timeout(None, connect=self._patience.connect)
        hooks = {"response": [bound_response]}
        http = openai.DefaultAsyncHttpxClient(verify=self._tls, timeout=timeout, event_hooks=hooks)
        return openai.AsyncOpenAI(
            api_key=self._where.key,
            base_url=self._where.url,
            max_retries=0,
            timeout=timeout,
            default_headers=UNCOMPRESSED,
            http_client=http,
        )

    @cached_property
    def _tls(self) -> Any:
        """Loading certificates takes a tenth of a second: once is enough."""
        import httpx2

        return httpx2.create_ssl_context()


def _told(said: Said, one: _Try) -> dict[str, Any]:
    """Return what a log says of a reply beside its message and its usage."""
    more = {"reasoning_tokens": said.tokens.reasoning} if said.tokens else {}
    return {
        "finish": said.finish,
        "seconds": one.seconds,
        "request_id": one.heard.request_id or None,
        "served_by": said.model,
        **more,
        **({"reasoning": said.reasoning} if said.reasoning else {}),
    }
