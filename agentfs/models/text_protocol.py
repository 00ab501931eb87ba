"""The protocol for models without native calls, in text alone: what they are sent, and what their text means. Pure.

A fenced block is a call, one line ends the step, and there is nothing else to learn. What small models do with it was
measured (docs/models.md): the fewer words the better, and no word of the end before something was run.

Calls are read from the text of an endpoint that is known to make none natively, and only from a reply that holds
nothing else: what a model quotes in the middle of other words is no call. A reply is a row of these:

    ```sh                  ```json                                    <tool_call>{"name": "shell", …}</tool_call>
    ls                     {"tool": "ask", "question": "…"}           <function=shell>{"command": "ls"}</function>
    ```                    ```                                        {"ok": true, "output": "…"}

or one line: `DONE: the answer`, `FAILED: why`, `ASK: a question`.
"""

import ast
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from agentfs.core.records import JsonObject
from agentfs.core.values import NotJson, json_value
from agentfs.models.base import Offer

FINISH, HAND_OVER, ASK, SHELL, PYTHON = "finish", "hand_over", "ask", "shell", "python"

# ── a conversation as text ────────────────────────────────────────────────────────────────────────────────

# with a shell there is nothing these are needed for; they can be called all the same
_BY_SHELL = frozenset(
    {SHELL, PYTHON, "read_file", "write_file", "edit_file", "list_files", "search_files", "note", "summarize"}
)
_NOT_LISTED = frozenset({FINISH, HAND_OVER, ASK})  # what ends or asks is a line; giving up is not offered
_SHOWN = "You are shown the result."
# no block as an example: a small model sends it back as it is
_SH = "Each turn reply with exactly one ```sh block; it is run and you get its output."
_PYTHON = "Each turn reply with exactly one ```python block; it is run and you get its output."
_ASK = "If only a person can tell, reply ASK: and the question."
_ANSWER_ALONE = "You have no tools. Reply with the answer, and nothing else."
NOTHING = "(nothing)"
FIRST = "Write the sh commands that do this, in one sh block."  # what comes last has most effect


def describe_tools(offers: tuple[Offer, ...]) -> str:
    """Return words that offer tools: a block to write, and what else it may hold."""
    names = {offer.name for offer in offers}
    if has_no_tools(names):
        return _ANSWER_ALONE
    first = _SH if SHELL in names else _PYTHON if PYTHON in names else ""
    left = _NOT_LISTED | (_BY_SHELL if SHELL in names else {PYTHON})
    others = [offer for offer in offers if offer.name not in left]
    asking = f"\n\n{_ASK}" if ASK in names and SHELL not in names else ""  # with all at hand, it would only distract
    if not others:
        return first + asking
    listed = "\n".join(f"{_example(offer)}  {offer.description}" for offer in others)
    if first:
        return f"{first}\n\nInstead of that, the one block may be json and hold one of these:\n{listed}{asking}"
    return f"Reply with one json block and nothing else. It holds one of these:\n{listed}\n\n{_SHOWN}{asking}"


def has_no_tools(names: set[str]) -> bool:
    """Whether nothing is offered but ways to end: then a reply is the answer."""
    return FINISH in names and not names - {FINISH, HAND_OVER}


def _example(offer: Offer) -> str:
    fields: Any = offer.parameters.get("required") or offer.parameters.get("properties") or ()
    return _dump({"tool": offer.name, **dict.fromkeys(fields, "…")})


def write_as_text(messages: tuple[JsonObject, ...], offers: tuple[Offer, ...]) -> tuple[JsonObject, ...]:
    """Return a conversation with tools as one of text: calls as blocks, results as what a user writes."""
    written: list[JsonObject] = []
    for message in map(_message_as_text, messages):
        if written and message["role"] == written[-1]["role"] == "user":  # many models need roles to alternate
            written[-1] = {"role": "user", "content": f"{written[-1]['content']}\n\n{message['content']}"}
        else:
            written.append(message)
    first = next((place for place, message in enumerate(written) if message["role"] == "user"), None)
    if first is not None and any(offer.name == SHELL for offer in offers):
        written[first] = {"role": "user", "content": f"{str(written[first]['content']).rstrip()}\n\n{FIRST}"}
    return tuple(written)


