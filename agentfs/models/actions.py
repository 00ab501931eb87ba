"""What a model means by a text: JSON somewhere in it, or a reply that is nothing but calls of tools. Pure.

Calls are read from the text of an endpoint that is known to make none natively, and only from a reply that holds
nothing else: what a model quotes in the middle of other words is no call. A reply is a row of these:

    ```sh                  ```json                                    <tool_call>{"name": "shell", …}</tool_call>
    ls                     {"tool": "ask", "question": "…"}           <function=shell>{"command": "ls"}</function>
    ```                    ```                                        {"ok": true, "output": "…"}

or one line: `DONE: the answer`, `FAILED: why`, `ASK: a question`.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from agentfs.models.loose_json import loose_value
from agentfs.tools.values import NotJson

Call = tuple[str, str]  # the tool, its arguments in JSON

MOST_STARTS = 200  # places where JSON may begin that are tried; a text full of braces is no answer
MOST_CALLS = 64  # in one text
FINISH, ASK, SHELL, PYTHON = "finish", "ask", "shell", "python"

_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)```", re.DOTALL)
_BLOCK = re.compile(
    r"(`{3,})[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)(?:(?<![^\n])(?P<close>\1)`*[ \t]*(?:\r?\n|\Z)|\Z)", re.DOTALL
)
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=([\w.-]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_END = re.compile(
    r"\**(done|failed)\b\**[ \t]*(?::[ \t*]*(?P<said>.*)|[.!]?\s*\Z|[.!]?[ \t]*\r?\n\s*(?=```))",
    re.IGNORECASE | re.DOTALL,
)
_EMPTY = re.compile(r"\A```\w*\s*(?:```)?\Z")  # a block that holds nothing
_QUESTION = re.compile(r"\**ask\**[ \t]*:[ \t*]*(.+)", re.IGNORECASE | re.DOTALL)
_NAMES = ("tool", "name", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input")
_FINISH_FIELDS = frozenset({"ok", "output", "surprising", "blocked", "evidence"})
_SHELLS = {"sh": None, "shell": None, "bash": "bash"}
_PYTHONS = ("python", "python3", "py")
_DECODER = json.JSONDecoder()


def without_thoughts(text: str) -> str:
    """Return a text without the thoughts that some models write before it."""
    return _THOUGHTS.sub("", text, count=1).strip()


def json_in(text: str) -> str | None:
    """Return the JSON object or array that a text holds, as it stands there; None if there is none."""
    text = without_thoughts(text)
    fenced = [found[2].strip() for found in _FENCE.finditer(text)]
    for whole in (text, *fenced):
        if _container(whole) is not None:
            return whole
    return _first(text)


def _first(text: str) -> str | None:
    """Return the first object or array in the middle of other words, the whole of it."""
    position = 0
    for _ in range(MOST_STARTS):
        found = re.compile(r"[{\[]").search(text, position)
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


def _container(text: str) -> Any:
    """Return the object or array that a text is; None if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────


class _NoCall(Exception):
    """Something in the text is no call, so nothing of it is."""


def actions_in(text: str, tools: Collection[str]) -> tuple[Call, ...]:
    """Return the calls that a reply is made of, thoughts before it aside; () if it holds anything else."""
    try:
        return tuple(_calls(without_thoughts(text), tools))
    except _NoCall:
        return ()


def _calls(text: str, tools: Collection[str]) -> Iterator[Call]:
    for _ in range(MOST_CALLS):
        text = text.strip()
        if not text:
            return
        read, text = _next(text, tools)
        yield from read
    raise _NoCall


def _next(text: str, tools: Collection[str]) -> tuple[list[Call], str]:
    """Return the calls that a text begins with, and what follows them."""
    readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Collection[str]], list[Call]]], ...] = (
        (_BLOCK, _in_block),
        (_TAGGED, lambda found, tools: _in_json(found[1], tools)),
        (_FUNCTION, _in_function),
        (_END, _in_end),
        (_QUESTION, _in_question),
    )
    for pattern, read in readers:
        if found := pattern.match(text):
            return read(found, tools), text[found.end() :]
    return _in_json(text, tools), ""


