"""http_get reaches public addresses only, however the address is spelt, and takes only so much.

No test sends a packet anywhere but loopback: forbidden targets meet a connector that only remembers, and names are
resolved from a table. Breaking `why_forbidden` (return None) makes all of the first table fail.
"""

import gzip
import socket
import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentfs.core.records import Failure
from agentfs.tools import web as web_tools
from agentfs.tools.addresses import Forbidden, is_listed, parse_target, why_forbidden
from agentfs.tools.base import StepContext, ToolResult
from agentfs.tools.web import HttpGet, Net, resolve
from tests.contexts import RecordedContext, a_context
from tests.webs import Recorder, Web, web

PUBLIC = "93.184.215.14"
NUMBERS = [  # the system itself resolves these, without asking anybody
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "0",
    "0.0.0.0", "10.0.0.1", "10.1",  # noqa: S104
    "172.16.0.1", "172.31.255.254", "192.168.1.1", "169.254.169.254", "2852039166",
    "0xa9fea9fe", "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.88.99.1",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:a00:1]", "[::127.0.0.1]",
    "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::808:808]", "[2002:7f00:1::]", "[2002:c0a8:101::1]",
    "[2001:0:7f00:1::1]", "[2001:0:808:808::80ff:fffe]", "[2606:4700::5efe:7f00:1]", "[fe80::1]", "[fec0::1]",
    "[fc00::1]", "[fd12:3456::1]", "[ff02::1]", "[2001:db8::1]", "[3fff::1]", "[100::1]", "[5f00::1]",
]  # fmt: skip


def getting(work: RecordedContext, url: str, net: Net) -> ToolResult:
    return HttpGet(net).call({"url": url}, work.context)


def refusal(work: RecordedContext, url: str, recorder: Recorder) -> Failure:
    result = getting(work, url, recorder.net)
    assert result.failure is not None, result
    return result.failure


@pytest.fixture
def work(tmp_path: Path) -> RecordedContext:
    return a_context(tmp_path, network=True)


@pytest.mark.parametrize("host", NUMBERS)
@pytest.mark.parametrize("form", ["http://{}/", "https://{}:8443/latest?x#y"])
def test_no_spelling_of_an_address_that_is_not_public_is_connected_to(
    work: RecordedContext, host: str, form: str
) -> None:
    recorder = Recorder()
    result = getting(work, form.format(host), Net(resolve, recorder.transport))
    assert result.failure is not None
    assert (result.failure.kind, recorder.connects) == ("http", [])
    assert "not a public address" in result.failure.message
    assert "hosts under [tools]" in (result.failure.hint or "")


@pytest.mark.parametrize(
    ("host", "spelt"),
    [
        ("localhost", "localhost"),
        ("localhost", "LOCALHOST."),
        ("intern.example", "intern.example"),
        ("intern.example", "INTERN.example."),
        ("xn--bcher-kva.example", "bücher.example"),
        ("127.0.0.1.nip.example", "127.0.0.1.nip.example"),
        ("intern.example", "intern。example"),  # an ideographic full stop is a dot
        ("127.0.0.1", "①②⑦.⓪.⓪.①"),  # so are digits in circles
    ],
)
def test_a_name_is_judged_by_every_address_it_has(work: RecordedContext, host: str, spelt: str) -> None:
    for addresses in (["127.0.0.1"], [PUBLIC, "10.0.0.7"], ["::1"], ["fe80::1%eth0"], ["not an address"]):
        recorder = Recorder({host: [addresses]})
        assert refusal(work, f"http://{spelt}/", recorder).kind == "http"
        assert (recorder.lookups, recorder.connects) == ([(host, 80)], [])


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://127.0.0.1:70/_x",
        "javascript:alert(1)",
        "//127.0.0.1/",
        "127.0.0.1",
        "unix:/run/docker.sock",
        "http://",
        "http:///path",
        "http://user@example.org/",
        "http://user:secret@example.org/",
        "http://example.org@127.0.0.1/",
        "http://127.0.0.1\\@example.org/",
        "http://example.org\\.intern/",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://example.org:http/",
        "http://exa mple.org/",
        "http://example.org/\r\nHost: intern",
        "http://example.org/\tx",
        "http://example.org\x00.intern/",
        "http://example.org%2f@intern/",
        "http://127.0.0.1%00.example.org/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://[v1.fe80]/",
        "http://example..org/",
        "http://-x.example/",
        "http://" + "a" * 300 + ".example/",
        "http://example.org/" + "a" * 9000,
    ],
)
def test_what_is_no_plain_address_is_refused_before_anything_is_resolved(work: RecordedContext, url: str) -> None:
    recorder = Recorder()
    assert refusal(work, url, recorder).kind == "http"
    assert (recorder.lookups, recorder.connects) == ([], [])


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", PUBLIC, "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1", "::ffff:8.8.8.8"],
)
def test_public_addresses_are_reached_and_exactly_those(work: RecordedContext, address: str) -> None:
    recorder = Recorder({"example.org": [[address, address]]})
    assert refusal(work, "http://example.org:8080/x", recorder).message.endswith("Connection refused")
    assert recorder.connects == [((address,), 8080)]
    assert why_forbidden(address) is None


