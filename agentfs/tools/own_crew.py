"""Workers for a person's own tools: makes them, lends them, ends them. What they are asked is not its business.

One server per sandbox holds Python and pydantic ready and forks workers, which is a hundred times cheaper than
starting them. A worker serves one attempt at a time and is used again, unless it was ended or its tool left something
behind (a child, a thread, another folder or environment).
"""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from agentfs.storage.safe_open import Refused
from agentfs.tools.base import Bench, Confinement, Never, ProcessMark
from agentfs.tools.launch import GaveUp, NotStarted, end_survivors, start
from agentfs.tools.own_rooms import Room, Rooms
from agentfs.tools.own_source import Source
from agentfs.tools.proc import mark_of
from agentfs.tools.starting import Pool, Starter

START_S = 30.0
TICK_S = 0.05
MOST_SERVERS = 8
_CREDENTIALS = struct.Struct("3i")


class NoWorker(Exception):
    """There is no worker to be had: why."""


@dataclass(slots=True)
class Worker:
    """A process that waits for a call, and the pipes it prints to."""

    talk: socket.socket
    out: int
    err: int
    mark: ProcessMark
    server: "Server"
    heard: "select.poll" = field(init=False)

    def __post_init__(self) -> None:
        self.heard = select.poll()
        # The answer is looked for first: once it is there, so is all that was printed before it.
        for fd in (self.talk.fileno(), self.out, self.err):
            self.heard.register(fd, select.POLLIN)

    def is_idle(self) -> bool:
        """Whether it lives and has said nothing since its last call."""
        return not self.heard.poll(0)

    def end(self) -> None:
        """Kill it with all it started."""
        end_survivors(self.mark)
        self.close()

    def close(self) -> None:
        self.talk.close()
        for fd in (self.out, self.err):
            os.close(fd)


