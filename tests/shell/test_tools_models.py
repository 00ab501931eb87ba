"""The tools web_search and summarize, over real connections."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agentfs.models.base import ModelSession
from agentfs.models.budget import Budget
from agentfs.testing import ScriptedServer
from agentfs.tools.base import StepContext, ToolResult
from agentfs.tools.text_tools import LONGEST_TEXT, summarize
from agentfs.tools.web import WebSearch, search_address
from tests.contexts import a_context
from tests.conversations import a_model, bounds
from tests.webs import Web, web


def search(page: Any, tmp_path: Path, *, network: bool = True) -> tuple[ToolResult, list[str]]:
    with web(search=page) as served:
        tool = WebSearch(served.url)
        return tool.call(
            {"query": "wind & sun"}, a_context(tmp_path, network=network, output_bytes=65536).context
        ), served.asked


def answering(value: Any, **more: Any) -> Any:
    return lambda page: page.answer(json.dumps(value).encode(), kind="application/json", **more)


def test_results_are_bounded(tmp_path: Path) -> None:
    one = {"title": "A\n title", "url": "http://a.example/", "content": "x" * 5000, "score": 7}
    result, asked = search(answering({"query": "wind", "results": [one, "odd", *[one] * 50]}), tmp_path)
    found = [{"title": "A title", "url": "http://a.example/", "snippet": "x" * 500} for _ in range(10)]
    assert result == ToolResult(found)
    assert parse_qs(urlsplit(asked[0]).query) == {"q": ["wind & sun"], "format": ["json"]}


def test_no_results_are_no_failure(tmp_path: Path) -> None:
    assert search(answering({"results": []}), tmp_path)[0] == ToolResult([])


def test_what_is_missing_is_empty(tmp_path: Path) -> None:
    found = search(answering({"results": [{"url": "http://a.example/", "content": None}]}), tmp_path)[0]
    assert found == ToolResult([{"title": "", "url": "http://a.example/", "snippet": ""}])


def _says(text: str, status: int = 200) -> Any:
    def page(page: Web) -> None:
        page.answer(text.encode(), status=status, kind="text/html")

    return page


@pytest.mark.parametrize(
    ("page", "words", "hint"),
    [
        (_says("Forbidden", 403), "the search engine refuses: 403", "SearXNG wants `json`"),
        (_says("oops", 500), "the search engine answers 500", None),
        (_says("<html>"), "does not answer with results: <html>", "SearXNG-compatible"),
        (answering([1]), "does not answer with results", "SearXNG-compatible"),
        (answering({"results": 7}), "does not answer with results", "SearXNG-compatible"),
    ],
)
def test_an_engine_that_is_none(page: Any, words: str, hint: str | None, tmp_path: Path) -> None:
    failure = search(page, tmp_path)[0].failure
    assert failure is not None
    assert words in failure.message
    assert (hint or "") in (failure.hint or "")


def test_without_network_nobody_is_asked(tmp_path: Path) -> None:
    result, asked = search(answering({"results": []}), tmp_path, network=False)
    assert result.failure is not None
    assert (result.failure.message, asked) == ("tools have no network", [])


def test_without_an_engine(tmp_path: Path) -> None:
    failure = WebSearch().call({"query": "x"}, a_context(tmp_path, network=True).context).failure
    assert failure is not None
    assert failure.hint == "set url under [tools.web_search] in agentfs.toml"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://s:8888", "http://s:8888/search?q=a+b&format=json"),
        ("http://s/", "http://s/search?q=a+b&format=json"),
        ("https://s/x/search", "https://s/x/search?q=a+b&format=json"),
        ("https://s/search?language=de", "https://s/search?language=de&q=a+b&format=json"),
    ],
)
def test_where_it_asks(url: str, asked: str) -> None:
    assert search_address(url, "a b") == asked


def _context(tmp_path: Path, server: ScriptedServer, **limits: Any) -> StepContext:
    work = a_context(tmp_path)
    line = ModelSession(work.context.log, Budget(bounds(**limits)), work.stop, work.context.deadline)
    return replace(work.context, model=a_model(tmp_path, server.url), session=line)


def test_a_summary_is_one_request(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.says("Wind grows.", tokens=(100, 0, 5, 0))
        context = _context(tmp_path, server)
        result = summarize.call({"text": "Long words on wind.", "focus": "growth"}, context)
        server.done()
    assert (result.output, result.failure) == ("Wind grows.", None)
    assert result.prompt_sha256 is not None
    system, user = server.requests[0]["messages"]
    assert "Summarize it with regard to: growth" in system["content"]
    assert user == {"role": "user", "content": "Long words on wind."}
    assert context.session is not None
    assert context.session.usage is not None
    assert (context.session.usage.requests, context.session.usage.input_tokens) == (1, 100)


def test_a_text_that_is_too_long_is_cut_and_says_so(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.says("Much.")
        summarize.call({"text": "x" * (LONGEST_TEXT + 7)}, _context(tmp_path, server))
    sent = server.requests[0]["messages"][1]["content"]
    assert "… 7 characters are left out here …" in sent
    assert "with regard to: what matters most in it" in server.requests[0]["messages"][0]["content"]


def test_a_summary_cut_short_is_none(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.says("Wind gr", finish="length")
        failure = summarize.call({"text": "words"}, _context(tmp_path, server)).failure
    assert failure is not None
    assert (failure.kind, failure.message) == ("model", "the summary was cut short")


def test_no_summary_beyond_the_limits(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        failure = summarize.call({"text": "words"}, _context(tmp_path, server, requests=0)).failure
    assert failure is not None
    assert failure.kind == "limit"
    assert server.requests == []


def test_a_prompt_of_ones_own(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        server.says("Ahoy.")
        context = _context(tmp_path, server)
        own = context.confinement.workspace / "prompts/summarize.md"
        own.parent.mkdir()
        own.write_text("Like a pirate: <<focus>>", encoding="utf-8")
        summarize.call({"text": "words", "focus": "the sea"}, context)
    assert server.requests[0]["messages"][0]["content"] == "Like a pirate: the sea"


def test_nobody_to_ask(tmp_path: Path) -> None:
    failure = summarize.call({"text": "words"}, a_context(tmp_path).context).failure
    assert failure is not None
    assert failure.kind == "unreachable"
