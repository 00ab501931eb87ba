"""The tools http_get and web_search, and the check `http`: ask a web server, with bounds on time and size.

A name is resolved once; the connection goes to exactly the address that was judged (`addresses` has the rule); every
redirect is judged again. Proxies, cookies, credentials and compressed bodies are not used.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from agentfs import __version__
from agentfs.core.records import JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.storage.safe_open import Refused
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.addresses import ALLOW, Forbidden, Resolve, Target, parse_target, reachable
from agentfs.tools.base import StepContext, ToolResult, closed_schema, fail
from agentfs.tools.output import capturing, json_or_text, value_result

if TYPE_CHECKING:
    import httpx2

MOST_REDIRECTS = 5
LARGEST_BODY = 32 * 1024 * 1024
LARGEST_HEAD = 64 * 1024
MOST_HEADERS = 100
HEAD_SHOWN = 500
MOST_RESULTS = 10
LONGEST = {"title": 200, "url": 2000, "snippet": 500}  # characters
NO_ENGINE = ("the tool 'web_search' has no search engine to ask", "set url under [tools.web_search] in agentfs.toml")
_REDIRECTS = (301, 302, 303, 307, 308)
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "iso-8859-15", "windows-1252"})


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    url: str  # the last one, after redirects
    status: int
    reason: str
    kind: str  # its content type, lower case, without parameters
    charset: str
    body: bytes
    location: str | None = None  # where it redirects to


def resolve(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a host. Numbers in any spelling are addresses, too."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def open_transport(scheme: str) -> "httpx2.AsyncBaseTransport":
    """Return what speaks HTTP to one server, and to no proxy; certificates must be good."""
    import ssl

    import httpx2

    context = ssl.create_default_context() if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.AsyncHTTPTransport(verify=context, trust_env=False)


@dataclass(frozen=True, slots=True)
class Net:
    """How names are resolved and servers are asked: a parameter for tests."""

    resolve: Resolve = resolve
    transport: "Callable[[str], httpx2.AsyncBaseTransport]" = open_transport


# ── one request, redirects followed ───────────────────────────────────────────────────────────────────────


def fetch(url: str, context: StepContext, *, follow: bool = True, net: Net = Net()) -> Reply:
    """Return what a server answers, redirects followed. Raises Refused."""
    import asyncio

    if not context.confinement.network:
        raise Refused("http", "tools have no network", context.confinement.change("set network = true"))
    for _ in range(MOST_REDIRECTS + 1):
        try:
            target = parse_target(url)
            addresses = _look_up(target, url, context, net)
        except Forbidden as error:
            hint = context.confinement.change(ALLOW) if error.private else error.hint
            raise Refused("http", error.message, hint) from error
        except OSError as error:
            raise Refused("http", f"{url}: {error.strerror or error}") from error
        reply = asyncio.run(_ask(target, addresses, context, net))
        if not follow or reply.location is None:
            return reply
        try:
            url = urljoin(target.url, reply.location)
        except ValueError:
            raise Refused("http", f"{target.url}: it was redirected to what is no address") from None
    raise Refused("http", f"it was redirected more than {MOST_REDIRECTS} times, at last to {url}")


def _look_up(target: Target, url: str, context: StepContext, net: Net) -> list[str]:
    """Return the addresses to connect to. A lookup cannot be interrupted: it is left behind in a thread."""
    found: Future[list[str]] = Future()

    def run() -> None:
        try:
            found.set_result(reachable(target, net.resolve, context.confinement.hosts))
        except Exception as error:  # noqa: BLE001 - raised again where it was asked for
            found.set_exception(error)

    Starter().start(threading.Thread(target=run, daemon=True, name="resolve").start, context.may_wait)
    while not wait([found], TIMING.tick).done:
        context.refuse_if_over(f"{url} did not answer")
    return found.result()


async def _ask(target: Target, addresses: Sequence[str], context: StepContext, net: Net) -> Reply:
    """Ask one server, and stop asking when the time is up or the stop sign is set."""
    import asyncio

    import httpx2

    asked = asyncio.ensure_future(_exchange(target, addresses, net))
    while not (await asyncio.wait([asked], timeout=TIMING.tick))[0]:
        context.refuse_if_over(f"{target.url} did not answer")  # what is asked is cancelled with the loop
    try:
        return asked.result()
    except httpx2.TimeoutException as error:
        raise Refused("timeout", f"{target.url}: the server sent nothing for {TIMING.web_silence:g} s") from error
    except (httpx2.HTTPError, OSError) as error:
        raise Refused("http", f"{target.url}: {_words(error)}") from error


def _words(error: BaseException) -> str:
    """Return what went wrong: of all that was raised on the way, what the system or TLS reports."""
    import ssl

    import httpx2

    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not good: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return str(cause.reason or cause)
    if isinstance(error, httpx2.RemoteProtocolError):
        return f"its answer is not complete, valid HTTP ({str(error)[:200]})"
    numbers = [cause.errno for cause in chain if isinstance(cause, OSError) and cause.errno]
    return os.strerror(numbers[0]) if numbers else str(error)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def _exchange(target: Target, addresses: Sequence[str], net: Net) -> Reply:
    async with net.transport(target.scheme) as transport:
        response = await _first_response(transport, target, addresses)
        head = response.headers.raw
        if len(head) > MOST_HEADERS or sum(len(name) + len(value) for name, value in head) > LARGEST_HEAD:
            raise Refused("http", f"{target.url}: its answer is not valid HTTP (its headers are too long)")
        location = response.headers.get("Location") if response.status_code in _REDIRECTS else None
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if location is None and encoding != "identity":
            raise Refused("http", f"{target.url}: its body is packed ({encoding[:40]!r}), which was not asked for")
        body = b"" if location is not None else await _body(target, response)
        return _reply(target, response, body, location)


async def _first_response(
    transport: "httpx2.AsyncBaseTransport", target: Target, addresses: Sequence[str]
) -> "httpx2.Response":
    """Ask at the first of these addresses that answers, and at no other."""
    import httpx2

    for address in addresses:
        try:
            return await transport.handle_async_request(_request(target, address))
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if address == addresses[-1]:
                raise
    raise AssertionError("there is an address")


def _request(target: Target, address: str) -> "httpx2.Request":
    """Return a request that goes to exactly this address."""
    import httpx2

    headers = {
        "Host": target.authority,
        "User-Agent": f"agentfs/{__version__}",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    extensions = {
        "target": target.path.encode("ascii"),  # as it was written
        "sni_hostname": target.host,  # the certificate must be the host's
        "timeout": dict.fromkeys(("connect", "read", "write", "pool"), TIMING.web_silence),
    }
    url = httpx2.URL(scheme=target.scheme, host=address, port=target.port)
    return httpx2.Request("GET", url, headers=headers, extensions=extensions)


async def _body(target: Target, response: "httpx2.Response") -> bytes:
    kept = bytearray()
    async for chunk in response.aiter_raw():
        kept += chunk
        if len(kept) > LARGEST_BODY:
            raise Refused("http", f"{target.url}: the body is larger than {LARGEST_BODY // 2**20} MiB")
    return bytes(kept)


def _reply(target: Target, response: "httpx2.Response", body: bytes, location: str | None) -> Reply:
    from email.message import Message

    content = Message()
    content["Content-Type"] = response.headers.get("Content-Type", "text/plain")
    charset = str(content.get_content_charset("utf-8")).lower()
    reason = "".join(c for c in response.reason_phrase if c.isprintable())[:80]
    kind = content.get_content_type().lower()
    return Reply(target.url, response.status_code, reason, kind, charset, body, location)


# ── what a reply is as a result ───────────────────────────────────────────────────────────────────────────


def _as_utf8(reply: Reply) -> bytes:
    """Return the body in UTF-8; bytes in a charset that is not known stay as they are."""
    if reply.charset in ("utf-8", "utf8") or reply.charset not in _CHARSETS:
        return reply.body
    return reply.body.decode(reply.charset, "replace").encode("utf-8")


def _head(reply: Reply) -> str:
    """Return how a body begins, to follow a status in a message."""
    text = _as_utf8(reply)[: HEAD_SHOWN * 4].decode("utf-8", "replace").strip()
    return f": {text[:HEAD_SHOWN]}{'…' if len(text) > HEAD_SHOWN else ''}" if text else ""


def _result(reply: Reply, context: StepContext) -> ToolResult:
    """Return a body as a tool's result; a long one goes to the context's output file, too."""
    if not 200 <= reply.status < 300:
        raise Refused("http", f"{reply.status} {reply.reason}{_head(reply)}")
    try:
        with capturing(context) as capture:
            capture.feed(_as_utf8(reply))
    except OSError as error:
        with suppress(OSError):
            os.unlink(context.output_file)
        raise Refused("disk", f"the body could not be kept: {error}") from error
    text = capture.text(context.output_file.name)
    if capture.spilled:
        return ToolResult(text, cut=True)
    says_json = reply.kind == "application/json" or reply.kind.endswith("+json")
    return ToolResult(json_or_text(text, is_json=says_json))


def _mask(refused: Refused, context: StepContext) -> ToolResult:
    why = refused.failure
    return fail(why.kind, context.mask.text(why.message), why.hint)


# ── the tools ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class HttpGet:
    """Gets what is at a web address, in this process."""

    net: Net = Net()

    spec: ClassVar[ToolSpec] = ToolSpec(
        name="http_get",
        summary="Get what stands at a web address: the value if it is JSON, else the text",
        input_schema=closed_schema({"url": {"type": "string", "minLength": 1}}, "url"),
        effects="network",
        repeatable=True,
        text_field="url",
    )

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        context.claim(None)
        try:
            return _result(fetch(str(given["url"]), context, net=self.net), context)
        except Refused as refused:
            return _mask(refused, context)


@dataclass(frozen=True, slots=True)
class WebSearch:
    """Asks the search engine of the settings, which may be a private one."""

    url: str = ""
    net: Net = Net()

    spec: ClassVar[ToolSpec] = ToolSpec(
        name="web_search",
        summary="Search the web: a list of title, url and snippet",
        input_schema=closed_schema({"query": {"type": "string", "minLength": 1, "maxLength": 1000}}, "query"),
        effects="network",
        repeatable=True,
        text_field="query",
    )

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        context.claim(None)
        if not self.url:
            return fail("input", *NO_ENGINE)
        try:
            address = search_address(self.url, str(given["query"]))
            reply = fetch(address, _allow_engine(self.url, context), net=self.net)
            return value_result(_search_results(reply), context)
        except Refused as refused:
            return _mask(refused, context)


def search_address(url: str, query: str) -> str:
    """Return where to ask for what: the engine's own address, its /search where none is named."""
    parts = urlsplit(url)
    asked = [*parse_qsl(parts.query), ("q", query), ("format", "json")]
    path = parts.path if parts.path.strip("/") else "/search"
    return urlunsplit((parts.scheme, parts.netloc, path, urlencode(asked), ""))


