"""A scripted model for coding agents: one server on loopback that speaks the four dialects they use, all streamed.

    POST …/responses                              OpenAI Responses     codex
    POST …/messages                               Anthropic Messages   claude
    POST …/chat/completions                       OpenAI chat          opencode, goose
    POST …/models/NAME:(stream)generateContent    Gemini               gemini

The script: one command after the other, then the answer. `mode` bends it: ok; claim (the answer at once, nothing done);
loop (the first command without end); refusal; prose (an answer that is no JSON); hang; 400, 401, 429, 500.
"""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ANSWER = {"ok": True, "output": "it is fixed", "surprising": None, "blocked": None, "evidence": []}
SHELLS = {
    "exec_command": "cmd", "shell_command": "command",  # codex: tool -> argument
    "Bash": "command", "bash": "command",  # claude, opencode
    "run_shell_command": "command", "shell": "command",  # gemini, goose
}  # fmt: skip
FINALS = ("StructuredOutput", "recipe__final_output")  # where the answer is a call: claude, goose

Plan = tuple[str, str, dict[str, Any]]  # "tool", "text" or "refusal"; a name or words; arguments


class ScriptedModel(ThreadingHTTPServer):
    """Serves until it is closed; remembers every request."""

    daemon_threads = True

    def __init__(self, commands: Sequence[str], mode: str = "ok", answer: dict[str, Any] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.commands, self.mode, self.answer = list(commands), mode, answer or ANSWER
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.leave = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the script."""

    def prompts(self) -> str:
        """Return all that was asked, as text."""
        return "\n".join(json.dumps(body) for _, body in self.requests)

    def plan(self, acted: int, tools: Iterable[str]) -> Plan:
        """Return the next turn, after so many calls have returned."""
        known = set(tools)
        if not known:  # side calls (titles, topics) carry no tools
            return "text", "{}", {}
        if self.mode == "refusal":
            return "refusal", "I cannot help with that.", {}
        if self.mode == "loop" or (self.mode != "claim" and acted < len(self.commands)):
            command = self.commands[0 if self.mode == "loop" else acted]
            name = next((name for name in SHELLS if name in known), None)
            if name is None:
                return "text", f"no shell among {sorted(known)}", {}
            return "tool", name, {SHELLS[name]: command, "description": "run"}
        if self.mode == "prose":
            return "text", "I have fixed everything, all tests pass.", {}
        for name in FINALS:
            if name in known:
                return "tool", name, dict(self.answer)
        return "text", json.dumps(self.answer), {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedModel

    def log_message(self, *_: Any) -> None:
        pass

    def reply(self, status: int, body: Any, kind: str = "application/json", **more: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        headers = {"content-type": kind, "content-length": str(len(content)), **more}
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def stream(self, events: Iterable[dict[str, Any]], *, named: bool = True, done: bool = False) -> None:
        lines = [
            (b"event: %s\n" % str(event["type"]).encode() if named else b"")
            + b"data: %s\n\n" % json.dumps(event).encode()
            for event in events
        ]
        self.reply(200, b"".join(lines) + (b"data: [DONE]\n\n" if done else b""), "text/event-stream")

    def do_GET(self) -> None:
        if "/models" in self.path:
            self.reply(200, {"object": "list", "data": [{"id": "fake", "object": "model"}], "models": []})
        else:
            self.reply(404, {"error": {"message": "no such thing"}})

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        self.server.requests.append((path, body))
        dialect = next((one for tail, one in DIALECTS.items() if path.endswith(tail)), None)
        if dialect is None:  # count_tokens, :countTokens and the like
            self.reply(200, {"input_tokens": 10, "totalTokens": 10})
        elif self.server.mode == "hang":
            self.server.leave.wait()
        elif self.server.mode.isdigit():
            code = int(self.server.mode)
            error = {"type": "api_error", "code": code, "status": "FAKE", "message": f"scripted {code}"}
            self.reply(code, {"type": "error", "error": error}, **({"retry_after": "1"} if code == 429 else {}))
        else:
            dialect(self, body, path, len(self.server.requests))


def _responses(handler: _Handler, body: dict[str, Any], _path: str, n: int) -> None:
    acted = sum(one.get("type", "").endswith("_output") for one in body["input"])
    tools = [name for tool in body.get("tools", []) for name in _names(tool)]
    kind, what, given = handler.server.plan(acted, tools)
    item: dict[str, Any]
    if kind == "tool":
        item = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "status": "completed"}
        space, _, name = what.rpartition("/")
        item |= {"name": name, "arguments": json.dumps(given), **({"namespace": space} if space else {})}
    else:
        part: dict[str, Any] = {"type": "refusal", "refusal": what}
        part = part if kind == "refusal" else {"type": "output_text", "text": what, "annotations": []}
        item = {"type": "message", "id": f"msg_{n}", "role": "assistant", "status": "completed", "content": [part]}
    usage: dict[str, Any] = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 7}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 107}
    made: dict[str, Any] = {
        "id": f"resp_{n}",
        "object": "response",
        "status": "in_progress",
        "model": body.get("model"),
        "output": [],
    }
    handler.stream(
        [
            {"type": "response.created", "response": made},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {
                "type": "response.completed",
                "response": {**made, "status": "completed", "output": [item], "usage": usage},
            },
        ]
    )


def _names(tool: dict[str, Any]) -> list[str]:
    """Return what a tool is called by; those of an MCP server are given together, under its name."""
    if tool["type"] == "namespace":
        return [f"{tool['name']}/{one['name']}" for one in tool["tools"]]
    return [tool.get("name") or tool["type"]]


def _messages(handler: _Handler, body: dict[str, Any], _path: str, n: int) -> None:
    blocks = [
        one for message in body["messages"] if isinstance(message["content"], list) for one in message["content"]
    ]
    acted = sum(one.get("type") == "tool_result" for one in blocks)
    kind, what, given = handler.server.plan(acted, [tool["name"] for tool in body.get("tools", [])])
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 40, "output_tokens": 7}
    start: dict[str, Any]
    if kind == "tool":
        start, stop = {"type": "tool_use", "id": f"toolu_{n}", "name": what, "input": {}}, "tool_use"
        delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
    else:
        start, stop = {"type": "text", "text": ""}, "refusal" if kind == "refusal" else "end_turn"
        delta = {"type": "text_delta", "text": what}
    message: dict[str, Any] = {
        "id": f"msg_{n}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    handler.stream(
        [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
    )


def _chat(handler: _Handler, body: dict[str, Any], _path: str, n: int) -> None:
    acted = sum(message.get("role") == "tool" for message in body["messages"])
    kind, what, given = handler.server.plan(acted, [tool["function"]["name"] for tool in body.get("tools") or []])
    delta: dict[str, Any] = {"role": "assistant", "content": what}
    stop = "content_filter" if kind == "refusal" else "stop"
    if kind == "tool":
        call = {"index": 0, "id": f"call_{n}", "type": "function"}
        call["function"] = {"name": what, "arguments": json.dumps(given)}
        delta, stop = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    usage |= {"prompt_tokens_details": {"cached_tokens": 40}}
    head = {"id": f"chatcmpl-{n}", "created": 1, "model": body.get("model"), "object": "chat.completion.chunk"}
    handler.stream(
        [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}], "usage": usage},
        ],
        named=False,
        done=True,
    )


def _gemini(handler: _Handler, body: dict[str, Any], path: str, _n: int) -> None:
    acted = sum("functionResponse" in part for content in body["contents"] for part in content.get("parts", []))
    tools = [one["name"] for tool in body.get("tools") or [] for one in tool.get("functionDeclarations", [])]
    kind, what, given = handler.server.plan(acted, tools)
    part = {"functionCall": {"name": what, "args": given}} if kind == "tool" else {"text": what}
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "candidatesTokenCount": 7,
        "totalTokenCount": 107,
    }
    finish = "SAFETY" if kind == "refusal" else "STOP"
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": finish}
    reply = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}
    if path.endswith(":generateContent"):
        handler.reply(200, reply)
    else:
        handler.stream([reply], named=False)


DIALECTS: dict[str, Callable[[_Handler, dict[str, Any], str, int], None]] = {
    "/responses": _responses,
    "/messages": _messages,
    "/chat/completions": _chat,
    ":generateContent": _gemini,
    ":streamGenerateContent": _gemini,
}
