"""The line between a driver and an attempt elsewhere, and what a place is; the place behind a command.

JSON objects go either way, in order; the first is an assignment. No secret is sent: variables are named, and read
where the attempt runs.
"""

import collections
import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol

from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING

Message = dict[str, Any]
KEPT_LINES = 20  # of what the command writes to its standard error
LONGEST = 64 * 1024 * 1024  # bytes of one message: an output that goes to a file is sent in pieces


class Closed(Exception):
    """Nobody is at the other end. Its text says why, where that is known."""


class Channel(Protocol):
    """One end of the line. `receive` may be called by one thread, `send` by several."""

    def send(self, message: Message) -> None:
        """Send a message. Raises Closed."""

    def receive(self, timeout: float) -> Message | None:
        """Return the next message; None if there is none in that time. Raises Closed once there can be none."""


class Line(Channel, Protocol):
    """A channel to an attempt elsewhere."""

    def has_another(self) -> bool:
        """Whether another machine of this place could take what this one refuses."""

    def close(self) -> None:
        """End the attempt, if it has not ended, and forget it."""


class Place(Protocol):
    """Somewhere attempts may run."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int: ...

    def workers(self) -> Sequence[str]:
        """Return what may differ from each other there, by address. Empty: there is but one."""

    def start(self, message: Message, worker: str | None = None) -> Line:
        """Start `agentfs attempt` there and send its first message. Raises Closed where that cannot be done."""

    def close(self) -> None: ...


# ── over pipes ────────────────────────────────────────────────────────────────────────────────────────────


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


# ── a place behind a command: `docker run -i … agentfs attempt`, `ssh host agentfs attempt`, `srun …` ──────


class CommandLine(PipeChannel):
    """The line to one process; closing it ends the process, and with that the attempt."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("a place is talked to over pipes")
        self._process, self._last_lines = process, collections.deque[str](maxlen=KEPT_LINES)
        self._listener = threading.Thread(target=self._listen, args=(process.stderr,), daemon=True)
        self._listener.start()
        super().__init__(process.stdout, process.stdin, self._why)

    def _listen(self, stderr: IO[bytes]) -> None:
        with stderr:
            for line in stderr:
                if text := line.decode("utf-8", "replace").strip():
                    self._last_lines.append(text[:500])

    def _why(self) -> str:
        """Return why the process is gone, in the last line that it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(TIMING.grace)
            self._listener.join(TIMING.grace)
            return f"the command ended with {code}" + (f": {self._last_lines[-1]}" if self._last_lines else "")
        return "the command closed its output"

    def has_another(self) -> bool:
        return False

    def close(self) -> None:
        """End the command: by closing its input, then by signals to its process group."""
        with contextlib.suppress(OSError):  # what was not sent yet
            self._outgoing.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                if number is not None:
                    os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TIMING.grace)
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it left behind
        self._process.wait()
        self._reader.join(TIMING.grace)
        self._listener.join(TIMING.grace)


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Starts one process per attempt."""

    name: str
    command: Sequence[str]
    slots: int
    environment: Mapping[str, str]
    starter: Starter

    def workers(self) -> Sequence[str]:
        return ()

    def start(self, message: Message, worker: str | None = None) -> CommandLine:  # noqa: ARG002 - there is but one
        def begin() -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environment),
                start_new_session=True,
            )

        try:
            line = CommandLine(self.starter.start(begin))
        except OSError as error:
            raise Closed(f"{self.command[0]}: {error.strerror}") from None
        try:
            line.send(message)
        except Closed:
            line.close()
            raise
        return line

    def close(self) -> None:
        """Nothing outlives its attempt."""