def _message_as_text(message: JsonObject) -> JsonObject:
    if message.get("role") == "tool":
        return {"role": "user", "content": f"Result:\n{message.get('content') or NOTHING}"}
    calls: Any = message.get("tool_calls")
    if not calls:
        return message
    blocks = (_block(call["function"]) for call in calls)
    return {"role": "assistant", "content": "\n".join([str(message.get("content") or ""), *blocks]).strip()}


def _block(function: Mapping[str, str]) -> str:
    """Return a call as it should have been written: a model imitates what it sees."""
    name, arguments = function["name"], _load(function["arguments"], function["arguments"])
    match name, arguments:
        case "shell", {"command": str(command), **rest} if rest in ({}, {"interpreter": "sh"}):
            return _fence("sh", command)
        case "shell", {"command": str(command), "interpreter": "bash", **rest} if not rest:
            return _fence("bash", command)
        case "python", {"code": str(code), **rest} if not rest:
            return _fence("python", code)
        case "ask", {"question": str(question), **rest} if not rest:
            return f"ASK: {question}"
        case "finish", {"ok": bool(ok), **rest} if rest.keys() <= {"output"}:
            return f"{'DONE' if ok else 'FAILED'}: {rest.get('output') or ''}".rstrip(" ")
        case _, dict():
            return _fence("json", _dump({"tool": name, **arguments}))
        case _:
            return _fence("json", _dump({"tool": name, "arguments": arguments}))


def _fence(language: str, body: str) -> str:
    fence = "```"
    while f"\n{fence}" in f"\n{body}":
        fence += "`"
    return f"{fence}{language}\n{body}\n{fence}"


def _load(text: str, otherwise: Any = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ── JSON in a text ────────────────────────────────────────────────────────────────────────────────────────

MOST_STARTS = 200  # places where JSON may begin that are tried; a text full of braces is no answer
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_DECODER = json.JSONDecoder()


def strip_thoughts(text: str) -> str:
    """Return a text without the thoughts that some models write before it."""
    return _THOUGHTS.sub("", text, count=1).strip()


def find_json(text: str) -> str | None:
    """Return the JSON object or array that a text holds, unchanged; None if there is none."""
    text = strip_thoughts(text)
    fenced = (found[2].strip() for found in _FENCE.finditer(text))
    whole = next((one for one in (text, *fenced) if _is_container(one)), None)
    return whole if whole is not None else _find_container(text)


def _is_container(text: str) -> bool:
    return isinstance(_load(text), dict | list)


def _find_container(text: str) -> str | None:
    """Return the first object or array in the middle of other words, the whole of it."""
    position = 0
    for _ in range(MOST_STARTS):
        found = _OPENING.search(text, position)
        if found is None:
            return None
        try:
            value, end = _DECODER.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            position = found.end()
            continue
        if value:
            return text[found.start() : end]
        position = end
    return None


# ── JSON as small models write it ─────────────────────────────────────────────────────────────────────────
# Raw line ends in strings, Python's quotes and constants, JSON in a string. Everything is bounded, and whatever comes
# out is a value that could have been written as JSON.

LONGEST_LITERAL = 64_000  # characters that are read as Python
_CONSTANTS = {"true": True, "false": False, "null": None}
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}


def parse_object(text: str) -> dict[str, Any]:
    """Return the object a text means, which may itself be written as a JSON string; raises NotJson."""
    value = _parse_value(text) if text.strip() else {}
    if isinstance(value, str):
        value = _parse_value(value) if value.strip() else {}
    if not isinstance(value, dict):
        raise NotJson("it is another value")
    return value


def parse_truth(value: Any) -> Any:
    """Return the boolean that a value means; the value itself if it means none."""
    return _TRUTHS.get(value.strip().casefold(), value) if isinstance(value, str) else value


