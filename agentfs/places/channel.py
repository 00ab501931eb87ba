"""The line between a driver and an attempt elsewhere: JSON objects, either way, in order."""

import contextlib
import json
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol

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