def test_a_name_is_resolved_once_so_that_it_cannot_change_its_mind(work: RecordedContext) -> None:
    recorder = Recorder({"rebind.example": [[PUBLIC], ["127.0.0.1"]]})
    refusal(work, "http://rebind.example/", recorder)
    assert (recorder.lookups, recorder.connects) == ([("rebind.example", 80)], [((PUBLIC,), 80)])


@pytest.mark.parametrize(
    "place",
    ["http://127.0.0.1/", "http://intern.example/", "//intern.example/x", "http://2130706433/", "file:///etc/passwd",
     "http://u:p@public.example/", "http://[::ffff:10.0.0.1]/"],
)  # fmt: skip
def test_every_redirect_is_judged_again(work: RecordedContext, place: str) -> None:
    names = {"public.example": [[PUBLIC]], "intern.example": [["10.0.0.1"]], "2130706433": [["127.0.0.1"]]}
    names |= {"127.0.0.1": [["127.0.0.1"]], "::ffff:a00:1": [["::ffff:10.0.0.1"]]}
    with web(go=lambda page: page.answer(b"", status=302, Location=place)) as served:
        recorder = Recorder(names, loopback=served.port)
        failure = refusal(work, "http://public.example/go", recorder)
    assert (failure.kind, recorder.connects, served.asked) == ("http", [((PUBLIC,), 80)], ["/go"])


def test_a_host_that_rebinds_between_redirects_is_caught(work: RecordedContext) -> None:
    with web(go=lambda page: page.answer(b"", status=307, Location="/again")) as served:
        recorder = Recorder({"rebind.example": [[PUBLIC], ["127.0.0.1"]]}, loopback=served.port)
        failure = refusal(work, "http://rebind.example/go", recorder)
    assert ("127.0.0.1, which is not a public address" in failure.message, served.asked) == (True, ["/go"])


def test_redirects_end(work: RecordedContext) -> None:
    with web(go=lambda page: page.answer(b"", status=302, Location="/go")) as served:
        recorder = Recorder({"loop.example": [[PUBLIC]]}, loopback=served.port)
        failure = refusal(work, "http://loop.example/go", recorder)
    assert failure.message == "it was redirected more than 5 times, at last to http://loop.example/go"
    assert len(served.asked) == 6


