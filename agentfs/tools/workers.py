"""Processes that wait in a sandbox for requests: a person's own tools run in some, others speak to MCP servers.

A worker is one process in one sandbox. It gets one request at a time, as a line of JSON over a socket, and answers
with a line; what it prints meanwhile is logged. At a timeout or a stop it is killed with all it started. Otherwise
the next request in an equal sandbox uses it again, unless it says that something was left behind (`spent`).
"""

import json
import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentfs.core.mask import Mask
from agentfs.core.records import Failure
from agentfs.storage.files import StepsFolder
from agentfs.storage.pool import Pool
from agentfs.storage.safe_open import Refused
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, StepContext, ToolResult, fail
from agentfs.tools.launch import OUTPUT_CAP, GaveUp, NotStarted, Started, start
from agentfs.tools.output import Capture, OutputLog, text_result, value_result
from agentfs.tools.process import Never, ProcessMark, end_survivors, mark_of
from agentfs.tools.sandbox import Layout

LARGEST_REPLY = 80 * 1024 * 1024
STREAM_KEPT = 8192
MOST_IDLE = 16  # workers that wait for a request
_CHUNK = 65536


class NoWorker(Refused):
    """There is no worker for a request: why, and what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__("sandbox", message, hint)


@dataclass(frozen=True, slots=True)
class Place:
    """The sandbox of a worker; a worker in an equal one serves as well."""

    layout: Layout
    env: tuple[tuple[str, str], ...]
    marks: tuple[object, ...] = ()  # whatever else must be the same, such as the files that it has loaded


def no_attempt(confinement: Confinement, seconds: float, mask: Mask) -> StepContext:
    """Return a context for requests that belong to no attempt: nothing is claimed, logged or kept."""
    run = confinement.run_files.parent
    return StepContext(
        name="tools",
        confinement=confinement,
        steps_folder=StepsFolder.of(run),
        deadline=time.monotonic() + seconds,
        stop=Never(),
        output_bytes=65536,
        output_file=Path(run, "none"),
        claim=lambda _mark: None,
        log=lambda _event, _fields: None,
        mask=mask,
    )


# ── workers ───────────────────────────────────────────────────────────────────────────────────────────────


class Worker:
    """A process that waits for a request, and what it prints to."""

    def __init__(self, place: Place, started: Started, channel: socket.socket, mark: ProcessMark) -> None:
        self.place, self.channel, self.mark = place, channel, mark
        self._started, self._is_ready = started, False
        out, err = started.child.stdout, started.child.stderr
        self.streams = {pipe.fileno(): name for pipe, name in ((out, "stdout"), (err, "stderr")) if pipe}
        self.events = select.poll()
        # The answer is looked for first: once it is there, so is all that was printed before it.
        for fd in (channel.fileno(), *self.streams):
            os.set_blocking(fd, False)
            self.events.register(fd, select.POLLIN)

    def is_usable(self) -> bool:
        """Whether it still starts, or lives and has printed nothing since its last request."""
        return not self._is_ready or not self.events.poll(0)

    def wait_until_ready(self, context: StepContext) -> None:
        """Wait for its first line; end it if that does not come. Raises GaveUp or NoWorker."""
        self.channel.settimeout(TIMING.tick)
        try:
            while not self._is_ready:
                with suppress(TimeoutError):
                    if not self.channel.recv(_CHUNK):
                        raise NoWorker(f"the worker did not start: {self.end()[-1000:]}")
                    self._is_ready = True
                    break
                if not context.may_wait():
                    raise GaveUp
        except GaveUp:
            self.end()
            raise
        self.channel.setblocking(False)

    def end(self) -> str:
        """Kill it with all it started; return the end of what it printed to stderr."""
        self.channel.close()
        end_survivors(self.mark)
        return self._started.end()


def _start(place: Place) -> Worker:
    """Start a worker. It ends with the thread that started it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        layout = replace(place.layout, argv=(*place.layout.argv, str(theirs.fileno())))
        until = time.monotonic() + TIMING.sandbox_start
        fds = (theirs.fileno(),)
        try:
            started = Starter().start(lambda: start(layout, dict(place.env), Never(), until, fds=fds))
        except (OSError, NotStarted, Refused) as error:
            ours.close()
            raise NoWorker(f"the worker did not start: {error}") from None
    if (mark := mark_of(started.child.pid)) is None:
        ours.close()
        raise NoWorker(f"the worker did not start: {started.end()}")
    started.release()
    return Worker(place, started, ours, mark)


