"""What a model has been told and has said in one attempt, kept within bounds. Pure.

The opening (who it is, what the step is) always stays. When what follows grows over BUDGET, older outputs and long
arguments are replaced by a line that says how much was there, the oldest first, until half of it is free: so the
beginning of a conversation changes rarely, and servers that remember it need not read it again. The newest turn
stays.
"""

import json
from collections.abc import Iterable
from typing import Any

from agentfs.core.excerpts import one_line

Message = dict[str, Any]  # in chat form

BUDGET = 64_000  # characters after the opening
OPENING = 2
SHORT = 300  # what is no longer than this stays as it is


class Conversation:
    """Messages in chat form; grows at its end, and shrinks in its middle."""

    def __init__(self, messages: Iterable[Message], budget: int = BUDGET) -> None:
        self.messages: list[Message] = list(messages)
        self._budget = budget

    def said(self, message: Message) -> None:
        """Add what the model said."""
        self.messages.append(message)

    def gave(self, call: str, text: str) -> None:
        """Add what a tool gave back."""
        self.messages.append({"role": "tool", "tool_call_id": call, "content": text})

    def told(self, text: str) -> None:
        """Add a note to the model."""
        self.messages.append({"role": "user", "content": text})

    def fitted(self) -> tuple[Message, ...]:
        """Return the messages, with room made where there were too many."""
        size = sum(map(_size, self.messages[OPENING:]))
        if size > self._budget:
            for place in range(OPENING, self._newest_turn()):
                before = _size(self.messages[place])
                self.messages[place] = _shortened(self.messages[place])
                size += _size(self.messages[place]) - before
                if size <= self._budget // 2:
                    break
        return tuple(self.messages)

    def _newest_turn(self) -> int:
        places = (place for place, message in enumerate(self.messages) if message["role"] == "assistant")
        return max(places, default=OPENING)


def _size(message: Message) -> int:
    return len(str(message.get("content") or "")) + sum(len(arguments) for arguments in _arguments(message))


def _arguments(message: Message) -> list[str]:
    return [call["function"]["arguments"] for call in message.get("tool_calls", ())]


def _shortened(message: Message) -> Message:
    if message["role"] == "user":
        return message
    shorter = {**message, "content": _stub(message.get("content") or "")}
    if "tool_calls" in message:
        shorter["tool_calls"] = [_shorter_call(call) for call in message["tool_calls"]]
    return shorter


def _shorter_call(call: Message) -> Message:
    """Return a call whose arguments are still JSON: servers read them."""
    function = call["function"]
    if len(function["arguments"]) <= SHORT:
        return call
    said = {"dropped": f"{len(function['arguments'])} characters of arguments, to save room"}
    return {**call, "function": {**function, "arguments": json.dumps(said)}}


def _stub(text: str) -> str:
    if len(text) <= SHORT:
        return text
    return f"(dropped to save room: {len(text)} characters, beginning with: {one_line(text, 100)})"