def _parse_value(text: str) -> Any:
    """Return the value a text means; raises NotJson, with what is wrong with it as JSON."""
    try:
        return json_value(text)
    except NotJson:
        for parse in (_parse_with_raw_line_ends, _parse_python, _parse_doubled_braces):
            with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError, NotJson):
                return json_value(json.dumps(parse(text)))
        raise


def _parse_with_raw_line_ends(text: str) -> Any:
    return json_value(text, raw_line_ends=True)


def _parse_python(text: str) -> Any:
    """Return the value of a Python literal; its names may be those of JSON's constants."""
    if len(text) > LONGEST_LITERAL:
        raise ValueError("too long")
    return ast.literal_eval(_Constants().visit(ast.parse(text.strip(), mode="eval")))


def _parse_doubled_braces(text: str) -> Any:
    """Return the value of an object that is written as in the template of a prompt."""
    text = text.strip()
    if not (text.startswith("{{") and text.endswith("}}")):
        raise ValueError("it is not")
    return _parse_with_raw_line_ends(text[1:-1])


class _Constants(ast.NodeTransformer):
    """Replaces names by JSON's constants; no key may occur twice."""

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        keys = [ast.dump(key) for key in node.keys if key is not None]
        if len(keys) != len(set(keys)):
            raise ValueError("a key occurs twice")
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else node


# ── calls in a text ───────────────────────────────────────────────────────────────────────────────────────

Call = tuple[str, str]  # the tool, its arguments in JSON

MOST_CALLS = 64  # in one text
_BLOCK = re.compile(
    r"(`{3,})[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)(?:(?<![^\n])(?P<close>\1)`*[ \t]*(?:\r?\n|\Z)|\Z)", re.DOTALL
)
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=([\w.-]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_END = re.compile(
    r"\**(done|failed)\b\**[ \t]*(?::[ \t*]*(?P<answer>.*)|[.!]?\s*\Z|[.!]?[ \t]*\r?\n\s*(?=```))",
    re.IGNORECASE | re.DOTALL,
)
_EMPTY = re.compile(r"\A```\w*\s*(?:```)?\Z")  # a block that holds nothing
_QUESTION = re.compile(r"\**ask\**[ \t]*:[ \t*]*(.+)", re.IGNORECASE | re.DOTALL)
_NAMES = ("tool", "name", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input")
_FINISH_FIELDS = frozenset({"ok", "output", "surprising", "blocked", "evidence"})
_SHELLS = {"sh": None, "shell": None, "bash": "bash"}
_PYTHONS = ("python", "python3", "py")


class _NoCall(Exception):
    """Something in the text is no call, so nothing of it is."""


def read_calls(text: str, tools: Collection[str]) -> tuple[Call, ...]:
    """Return the calls that a reply consists of, thoughts before it aside; () if it holds anything else."""
    try:
        return tuple(_read_all(strip_thoughts(text), tools))
    except _NoCall:
        return ()


def _read_all(text: str, tools: Collection[str]) -> Iterator[Call]:
    for _ in range(MOST_CALLS):
        text = text.strip()
        if not text:
            return
        calls, text = _read_next(text, tools)
        yield from calls
    raise _NoCall


def _read_next(text: str, tools: Collection[str]) -> tuple[list[Call], str]:
    """Return the calls that a text begins with, and what follows them."""
    readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Collection[str]], list[Call]]], ...] = (
        (_BLOCK, _read_block),
        (_TAGGED, lambda found, tools: _read_json(found[1], tools)),
        (_FUNCTION, _read_function),
        (_END, _read_end),
        (_QUESTION, _read_question),
    )
    for pattern, read in readers:
        if found := pattern.match(text):
            return read(found, tools), text[found.end() :]
    return _read_json(text, tools), ""