@pytest.mark.parametrize(
    ("hosts", "url", "listed"),
    [
        (("127.0.0.1",), "http://127.0.0.1:9/", True),
        (("127.0.0.1:9",), "http://127.0.0.1:9/", True),
        (("127.0.0.1:9",), "http://127.0.0.1:10/", False),
        (("127.0.0.1:80",), "http://127.0.0.1/", True),
        (("127.0.0.1:80",), "https://127.0.0.1/", False),
        (("wiki.intern",), "https://WIKI.intern./x", True),
        (("wiki.intern",), "http://evil.wiki.intern/", False),
        (("wiki.intern",), "http://wiki.intern.evil/", False),
        (("[::1]",), "http://[0:0::1]/", True),
        (("[::1]:8080",), "http://[::1]:8080/", True),
        (("127.0.0.1",), "http://127.1/", False),
        (("", "*", "http://127.0.0.1", "a b"), "http://127.0.0.1/", False),
        ((), "http://127.0.0.1/", False),
    ],
)
def test_the_list_of_hosts(hosts: tuple[str, ...], url: str, *, listed: bool) -> None:
    assert is_listed(parse_target(url), hosts) == listed


def test_a_listed_host_does_not_open_the_door_to_others(tmp_path: Path) -> None:
    with web(go=lambda page: page.answer(b"", status=302, Location="http://localhost/x")) as served:
        work = a_context(tmp_path, network=True, hosts=(f"127.0.0.1:{served.port}",))
        result = HttpGet().call({"url": f"{served.url}/go"}, work.context)
    assert result.failure is not None
    assert "localhost is" in result.failure.message
    assert served.asked == ["/go"]


def test_without_the_network_nothing_is_even_resolved(tmp_path: Path) -> None:
    recorder = Recorder()
    failure = refusal(a_context(tmp_path), "http://example.org/", recorder)
    assert failure == Failure(
        kind="http", message="tools have no network", hint="set network = true under [tools] in agentfs.toml"
    )
    assert recorder.lookups == []


# ── how much, and how long ────────────────────────────────────────────────────────────────────────────────


def endless(page: Web) -> None:
    page.send_response(200)
    page.end_headers()
    while True:
        page.wfile.write(b"x" * 65536)


def test_a_body_without_end_is_cut_off(work: RecordedContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_tools, "LARGEST_BODY", 1024 * 1024)
    with web(body=endless) as served:
        work = replace(work, context=_allowing(work))
        result = HttpGet().call({"url": f"{served.url}/body"}, work.context)
    assert result.failure is not None
    assert result.failure.message == f"{served.url}/body: the body is larger than 1 MiB"
    assert not work.context.output_file.exists()


def _allowing(work: RecordedContext, **more: float) -> StepContext:
    context = replace(work.context, confinement=replace(work.context.confinement, hosts=("127.0.0.1",)))
    return replace(context, deadline=time.monotonic() + more["seconds"]) if more else context


def test_packed_bodies_are_neither_asked_for_nor_taken(work: RecordedContext) -> None:
    asked: list[str | None] = []

    def bomb(page: Web) -> None:
        asked.append(page.headers["Accept-Encoding"])
        page.answer(gzip.compress(b"\0" * 10_000_000), Content_Encoding="gzip")

    with web(bomb=bomb) as served:
        result = HttpGet().call({"url": f"{served.url}/bomb"}, _allowing(work))
    assert asked == ["identity"]
    assert result.failure is not None
    assert "its body is packed ('gzip')" in result.failure.message


def dripping(page: Web) -> None:
    page.send_response(200)
    page.end_headers()
    while True:
        page.wfile.write(b".")
        page.wfile.flush()
        time.sleep(0.02)


def silent(page: Web) -> None:
    page.connection.recv(1)  # until the other side hangs up


@pytest.mark.parametrize("page", [dripping, silent])
def test_a_server_that_drips_or_says_nothing_ends_with_the_deadline(work: RecordedContext, page: object) -> None:
    with web(slow=page) as served:  # type: ignore[arg-type]
        began = time.monotonic()
        result = HttpGet().call({"url": f"{served.url}/slow"}, _allowing(work, seconds=0.4))
    assert (result.failure and result.failure.kind, time.monotonic() - began < 40) == ("timeout", True)


