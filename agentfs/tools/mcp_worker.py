"""Speak to one MCP server, in a process of its own: inside the server's sandbox, which holds whatever it sends.

Started by `mcp_client` as a program. One JSON object a line each way, over a socket whose number is its argument:

    {"start": {...}}                  ->  {"about": "name version"}
    {"list": true}                    ->  {"tools": [...]}
    {"call": name, "arguments": ...}  ->  {"content": [...], "structured": ..., "error": bool}

and to any of them {"failed": words, "kind": ...}. `spent`: nothing more can be asked of it; `code`: the exit code of
a server that ended. It imports no agentfs.
"""

import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

MOST_MESSAGE = 32 * 1024 * 1024  # of one message of a server
GONE, SILENT = 1, 30  # seconds: for a server that closed its pipe to be gone; to connect to one that is elsewhere
MOST_PAGES = 64  # of a list of tools
PROTOCOL_STATUSES = (400, 404, 405)  # statuses with a meaning in the protocol: an error in the body, a lost session
TOO_LONG = f"exceeded the {MOST_MESSAGE} byte limit"  # of an event, in the words of the package
LOST = ("onnection closed", "Session terminated", "SSE stream ended")  # errors that the package makes up itself
UNREACHED = {
    "ConnectError": "it cannot be reached",
    "ConnectTimeout": "it cannot be reached in time",
    "RemoteProtocolError": "the connection was lost before it answered",
    "ReadError": "the connection was lost before it answered",
}
REFUSED = {
    "sampling/createMessage": "it asked for a model (sampling), which agentfs gives no server",
    "elicitation/create": "it asked a person something (elicitation), which a tool call cannot do: use a step `ask`",
}


class Trouble(Exception):
    """Why a request has no result."""

    def __init__(self, words: str, kind: str = "tool", *, spent: bool = True, code: int | None = None) -> None:
        super().__init__(words)
        self.kind, self.spent, self.code = kind, spent, code


class Watch:
    """What is seen of a server beside its answers."""

    def __init__(self) -> None:
        self.trouble: Trouble | None = None
        self.scope: Any = None  # of the request under way

    def fail(self, trouble: Trouble) -> None:
        self.trouble = self.trouble or trouble
        if self.scope is not None:
            self.scope.cancel()

    def saw(self, message: Any) -> None:
        """Look at a message of the server: some requests of its own are a reason to give up."""
        method = getattr(message, "method", None)
        if method in REFUSED and getattr(message, "id", None) is not None:
            self.fail(Trouble(REFUSED[method]))

    async def saw_response(self, response: Any) -> None:
        """Look at a response: an error status says more than what the package makes of it."""
        expected = response.request.method != "POST" or response.status_code in PROTOCOL_STATUSES
        if response.is_error and not expected:
            words = f"it answered HTTP {response.status_code} {response.reason_phrase}".rstrip()
            fix = ": look at its headers in .mcp.json" if response.status_code in (401, 403) else ""
            self.fail(Trouble(f"{words}{fix}", spent=False))

    def take(self) -> Trouble | None:
        """Return what went wrong; what ended one request only does not end the next."""
        trouble = self.trouble
        if trouble is not None and not trouble.spent:
            self.trouble = None
        return trouble


