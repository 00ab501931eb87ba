"""A web server on loopback for tests, and a net that only remembers whom it would have reached."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

from agentfs.tools.web import Net, open_transport


class Web(BaseHTTPRequestHandler):
    """Answers by the page of that path, if there is one."""

    protocol_version = "HTTP/1.1"
    pages: dict[str, Callable[["Web"], None]]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        page = self.pages.get(self.path.partition("?")[0])
        if page is None:
            self.answer(b"nothing here", status=404)
        else:
            page(self)

    def answer(self, body: bytes, *, status: int = 200, kind: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@dataclass(frozen=True)
class Served:
    port: int
    asked: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what many of these tests are about."""


@contextmanager
def web(**pages: Callable[[Web], None]) -> Iterator[Served]:
    """Serve each page under /NAME on a free port of 127.0.0.1."""
    asked: list[str] = []
    made = type("Pages", (Web,), {"pages": {f"/{name}": page for name, page in pages.items()}, "asked": asked})
    server = _Quiet(("127.0.0.1", 0), made)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Served(server.server_port, asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Reached(Exception):
    """A connection was about to be made."""


@dataclass
class Recorder:
    """A net that resolves from a table and connects to nothing but what is served on loopback."""

    names: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)  # each lookup takes the next answer
    lookups: list[tuple[str, int]] = field(default_factory=list)
    connects: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    loopback: int | None = None  # this port answers for every public address

    @property
    def net(self) -> Net:
        return Net(self.resolve, self.transport)

    def resolve(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append((host, port))
        answers = self.names[host]
        turn = sum(1 for asked, _ in self.lookups if asked == host) - 1
        return answers[min(turn, len(answers) - 1)]

    def transport(self, scheme: str) -> httpx2.AsyncBaseTransport:
        return _Recording(self, open_transport(scheme))


class _Recording(httpx2.AsyncBaseTransport):
    """Remembers where a request goes, and sends it to loopback, or nowhere."""

    def __init__(self, recorder: Recorder, inner: httpx2.AsyncBaseTransport) -> None:
        self._recorder, self._inner = recorder, inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        port = request.url.port or {"http": 80, "https": 443}[request.url.scheme]
        self._recorder.connects.append(((request.url.host,), port))
        if self._recorder.loopback is None:
            raise httpx2.ConnectError("Connection refused")
        request.url = request.url.copy_with(host="127.0.0.1", port=self._recorder.loopback)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()