def _read_block(found: re.Match[str], tools: Collection[str]) -> list[Call]:
    """Return the call of a fenced block: its language names the tool, unless it is JSON that does."""
    language, body = found[2].casefold(), found[3]
    if not found["close"] and found[1] in body:
        raise _NoCall  # it was never closed, and what belongs to it is unknown
    if (end := _END.fullmatch(body.strip())) and FINISH in tools:
        return _read_end(end, tools)
    if language in _SHELLS and SHELL in tools and body.strip():
        interpreter = {"interpreter": _SHELLS[language]} if _SHELLS[language] else {}
        return [(SHELL, _dump({"command": body.rstrip("\n"), **interpreter}))]
    if language in _PYTHONS and PYTHON in tools and body.strip():
        return [(PYTHON, _dump({"code": body.rstrip("\n")}))]
    if language in tools:
        return [_read_call({"tool": language, "arguments": _value(body)}, tools)]
    try:
        return _read_json(body, tools)
    except _NoCall:
        if language or SHELL not in tools or not body.strip() or _is_container(body):
            raise
        return [(SHELL, _dump({"command": body.rstrip("\n")}))]  # of no language: the one that was asked for


def _read_function(found: re.Match[str], tools: Collection[str]) -> list[Call]:
    body = found[2].strip()
    fields = dict(_PARAMETER.findall(body))
    arguments = fields if fields and not _PARAMETER.sub("", body) else _value(body or "{}")
    return [_read_call({"tool": found[1], "arguments": arguments}, tools)]


def _read_end(found: re.Match[str], tools: Collection[str]) -> list[Call]:
    """Return the end of a step; what follows its colon is the answer, whatever it holds."""
    if FINISH not in tools:
        raise _NoCall
    answer = _EMPTY.sub("", (found["answer"] or "").strip())
    ended: dict[str, Any] = {"ok": found[1].casefold() == "done"}
    return [(FINISH, _dump({**ended, "output": answer} if answer else ended))]


def _read_question(found: re.Match[str], tools: Collection[str]) -> list[Call]:
    if ASK not in tools:
        raise _NoCall
    return [(ASK, _dump({"question": found[1].strip()}))]


def _read_json(text: str, tools: Collection[str]) -> list[Call]:
    """Return the calls that JSON means: one object, a list of them, or one a line."""
    try:
        value = _value(text)
    except _NoCall:
        lines = [line for line in text.splitlines() if line.strip()]
        if not 1 < len(lines) <= MOST_CALLS:
            raise
        value = [_value(line) for line in lines]
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    is_list = isinstance(value, list) and 0 < len(value) <= MOST_CALLS
    return [_read_call(item, tools) for item in (value if is_list else [value])]


def _value(text: str) -> Any:
    try:
        value = _parse_value(text.strip())
        return _parse_value(value) if isinstance(value, str) else value
    except NotJson:
        raise _NoCall from None


def _read_call(value: Any, tools: Collection[str]) -> Call:
    """Return one call; its arguments may be in a field of their own, or beside the name."""
    if not isinstance(value, dict):
        raise _NoCall
    for inner in ("function_call", "function"):
        if isinstance(value.get(inner), dict):
            return _read_call(value[inner], tools)
    if FINISH in tools and "ok" in value and value.keys() <= _FINISH_FIELDS:
        return FINISH, _dump(value)
    for field in _NAMES:
        if (name := find_tool(value.get(field), tools)) is not None:
            return name, _arguments(value, field)
    raise _NoCall


def _arguments(value: Mapping[str, Any], name_field: str) -> str:
    field = next((field for field in _ARGUMENTS if field in value), None)
    beside = {name: item for name, item in value.items() if name not in (name_field, "id", "type")}
    arguments = (value[field] or {}) if field else beside
    return arguments if isinstance(arguments, str) else _dump(arguments)


def find_tool(name: Any, tools: Collection[str]) -> str | None:
    """Return the tool that a name means, with or without the prefix some models give it; None if there is none."""
    if not isinstance(name, str):
        return None
    return next((known for known in (name, name.removeprefix("functions.")) if known in tools), None)
