"""A model behind an OpenAI-compatible endpoint: chat completions, streamed by the openai package.

    complete ──► try ──► wait ──► try … ──► Reply
                  └─ each is a request: logged before, logged after, counted against the limits

The package sends, streams and maps errors. Retries are here and nowhere else: its own are off. What an endpoint may
send is bounded where every byte comes through: in the HTTP client. The tries of a request run on an event loop of
their own, so that they can be stopped at any moment: cancelling a task closes its connection.
"""

import asyncio
import codecs
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from agentfs.core.records import Usage
from agentfs.models.base import ModelError, ModelSession, Reply, Request
from agentfs.models.budget import Price, unknown_price, usage_of
from agentfs.models.capabilities import (
    Capabilities,
    CapabilityCache,
    FormIgnored,
    build_payload,
    fall_back,
    learn_from_error,
    learn_from_response,
    log_reading,
    read_reply,
)
from agentfs.models.endpoint import (
    INVALID_KEY,
    LONGEST_NAME,
    UNCOMPRESSED,
    Endpoint,
    Fault,
    Malformed,
    RequestPolicy,
    Response,
    ResponseBuilder,
    TooLarge,
    broken,
    explain_status,
    garbled_fault,
    no_connection,
    silent,
    unreachable,
)
from agentfs.storage.timing import TIMING

if TYPE_CHECKING:
    import httpx2
    import openai

MOST_BYTES = 256 * 1024 * 1024  # of a reply: four million characters, a token at a time
MOST_EVENT_BYTES = 8 * 1024 * 1024  # of one event, or of a reply that is not streamed
BYTES_PER_LINE = 64  # that a line of an event takes beside its own
MOST_ERROR_BYTES = 64 * 1024  # of a response that is no reply; the rest is left out
KEPT_OF_A_FRAGMENT = 20_000  # characters of a reply that broke off, in the log

T = TypeVar("T")


@cache
def tls_context() -> Any:
    """Return the certificates of this machine. Loading them takes a tenth of a second: once is enough."""
    import httpx2

    return httpx2.create_ssl_context()


@dataclass(slots=True)
class _Try:
    """One request under way."""

    request: Request
    capabilities: Capabilities
    session: ModelSession
    builder: ResponseBuilder = field(default_factory=ResponseBuilder)
    request_id: str | None = None  # None: nothing was answered yet
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)


