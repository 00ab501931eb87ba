"""An attempt's log: JSON lines, written as it goes. Creating it is the claim, so it is created only once.

Read back from it are claims, programs, children, and a loop that waits for a person. A loop waits while its question
is the log's last word: behind an answer comes more, and who died then has left an attempt that was cut off.
"""

import functools
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.facts import RUN, Claim
from agentfs.core.mask import Mask
from agentfs.core.records import SHA256_PATTERN, Order, Usage
from agentfs.models.base import Reply, ToolCall, usage_in
from agentfs.storage.clock import Clock
from agentfs.storage.files import StepsFolder, one_line, read_lines, write_all
from agentfs.storage.safe_open import reading
from agentfs.storage.system import flags
from agentfs.tools.process import ProcessMark

_APPEND = flags("O_WRONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_APPEND", "O_CLOEXEC", "O_BINARY")
MAX_LINE = 1 << 16
IS_KEY = re.compile(SHA256_PATTERN)


class AlreadyClaimed(Exception):
    """Another executor has taken this order."""


class AttemptLog:
    """Appends one line per event; the first is the claim."""

    def __init__(
        self,
        steps_folder: StepsFolder,
        order: Order,
        mask: Mask,
        clock: Clock,
        protected: Mapping[str, str] | None = None,
    ) -> None:
        self._shelf, self._name = steps_folder, paths.step_file(order.step, order.attempt, "log")
        self._mask, self._clock, self._durable = mask, clock, not order.repeatable or order.tool == RUN
        self._of: dict[str, Any] = {
            "key": order.key,
            "repeatable": order.repeatable,
        }  # an order may be lost; a claim is alone
        self._of |= {"protected": dict(protected)} if protected else {}
        self._descriptor: int | None = None

    @property
    def path(self) -> Path:
        return Path(self._path)

    @property
    def _path(self) -> str:
        return f"{self._shelf.folder}/{self._name}"

    @property
    def claimed(self) -> bool:
        return self._descriptor is not None

    def claim_for(self, child: str) -> None:
        """Take the order, naming the run that it is to be: on the disk before that run is."""
        self.create({"driver": os.getpid(), "host": _host(), **self._of, **_who(None), "child": child})

    def claim(self, mark: ProcessMark | None) -> None:
        """Take the order, naming who does: before anything starts. A later call only notes one more program."""
        if self._descriptor is not None:
            self.write("program", _who(mark))
            return
        self.create({"driver": os.getpid(), "host": _host(), **self._of, **_who(mark)})

    def create(self, claim: Mapping[str, Any]) -> None:
        """Take the order with this first line. Raises AlreadyClaimed."""
        try:
            self._create(claim)
        except FileExistsError:
            raise AlreadyClaimed(self._name) from None
        if self._durable:
            self._shelf.sync()

    def _create(self, claim: Mapping[str, Any]) -> None:
        """Let the log appear with its first line in it; where a file cannot be without a name, just before it."""
        unnamed = self._shelf.open_unnamed(_APPEND)
        if unnamed is None:
            self._descriptor = os.open(self._path, _APPEND | os.O_CREAT | os.O_EXCL, 0o644)
            self._write_claim(self._descriptor, claim)
            return
        try:
            self._write_claim(unnamed, claim)
            self._shelf.give_name(unnamed, self._name)
        except BaseException:
            os.close(unnamed)
            raise
        self._descriptor = unnamed

    def _write_claim(self, descriptor: int, claim: Mapping[str, Any]) -> None:
        write_all(descriptor, self._line("claim", claim))
        if self._durable:
            self._shelf.sync_file(descriptor)

    def reopen(self) -> None:
        """Go on with a log that was claimed before."""
        self._descriptor = os.open(self._path, _APPEND)

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Append one line."""
        if self._descriptor is None:
            raise RuntimeError("the log is written after the claim")
        self._shelf.append(self._descriptor, self._name, self._line(event, fields))

    def append(self, line: bytes) -> None:
        """Append a line as it is: of an attempt elsewhere, which wrote and masked it there."""
        if self._descriptor is None:
            raise RuntimeError("the log is written after the claim")
        write_all(self._descriptor, line)

    def sync(self) -> None:
        """Make durable what has been written: something is about to refer to it."""
        if self._descriptor is not None:
            self._shelf.sync_file(self._descriptor)

    def _line(self, event: str, fields: Mapping[str, Any]) -> bytes:
        return one_line(event, fields, self._mask, self._clock)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@functools.cache
def _host() -> str:
    return socket.gethostname()


def _who(mark: ProcessMark | None) -> dict[str, Any]:
    """Return what finds a process group again; null where the driver itself does the work."""
    if mark is None:
        return {"pid": None, "pgid": None, "start_time": None, "boot_id": None}
    return {"pid": mark.pid, "pgid": mark.pgid, "start_time": mark.start_time, "boot_id": mark.boot_id}


def claim_in(path: Path) -> Claim:
    """Return what the first line of a log says of its order; nothing where it does not read."""
    try:
        with reading(path) as file:
            entry = json.loads(file.readline(MAX_LINE))
    except (OSError, ValueError, RecursionError):
        return Claim()
    match entry:
        case {"event": "claim", "key": str() as key, "repeatable": bool() as repeatable} if IS_KEY.fullmatch(key):
            place, host = (one if isinstance(one, str) else None for one in map(entry.get, ("place", "host")))
            return Claim(key, repeatable, place, host)
        case _:
            return Claim()


CHILD, BEGUN = "child", "begun"  # events in the log of a run in a run: it has another name; it was made


def child_in(path: Path) -> tuple[str, bool] | None:
    """Return the run that an attempt's log names, and whether that was made; None: it names none."""
    name, begun = None, False
    for entry in read_lines(path):
        if entry.get("event") in ("claim", CHILD) and isinstance(found := entry.get("child"), str):
            name = found if paths.is_run_id(found) else name
        begun = begun or entry.get("event") == BEGUN
    return None if name is None else (name, begun)


def marks_in(path: Path) -> list[ProcessMark]:
    """Return every program of this machine that an attempt's log says it started; what is torn is passed over.

    The numbers of an attempt elsewhere mean nothing here: in a container of this machine they are of other processes.
    """
    marks: list[ProcessMark] = []
    if claim_in(path).place is not None:
        return marks
    for entry in read_lines(path):
        try:
            if entry["event"] in ("claim", "program") and entry["pgid"] is not None:
                marks.append(ProcessMark(entry["pid"], entry["pgid"], entry["start_time"], entry["boot_id"]))
        except (KeyError, TypeError):
            continue
    return marks


# ── a loop that waits for a person, read back ─────────────────────────────────────────────────────────


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
    messages: tuple[dict[str, Any], ...]  # of the last request
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

    at: dict[int, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    _last: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)

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
