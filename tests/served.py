"""`agentfs web` as a process of its own, and requests to it in which every header is the test's."""

import http.client
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.workspaces import DEADLINE, Place, end

TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


@dataclass
class Reply:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Served:
    """A server that runs, and the session of one browser with it."""

    url: str  # with its code
    command: Any
    cookie: str = ""
    printed: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str | None) -> Reply:
        """Send a request as it is; a header of None is left out."""
        wanted: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie or None}
        if body is not None:
            wanted |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body.encode()))}
        wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in wanted.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body.encode() if body is not None else None)
            reply = connection.getresponse()
            return Reply(reply.status, {key.lower(): value for key, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def enter(self) -> "Served":
        """Let a browser in: the code becomes a cookie."""
        reply = self.ask(self.url.removeprefix(self.origin))
        assert reply.status == 200, reply
        self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return self

    def post(self, path: str, fields: Mapping[str, str], page: str = "/new", **headers: str | None) -> Reply:
        """Send a form as a browser would from one of our pages."""
        token = TOKEN.search(self.ask(page).text)
        given = {"token": token[1] if token else "", **fields}
        return self.ask(path, "POST", urlencode(given), **{"Origin": self.origin, **headers})

    def opened(self, path: str) -> socket.socket:
        """Open a stream of events and return its socket; nothing is read from it."""
        there = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nCookie: {self.cookie}\r\n\r\n"
        there.sendall(request.encode())
        return there


@contextmanager
def web(place: Place, *words: str) -> Iterator[Served]:
    """Start `agentfs web` in a workspace, on any free port."""
    command = place.begin("web", "--port", "0", *words)
    assert command.stdout is not None
    url = command.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:"), (url, command.stderr.read() if command.stderr else "")
    server = Served(url, command)
    try:
        yield server
    finally:
        server.printed += end(command)[1:]  # all that it printed after its address