class Workers:
    """Starts workers, and keeps those that are idle. Any thread may borrow one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Worker] = []  # the longest idle first
        self._starter = Pool(1, "workers")  # a worker ends with the thread that started it: this one stays
        self._is_closed = False

    def prepare(self, place: Place) -> None:
        """Begin to start a worker that will be borrowed soon; borrowing one reports what goes wrong."""
        with self._lock:
            if any(one.place == place for one in self._idle):
                return
        self._starter.submit(self._find_or_start, place).add_done_callback(self._keep)

    def borrow(self, place: Place, context: StepContext) -> Worker:
        """Return a worker in that sandbox. Raises NoWorker or GaveUp."""
        worker = self._find(place)
        if worker is None:
            begun = self._starter.submit(self._find_or_start, place)
            while not wait([begun], TIMING.tick).done:
                if not context.may_wait():
                    begun.add_done_callback(self._keep)
                    raise GaveUp
            worker = begun.result()
        worker.wait_until_ready(context)
        return worker

    def _find_or_start(self, place: Place) -> Worker:
        return self._find(place) or _start(place)  # another may have been prepared meanwhile

    def _find(self, place: Place) -> Worker | None:
        """Take an idle worker in that sandbox."""
        while True:
            with self._lock:
                worker = next((one for one in reversed(self._idle) if one.place == place), None)
                if worker is None:
                    return None
                self._idle.remove(worker)
            if worker.is_usable():
                return worker
            worker.end()

    def _keep(self, begun: "Future[Worker]") -> None:
        with suppress(NoWorker):
            self.give_back(begun.result(), spent=False)

    def give_back(self, worker: Worker, *, spent: bool) -> None:
        """Take a worker back; one that is spent is ended with all it started."""
        unneeded = [worker]
        with self._lock:
            if not spent and not self._is_closed:
                self._idle.append(worker)
                unneeded = self._idle[:-MOST_IDLE]
                del self._idle[:-MOST_IDLE]
        for one in unneeded:
            one.end()

    def close(self) -> None:
        """End every worker that is idle; the others end when they are given back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()
        self._starter.shutdown(wait=True)


# ── one request ───────────────────────────────────────────────────────────────────────────────────────────


class Request:
    """One request to one worker: what it prints meanwhile, what it answers, how it ends."""

    def __init__(self, worker: Worker, context: StepContext) -> None:
        self.spent = True  # unless it answers, and says that nothing was left behind
        self._worker, self._context = worker, context
        self._log = OutputLog(context)
        self._captures: dict[int, Capture] = {}  # most tools print nothing
        self._answer, self._printed, self._has_ended = bytearray(), 0, False

    def send(self, content: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """Return the worker's answer, or why there is none."""
        channel, events = self._worker.channel, self._worker.events
        with suppress(OSError):  # then it has ended, which is seen below
            channel.settimeout(TIMING.sandbox_start)  # it is waiting for this
            channel.sendall(json.dumps(content).encode("ascii") + b"\n")
        channel.setblocking(False)
        while not self._has_ended and not self._answer.endswith(b"\n"):
            if failure := self._why_over():
                return failure
            for fd, _ in events.poll(TIMING.tick * 1000):
                self._log_some(fd) if fd in self._worker.streams else self._read()
        self._log_rest()
        return self._parse()

    def stderr(self) -> str:
        """Return the end of what was printed to stderr meanwhile."""
        streams = self._worker.streams
        return "".join(capture.tail() for fd, capture in self._captures.items() if streams[fd] == "stderr")

    def _read(self) -> None:
        try:
            chunk = self._worker.channel.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._answer += chunk
        self._has_ended = not chunk

    def _log_some(self, fd: int) -> bool:
        """Log some of what was printed; return whether there was any."""
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        self._printed += len(chunk)
        if chunk:
            capture = self._captures.setdefault(fd, Capture(STREAM_KEPT, self._context.mask, None))
            self._log.output(self._worker.streams[fd], capture.feed(chunk))
        return bool(chunk)

    def _why_over(self) -> Failure | None:
        """Return why the worker must be ended now; None if it may go on."""
        if not self._context.may_wait():
            self._log_rest()
            return self._context.why_ended(then=" and was killed")
        if self._printed > OUTPUT_CAP:
            return Failure(kind="output", message=f"it printed more than {OUTPUT_CAP // 2**20} MiB and was killed")
        if len(self._answer) > LARGEST_REPLY:
            return Failure(
                kind="output", message=f"it gave back more than {LARGEST_REPLY // 2**20} MiB and was killed"
            )
        return None

    def _log_rest(self) -> None:
        """Log what is still in the pipes: a worker flushes them before it answers."""
        for fd in self._worker.streams:
            while self._printed <= OUTPUT_CAP and self._log_some(fd):
                pass
        for fd, capture in self._captures.items():
            self._log.output(self._worker.streams[fd], capture.end())
        if self._captures:
            self._log.finish()

    def _parse(self) -> dict[str, Any] | Failure:
        try:
            answer = json.loads(self._answer)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            words = "its worker ended before it gave anything back: it crashed, or ended Python"
            return Failure(kind="tool", message=words)
        self.spent = answer.get("spent") is not False
        return answer


def result_of(value: Any, context: StepContext) -> ToolResult:
    """Return what a worker gave back as a tool's result."""
    try:
        return text_result(value, context) if isinstance(value, str) else value_result(value, context)
    except OSError as error:
        return fail("interrupted", f"it has run, but its output could not be kept: {error}")