@dataclass(slots=True)
class Server:
    """One sandbox with a process in it that forks workers."""

    child: "subprocess.Popen[bytes]"
    control: socket.socket
    idle: list[Worker] = field(default_factory=list)
    lent: int = 0
    ended: bool = False

    def is_alive(self) -> bool:
        return self.child.poll() is None

    def make(self, bench: Bench) -> Worker:
        """Return a new worker, which has not run anything yet."""
        talk, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        out, their_out = os.pipe()
        err, their_err = os.pipe()
        try:
            talk.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            socket.send_fds(self.control, [b"w"], [theirs.fileno(), their_out, their_err])
            mark = self._greeted(talk, bench)
        except BaseException as error:
            talk.close()
            os.close(out)
            os.close(err)
            if isinstance(error, OSError):
                raise NoWorker(self._last_words()) from None
            raise
        finally:
            theirs.close()
            os.close(their_out)
            os.close(their_err)
        talk.setblocking(False)
        for fd in (out, err):
            os.set_blocking(fd, False)
        return Worker(talk, out, err, mark, self)

    def _greeted(self, talk: socket.socket, bench: Bench) -> ProcessMark:
        """Wait for the worker's first word; the kernel says which process spoke, in our own numbers."""
        until = time.monotonic() + START_S
        talk.settimeout(TICK_S)
        while True:
            with contextlib.suppress(TimeoutError):
                word, extra, _, _ = talk.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
                break
            if bench.stop.is_set() or time.monotonic() >= bench.deadline:
                raise GaveUp
            if not self.is_alive() or time.monotonic() > until:
                raise NoWorker(self._last_words())
        pids = [_CREDENTIALS.unpack(value)[0] for _, kind, value in extra if kind == socket.SCM_CREDENTIALS]
        mark = mark_of(pids[0]) if word and pids else None
        if mark is None:
            raise NoWorker(self._last_words())
        talk.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        return mark

    def _last_words(self) -> str:
        """Return what a server that did not come up has said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(1)
        if self.child.stderr is None or self.is_alive():
            return "the worker did not start"
        said = self.child.stderr.read().decode("utf-8", "replace").strip()
        return f"the worker did not start: {said[-1000:]}"

    def end(self) -> None:
        """End the server, and with it every worker."""
        self.ended = True
        self.control.close()
        for worker in self.idle:
            worker.end()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.child.poll() is None:
                os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        if self.child.stderr is not None:
            self.child.stderr.close()


class Crew:
    """Every server of one agentfs. Any thread may borrow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rooms = Rooms()
        self._servers: dict[Room, Future[Server]] = {}
        # bubblewrap dies with the thread that started it: this one lives as long as the crew
        self._starter = Pool(1, "own-tools")

    def room(self, confinement: Confinement, source: Source) -> Room:
        """Return the sandbox that a tool of this source needs. Raises Unfenceable, Refused or NoSandbox."""
        return self._rooms.room(confinement, source)

    def prepare(self, room: Room) -> None:
        """Begin to start what will be borrowed soon; what goes wrong is told to whoever borrows."""
        with self._lock:
            self._begun(room)

    def borrow(self, room: Room, bench: Bench) -> Worker:
        """Return a worker in that sandbox; NoWorker or GaveUp if there is none."""
        while (worker := self._idle(room)) is not None:
            if worker.is_idle():  # then its server lives, too
                return worker
            self.give_back(worker, spent=True)
        server = self._server(room)
        try:
            return server.make(bench)
        except BaseException:
            with self._lock:
                server.lent -= 1
            raise

    def _idle(self, room: Room) -> Worker | None:
        """Return a worker that nobody has, as one that is lent."""
        with self._lock:
            begun = self._servers.get(room)
            if begun is None or not begun.done() or begun.exception() is not None or not begun.result().idle:
                return None
            begun.result().lent += 1
            return begun.result().idle.pop()

    def give_back(self, worker: Worker, *, spent: bool) -> None:
        """Take a worker back; one that is spent is ended with all it started."""
        with self._lock:
            worker.server.lent -= 1
            if not spent and not worker.server.ended:
                worker.server.idle.append(worker)
                return
        worker.end()

    def close(self) -> None:
        self._starter.shutdown(wait=False)
        with self._lock:
            begun, self._servers = list(self._servers.values()), {}
        for one in begun:
            _end(one)
        self._starter.shutdown(wait=True)

    def _server(self, room: Room) -> Server:
        """Return the server of a sandbox, started if need be, as one that has lent a worker more."""
        while True:
            with self._lock:
                begun = self._begun(room)
            try:
                server = begun.result()
            except NoWorker:
                with self._lock:
                    self._forget(room, begun)
                raise
            with self._lock:
                if self._servers.get(room) is begun:  # else it was ended meanwhile, to make room for another
                    server.lent += 1
                    return server

    def _begun(self, room: Room) -> "Future[Server]":
        """Return the server that is being started, or is there. The lock is held, so nothing is waited for."""
        begun = self._servers.get(room)
        if begun is not None and _has_died(begun):
            self._forget(room, begun)
            _end(begun)
            begun = None
        if begun is None:
            self._make_room()
            begun = self._servers[room] = self._starter.submit(_start, room)
        return begun

    def _forget(self, room: Room, begun: "Future[Server]") -> None:
        if self._servers.get(room) is begun:
            del self._servers[room]

    def _make_room(self) -> None:
        free = [room for room, begun in self._servers.items() if begun.done() and _lent(begun) == 0]
        for room in free[: max(0, len(self._servers) - MOST_SERVERS + 1)]:
            _end(self._servers.pop(room))


def _has_died(begun: "Future[Server]") -> bool:
    return begun.done() and begun.exception() is None and not begun.result().is_alive()


def _lent(begun: "Future[Server]") -> int:
    return begun.result().lent if begun.exception() is None else 0


def _end(begun: "Future[Server]") -> None:
    """End a server as soon as it has been started; one that could not be has ended already."""
    with contextlib.suppress(NoWorker):
        begun.result().end()


def _start(room: Room) -> Server:
    """Start a server; its last argument is the number of its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        fd = theirs.fileno()
        layout = replace(room.layout, argv=(*room.layout.argv, str(fd)))
        deadline = time.monotonic() + START_S
        started = Starter().start(
            lambda: start(layout, room.env, Never(), deadline, fds=(fd,), out=subprocess.DEVNULL)
        )
    except (OSError, NotStarted, Refused) as error:
        ours.close()
        raise NoWorker(f"the worker did not start: {error}") from None
    finally:
        theirs.close()
    started.release()
    return Server(started.child, ours)
