"""The tool http_get: one address, asked once (see `fetching`). It runs in the driver's own thread."""

from typing import TYPE_CHECKING

from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, ToolResult

if TYPE_CHECKING:
    from agentfs.tools.fetching import Net


class HttpGet:
    """Gets what stands at an address."""

    spec = ToolSpec(
        name="http_get",
        summary="Get what stands at a web address: the value if it is JSON, else the text",
        input_schema={
            "type": "object",
            "properties": {"url": {"type": "string", "minLength": 1}},
            "required": ["url"],
            "additionalProperties": False,
        },
        effects="network",
        repeatable=True,
        text_field="url",
    )

    def __init__(self, net: "Net | None" = None) -> None:
        self._net = net

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        from agentfs.tools.fetching import Net, Refused, fetch, head_of, result_of

        bench.claim(None)
        try:
            reply = fetch(str(given["url"]), bench, net=self._net or Net())
            if not 200 <= reply.status < 300:
                raise Refused("http", f"{reply.status} {reply.reason}{head_of(reply)}")
            return result_of(reply, bench)
        except Refused as refused:
            why = refused.failure
            return ToolResult(failure=Failure(kind=why.kind, message=bench.mask.text(why.message), hint=why.hint))
