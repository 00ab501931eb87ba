"""What a scripted server answers, as a value: words, tool calls, or something that goes wrong."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]
PIECE = 24  # characters of one chunk of a stream


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One answer to one request. With a status that is no 200, or with a body, nothing else counts."""

    text: str = ""
    calls: tuple[tuple[str, Body | str], ...] = ()  # (tool, arguments)
    formed: bool = False  # the text is JSON: given as arguments where the request forces a tool
    refusal: str | None = None
    finish: str | None = None  # default: stop, or tool_calls
    tokens: tuple[int, int, int, int] | None = None  # input, cached, output, reasoning; default: by length
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None  # sent as it is
    resets_after: int | None = None  # the connection is reset after this many chunks; 0: before the answer
    ends_after: int | None = None  # the stream ends after this many chunks, as if that were all
    stalls_after: int | None = None  # after this many chunks nothing more is sent
    pause_s: float = 0.0  # before each chunk
    repeats: int = 1  # the text is sent this many times over, for replies that are too large

    def length(self) -> int:
        """Return the tokens of the reply, output only, as its length has it."""
        words = len(self.text) * self.repeats + sum(len(arguments_of(given)) for _, given in self.calls)
        return -(-words // 4)


def arguments_of(given: Body | str) -> str:
    """Return the arguments of a tool call as a model writes them."""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def says(text: str, **more: Any) -> ScriptedReply:
    """Answer with text."""
    return ScriptedReply(text=text, **more)


def plan(value: Any, **more: Any) -> ScriptedReply:
    """Answer with JSON, in whatever form the request asks for."""
    return ScriptedReply(text=json.dumps(value, ensure_ascii=False), formed=True, **more)


def calls(*wanted: tuple[str, Body | str], text: str = "", **more: Any) -> ScriptedReply:
    """Answer with tool calls."""
    return ScriptedReply(text=text, calls=wanted, **more)


def fails(status: int, message: str = "", code: str | None = None, **more: Any) -> ScriptedReply:
    """Answer with an error of the API; `retry_after` may be given."""
    headers = dict(more.pop("headers", {}))
    if (after := more.pop("retry_after", None)) is not None:
        headers["Retry-After"] = str(after)
    error = {"message": message or f"scripted {status}", "type": "scripted", "param": None, "code": code}
    body = json.dumps({"error": error}).encode()
    return ScriptedReply(status=status, body=body, headers={"Content-Type": "application/json", **headers}, **more)


def page(html: str = "<!doctype html><title>Welcome</title>", status: int = 200) -> ScriptedReply:
    """Answer as a web server that is no model."""
    return ScriptedReply(status=status, body=html.encode(), headers={"Content-Type": "text/html"})


def chunks(reply: ScriptedReply, request: Body) -> Iterator[Body]:
    """Yield the chunks of a streamed reply."""
    yield _chunk(request, {"role": "assistant", "content": ""})
    for key, deltas in _deltas(reply):
        for delta in deltas:
            yield _chunk(request, {key: delta})
    yield _chunk(request, {}, finish_of(reply))
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**_head(request, "chat.completion.chunk"), "choices": [], "usage": usage(reply, request)}


def _deltas(reply: ScriptedReply) -> Iterator[tuple[str, Iterator[Any]]]:
    for _ in range(reply.repeats):
        yield "content", _pieces(reply.text)
    yield "refusal", _pieces(reply.refusal or "")
    for index, (name, given) in enumerate(reply.calls):
        yield "tool_calls", _call_deltas(index, name, arguments_of(given))


def _call_deltas(index: int, name: str, arguments: str) -> Iterator[Any]:
    function = {"name": name, "arguments": ""}
    yield [{"index": index, "id": call_id(index), "type": "function", "function": function}]
    for piece in _pieces(arguments):
        yield [{"index": index, "function": {"arguments": piece}}]


def call_id(index: int) -> str:
    """Return the id of a scripted tool call."""
    return f"call_{index + 1}"


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]


def finish_of(reply: ScriptedReply) -> str:
    """Return why a reply ends."""
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def whole(reply: ScriptedReply, request: Body) -> Body:
    """Return the reply to a request that asks for no stream."""
    message: Body = {"role": "assistant", "content": reply.text * reply.repeats, "refusal": reply.refusal}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call_id(index), "type": "function", "function": {"name": name, "arguments": arguments_of(given)}}
            for index, (name, given) in enumerate(reply.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish_of(reply)}
    return {**_head(request, "chat.completion"), "choices": [choice], "usage": usage(reply, request)}


def usage(reply: ScriptedReply, request: Body) -> Body:
    """Return what a reply took: as scripted, else four characters a token."""
    asked = json.dumps([request.get("messages"), request.get("tools")], ensure_ascii=False)
    sent, cached, received, reasoning = reply.tokens or (-(-len(asked) // 4), 0, reply.length(), 0)
    return {
        "prompt_tokens": sent,
        "completion_tokens": received,
        "total_tokens": sent + received,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def _chunk(request: Body, delta: Body, finish: str | None = None) -> Body:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**_head(request, "chat.completion.chunk"), "choices": [choice]}


def _head(request: Body, kind: str) -> Body:
    return {"id": "chatcmpl-scripted", "object": kind, "created": 1, "model": request.get("model")}
