"""The tool web_search: asks the search engine of the settings (see `fetching`), which may be a private one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, ToolResult
from agentfs.tools.capture import value_result

if TYPE_CHECKING:
    from agentfs.tools.fetching import Net, Reply

MOST_RESULTS = 10
LONGEST = {"title": 200, "url": 2000, "snippet": 500}  # characters
NO_ENGINE = ("the tool 'web_search' has no search engine to ask", "set url under [tools.web_search] in agentfs.toml")


class WebSearch:
    """Finds pages on the web."""

    spec = ToolSpec(
        name="web_search",
        summary="Search the web: a list of title, url and snippet",
        input_schema={
            "type": "object",
            "properties": {"query": {"type": "string", "minLength": 1, "maxLength": 1000}},
            "required": ["query"],
            "additionalProperties": False,
        },
        effects="network",
        repeatable=True,
        text_field="query",
    )

    def __init__(self, url: str = "", net: "Net | None" = None) -> None:
        self._url, self._net = url, net

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        from agentfs.tools.fetching import Net, Refused, fetch

        bench.claim(None)
        if not self._url:
            return ToolResult(failure=Failure(kind="input", message=NO_ENGINE[0], hint=NO_ENGINE[1]))
        try:
            reply = fetch(
                address(self._url, str(given["query"])), _reaching(self._url, bench), net=self._net or Net()
            )
            return value_result(results_in(reply), bench)
        except Refused as refused:
            why = refused.failure
            return ToolResult(failure=Failure(kind=why.kind, message=bench.mask.text(why.message), hint=why.hint))


def address(url: str, query: str) -> str:
    """Return where to ask for what: the engine's own address, its /search where none is named."""
    parts = urlsplit(url)
    asked = [*parse_qsl(parts.query), ("q", query), ("format", "json")]
    path = parts.path if parts.path.strip("/") else "/search"
    return urlunsplit((parts.scheme, parts.netloc, path, urlencode(asked), ""))


def _reaching(url: str, bench: Bench) -> Bench:
    """Return a bench that reaches the engine, wherever it is: the person named it."""
    confinement = bench.confinement
    return replace(bench, confinement=replace(confinement, hosts=(*confinement.hosts, urlsplit(url).netloc)))


def results_in(reply: "Reply") -> list[dict[str, str]]:
    """Return the results of an answer, bounded; Refused in words if it is none."""
    from agentfs.tools.fetching import Refused, head_of
    from agentfs.tools.values import NotJson, json_value

    if reply.status == 403:
        hint = "does it answer in JSON? SearXNG wants `json` among search.formats in its settings.yml"
        raise Refused("http", f"the search engine refuses: {reply.status} {reply.reason}", hint)
    if reply.status != 200:
        raise Refused("http", f"the search engine answers {reply.status} {reply.reason}{head_of(reply)}")
    try:
        value = json_value(reply.body.decode("utf-8", "replace"))
        found = value["results"] if isinstance(value, dict) else None
    except (NotJson, KeyError):
        found = None
    if not isinstance(found, list):
        hint = "url under [tools.web_search] must be that of a SearXNG-compatible engine"
        raise Refused("http", f"the search engine does not answer with results{head_of(reply)}", hint)
    return [_result(one) for one in found if isinstance(one, dict)][:MOST_RESULTS]


def _result(one: Mapping[str, Any]) -> dict[str, str]:
    said = {"title": one.get("title"), "url": one.get("url"), "snippet": one.get("content")}
    return {name: " ".join(str(text or "").split())[: LONGEST[name]] for name, text in said.items()}