class OpenAIModel:
    """Any model behind any endpoint that speaks the protocol."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        cache: CapabilityCache,
        *,
        temperature: float | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Price = unknown_price,
        policy: RequestPolicy = RequestPolicy(),  # noqa: B008 - it is frozen
    ) -> None:
        self._name, self._endpoint, self._cache = name, endpoint, cache
        self._temperature, self._extra = temperature, dict(extra_body or {})
        self._price, self._policy = price, policy
        self._capabilities = cache.load()

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: Request, session: ModelSession) -> Reply:
        """Return one whole reply, however many tries it takes."""
        return run_until_over(self._complete(request, session), session)

    async def _complete(self, request: Request, session: ModelSession) -> Reply:
        faults = 0
        async with self._client() as client:
            while True:
                one = _Try(request, self._capabilities, session)
                try:
                    return self._read(await self._send(client, one), one)
                except FormIgnored:
                    self._learn(fall_back(request, one.capabilities))
                except Fault as fault:
                    learnt = learn_from_error(request, one.capabilities, fault.status, fault.words, self._temperature)
                    faults += not learnt
                    wait = 0.0 if learnt else self._policy.wait_after(fault, faults)
                    self._log_failure(one, fault.error, wait, free=not fault.begun)
                    if wait is None:
                        raise fault.error from None
                    if learnt:
                        self._learn(learnt)
                    await asyncio.sleep(wait)

    async def _send(self, client: "openai.AsyncOpenAI", one: _Try) -> Response:
        """Make one request, logged before it is sent; return the whole response, or raise Fault."""
        payload = build_payload(one.request, one.capabilities, self._temperature)
        body = {**payload.options, **self._extra}
        one.session.log_request(one.request.role, self.name, payload.messages, body)
        try:
            async with asyncio.timeout(self._policy.whole):
                await self._receive(client, {"model": self.name, "messages": list(payload.messages), **body}, one)
        except TimeoutError:
            raise silent(f"no end after {self._policy.whole:g} s", begun=True) from None
        except TooLarge:
            raise garbled_fault("the reply is too large", again=False) from None
        except Malformed as malformed:
            raise broken(f"the reply is malformed: {malformed}") from None
        except asyncio.CancelledError:
            self._log_failure(one, one.session.stop_error(), None, free=False)
            raise
        return _require_end(one.builder.response())

    async def _receive(self, client: "openai.AsyncOpenAI", body: dict[str, Any], one: _Try) -> None:
        """Let the package stream a response into the builder of a try; its errors become faults.

        Chunks are taken as the JSON they are: as objects of the package they would hide what is malformed.
        """
        import httpx2
        import openai

        class Events(openai.AsyncStream[object]):
            async def _iter_events(self) -> AsyncIterator[Any]:
                async for event in super()._iter_events():
                    if event.data:  # some servers send pings, or how soon to reconnect
                        yield event

        if not self._endpoint.has_valid_key:
            message = f"{self._endpoint.key_name} {INVALID_KEY}"
            raise unreachable(message, self._endpoint.key_hint, again=False)
        try:
            stream = await client.post(
                "/chat/completions", body={**body, "stream": True}, cast_to=object, stream=True, stream_cls=Events
            )
            async with stream:
                one.request_id = (stream.response.headers.get("x-request-id") or "")[:LONGEST_NAME]
                async for chunk in self._chunks(stream):
                    one.builder.add(chunk)
                    one.session.on_progress(one.builder.characters)
        except openai.APIStatusError as error:
            words = error.body if error.body is not None else error.response.text
            raise self._refusal(error.status_code, words, error.response.headers) from None
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            raise self._disconnection(error, one) from None
        except openai.APIError as error:  # in the middle of the stream
            raise self._find_refusal(error.body) from None

    async def _chunks(self, stream: "openai.AsyncStream[object]") -> AsyncIterator[dict[str, Any]]:
        """Yield the chunks of a stream, or the whole completion of an endpoint that does not stream."""
        kind = stream.response.headers.get("content-type", "")
        if "html" in kind:
            message = f"{self._endpoint.shown} is no address of a model: it answers with a web page"
            raise unreachable(message, self._endpoint.url_hint, again=False)
        try:
            if "json" not in kind:
                async for chunk in stream:
                    yield _require_object(chunk)
                return
            whole = _require_object(json.loads(await stream.response.aread()))
        except (ValueError, RecursionError):
            raise broken("the reply is no JSON") from None
        if error := whole.get("error"):
            raise self._find_refusal(error)
        yield whole

    def _refusal(self, status: int, body: Any, headers: Any) -> Fault:
        return explain_status(status, body, headers, self.name, self._endpoint, datetime.now(UTC))

    def _find_refusal(self, error: Any) -> Fault:
        """Return what an error means that was sent with a status of success."""
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        return self._refusal(status, {"error": error}, {})

    def _disconnection(self, error: Exception, one: _Try) -> Fault:
        import httpx2

        if one.request_id is not None:
            return broken("the connection broke in the middle of the reply")
        if isinstance(error.__cause__, httpx2.ReadTimeout):
            return silent(f"no answer in {self._policy.first_byte:g} s", begun=False)
        is_late = isinstance(error.__cause__, httpx2.TimeoutException)
        reason = f"no answer in {self._policy.connect:g} s" if is_late else _innermost_reason(error)
        return no_connection(self._endpoint, reason)

    def _learn(self, capabilities: Capabilities, *, is_certain: bool = True) -> None:
        self._capabilities = capabilities
        if is_certain:
            self._cache.save(capabilities)

    def _log_failure(self, one: _Try, error: ModelError, wait: float | None, *, free: bool) -> None:
        response = one.builder.response()
        usage = usage_of(one.request.role, self.name, cost_usd=0.0) if free else self._usage(one, response)
        entry = {"error": error.failure.model_dump(exclude_none=True), "seconds": one.seconds, "again_in": wait}
        fragment = {"fragment": response.text[:KEPT_OF_A_FRAGMENT]} if response.text else {}
        one.session.log_failure(usage, entry | fragment)

    def _read(self, response: Response, one: _Try) -> Reply:
        """Log a whole response and return what it means."""
        learnt = learn_from_response(one.request, one.capabilities, response)
        if learnt:
            self._learn(learnt.capabilities, is_certain=learnt.is_certain)
        details: dict[str, Any] = {
            "finish": response.finish,
            "seconds": one.seconds,
            "request_id": one.request_id or None,
            "served_by": response.model,
            **({"reasoning_tokens": response.tokens.reasoning} if response.tokens else {}),
            **({"reasoning": response.reasoning} if response.reasoning else {}),
        }
        usage = self._usage(one, response)
        return log_reading(
            one.session, response, usage, details, lambda: read_reply(one.request, one.capabilities, response, learnt)
        )

    def _usage(self, one: _Try, response: Response) -> Usage:
        cost = self._price(response.tokens) if response.tokens else None
        return usage_of(one.request.role, self.name, response.tokens, cost)

    def _client(self) -> "openai.AsyncOpenAI":
        import httpx2
        import openai

        timeout = openai.Timeout(self._policy.first_byte, connect=self._policy.connect)
        hooks = {"response": [self._bound_response]}
        try:
            return openai.AsyncOpenAI(
                api_key=self._endpoint.key,
                base_url=self._endpoint.url,
                max_retries=0,
                timeout=timeout,
                default_headers=UNCOMPRESSED,
                http_client=openai.DefaultAsyncHttpxClient(verify=tls_context(), timeout=timeout, event_hooks=hooks),
            )
        except httpx2.InvalidURL as error:
            raise no_connection(self._endpoint, str(error)).error from None

    async def _bound_response(self, response: "httpx2.Response") -> None:
        """Hold a response, whose body has yet to be read, to its bounds: an event hook of the HTTP client."""
        import httpx2

        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            message = f"the reply is compressed ({encoding[:40]}), which was not asked for"
            raise unreachable(message, "turn compression off at the endpoint, or at what is between", again=False)
        received: Any = response.stream
        is_stream = "json" not in response.headers.get("content-type", "")
        pieces = (
            bound_pieces(received, self._policy.between, is_stream=is_stream)
            if response.is_success
            else read_beginning(received)
        )

        class Bounded(httpx2.AsyncByteStream):
            def __aiter__(self) -> AsyncIterator[bytes]:
                return pieces

            async def aclose(self) -> None:
                await received.aclose()

        response.stream = Bounded()


# ── bytes and time ────────────────────────────────────────────────────────────────────────────────────────


async def bound_pieces(
    received: AsyncIterable[bytes], longest_pause: float, *, is_stream: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a reply as valid UTF-8; Fault if it is too large, or the next piece is late."""
    pieces, decoder = aiter(received), codecs.getincrementaldecoder("utf-8")("replace")
    total, event, end, checked = 0, 0, b"", time.monotonic()
    while True:
        try:
            async with asyncio.timeout(longest_pause):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise silent(f"nothing more in {longest_pause:g} s", begun=True) from None
        if piece is None:
            break
        event = _bytes_of_event(end, piece, event) if is_stream else event + len(piece)
        total, end = total + len(piece), (end + piece)[-3:]
        if event > MOST_EVENT_BYTES or total > MOST_BYTES:
            raise garbled_fault("the reply is too large", again=False)
        yield decoder.decode(piece).encode()
        if time.monotonic() > checked + TIMING.tick:  # where bytes never run out, nothing else would be looked at
            await asyncio.sleep(0)
            checked = time.monotonic()
    yield decoder.decode(b"\n\n", final=True).encode()  # some servers leave out the empty line after the last event