def _in_block(found: re.Match[str], tools: Collection[str]) -> list[Call]:
    """Return the call of a fenced block: its language names the tool, unless it is JSON that does."""
    language, body = found[2].casefold(), found[3]
    if not found["close"] and found[1] in body:
        raise _NoCall  # it was never closed, and who knows what belongs to it
    if (end := _END.fullmatch(body.strip())) and FINISH in tools:
        return _in_end(end, tools)
    if language in _SHELLS and SHELL in tools and body.strip():
        interpreter = {"interpreter": _SHELLS[language]} if _SHELLS[language] else {}
        return [(SHELL, _written({"command": body.rstrip("\n"), **interpreter}))]
    if language in _PYTHONS and PYTHON in tools and body.strip():
        return [(PYTHON, _written({"code": body.rstrip("\n")}))]
    if language in tools:
        return [_call({"tool": language, "arguments": _value(body)}, tools)]
    try:
        return _in_json(body, tools)
    except _NoCall:
        if language or SHELL not in tools or not body.strip() or _container(body) is not None:
            raise
        return [
            (SHELL, _written({"command": body.rstrip("\n")}))
        ]  # a block of no language is one of the language asked for


def _in_function(found: re.Match[str], tools: Collection[str]) -> list[Call]:
    body = found[2].strip()
    fields = dict(_PARAMETER.findall(body))
    given = fields if fields and not _PARAMETER.sub("", body) else _value(body or "{}")
    return [_call({"tool": found[1], "arguments": given}, tools)]


def _in_end(found: re.Match[str], tools: Collection[str]) -> list[Call]:
    """Return the end of a step; what follows its colon is the answer, whatever it holds."""
    if FINISH not in tools:
        raise _NoCall
    answer = _EMPTY.sub("", (found["said"] or "").strip())
    given: dict[str, Any] = {"ok": found[1].casefold() == "done"}
    return [(FINISH, _written({**given, "output": answer} if answer else given))]


def _in_question(found: re.Match[str], tools: Collection[str]) -> list[Call]:
    if ASK not in tools:
        raise _NoCall
    return [(ASK, _written({"question": found[1].strip()}))]


def _in_json(text: str, tools: Collection[str]) -> list[Call]:
    """Return the calls that JSON says: one object, a list of them, or one a line."""
    try:
        value = _value(text)
    except _NoCall:
        lines = [line for line in text.splitlines() if line.strip()]
        if not 1 < len(lines) <= MOST_CALLS:
            raise
        value = [_value(line) for line in lines]
    return list(_in_value(value, tools))


def _value(text: str) -> Any:
    try:
        value = loose_value(text.strip())
        return loose_value(value) if isinstance(value, str) else value
    except NotJson:
        raise _NoCall from None


def _in_value(value: Any, tools: Collection[str]) -> Iterator[Call]:
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list) and 0 < len(value) <= MOST_CALLS:
        for item in value:
            yield _call(item, tools)
    else:
        yield _call(value, tools)


def _call(value: Any, tools: Collection[str]) -> Call:
    """Return one call; its arguments may stand in a field of their own, or beside the name."""
    if not isinstance(value, dict):
        raise _NoCall
    for inner in ("function_call", "function"):
        if isinstance(value.get(inner), dict):
            return _call(value[inner], tools)
    if FINISH in tools and "ok" in value and value.keys() <= _FINISH_FIELDS:
        return FINISH, _written(value)
    for field in _NAMES:
        if (name := tool_named(value.get(field), tools)) is not None:
            return name, _given(value, field)
    raise _NoCall


def _given(value: Mapping[str, Any], named: str) -> str:
    field = next((field for field in _ARGUMENTS if field in value), None)
    beside = {name: item for name, item in value.items() if name not in (named, "id", "type")}
    given = (value[field] or {}) if field else beside
    return given if isinstance(given, str) else _written(given)


def tool_named(name: Any, tools: Collection[str]) -> str | None:
    """Return the tool that a name means, with or without the prefix some models give it; None if there is none."""
    if not isinstance(name, str):
        return None
    return next((known for known in (name, name.removeprefix("functions.")) if known in tools), None)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
