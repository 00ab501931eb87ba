"""Ask a web server, with bounds on time and size. Behind the tool http_get and the check `http`.

A name is resolved once; the connection goes to exactly the address that was judged; every redirect is judged anew.
Proxies, cookies, credentials and compressed bodies are not used.
"""

import http.client
import io
import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urljoin

from agentfs import __version__
from agentfs.core.records import Failure
from agentfs.tools.addresses import ALLOW, Forbidden, Resolve, Target, parse_target, reachable
from agentfs.tools.base import Bench, ToolResult
from agentfs.tools.capture import Capture
from agentfs.tools.values import NotJson, json_value
from agentfs.tools.wire import Late, Stopped, Watchful, Wire, connect, patiently, resolve

MOST_REDIRECTS = 5
LARGEST_BODY = 32 * 1024 * 1024
HEAD_SHOWN = 500
_CHUNK = 65536
_REDIRECTS = (301, 302, 303, 307, 308)
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "iso-8859-15", "windows-1252"})

Connect = Callable[[Sequence[str], int, Watchful], Wire]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    url: str  # the last one, after redirects
    status: int
    reason: str
    kind: str  # its content type, lower case, without parameters
    charset: str
    body: bytes


class Refused(Exception):
    """There is no reply to speak of: why, as a failure."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, hint=hint)


@dataclass(frozen=True, slots=True)
class Net:
    """How names are resolved and connections made: a parameter, so that tests can watch."""

    resolve: Resolve = resolve
    connect: Connect = connect


def fetch(url: str, bench: Bench, *, follow: bool = True, net: Net = Net()) -> Reply:
    """Return what a server answers, redirects followed; Refused in words if there is no answer."""
    if not bench.confinement.network:
        raise Refused("http", "tools have no network", bench.confinement.change("set network = true"))
    watch = Watchful(bench.deadline, bench.stop)
    for _ in range(MOST_REDIRECTS + 1):
        try:
            target = parse_target(url)
            look_up = partial(reachable, target, net.resolve, bench.confinement.hosts)
            addresses = patiently(look_up, watch)
            reply, location = _ask(target, net.connect(addresses, target.port, watch))
        except Forbidden as error:
            hint = bench.confinement.change(ALLOW) if error.private else error.hint
            raise Refused("http", error.message, hint) from error
        except Stopped as error:
            raise Refused("interrupted", "it was stopped") from error
        except Late as error:
            raise _late(url, error, bench) from error
        except (OSError, http.client.HTTPException) as error:
            raise Refused("http", f"{url}: {_words(error)}") from error
        if not follow or location is None:
            return reply
        url = _joined(target, location)
    raise Refused("http", f"it was redirected more than {MOST_REDIRECTS} times, at last to {url}")


def _late(url: str, error: Late, bench: Bench) -> Refused:
    """Return that the time was up, or that a server was silent for too long."""
    if bench.now() < bench.deadline:
        return Refused("timeout", f"{url}: {error}")
    late = bench.limit.failure(f"{url} did not answer")
    return Refused(late.kind, late.message, late.hint)


def _joined(target: Target, location: str) -> str:
    try:
        return urljoin(target.url, location)
    except ValueError:
        raise Refused("http", f"{target.url}: it was redirected to what is no address") from None


def _words(error: Exception) -> str:
    if isinstance(error, http.client.HTTPException):
        return f"the server does not speak HTTP ({type(error).__name__})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not good: {error.verify_message}"
    return str(getattr(error, "strerror", None) or error)


def _ask(target: Target, wire: Wire) -> tuple[Reply, str | None]:
    """Ask one server; return its reply, and where it sends us, if it does."""
    with wire:
        if target.scheme == "https":
            wire.secure(target.host, ssl.create_default_context())
        wire.send_all(_request(target))
        response = http.client.HTTPResponse(_Readable(wire))  # type: ignore[arg-type]
        response.begin()
        location = response.getheader("Location") if response.status in _REDIRECTS else None
        if location is not None:
            return _reply(target, response, b""), location
        encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
        if encoding != "identity":
            raise Refused("http", f"{target.url}: its body is packed ({encoding[:40]!r}), which was not asked for")
        return _reply(target, response, _body(target, response)), None


def _request(target: Target) -> bytes:
    lines = [
        f"GET {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        f"User-Agent: agentfs/{__version__}",
        "Accept: */*",
        "Accept-Encoding: identity",
        "Connection: close",
    ]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii")


class _Readable:
    """What http.client wants of a socket."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._wire, _CHUNK)


def _body(target: Target, response: http.client.HTTPResponse) -> bytes:
    kept = bytearray()
    while chunk := response.read1(_CHUNK):
        kept += chunk
        if len(kept) > LARGEST_BODY:
            raise Refused("http", f"{target.url}: the body is larger than {LARGEST_BODY // 2**20} MiB")
    expected = response.getheader("Content-Length")
    if not response.chunked and expected and expected.isdigit() and len(kept) < int(expected):
        raise Refused("http", f"{target.url}: the body ended after {len(kept)} of {expected} bytes")
    return bytes(kept)


def _reply(target: Target, response: http.client.HTTPResponse, body: bytes) -> Reply:
    kind = response.headers.get_content_type().lower()
    charset = str(response.headers.get_content_charset("utf-8")).lower()
    reason = "".join(c for c in response.reason if c.isprintable())[:80]
    return Reply(target.url, response.status, reason, kind, charset, body)


def _as_utf8(reply: Reply) -> bytes:
    """Return the body in UTF-8; bytes in a charset that is not known stay as they are."""
    if reply.charset in ("utf-8", "utf8") or reply.charset not in _CHARSETS:
        return reply.body
    return reply.body.decode(reply.charset, "replace").encode("utf-8")


def head_of(reply: Reply) -> str:
    """Return how a body begins, to follow a status in a message."""
    text = _as_utf8(reply)[: HEAD_SHOWN * 4].decode("utf-8", "replace").strip()
    return f": {text[:HEAD_SHOWN]}{'…' if len(text) > HEAD_SHOWN else ''}" if text else ""


def result_of(reply: Reply, bench: Bench) -> ToolResult:
    """Return a body as a tool's result; a long one goes to the bench's output file, too."""
    capture = Capture(bench.output_bytes, bench.mask, bench.output_file)
    try:
        capture.feed(_as_utf8(reply))
        capture.end()
    except OSError as error:
        with suppress(OSError):
            os.unlink(bench.output_file)
        raise Refused("disk", f"the body could not be kept: {error}") from error
    finally:
        capture.close()
    text = capture.text(bench.output_file.name)
    if capture.spilled:
        return ToolResult(text, cut=True)
    return ToolResult(_value(text, reply.kind))


def _value(text: str, kind: str) -> Any:
    """Return the JSON value a body is, or its text: JSON if the server says so, or if it is an object or an array."""
    says_so = kind == "application/json" or kind.endswith("+json")
    if not says_so and not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json_value(text)
    except NotJson:
        return text
