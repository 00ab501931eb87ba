"""What an attempt elsewhere is given: one order with all that it needs, and a token that proves its folder the same.

A token is a file in the working folder, while attempts are sent from there. Several drivers may work in one folder:
each holds a shared lock on the file, and the last one to let go removes it; the kernel lets go for one that dies.
"""

import contextlib
import functools
import os
import platform
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agentfs.agents.presets import Agent
from agentfs.core.config import ExecutorSettings
from agentfs.core.records import Order, SandboxWish
from agentfs.core.run_state import Bounds
from agentfs.errors import UserError
from agentfs.executor.task import AgentRules, LoopRules, ProofRules, Task
from agentfs.models.budget import Budget
from agentfs.storage.files import publish
from agentfs.storage.safe_open import read_text, reading
from agentfs.storage.system import flags
from agentfs.tools.base import Confinement

NAME = ".agentfs-token"
_OPEN = flags("O_RDWR", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
_TRIES = 100  # each time another driver removed the file between writing and locking it


@dataclass(frozen=True, slots=True)
class Token:
    """A file in the working folder: who reads its text there sees the same folder."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that a process has in working folders."""

    _held: dict[Path, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, workdir: Path) -> Token:
        """Return the token of a working folder; it is written if it is not there, or a step removed it."""
        path = workdir / NAME
        with self._lock:
            if not (path in self._held and _is_at(path, self._held[path])):
                self._let_go(path)
                self._held[path] = _hold(path)
        return Token(str(path), read_text(path))

    def close(self) -> None:
        """Remove each token that no other driver holds."""
        with self._lock:
            for path in [*self._held]:
                self._let_go(path)

    def _let_go(self, path: Path) -> None:
        if (descriptor := self._held.pop(path, None)) is None:
            return
        with contextlib.suppress(OSError):  # another driver holds it, or it is gone
            _lock(descriptor, alone=True)
            if _is_at(path, descriptor):
                os.unlink(path)
        os.close(descriptor)


def _hold(path: Path) -> int:
    """Return a descriptor of the token, which holds it."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            publish(path, uuid.uuid4().hex.encode("ascii"), durable=False)
        try:
            descriptor = os.open(path, _OPEN)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # a step may lock what it sees, and some file systems have no locks
            _lock(descriptor, alone=False)
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)
    raise UserError(f"{path} is removed again and again by another program")


def _lock(descriptor: int, *, alone: bool) -> None:
    import fcntl

    fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)


def _is_at(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    return False


def check_token(token: Token) -> str | None:
    """Return why this is not the driver's working folder; None if it is."""
    path, host = Path(token.path), platform.node()
    try:
        with reading(path) as file:
            text = file.read(len(token.text) + 1)
    except OSError as error:
        return f"{path.parent} is not the driver's working folder on {host}: {error.strerror}"
    if text != token.text.encode("ascii"):
        return f"{path.parent} is another folder on {host}: {path.name} differs"
    return None


# ── the assignment ────────────────────────────────────────────────────────────────────────────────────────


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
    reply: str | None = None  # and the person's reply


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
