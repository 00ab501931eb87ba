"""What a model meant by a text: JSON somewhere in it, or tools it wants called. Pure.

Small models write what they were to say in other ways:

    ```json                          <tool_call>                       {"name": "shell", "parameters": {…}}
    {"tool": "shell",                {"name": "shell", …}
     "arguments": {…}}               </tool_call>                      I think … {"met": true, …} … so yes.
    ```
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

MOST_STARTS = 200  # places where JSON may begin that are tried; a text full of braces is no answer

_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)```", re.DOTALL)
_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_NAMES = ("tool", "name", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input")
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


def actions_in(text: str, tools: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the calls that a text writes out, as (tool, arguments in JSON); only of these tools."""
    return tuple(call for value in _values(without_thoughts(text)) for call in _calls(value, tools))


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values that may be calls: the whole text, or all that is fenced or tagged."""
    whole = _container(text)
    if whole is not None:
        yield whole
        return
    blocks = [(found.start(), found[1]) for found in _TAGGED.finditer(text)]
    blocks += [(found.start(), found[2]) for found in _FENCE.finditer(text)]
    for _, block in sorted(blocks):
        values = [_container(block)]
        if values == [None]:
            values = [_container(line) for line in block.splitlines()]  # several calls, one a line
        yield from (value for value in values if value is not None)


def _calls(value: Any, tools: Collection[str]) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _calls(item, tools)
    elif isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        yield from _calls(value["tool_calls"], tools)
    elif isinstance(value, dict) and (call := _call(value, tools)):
        yield call


def _call(value: dict[str, Any], tools: Collection[str]) -> tuple[str, str] | None:
    """Return one call; its arguments may stand in a field of their own, or beside the name."""
    if isinstance(value.get("function"), dict):
        return _call(value["function"], tools)
    named = next((field for field in _NAMES if _is_name(value.get(field), tools)), None)
    if named is None:
        return None
    field = next((field for field in _ARGUMENTS if field in value), None)
    beside = {name: item for name, item in value.items() if name not in (named, "id", "type")}
    given = (value[field] or {}) if field else beside
    return value[named], given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _is_name(value: Any, tools: Collection[str]) -> bool:
    return isinstance(value, str) and value in tools