@contextlib.asynccontextmanager
async def stdio(start: dict[str, Any], watch: Watch) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server and yield its streams.

    A message that is too long or cannot be read ends it; a line that is none, which a library prints, is passed over.
    """
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    env = {**os.environ, **start["env"]}
    try:
        process = await anyio.open_process([start["command"], *start["args"]], env=env, cwd=start["cwd"], stderr=None)
        outgoing, incoming = process.stdin, process.stdout
        if outgoing is None or incoming is None:
            raise OSError(0, "it has no pipes")
    except OSError as error:
        raise Trouble(f"{start['command']} cannot be started: {error.strerror}") from None
    arrived, reading = anyio.create_memory_object_stream[Any](0)
    writing, leaving = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        buffer = bytearray()
        async with arrived:
            with contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                while True:
                    buffer += await incoming.receive()
                    if len(buffer) > MOST_MESSAGE:
                        watch.fail(_too_long())
                        return
                    *lines, rest = buffer.split(b"\n")
                    buffer = bytearray(rest)
                    for line in lines:
                        try:
                            message = jsonrpc_message_adapter.validate_json(bytes(line), by_name=False)
                        except ValueError:
                            if b'"jsonrpc"' not in line:
                                continue
                            watch.fail(Trouble("it sent a message that cannot be read"))
                            return
                        watch.saw(message)
                        await arrived.send(SessionMessage(message))
            with anyio.move_on_after(GONE):
                code = await process.wait()
                watch.trouble = watch.trouble or Trouble(f"its server ended (exit code {code})", code=code)

    async def write() -> None:
        async with leaving:
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                async for one in leaving:
                    text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await outgoing.send(text.encode("utf-8") + b"\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield reading, writing
        finally:
            tasks.cancel_scope.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()


@contextlib.asynccontextmanager
async def http(start: dict[str, Any], watch: Watch) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams to a server that is elsewhere; bounded in size, and by this process's memory."""
    import resource

    import anyio
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    arrived, passed_on = anyio.create_memory_object_stream[Any](0)

    async def read(reading: Any) -> None:
        async with arrived:
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for one in reading:
                    watch.saw(getattr(one, "message", None))
                    await arrived.send(one)

    client = httpx2.AsyncClient(
        headers={**start["headers"], "Accept-Encoding": "identity"},  # what is compressed has no size one can see
        timeout=httpx2.Timeout(SILENT, read=None),
        transport=_bounded_transport(watch),
        event_hooks={"response": [watch.saw_response]},
    )
    async with (
        client,
        streamable_http_client(start["url"], http_client=client, max_sse_event_size=MOST_MESSAGE) as (
            reading,
            writing,
        ),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(read, reading)
        try:
            yield passed_on, writing
        finally:
            tasks.cancel_scope.cancel()


def _bounded_transport(watch: Watch) -> Any:
    """Return a transport on which a body that is one message ends where it is too long, and a stream goes on."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, body: Any) -> None:
            self._body = body

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._body:
                size += len(chunk)
                if size > MOST_MESSAGE:
                    watch.fail(_too_long())
                    return
                yield chunk

        async def aclose(self) -> None:
            await self._body.aclose()

    class Transport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                response.stream = Bounded(response.stream)
            return response

    return Transport()


def _too_long() -> Trouble:
    return Trouble(f"it sent a message of more than {MOST_MESSAGE >> 20} MiB", "output")


class Server:
    """A connected server, asked one thing after the other."""

    def __init__(self, client: Any, watch: Watch) -> None:
        self._client, self._watch = client, watch

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, or why there is none."""
        import anyio

        try:
            with anyio.CancelScope() as self._watch.scope:
                if self._watch.trouble is None:
                    return await self._answer(asked)
            raise self._watch.take() or Trouble("it was given up")
        except Trouble as trouble:
            return _failure_reply(trouble)
        except Exception as error:  # noqa: BLE001 - whatever a server provokes is its failure
            return _failure_reply(self._watch.take() or _name_trouble(error))

    async def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "call" in asked:
            return await self._call(asked)
        tools, cursor, size = list[Any](), None, 0
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            size += len(json.dumps(listed))
            if size > MOST_MESSAGE:
                raise Trouble(f"its list of tools has more than {MOST_MESSAGE >> 20} MiB", "output")
            tools += listed
            if (cursor := page.next_cursor) is None:
                break
        return {"tools": tools, "spent": False}

    async def _call(self, asked: dict[str, Any]) -> dict[str, Any]:
        result = await self._client.session.call_tool(
            asked["call"], asked["arguments"], meta=asked["meta"] or None, allow_input_required=True
        )
        if not hasattr(result, "content"):
            raise Trouble(
                "it asked for more before it would answer (input required), which a tool call cannot give",
                spent=False,
            )
        content = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content]
        structured = result.structured_content
        return {"content": content, "structured": structured, "error": bool(result.is_error), "spent": False}


def _failure_reply(trouble: Trouble) -> dict[str, Any]:
    return {"failed": str(trouble), "kind": trouble.kind, "spent": trouble.spent, "code": trouble.code}


def _name_trouble(error: BaseException) -> Trouble:
    """Return what went wrong: of a group of errors the first and innermost."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Trouble):
        return error
    if isinstance(error, MemoryError):
        return Trouble("it sent more than this process has memory for", "output")
    kind, words = type(error).__name__, " ".join(str(error).split())[:2000]
    if kind == "ValidationError" and (found := error.errors()):  # type: ignore[attr-defined]
        place = ".".join(map(str, found[0]["loc"]))
        return Trouble(f"its answer does not follow the protocol: {place}: {found[0]['msg']}"[:2000])
    if TOO_LONG in words:
        return _too_long()
    if kind in UNREACHED:
        return Trouble(f"{UNREACHED[kind]}{f': {words}' if words else ''}")
    answered = kind in ("MCPError", "RuntimeError")  # the server lives; its answer was invalid
    return Trouble(words or kind, spent=not answered or any(lost in words for lost in LOST))


async def serve(channel: socket.socket) -> None:
    """Connect as the first line says, then answer the others until there are none."""
    import anyio
    from mcp import Client
    from mcp_types import Implementation

    lines = channel.makefile("rb")
    say = channel.makefile("wb")

    def reply(value: dict[str, Any]) -> None:
        sys.stderr.flush()
        say.write(json.dumps(value).encode("ascii") + b"\n")
        say.flush()

    reply({"ready": True})
    start, watch = (
        json.loads(await anyio.to_thread.run_sync(lines.readline, abandon_on_cancel=True))["start"],
        Watch(),
    )
    transport = stdio(start, watch) if start["command"] else http(start, watch)
    info = Implementation(name="agentfs", version=start["version"])
    try:
        async with Client(transport, client_info=info, cache=None) as client:
            server = Server(client, watch)
            reply({"about": _about(client), "spent": False})
            while line := await anyio.to_thread.run_sync(lines.readline, abandon_on_cancel=True):
                reply(await server.answer(json.loads(line)))
            os._exit(0)  # the server ends with this process's sandbox
    except Exception as error:  # noqa: BLE001 - the reason is the answer
        reply(_failure_reply(watch.trouble or _name_trouble(error)))


def _about(client: Any) -> str:
    info = getattr(client, "server_info", None)
    return " ".join(filter(None, (getattr(info, "name", ""), getattr(info, "version", ""))))[:200]


def main() -> None:
    logging.disable(logging.CRITICAL)  # what the package logs is not the server's
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        import anyio
        import mcp  # noqa: F401
    except ImportError:
        channel.sendall(b'{"ready": true}\n')
        channel.makefile("rb").readline()
        channel.sendall(b'{"failed": "extra", "kind": "setup", "spent": true}\n')
        return
    anyio.run(serve, channel)


if __name__ == "__main__":
    main()
