"""The log of one conversation, as a tape to play back: each try with what it sent and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core.records import JsonObject, Usage
from agentfs.executor.offers import FINISH, HAND_OVER
from agentfs.jsonlines import read_lines

Entry = Mapping[str, Any]
TOOL_FAILED = "It failed ("  # how a model is told of it


@dataclass(frozen=True, slots=True)
class Try:
    """One request as it was sent, and how it ended; `end` is None where nobody saw that."""

    number: int
    role: str
    model: str
    messages: tuple[JsonObject, ...]
    body: Mapping[str, Any]
    end: Entry | None

    def usage(self) -> Usage:
        """Return what it took, as its log says."""
        told = self.end.get("usage") if self.end else None
        nothing = {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "cost_usd": None}
        said = {**nothing, "model": self.model, **(told or {})}
        return Usage.model_validate({**said, "role": self.role, "requests": 1})


@dataclass(frozen=True, slots=True)
class Tape:
    """One conversation, from its beginning to its end."""

    tries: tuple[Try, ...] = ()
    calls: tuple[Entry, ...] = ()  # what a model called that went to a tool, and what it was told of that
    acceptances: tuple[Entry, ...] = ()  # what the plan's checks found when a loop claimed to be done
    questions: Mapping[int, str] = field(default_factory=dict)  # by count: when it was asked
    answers: Mapping[int, str] = field(default_factory=dict)  # and when its answer was taken up
    began: str = ""  # times, as records write them; "": never
    ended: str = ""


def tape_in(path: Path) -> Tape:
    """Return the tape in a log; what is torn is not on it."""
    entries = list(read_lines(path))
    ends = {entry.get("number"): entry for entry in entries if entry.get("event") in ("reply", "failed")}
    return Tape(
        tries=_tries(entries, ends),
        calls=tuple(entry for entry in entries if entry.get("event") == "tool" and _reached_a_tool(entry)),
        acceptances=tuple(entry for entry in entries if entry.get("event") == "acceptance"),
        questions=_times(entries, "question"),
        answers=_times(entries, "answer"),
        began=str(entries[0].get("at", "")) if entries else "",
        ended=str(entries[-1].get("at", "")) if entries else "",
    )


def _reached_a_tool(entry: Entry) -> bool:
    """Whether a call went outside: it was not refused, ended no loop, and did not just ask a person or a model."""
    outside = entry.get("tool") not in (FINISH, HAND_OVER, "ask", "note", "summarize")
    return outside and (entry.get("ok") is True or str(entry.get("result")).startswith(TOOL_FAILED))


def _times(entries: list[dict[str, Any]], event: str) -> dict[int, str]:
    return {entry.get("count", 1): str(entry.get("at", "")) for entry in entries if entry.get("event") == event}


def _tries(entries: list[dict[str, Any]], ends: Mapping[Any, Entry]) -> tuple[Try, ...]:
    """Return every request whole: each in the log lists only what differs from the one before it of the same role."""
    found: list[Try] = []
    messages: dict[str, tuple[JsonObject, ...]] = {}
    bodies: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if entry.get("event") != "request":
            continue
        role, number = str(entry.get("role")), entry.get("number")
        messages[role] = (*messages.get(role, ())[: entry.get("keep", 0)], *entry.get("messages", ()))
        bodies[role] = entry["body"] if "body" in entry else bodies.get(role, {})
        model = str(entry.get("model"))
        found.append(Try(len(found) + 1, role, model, messages[role], bodies[role], ends.get(number)))
    return tuple(found)
