"""The line between a driver and an attempt elsewhere: JSON objects, either way, in order; the first is an assignment.

Values only, and no secret: variables are named, and read where the attempt runs.
"""

import contextlib
import functools
import json
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Protocol

from pydantic import TypeAdapter, ValidationError

from agentfs.agents.presets import Agent
from agentfs.core.config import ExecutorSettings
from agentfs.core.records import Order, SandboxWish
from agentfs.core.run_state import Bounds
from agentfs.executor.task import AgentRules, LoopRules, ProofRules, Task
from agentfs.models.budget import Budget
from agentfs.places.token import Token
from agentfs.tools.base import Confinement

Message = dict[str, Any]
LONGEST = 64 * 1024 * 1024  # bytes of one message: an output that goes to a file is sent in pieces


class Closed(Exception):
    """Nobody is at the other end. Its text says why, where that is known."""


class Channel(Protocol):
    """One end of the line. `receive` may be called by one thread, `send` by several."""

    def send(self, message: Message) -> None:
        """Send a message. Raises Closed."""

    def receive(self, timeout: float) -> Message | None:
        """Return the next message; None if there is none in that time. Raises Closed once there can be none."""


class PipeChannel:
    """A channel over two pipes: one JSON object a line."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes], why_closed: Callable[[], str] = lambda: "") -> None:
        self._outgoing, self._why_closed = outgoing, why_closed
        self._lock = threading.Lock()
        self._arrived: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._ended = False
        self._reader = threading.Thread(target=self._read, args=(incoming,), name="channel", daemon=True)
        self._reader.start()

    def _read(self, incoming: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError), incoming:
            for message in messages_in(incoming):
                self._arrived.put(message)
        self._arrived.put(None)

    def send(self, message: Message) -> None:
        line = json.dumps(message, ensure_ascii=True).encode("ascii") + b"\n"
        try:
            with self._lock:
                self._outgoing.write(line)
                self._outgoing.flush()
        except (OSError, ValueError):
            raise Closed(self._why_closed()) from None

    def receive(self, timeout: float) -> Message | None:
        if self._ended:
            raise Closed(self._why_closed())
        try:
            message = self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None
        if message is None:
            self._ended = True
            raise Closed(self._why_closed())
        return message


def messages_in(incoming: IO[bytes]) -> Iterator[Message]:
    """Yield the messages of a stream; what is no message (a login banner) is passed over. Ends at one too long."""
    while line := incoming.readline(LONGEST):
        if not line.endswith(b"\n") and len(line) >= LONGEST:
            return
        with contextlib.suppress(ValueError, RecursionError):
            message = json.loads(line)
            if isinstance(message, dict):
                yield message


def standard_channel() -> PipeChannel:
    """Return the channel of this process's standard streams; nothing else may write to its standard output then."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)
    os.dup2(2, 1)
    os.close(devnull)
    return PipeChannel(incoming, outgoing)


# ── the first message: what an attempt elsewhere is given ─────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that an attempt may ask; its key is read where the attempt runs."""

    settings: ExecutorSettings
    name: str
    temperature: float | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """One order, and all that its attempt needs."""

    version: str  # of agentfs: both sides must be the same release
    place: str
    order: Order
    loop: LoopRules
    proof: ProofRules | None
    retry_wait_s: float
    agent: Agent | None  # the coding agent that does it
    confinement: Confinement  # its `env` is empty: the variables are named in `env`, and read there
    env: tuple[str, ...]
    sandbox: SandboxWish
    unconfined: bool  # programs may run where there is no sandbox: a person wrote them, or turned it off
    output_bytes: int
    left: Bounds  # what the run may still ask of models
    model: ModelChoice | None
    search_url: str
    token: Token
    silence_s: float  # the attempt ends itself after so long without a word from its driver
    alive_s: float  # and sends one this often
    log: str | None = None  # of an attempt that waited for a person
    reply: str | None = None  # and what the person said


def task_of(assignment: Assignment, environment: Mapping[str, str]) -> Task:
    """Return what is to be done; an agent gets its variables where it runs."""
    rules = AgentRules(assignment.agent, Budget(assignment.left), environment) if assignment.agent else None
    given = assignment
    return Task(given.order, given.loop, given.proof, retry_wait_s=given.retry_wait_s, agent=rules)


class Unreadable(Exception):
    """An assignment of another release, or no assignment."""


@functools.cache
def _adapter() -> TypeAdapter[Assignment]:
    return TypeAdapter(Assignment)


def encode(assignment: Assignment) -> str:
    """Return an assignment as JSON."""
    return _adapter().dump_json(assignment, by_alias=True).decode("utf-8")


def decode(text: str) -> Assignment:
    """Return the assignment that a text means. Raises Unreadable."""
    try:
        return _adapter().validate_json(text, by_alias=True)
    except ValidationError as error:
        raise Unreadable(f"{error.error_count()} fields of the assignment do not read") from None
