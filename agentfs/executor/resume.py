"""A loop that waits for a person, read back from its log: the messages, what the tools gave, how far it had come.

The question is the log's last word. Behind an answer that was taken up comes more: a process that died then has left
an attempt like any other that was cut off.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core.records import Usage
from agentfs.executor.loop_text import Message
from agentfs.models.base import Reply, ToolCall, usage_in
from agentfs.storage.files import read_lines

QUESTION, ANSWER = "question", "answer"


@dataclass(frozen=True, slots=True)
class Past:
    """A call that was answered, or mere words (`tool` is None), which were answered too."""

    tool: str | None
    arguments: str
    result: str
    ok: bool = False
    sent_back: bool = False  # a claim to be done with nothing done


@dataclass(frozen=True, slots=True)
class Memory:
    """A conversation up to the question it waits with."""

    count: int  # of the question
    messages: tuple[Message, ...]  # of the last request
    reply: Reply  # to it: the one that asks
    turn: int
    number: int  # of the latest request
    before: tuple[Past, ...]  # what happened in earlier turns
    now: tuple[Past, ...]  # and in this one, before it asked
    seconds: float  # how long it has worked
    started_at: str
    usage: Usage | None


def read_memory(log: Path) -> Memory | None:
    """Return the conversation that waits in a log; None if its last word is no question, or it does not read."""
    entries = list(read_lines(log))
    if not entries or entries[-1].get("event") != QUESTION:
        return None
    try:
        return _read_back(entries, usage_in(log))
    except (KeyError, TypeError, IndexError):  # the log was changed
        return None


def _read_back(entries: Sequence[Mapping[str, Any]], usage: Usage | None) -> Memory:
    asked, conversations = entries[-1], _Conversations()
    pasts: list[tuple[int, Past]] = []
    for entry in entries:
        match entry["event"]:
            case "request":
                conversations.take(entry)
            case "tool":
                sent_back = entry.get("sent_back") is True
                past = Past(entry["tool"], entry["arguments"], entry["result"], entry["ok"], sent_back)
                pasts.append((entry["turn"], past))
            case "told":
                pasts.append((entry["turn"], Past(None, entry["said"], entry["text"])))
            case _:
                pass
    return Memory(
        count=asked["count"],
        messages=conversations.at[asked["number"]],
        reply=_reply(asked["message"], spoken=asked.get("spoken") is True),
        turn=asked["turn"],
        number=max(conversations.at),
        before=tuple(past for turn, past in pasts if turn < asked["turn"]),
        now=tuple(past for turn, past in pasts if turn == asked["turn"]),
        seconds=asked["seconds"],
        started_at=entries[0]["at"],
        usage=usage,
    )


@dataclass(slots=True)
class _Conversations:
    """The messages of every request: each lists only what differs from the one before it of the same role."""

    at: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    _last: dict[str, tuple[Message, ...]] = field(default_factory=dict)

    def take(self, request: Mapping[str, Any]) -> None:
        kept = self._last.get(request["role"], ())[: request["keep"]]
        self._last[request["role"]] = self.at[request["number"]] = (*kept, *request["messages"])


def _reply(message: Mapping[str, Any], *, spoken: bool) -> Reply:
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls", ())
    made = (ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls)
    return Reply(message["content"], tuple(made), "tool_calls", spoken=spoken)


def answers_in(log: Path) -> frozenset[int]:
    """Return the questions of an attempt whose answers have been taken up, by their numbers."""
    return frozenset(_counts(read_lines(log)))


def _counts(entries: Iterable[Mapping[str, Any]]) -> Iterable[int]:
    return (entry["count"] for entry in entries if entry.get("event") == ANSWER and isinstance(entry["count"], int))
