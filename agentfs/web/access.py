"""Who may speak to the live view: one door for every request, before anything else looks at it.

    Host     is a name of this machine's loopback      no other site's name may lead here (DNS rebinding)
    code     from the printed address, used once       becomes a cookie that no script reads and no other site sends
    Origin   of what changes something is this page    no other site, and no other local server, may post here

What is refused is refused before a byte of a run is read. Nothing is stored: sessions end with the process.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
SAFE = frozenset(("GET", "HEAD"))
ENTER = "/enter"
MOST_BODY = 4_000_000
MOST_SESSIONS = 64
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # `no-referrer` would also hide the Origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KNOCK = "Open the address that `agentfs web` printed: it holds a code that lets one browser in.\n"
USED = (
    "This address has been used, or is not the last one printed. `agentfs web` prints a new one for each browser.\n"
)
# A redirect would come from the page that held the link, and a strict cookie is not sent with that.
ENTERED = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">'
    '<title>agentfs</title><link rel="icon" href="/assets/icon.svg"></head>'
    '<body><p><a href="/">Go on</a></p></body></html>'
)


@dataclass(slots=True)
class Access:
    """The door in front of an app. `entered` is called with the next address's code each time one is used."""

    app: App
    read_only: bool = False
    entered: Callable[[str], None] = lambda _: None
    code: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    cookie: str = field(default_factory=lambda: f"agentfs-{secrets.token_hex(4)}")  # cookies know no ports
    _sessions: list[bytes] = field(default_factory=list)
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        if refused := self._refusal(scope, headers):
            await _answer(send, *refused)
        elif scope["path"] == ENTER:
            await self._enter(scope, send)
        elif (session := self._session(headers)) is None:
            await _answer(send, 401, KNOCK)
        else:
            scope["agentfs.token"] = hmac.new(self._secret, session, hashlib.sha256).hexdigest()
            await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return why a request is not even looked at; None: it is."""
        host, site = headers.get("host", ""), headers.get("sec-fetch-site", "")
        if _name_in(host) not in LOOPBACK:
            return 421, "This is not the name of this server.\n"
        if site in ("cross-site", "same-site") and scope["path"] != ENTER:
            return 403, "Another page may not ask for this.\n"
        if scope["method"] in SAFE:
            return None
        if self.read_only:
            return 403, "This view is read-only (agentfs web --read-only).\n"
        origin = headers.get("origin")
        if origin != f"http://{host}" and not (origin is None and site == "same-origin"):
            return 403, "Another page may not change anything here.\n"
        length = headers.get("content-length", "")
        if not length.isascii() or not length.isdigit() or int(length) > MOST_BODY:
            return 413, "That is too large.\n"
        return None

    async def _enter(self, scope: Scope, send: Send) -> None:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("code", [""])[0]
        if not hmac.compare_digest(given.encode(), self.code.encode()):
            await _answer(send, 401, USED)
            return
        token, self.code = secrets.token_urlsafe(32), secrets.token_urlsafe(24)
        self._sessions = [*self._sessions, _digest(token)][-MOST_SESSIONS:]
        cookie = f"{self.cookie}={token}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(send, 200, ENTERED, "text/html", **{"Set-Cookie": cookie, "Referrer-Policy": "no-referrer"})
        self.entered(self.code)

    def _session(self, headers: dict[str, str]) -> bytes | None:
        """Return which session a request belongs to, by what its cookie hashes to."""
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                given = _digest(value)
                return next((known for known in self._sessions if hmac.compare_digest(known, given)), None)
        return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _name_in(host: str) -> str:
    """Return the name in a Host header, without its port: a tunnel may have another."""
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isascii() and port.isdigit() else host.lower()


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {key.lower() for key, _ in message.get("headers", ())}
            more = [(key.lower().encode(), value.encode()) for key, value in HEADERS.items()]
            message["headers"] = [*message.get("headers", ()), *(one for one in more if one[0] not in own)]
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, kind: str = "text/plain", **headers: str) -> None:
    body = text.encode()
    listed = {**HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **headers}
    pairs = [(key.lower().encode(), value.encode()) for key, value in listed.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
