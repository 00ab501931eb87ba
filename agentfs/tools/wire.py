"""One connection that never outlives its deadline or the stop sign. Knows bytes and TLS, nothing of HTTP.

Every wait is a short one: the stop sign is looked at in between, so that a slow or silent server holds nobody up.
"""

import errno
import io
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from agentfs.tools.base import StopSign
from agentfs.tools.starting import Starter

TICK_S = 0.1
T = TypeVar("T")
SILENCE_S = 30.0  # the most a server may say nothing


class Late(Exception):
    """The deadline has passed, or the server said nothing for too long."""


class Stopped(Exception):
    """The stop sign is set."""


class Watchful:
    """When to give up."""

    def __init__(self, deadline: float, stop: StopSign) -> None:
        self._deadline, self._stop = deadline, stop

    def may_wait(self) -> bool:
        return not self._stop.is_set() and time.monotonic() < self._deadline

    def check(self) -> None:
        if self._stop.is_set():
            raise Stopped
        if time.monotonic() >= self._deadline:
            raise Late("it took too long")


def resolve(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a host. Numbers in any spelling are addresses, too."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def patiently(work: Callable[[], T], watch: Watchful) -> T:
    """Return what a call that cannot be interrupted gives; left behind in its thread when it takes too long."""
    answer: list[T] = []
    trouble: list[Exception] = []

    def run() -> None:
        try:
            answer.append(work())
        except Exception as error:  # noqa: BLE001 - raised again where it was asked for
            trouble.append(error)

    thread = threading.Thread(target=run, daemon=True, name="resolve")
    Starter().start(thread.start, watch.may_wait)
    while thread.is_alive():
        watch.check()
        thread.join(TICK_S)
    for error in trouble:
        raise error
    return answer[0]


class Wire(io.RawIOBase):
    """A connected socket that reads and writes with one eye on the clock."""

    def __init__(self, plain: socket.socket, watch: Watchful) -> None:
        self._socket: socket.socket = plain
        self._watch = watch

    def readable(self) -> bool:
        return True

    def secure(self, host: str, context: ssl.SSLContext) -> None:
        """Speak TLS from here on; the certificate must be the host's."""
        secured = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
        self._socket = secured
        self._again(secured.do_handshake)

    def send_all(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[self._again(partial(self._socket.send, rest)) :]

    def readinto(self, buffer: Any) -> int:
        return int(self._again(partial(self._socket.recv_into, buffer)))

    def close(self) -> None:
        if not self.closed:
            self._socket.close()
        super().close()

    def _again(self, attempt: Callable[[], Any]) -> Any:
        """Try until it neither waits to read nor to write."""
        silent_until = time.monotonic() + SILENCE_S
        while True:
            self._watch.check()
            try:
                return attempt()
            except ssl.SSLWantWriteError:
                _wait(self._socket, selectors.EVENT_WRITE)
            except (BlockingIOError, ssl.SSLWantReadError):
                _wait(self._socket, selectors.EVENT_READ)
            if time.monotonic() > silent_until:
                raise Late(f"the server said nothing for {SILENCE_S:g} s")


def _wait(plain: socket.socket, event: int) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(plain, event)
        selector.select(TICK_S)


def connect(addresses: Sequence[str], port: int, watch: Watchful) -> Wire:
    """Connect to the first of these addresses that answers, and to no other."""
    trouble: OSError | None = None
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.setblocking(False)
            _connected(plain, address, port, watch)
        except OSError as error:
            trouble = error
            plain.close()
        except BaseException:
            plain.close()
            raise
        else:
            return Wire(plain, watch)
    raise trouble or OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))


def _connected(plain: socket.socket, address: str, port: int, watch: Watchful) -> None:
    silent_until = time.monotonic() + SILENCE_S
    code = plain.connect_ex((address, port))
    while code in (errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK):
        watch.check()
        if time.monotonic() > silent_until:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        _wait(plain, selectors.EVENT_WRITE)
        code = plain.connect_ex((address, port))
    if code not in (0, errno.EISCONN):
        raise OSError(code, os.strerror(code))