@pytest.mark.parametrize("page", [dripping, silent])
def test_the_stop_sign_is_obeyed_at_once(work: RecordedContext, page: object) -> None:
    stopped: list[float] = []

    def stop() -> None:
        stopped.append(time.monotonic())
        work.stop.set()

    with web(slow=page) as served:  # type: ignore[arg-type]
        timer = threading.Timer(0.2, stop)
        timer.start()
        result = HttpGet().call({"url": f"{served.url}/slow"}, _allowing(work))
        late = time.monotonic() - stopped[0]
    assert (result.failure and result.failure.kind, late < 0.5) == ("interrupted", True)


def test_a_name_that_never_resolves_holds_nobody_up(work: RecordedContext) -> None:
    release = threading.Event()

    def hanging(host: str, port: int) -> list[str]:
        release.wait(20)
        return []

    context = replace(work.context, deadline=time.monotonic() + 0.3)
    result = HttpGet(Net(hanging, Recorder().transport)).call({"url": "http://slow.example/"}, context)
    release.set()
    assert (result.failure and result.failure.kind) == "timeout"


def test_a_server_that_never_accepts_is_given_up(work: RecordedContext) -> None:
    """A full backlog: the kernel answers no more connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            result = HttpGet().call({"url": f"http://127.0.0.1:{port}/"}, _allowing(work, seconds=0.4))
    assert (result.failure and result.failure.kind) == "timeout"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 999999 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 302 Go\r\nLocation: \r\n\r\n",
        b"HTTP/1.1 302 Go\r\nLocation: http://[\r\n\r\n",
    ],
)
def test_answers_that_are_none(work: RecordedContext, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    talk, _ = listener.accept()
                except OSError:
                    return
                with talk:
                    talk.recv(65536)
                    talk.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        result = HttpGet().call({"url": f"http://127.0.0.1:{port}/"}, _allowing(work, seconds=5))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
    assert (result.failure and result.failure.kind) == "http"


def test_a_certificate_must_be_the_hosts(work: RecordedContext) -> None:
    """A server with no certificate at all: the handshake fails, and nothing was asked."""
    with web() as served:
        recorder = Recorder({"bank.example": [[PUBLIC]]}, loopback=served.port)
        failure = refusal(work, "https://bank.example/", recorder)
    assert (failure.kind, served.asked) == ("http", [])
    assert ssl.create_default_context().verify_mode == ssl.CERT_REQUIRED


def test_forbidden_words() -> None:
    with pytest.raises(Forbidden, match="only http:// and https://"):
        parse_target("ftp://x/")


# ── others who would be asked ─────────────────────────────────────────────────────────────────────────────


def test_no_proxy_of_the_environment_is_asked(work: RecordedContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would resolve names, and reach addresses, that we would not."""
    with web() as proxy, web(page=lambda page: page.answer(b"hello")) as served:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert HttpGet().call({"url": f"{served.url}/page"}, _allowing(work)).output == "hello"
        recorder = Recorder({"intern.example": [["10.0.0.1"]]})
        assert refusal(work, "http://intern.example/", recorder).kind == "http"
    assert (proxy.asked, recorder.connects) == ([], [])


def test_ten_gigabytes_are_not_taken(work: RecordedContext) -> None:
    """With the real bound: what is taken is counted, whatever the server says of its length."""
    sent: list[int] = []

    def huge(page: Web) -> None:
        page.send_response(200)
        page.send_header("Content-Length", str(10 * 2**30))
        page.end_headers()
        for _ in range(10 * 2**30 // 2**20):
            page.wfile.write(b"x" * 2**20)
            sent.append(2**20)

    with web(body=huge) as served:
        failure = HttpGet().call({"url": f"{served.url}/body"}, _allowing(work)).failure
    assert failure is not None
    assert failure.message == f"{served.url}/body: the body is larger than 32 MiB"
    assert sum(sent) < 64 * 2**20