def _bytes_of_event(end: bytes, piece: bytes, before: int) -> int:
    """Return how many bytes came since the last empty line, which two pieces may share."""
    text = end + piece
    last = max(text.rfind(mark) + len(mark) if mark in text else 0 for mark in (b"\n\n", b"\n\r\n", b"\r\r"))
    new = text[last:] if last else piece
    return (0 if last else before) + len(new) + BYTES_PER_LINE * (new.count(b"\n") + new.count(b"\r"))


async def read_beginning(received: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield as much of an error as is worth reading."""
    left = MOST_ERROR_BYTES
    async for piece in received:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


def run_until_over(work: Coroutine[Any, Any, T], session: ModelSession) -> T:
    """Return what the work returns; once the session is over, cancel the work and raise why."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_watch(work, session))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()  # not asyncio.run: that would wait for a name lookup whose result is no longer needed


async def _watch(work: Coroutine[Any, Any, T], session: ModelSession) -> T:
    task = asyncio.ensure_future(work)
    try:
        while not (session.is_over() or task.done()):
            left = max(session.deadline - time.monotonic(), 0.0)
            await asyncio.wait({task}, timeout=min(TIMING.tick, left))
        if task.done():
            return task.result()
        raise session.stop_error()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=TIMING.close)
            with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
                task.exception()  # retrieved, so that it is not reported as lost


def _require_object(chunk: object) -> dict[str, Any]:
    if not isinstance(chunk, dict):
        raise broken("the reply is no chunk of a message")
    return chunk


def _require_end(response: Response) -> Response:
    """Return a response whose end has come: no tool is ever called from half a message."""
    if response.finish is None:
        raise broken("the reply broke off: it has no finish_reason")
    if response.finish == "error":
        raise broken("the endpoint broke the reply off")
    if response.finish == "stop" and not (response.text or response.tool_calls or response.refusal):
        raise garbled_fault("the reply is empty", again=True)
    return response


def _innermost_reason(error: BaseException) -> str:
    """Return the innermost reason: it names the fault, those around it only say that there is one."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)  # its own words name the call that failed, too
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
