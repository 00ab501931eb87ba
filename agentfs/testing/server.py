"""A server on loopback that speaks the chat-completions protocol and answers from a script, faults included."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from agentfs.testing import replies
from agentfs.testing.replies import Body, ScriptedReply

Answer = Callable[[Body], ScriptedReply]
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset
_OPTIONS = ("json_schema", "json_object", "tool_choice", "tools", "temperature", "stream_options")


@dataclass(frozen=True, slots=True)
class Cue:
    """A reply in a script, and the requests that it is for."""

    reply: ScriptedReply
    to: str | None = None  # the model; None: any
    when: str | None = None  # what must stand in the messages; None: anything

    def answers(self, request: Body) -> bool:
        if self.to is not None and self.to != request.get("model"):
            return False
        return self.when is None or self.when in "\n".join(_texts(request.get("messages")))


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


class ScriptedServer:
    """Answers by a function of the request, or with the next of a list.

    Each of `says`, `plan`, `calls`, `fails` … adds to the list; `to` names the model whose requests it is for, so
    that a planner and an executor on one server have scripts of their own; `when` is a text that must stand in the
    messages, for steps that run at the same time. What is in `refuses` is answered with an
    error that names it, and takes nothing from the script: json_schema, json_object, tool_choice, tools, temperature,
    stream_options.
    """

    def __init__(
        self, answer: Answer | Iterable[ScriptedReply] = (), *, refuses: Iterable[str] = (), key: str | None = None
    ) -> None:
        self.requests: list[Body] = []  # every body, in the order of arrival
        self.headers: list[dict[str, str]] = []  # beside them; names in lower case
        self.unexpected: list[Body] = []  # those the script had no answer to
        self.refuses = frozenset(refuses)
        self.key = key  # the only one that is let in
        self.answer = answer if callable(answer) else None
        self._script: list[Cue] = [] if callable(answer) else [Cue(reply) for reply in answer]
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = _Quiet(("127.0.0.1", 0), type("Door", (_Door,), {"script": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        """What base_url is set to."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def add(self, *more: ScriptedReply, to: str | None = None, when: str | None = None) -> None:
        """Go on with these replies, after those that are in the list."""
        with self._lock:
            self._script += [Cue(reply, to, when) for reply in more]

    def says(self, text: str, *, to: str | None = None, when: str | None = None, **more: Any) -> None:
        self.add(replies.says(text, **more), to=to, when=when)

    def plan(self, value: Any, *, to: str | None = None, when: str | None = None, **more: Any) -> None:
        self.add(replies.plan(value, **more), to=to, when=when)

    def calls(
        self, *wanted: tuple[str, Body | str], to: str | None = None, when: str | None = None, **more: Any
    ) -> None:
        self.add(replies.calls(*wanted, **more), to=to, when=when)

    def fails(self, status: int, message: str = "", *, to: str | None = None, **more: Any) -> None:
        self.add(replies.fails(status, message, **more), to=to)

    def page(self, html: str = "<!doctype html><title>Welcome</title>", status: int = 200) -> None:
        self.add(replies.page(html, status))

    def refuses_to_answer(self, why: str, *, to: str | None = None) -> None:
        self.add(ScriptedReply(refusal=why), to=to)

    def done(self) -> None:
        """Raise AssertionError if more was asked than is in the script, or something of it is left."""
        with self._lock:
            left, beyond = list(self._script), list(self.unexpected)
        if beyond:
            raise AssertionError(f"{len(beyond)} requests had no answer in the script; the first: {beyond[0]!r}")
        if left:
            raise AssertionError(f"{len(left)} of the script were never asked for: {left!r}")

    def next(self, request: Body, headers: dict[str, str]) -> ScriptedReply:
        """Note a request and return the answer to it."""
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
                return replies.fails(401, "Incorrect API key provided.", "invalid_api_key")
            if refused := next((option for option in _OPTIONS if self._refuse(option, request)), None):
                return replies.fails(400, f"Invalid parameter: {refused!r} is not supported with this model.")
            if (line := next((line for line in self._script if line.answers(request)), None)) is not None:
                self._script.remove(line)
                return line.reply
            if self.answer is None:
                self.unexpected.append(request)
                return replies.fails(400, "the script has no answer to this request")
        return self.answer(request)

    def _refuse(self, option: str, request: Body) -> bool:
        form = (request.get("response_format") or {}).get("type")
        return option in self.refuses and (option in request or option == form)

    def pause(self, seconds: float) -> bool:
        """Wait; return whether the server is closing."""
        return self._closing.wait(seconds) if seconds else self._closing.is_set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what many tests are about."""


class _Door(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    script: ScriptedServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.partition("?")[0] != "/v1/chat/completions":
            self._send(replies.page("<h1>Not Found</h1>", 404))
            return
        request = json.loads(body)
        reply = self.script.next(request, {name.lower(): value for name, value in self.headers.items()})
        self._answer(_in_form(reply, request), request)

    def do_GET(self) -> None:
        self._send(replies.page("<h1>Not Found</h1>", 404))

    def _answer(self, reply: ScriptedReply, request: Body) -> None:
        if self.script.pause(reply.pause_s) or reply.resets_after == 0:
            self._reset()
        elif reply.body is not None or reply.status != 200:
            self._send(reply)
        elif request.get("stream"):
            self._stream(reply, request)
        else:
            body = json.dumps(replies.whole(reply, request)).encode()
            self._send(ScriptedReply(body=body, headers={"Content-Type": "application/json", **reply.headers}))

    def _send(self, reply: ScriptedReply) -> None:
        body = reply.body or b""
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, reply: ScriptedReply, request: Body) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("x-request-id", f"req_{len(self.script.requests)}")
        self.send_header("Connection", "close")
        self.end_headers()
        for number, chunk in enumerate(replies.chunks(reply, request)):
            if self.script.pause(_pause(reply, number)):
                break
            if number == reply.resets_after:
                return self._reset()
            if number == reply.ends_after:
                break
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        else:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True
        return None

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.rfile.close()  # it holds the connection, too
        self.connection.close()  # now: the server would say goodbye first
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


def _pause(reply: ScriptedReply, number: int) -> float:
    """Return how long to wait before a chunk; the first was waited for already."""
    if number == reply.stalls_after:
        return 3600.0
    return reply.pause_s if number else 0.0


def _in_form(reply: ScriptedReply, request: Body) -> ScriptedReply:
    """Return a reply that is JSON in the form the request asks for: a forced tool gets it as its arguments."""
    forced = request.get("tool_choice")
    if not reply.formed or not isinstance(forced, dict):
        return reply
    call = (forced["function"]["name"], reply.text)
    return ScriptedReply(calls=(call,), tokens=reply.tokens, pause_s=reply.pause_s, finish=reply.finish)
