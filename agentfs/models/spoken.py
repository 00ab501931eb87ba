"""The protocol for endpoints that make no native calls: what they are told, and a conversation in words alone. Pure.

A fenced block is a call, one line ends the step, and there is nothing else to learn. What small models do with it was
tried (docs/models.md): the fewer words the better, and no word of the end before something was run.
"""

import json
from collections.abc import Mapping
from typing import Any

from agentfs.core.records import JsonObject
from agentfs.models.actions import ASK, FINISH, PYTHON, SHELL
from agentfs.models.base import Offer

# with a shell there is nothing these are needed for; they can be called all the same
_BY_SHELL = frozenset(
    {SHELL, PYTHON, "read_file", "write_file", "edit_file", "list_files", "search_files", "note", "summarize"}
)
_UNSAID = frozenset({FINISH, "hand_over", ASK})  # what ends or asks is a line; giving up is no way to be offered
_SHOWN = "You are shown the result."
# no block as an example: a small model sends it back as it is
_SH = "Each turn reply with exactly one ```sh block; it is run and you get its output."
_PYTHON = "Each turn reply with exactly one ```python block; it is run and you get its output."
_ASK = "If only a person can tell, reply ASK: and the question."
_ANSWER_ALONE = "You have no tools. Reply with the answer, and nothing else."
NOTHING = "(nothing)"
FIRST = "Write the sh commands that do this, in one sh block."  # what is said last is heard best


def described(offers: tuple[Offer, ...]) -> str:
    """Return words that offer tools: a block to write, and what else it may hold."""
    names = {offer.name for offer in offers}
    if has_no_tools(names):
        return _ANSWER_ALONE
    first = _SH if SHELL in names else _PYTHON if PYTHON in names else ""
    left = _UNSAID | (_BY_SHELL if SHELL in names else {PYTHON})
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
    return FINISH in names and not names - {FINISH, "hand_over"}


def _example(offer: Offer) -> str:
    required = offer.parameters.get("required")
    fields: Any = required or offer.parameters.get("properties") or ()
    return json.dumps({"tool": offer.name, **dict.fromkeys(fields, "…")}, ensure_ascii=False)


def in_words(messages: tuple[JsonObject, ...], offers: tuple[Offer, ...]) -> tuple[JsonObject, ...]:
    """Return a conversation with tools as one of words: calls as blocks, results as what a user says."""
    said = _taking_turns(messages)
    first = next((place for place, message in enumerate(said) if message["role"] == "user"), None)
    if first is not None and any(offer.name == SHELL for offer in offers):
        said[first] = {"role": "user", "content": f"{str(said[first]['content']).rstrip()}\n\n{FIRST}"}
    return tuple(said)


def _taking_turns(messages: tuple[JsonObject, ...]) -> list[JsonObject]:
    said: list[JsonObject] = []
    for message in map(_in_words, messages):
        if said and message["role"] == said[-1]["role"] == "user":  # many models take turns only
            said[-1] = {"role": "user", "content": f"{said[-1]['content']}\n\n{message['content']}"}
        else:
            said.append(message)
    return said


def _in_words(message: JsonObject) -> JsonObject:
    if message.get("role") == "tool":
        return {"role": "user", "content": f"Result:\n{message.get('content') or NOTHING}"}
    calls: Any = message.get("tool_calls")
    if not calls:
        return message
    blocks = (_block(call["function"]) for call in calls)
    return {"role": "assistant", "content": "\n".join([str(message.get("content") or ""), *blocks]).strip()}


def _block(function: Mapping[str, str]) -> str:
    """Return a call as it should have been written: a model imitates what it sees."""
    name, given = function["name"], _arguments(function["arguments"])
    match name, given:
        case "shell", {"command": str(command), **rest} if rest in ({}, {"interpreter": "sh"}):
            return _fenced("sh", command)
        case "shell", {"command": str(command), "interpreter": "bash", **rest} if not rest:
            return _fenced("bash", command)
        case "python", {"code": str(code), **rest} if not rest:
            return _fenced("python", code)
        case "ask", {"question": str(question), **rest} if not rest:
            return f"ASK: {question}"
        case "finish", {"ok": bool(ok), **rest} if rest.keys() <= {"output"}:
            return f"{'DONE' if ok else 'FAILED'}: {rest.get('output') or ''}".rstrip(" ")
        case _, dict():
            return _fenced("json", json.dumps({"tool": name, **given}, ensure_ascii=False))
        case _:
            return _fenced("json", json.dumps({"tool": name, "arguments": given}, ensure_ascii=False))


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _fenced(language: str, body: str) -> str:
    fence = "```"
    while f"\n{fence}" in f"\n{body}":
        fence += "`"
    return f"{fence}{language}\n{body}\n{fence}"
