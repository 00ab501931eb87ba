"""One try at one request: send it, hear the whole reply, or say what went wrong. Logs nothing, decides nothing.

bytes ──► events ──► chunks ──► assembly ──► Said        anything else is a Mishap
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from agentfs.models import faults
from agentfs.models.address import Address
from agentfs.models.assembly import LONGEST_NAME, Assembly, Malformed, Said
from agentfs.models.bounding import Compressed, TooLarge
from agentfs.models.events import LARGEST_EVENT, Events
from agentfs.models.letting_go import TICK_S
from agentfs.models.line import Line
from agentfs.models.retrying import Mishap, Patience

if TYPE_CHECKING:
    import openai

Chunk = dict[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class Heard:
    """What one try has brought so far."""

    assembly: Assembly = field(default_factory=Assembly)
    request_id: str | None = None

    @property
    def said(self) -> Said:
        return self.assembly.said()


@dataclass(frozen=True, slots=True)
class Wire:
    """One endpoint, through the openai package."""

    client: "openai.AsyncOpenAI"
    where: Address
    patience: Patience

    async def say(self, body: Chunk, heard: Heard, line: Line) -> Said:
        """Send a request and return the whole of what comes back; Mishap if it is not whole."""
        try:
            async with asyncio.timeout(self.patience.whole):
                await self._hear(body, heard, line)
        except TimeoutError:
            raise faults.late(f"no end after {self.patience.whole:g} s", begun=True) from None
        except Compressed as compressed:
            raise faults.compressed(str(compressed)) from None
        except TooLarge:
            raise faults.garbled("the reply is too large", again=False) from None
        except Malformed as malformed:
            raise faults.broken(f"the reply is malformed: {malformed}") from None
        return _whole(heard.said)

    async def _hear(self, body: Chunk, heard: Heard, line: Line) -> None:
        import openai

        try:
            async with aclosing(self._chunks(body, heard)) as chunks:
                async for chunk in chunks:
                    heard.assembly.take(chunk)
                    line.heard(heard.assembly.heard)
        except openai.APIStatusError as error:
            raise self._refused(error, body) from None
        except openai.APITimeoutError:
            raise faults.no_connection(self.where, f"no answer in {self.patience.connect:g} s") from None
        except openai.APIConnectionError as error:
            raise self._broken(_reason(error), heard) from None
        except _transport_errors() as error:  # in the middle of a stream they come as they are
            raise self._broken(_reason(error), heard) from None

    def _refused(self, error: "openai.APIStatusError", body: Chunk) -> Mishap:
        said = error.body if error.body is not None else error.response.text
        headers, now = error.response.headers, datetime.now(UTC)
        return faults.status_mishap(error.status_code, said, headers, body["model"], self.where, now)

    def _broken(self, reason: str, heard: Heard) -> Mishap:
        if heard.request_id is not None or heard.assembly.heard:
            return faults.broken("the connection broke in the middle of the reply")
        return faults.no_connection(self.where, reason)

    async def _chunks(self, body: Chunk, heard: Heard) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of the reply as they arrive, or the whole reply of an endpoint that does not stream."""
        create = self.client.chat.completions.with_streaming_response.create
        # stream says what is returned; everything else goes as it is
        opening = create(model=body["model"], messages=body["messages"], stream=True, extra_body=body)
        async with _opened(opening, self.patience) as response:
            heard.request_id = (response.headers.get("x-request-id") or "")[:LONGEST_NAME]
            kind = response.headers.get("content-type", "")
            if "html" in kind:
                raise faults.no_model_here(self.where)
            async with aclosing(_in_time(response.iter_bytes(), self.patience)) as pieces:
                async for text in _bodies(pieces) if "json" in kind else _events(pieces):
                    yield self._chunk(text, body)

    def _chunk(self, text: str, body: Chunk) -> Chunk:
        try:
            chunk = json.loads(text)
        except (ValueError, RecursionError):
            raise faults.broken("the reply is no JSON") from None
        if not isinstance(chunk, dict):
            raise faults.broken("the reply is no chunk of a message")
        if error := chunk.get("error"):
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 500
            raise faults.status_mishap(status, chunk, {}, body["model"], self.where, datetime.now(UTC))
        return chunk


@asynccontextmanager
async def _opened(opening: AbstractAsyncContextManager[T], patience: Patience) -> AsyncIterator[T]:
    """Open a response; Mishap if its first byte does not come in time."""
    try:
        async with asyncio.timeout(patience.first_byte):
            response = await opening.__aenter__()
    except TimeoutError:
        raise faults.late(f"no answer in {patience.first_byte:g} s", begun=False) from None
    try:
        yield response
    finally:
        await opening.__aexit__(None, None, None)


async def _in_time(pieces: AsyncIterator[bytes], patience: Patience) -> AsyncGenerator[bytes, None]:
    """Yield the pieces; Mishap if the next one does not come in time.

    Where bytes never run out there is no pause by itself in which the stop sign and the deadlines are looked at.
    """
    looked = time.monotonic()
    while True:
        try:
            async with asyncio.timeout(patience.between):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise faults.late(f"nothing more in {patience.between:g} s", begun=True) from None
        if piece is None:
            return
        yield piece
        if time.monotonic() > looked + TICK_S:
            await asyncio.sleep(0)
            looked = time.monotonic()


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    events = Events()
    async for piece in pieces:
        for text in events.feed(piece):
            if text.startswith("[DONE]"):
                return
            yield text
    for text in events.end():
        if not text.startswith("[DONE]"):
            yield text


async def _bodies(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > LARGEST_EVENT:
            raise TooLarge
    yield body.decode("utf-8", "replace")


def _whole(said: Said) -> Said:
    """Return what was said if its end was heard: no tool is ever called from half a message."""
    if said.finish is None:
        raise faults.broken("the reply broke off: it has no finish_reason")
    if said.finish == "error":
        raise faults.broken("the endpoint broke the reply off")
    if said.finish == "stop" and not (said.text or said.tool_calls or said.refusal):
        raise faults.garbled("the reply is empty", again=True)
    return said


def _transport_errors() -> type[Exception]:
    import httpx2

    return httpx2.HTTPError


def _reason(error: BaseException) -> str:
    """Return the innermost reason: it names the fault, those around it only say that there is one."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)  # its own words name the call that failed, too
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
