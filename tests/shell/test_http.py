"""http_get and the `http` check, against a server on loopback that the settings allow."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import Failure, HttpCheck
from agentfs.executor.checks import run_checks
from agentfs.tools.base import ToolResult
from agentfs.tools.web import HttpGet
from tests.contexts import RecordedContext, a_context
from tests.webs import Web, web
from tests.workspaces import Place


def allowing(tmp_path: Path, **more: Any) -> RecordedContext:
    return a_context(tmp_path, network=True, hosts=("127.0.0.1",), **more)


def got(tmp_path: Path, body: bytes, kind: str, **more: Any) -> ToolResult:
    with web(x=lambda page: page.answer(body, kind=kind)) as served:
        return HttpGet().call({"url": f"{served.url}/x"}, allowing(tmp_path, **more).context)


@pytest.mark.parametrize(
    ("body", "kind", "output"),
    [
        (b"hello\n", "text/plain", "hello\n"),
        (b"", "text/plain", ""),
        (b'{"a": [1, 2.5, null]}', "application/json", {"a": [1, 2.5, None]}),
        (b'{"a": 1}', "text/plain", {"a": 1}),
        (b" [1, 2]\n", "text/html", [1, 2]),
        (b"5", "application/json", 5),
        (b"5", "text/plain", "5"),
        (b'"words"', "application/problem+json; charset=utf-8", "words"),
        (b'{"a": NaN}', "application/json", '{"a": NaN}'),
        (b'{"a": 1, "a": 2}', "application/json", '{"a": 1, "a": 2}'),
        (b"{" * 5000, "application/json", "{" * 5000),
        ("grün".encode(), "text/plain; charset=utf-8", "grün"),
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
    ],
)
def test_the_value_if_it_is_json_else_the_text(tmp_path: Path, body: bytes, kind: str, output: Any) -> None:
    assert got(tmp_path, body, kind, output_bytes=8192) == ToolResult(output)


def test_a_body_that_is_no_text_is_kept_to_the_byte(tmp_path: Path) -> None:
    work = allowing(tmp_path)
    result = got(tmp_path, b"\xff\xfe\x00", "application/octet-stream")
    assert (result.cut, work.context.output_file.read_bytes()) == (True, b"\xff\xfe\x00")


def test_a_long_body_goes_to_the_file(tmp_path: Path) -> None:
    result = got(tmp_path, b"line\n" * 1000, "text/plain", output_bytes=300)
    assert result.cut
    assert "bytes cut; the whole output is in steps/demo.1.output.txt" in result.output
    assert allowing(tmp_path).context.output_file.read_bytes() == b"line\n" * 1000


def test_redirects_are_followed_and_chunks_put_together(tmp_path: Path) -> None:
    def chunked(page: Web) -> None:
        page.send_response(200)
        page.send_header("Transfer-Encoding", "chunked")
        page.end_headers()
        for part in (b"one ", b"two"):
            page.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        page.wfile.write(b"0\r\n\r\n")

    with web(a=lambda page: page.answer(b"", status=301, Location="/b?q=1"), b=chunked) as served:
        result = HttpGet().call({"url": f"{served.url}/a#part"}, allowing(tmp_path).context)
    assert (result, served.asked) == (ToolResult("one two"), ["/a", "/b?q=1"])


def test_an_error_is_a_failure_with_the_head_of_the_body(tmp_path: Path) -> None:
    with web(x=lambda page: page.answer(b"the disk is full " * 100, status=507)) as served:
        work = allowing(tmp_path)
        failure = HttpGet().call({"url": f"{served.url}/x"}, work.context).failure
        missing = HttpGet().call({"url": f"{served.url}/y"}, work.context).failure
    assert missing == Failure(kind="http", message="404 Not Found: nothing here")
    assert failure is not None
    assert failure.message == f"507 Insufficient Storage: {('the disk is full ' * 100)[:500]}…"
    assert work.claims == [None, None]


def test_no_secret_comes_back(tmp_path: Path) -> None:
    environ = {"A_TOKEN": "hush-hush-1234"}
    with web(x=lambda page: page.answer(b'{"key": "hush-hush-1234"}')) as served:
        work = allowing(tmp_path, environ=environ)
        result = HttpGet().call({"url": f"{served.url}/x"}, work.context)
        failed = HttpGet().call({"url": f"{served.url}/hush-hush-1234"}, work.context)
    assert result.output == {"key": "[secret A_TOKEN]"}
    assert "hush" not in str(failed)


def test_nothing_listens(tmp_path: Path) -> None:
    with web() as served:
        url = f"{served.url}/x"
    failure = HttpGet().call({"url": url}, allowing(tmp_path).context).failure
    assert failure == Failure(kind="http", message=f"{url}: Connection refused")


# ── the check ─────────────────────────────────────────────────────────────────────────────────────────────


def checked(work: RecordedContext, url: str, status: int | None = None) -> tuple[bool, str]:
    (found,) = run_checks([HttpCheck(kind="http", url=url, status=status)], work.context, None)
    return found.ok, f"{found.detail} ({found.hint})" if found.hint else found.detail


def test_the_check(tmp_path: Path) -> None:
    pages = {
        "ok": lambda page: page.answer(b"fine"),
        "moved": lambda page: page.answer(b"", status=302, Location="/ok"),
        "gone": lambda page: page.answer(b"", status=410),
    }
    with web(**pages) as served:
        work, at = allowing(tmp_path), served.url
        assert checked(work, f"{at}/ok") == (True, f"{at}/ok answered 200")
        assert checked(work, f"{at}/moved") == (True, f"{at}/moved answered 200")
        assert checked(work, f"{at}/moved", 302) == (True, f"{at}/moved answered 302")
        assert checked(work, f"{at}/gone", 410) == (True, f"{at}/gone answered 410")
        assert checked(work, f"{at}/gone") == (False, f"{at}/gone answered 410, not 200")
        refused = a_context(tmp_path, network=True)
        ok, detail = checked(refused, f"{at}/ok")
        assert (ok, "not a public address" in detail, "hosts under [tools]" in detail) == (False, True, True)
        assert checked(a_context(tmp_path), f"{at}/ok") == (
            False,
            "tools have no network (set network = true under [tools] in agentfs.toml)",
        )


# ── from outside ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_runbook_gets_the_content_of_an_address(place: Place) -> None:
    with web(price=lambda page: page.answer(b'{"eur": 12}', kind="application/json")) as served:
        book = f"""\
### price
```http
GET {served.url}/price
```

### tell
```sh
echo "{{{{steps.price.output.eur}}}} euros"
```
"""
        place.agentfs("init")
        refused = place.agentfs("run", place.runbook(book), code=2)
        assert "the tool 'http_get' needs the network" in refused.stderr
        settings = place.root / "agentfs.toml"
        settings.write_text("[tools]\nnetwork = true\n")
        failed = place.agentfs("run", place.runbook(book), code=1)
        assert "not a public address" in failed.stderr
        settings.write_text(f'[tools]\nnetwork = true\nhosts = ["127.0.0.1:{served.port}"]\n')
        done = place.agentfs("run", place.runbook(book, name="again.md"))
    assert (done.stdout, served.asked) == ("12 euros\n", ["/price"])
    assert place.read("run.json", "again")["hosts"] == [f"127.0.0.1:{served.port}"]
    order = json.loads((place.run_folder("again") / "steps/price.1.json").read_text())
    assert (order["tool"], order["input"], order["repeatable"]) == ("http_get", {"url": f"{served.url}/price"}, True)
