"""What is found in what models write: JSON in prose, tool calls in text, chunks of every kind."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfs.models.capabilities import Capabilities, learn_from_response, read_reply
from agentfs.models.endpoint import Response, ResponseBuilder, seconds_after
from agentfs.models.text_protocol import find_json, parse_object, read_calls, strip_thoughts
from tests.conversations import ask, offer

TOOLS = {"shell", "finish", "python", "ask"}
LS = ("shell", {"command": "ls"})
DONE = ("finish", {"ok": True, "output": "4"})
JSON_LS = '{"tool": "shell", "arguments": {"command": "ls"}}'
WRITTEN: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    # the protocol
    "a sh block": ("```sh\nls\n```", [LS]),
    "a shell block": ("```shell\nls\n```\n", [LS]),
    "a bash block": ("```bash\nls\n```", [("shell", {"command": "ls", "interpreter": "bash"})]),
    "a python block": ("```python\nprint(1)\n```", [("python", {"code": "print(1)"})]),
    "a block with fences in it": ("````sh\ncat > a.md <<E\n```\nx\n```\nE\n````", [("shell", {"command": "cat > a.md <<E\n```\nx\n```\nE"})]),
    "a block that was not closed": ("```sh\nls", [LS]),
    "two sh blocks": ("```sh\nls\n```\n\n```sh\nls\n```", [LS, LS]),
    "done": ("DONE", [("finish", {"ok": True})]),
    "done, with the answer": ("DONE: 4", [DONE]),
    "done, with an empty block": ("DONE:\n\n```sh\n```", [("finish", {"ok": True})]),
    "done, in bold": ("**DONE:** 4", [DONE]),
    "done, in small letters": ("Done: 4", [DONE]),
    "done, in several lines": ("DONE:\na\nb", [("finish", {"ok": True, "output": "a\nb"})]),
    "done, in a block": ("```sh\nDONE: 4\n```", [DONE]),
    "done, in half a block": ("```sh\nDONE: 4", [DONE]),
    "done, after a block": ("```sh\nls\n```\nDONE", [LS, ("finish", {"ok": True})]),
    "done, before a block": ("DONE\n```sh\nls\n```", [("finish", {"ok": True}), LS]),
    "a block in the answer": ("DONE: I ran\n```sh\nls\n```", [("finish", {"ok": True, "output": "I ran\n```sh\nls\n```"})]),
    "failed": ("FAILED: no such file", [("finish", {"ok": False, "output": "no such file"})]),
    "a question": ("ASK: Which colour?", [("ask", {"question": "Which colour?"})]),
    # other forms
    "a json block": (f"```json\n{JSON_LS}\n```", [LS]),
    "commands in a block of no language": ("```\nls\n```", [LS]),
    "a block of no language": (f"```\n{JSON_LS}\n```", [LS]),
    "a block in the tool's name": ('```ask\n{"question": "Why?"}\n```', [("ask", {"question": "Why?"})]),
    "the whole text": ('{"name": "shell", "arguments": {"command": "ls"}}', [LS]),
    "parameters": ('{"name": "shell", "parameters": {"command": "ls"}}', [LS]),
    "arguments as text": ('{"name": "shell", "arguments": "{\\"command\\": \\"ls\\"}"}', [LS]),
    "arguments beside the name": ('{"tool": "shell", "command": "ls"}', [LS]),
    "in the form of the protocol": (
        '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "shell", "arguments": {"command": "ls"}}}]}',
        [LS],
    ),
    "in its older form": ('{"function_call": {"name": "shell", "arguments": {"command": "ls"}}}', [LS]),
    "with a prefix": ('{"name": "functions.shell", "arguments": {"command": "ls"}}', [LS]),
    "tagged": ('<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>', [LS]),
    "tagged, without an end": ('<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}', [LS]),
    "a function": ('<function=shell>{"command": "ls"}</function>', [LS]),
    "a function with parameters": ("<function=shell>\n<parameter=command>\nls\n</parameter>\n</function>", [LS]),
    "single quotes": ("{'tool': 'shell', 'arguments': {'command': 'ls'}}", [LS]),
    "single quotes and JSON's constants": ("{'ok': true, 'output': '4', 'blocked': null}", [("finish", {"ok": True, "output": "4", "blocked": None})]),
    "JSON in JSON": (json.dumps(JSON_LS), [LS]),
    "doubled braces": ('{{"name": "shell", "arguments": {"command": "ls"}}}', [LS]),
    "line ends in a string": ('{"tool": "shell", "command": "ls\nls"}', [("shell", {"command": "ls\nls"})]),
    "finish without its wrapping": ('{"ok": true, "output": "4"}', [DONE]),
    "ok as a word": ('{"tool": "finish", "ok": "true"}', [("finish", {"ok": "true"})]),
    "two blocks": (f'```json\n{JSON_LS}\n```\n```json\n{{"tool": "finish", "ok": true}}\n```', [LS, ("finish", {"ok": True})]),
    "two lines of one block": (f'```json\n{JSON_LS}\n{{"tool": "finish", "arguments": {{}}}}\n```', [LS, ("finish", {})]),
    "a list": (f"[{JSON_LS}]", [LS]),
    "after thoughts": (f'<think>{{"tool": "finish"}}</think>\n{JSON_LS}', [LS]),
    "no arguments": ('{"tool": "finish", "arguments": null}', [("finish", {})]),
    # no calls: something else is in the reply, or nothing that can be understood
    "a block in prose": (f"I look.\n\n```json\n{JSON_LS}\n```\nDone.", []),
    "a sentence before": ("I look.\n```sh\nls\n```", []),
    "a sentence after": ("```sh\nls\n```\nThat lists the files.", []),
    "a block beside one that is none": ('```sh\nls\n```\n```json\n{"a": 1}\n```', []),
    "a quoted file": ("The file says:\n\n> ```sh\n> rm -r .\n> ```", []),
    "prose that begins with done": ("Done with the first part, now the rest.", []),
    "another tool": ('{"tool": "rocket", "arguments": {}}', []),
    "a call among other values": (f"[{JSON_LS}, 1]", []),
    "a name that is no name": ('{"tool": {"shell": 1}, "arguments": {}}', []),
    "half a block": ('```json\n{"tool": "shell", "arguments": {"comm', []),
    "an empty block": ("```sh\n\n```", []),
    "JSON that is no call in a block of no language": ('```\n{"a": 1}\n```', []),
    "a block of another language": ("```text\nls\n```", []),
    "prose": ("I would call shell with ls.", []),
    "JSON in the middle of prose": ('I would write {"tool": "shell", "arguments": {}} now.', []),
    "Python that is no value": ("{'tool': __import__('os')}", []),
    "a key twice": ('{"tool": "shell", "command": "ls", "command": "rm"}', []),
    "a key twice, in single quotes": ("{'tool': 'shell', 'command': 'ls', 'command': 'rm'}", []),
    "nested without end": ("[" * 100_000, []),
    "fences without end": ("```sh\n" * 20_000, []),
    "nothing": ("", []),
}  # fmt: skip


@pytest.mark.parametrize(("text", "calls"), WRITTEN.values(), ids=WRITTEN.keys())
def test_calls_written_as_text(text: str, calls: list[tuple[str, Any]]) -> None:
    assert [(name, parse_object(arguments)) for name, arguments in read_calls(text, TOOLS)] == calls


@pytest.mark.parametrize("text", [text for text, _ in WRITTEN.values()], ids=WRITTEN.keys())
def test_for_an_endpoint_with_native_calls_none_of_it_is_a_call(text: str) -> None:
    request = ask(offers=tuple(offer(name, "x") for name in sorted(TOOLS)))
    response = Response(text, finish="stop")
    for known in (Capabilities(native=True), Capabilities()):
        learnt = learn_from_response(request, known, response)
        reply = read_reply(request, known, response, learnt)
        assert (reply.tool_calls, reply.text) == ((), strip_thoughts(text))
        assert reply.restart is (bool(read_calls(text, TOOLS)) and not known.native), "a first one is asked again"


def test_a_reply_cut_short_calls_nothing() -> None:
    request = ask(offers=(offer("shell", "command"),))
    reply = read_reply(request, Capabilities(tools=False), Response("```sh\nrm -r bui", finish="length"))
    assert reply.tool_calls == ()


def test_without_tools_a_reply_is_the_answer() -> None:
    request = ask(offers=(offer("finish", "output"),))
    reply = read_reply(request, Capabilities(tools=False), Response("Blue.", finish="stop"))
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [
        ("finish", {"ok": True, "output": "Blue."})
    ]


FOUND: dict[str, tuple[str, Any]] = {
    "alone": ('{"a": 1}', {"a": 1}),
    "a list": ("[1, 2]", [1, 2]),
    "fenced": ('Here:\n```json\n{"a": 1}\n```', {"a": 1}),
    "the fence that is JSON": ('```sh\nls\n```\n```json\n{"a": 1}\n```', {"a": 1}),
    "in prose": ('The answer is {"a": {"b": "}"}}, I think.', {"a": {"b": "}"}}),
    "after other braces": ('With {braces} and {} and then {"a": 1}.', {"a": 1}),
    "after thoughts": ('<think>{"b": 2}</think>{"a": 1}', {"a": 1}),
    "none": ("no JSON here", None),
    "a number": ("42", None),
    "half": ('{"a": ', None),
    "nested without end": ("[" * 100_000, None),
    "braces without end": ("{" * 100_000, None),
}


@pytest.mark.parametrize(("text", "value"), FOUND.values(), ids=FOUND.keys())
def test_json_in_a_text(text: str, value: Any) -> None:
    found = find_json(text)
    assert (json.loads(found) if found else None) == value


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    read_calls(text, TOOLS)
    find_json(text)
    assert strip_thoughts(text) in text


def _delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": None}]}


def _call(name: str | None, arguments: Any, **more: Any) -> dict[str, Any]:
    return _delta(tool_calls=[{**more, "function": {"name": name, "arguments": arguments}}])


CALLS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str, str]]]] = {
    "in pieces": (
        [_call("shell", "", index=0, id="a"), _call(None, '{"x"', index=0), _call(None, ": 1}", index=0)],
        [("a", "shell", '{"x": 1}')],
    ),
    "in turns": (
        [
            _call("shell", "", index=0, id="a"),
            _call("note", "", index=1, id="b"),
            _call(None, "1", index=0),
            _call(None, "2", index=1),
        ],
        [("a", "shell", "1"), ("b", "note", "2")],
    ),
    "all with one index": (
        [_call("shell", "1", index=0, id="a"), _call("shell", "2", index=0, id="b")],
        [("a", "shell", "1"), ("b", "shell", "2")],
    ),
    "in the older form": (
        [_delta(function_call={"name": "shell", "arguments": '{"x"'}), _delta(function_call={"arguments": ": 1}"})],
        [("call_1", "shell", '{"x": 1}')],
    ),
    "with no index": ([_call("shell", "1", id="a"), _call(None, "2")], [("a", "shell", "12")]),
    "with no id": ([_call("shell", "1", index=0), _call("note", "2", index=1)], [("call_1", "shell", "1"), ("call_2", "note", "2")]),
    "arguments as a value": ([_call("shell", {"x": 1}, index=0, id="a")], [("a", "shell", '{"x": 1}')]),
    "an id in every piece": (
        [_call("shell", "1", index=0, id="a"), _call("", "2", index=0, id="a")],
        [("a", "shell", "12")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("chunks", "calls"), CALLS.values(), ids=CALLS.keys())
def test_tool_calls_as_endpoints_stream_them(chunks: list[dict[str, Any]], calls: list[tuple[str, str, str]]) -> None:
    builder = ResponseBuilder()
    for chunk in chunks:
        builder.add(chunk)
    assert [(call.id, call.name, call.arguments) for call in builder.response().tool_calls] == calls


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"delta": None}]},
        _delta(content=None, tool_calls=None),
        _delta(content=7, tool_calls=[None, {}]),
        {"usage": 7, "model": 7},
    ],
    ids=json.dumps,
)
def test_odd_chunks_say_nothing(chunk: dict[str, Any]) -> None:
    builder = ResponseBuilder()
    builder.add(_delta(content="a"))
    builder.add(chunk)
    builder.add(_delta(content="b"))
    assert builder.response().text == "ab"


def test_text_that_cannot_be_written_is_fixed() -> None:
    builder = ResponseBuilder()
    builder.add(_delta(content="a\ud800b"))
    assert builder.response().text == "a\ufffd\ufffd\ufffdb"


NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("Mon, 16 Nov 2026 12:00:30 GMT", 30.0),
        ("Mon, 16 Nov 2026 11:00:00 GMT", 0.0),
        ("Mon, 16 Nov 2026 12:00:30 -0000", 30.0),
        ("soon", None),
    ],
)
def test_when_a_server_wants_to_be_asked_again(header: str | None, seconds: float | None) -> None:
    assert seconds_after(header, NOW) == seconds