def _allow_engine(url: str, context: StepContext) -> StepContext:
    """Return a context that may reach the search engine, wherever it is: the person named it."""
    confinement = context.confinement
    return replace(context, confinement=replace(confinement, hosts=(*confinement.hosts, urlsplit(url).netloc)))


def _search_results(reply: Reply) -> list[dict[str, str]]:
    """Return the results in an answer, bounded. Raises Refused."""
    if reply.status == 403:
        hint = "does it answer in JSON? SearXNG wants `json` among search.formats in its settings.yml"
        raise Refused("http", f"the search engine refuses: {reply.status} {reply.reason}", hint)
    if reply.status != 200:
        raise Refused("http", f"the search engine answers {reply.status} {reply.reason}{_head(reply)}")
    try:
        value = json_value(reply.body.decode("utf-8", "replace"))
        found = value["results"] if isinstance(value, dict) else None
    except (NotJson, KeyError):
        found = None
    if not isinstance(found, list):
        hint = "url under [tools.web_search] must be that of a SearXNG-compatible engine"
        raise Refused("http", f"the search engine does not answer with results{_head(reply)}", hint)
    return [_search_result(one) for one in found if isinstance(one, dict)][:MOST_RESULTS]


def _search_result(one: Mapping[str, Any]) -> dict[str, str]:
    fields = {"title": one.get("title"), "url": one.get("url"), "snippet": one.get("content")}
    return {name: " ".join(str(text or "").split())[: LONGEST[name]] for name, text in fields.items()}
