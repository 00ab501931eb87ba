"""Load and call a person's own tools: in worker processes in the sandbox, never in this process.

A worker is one process in one sandbox (`user_tool_worker`). It serves one call at a time, a line of JSON each way.
Later calls in the same sandbox use it again, unless it was ended or its tool left something behind (a child, a
thread, another folder or environment). At a timeout or a stop it is killed with all it started.
"""

import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentfs.core.records import JsonObject, Sandbox
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.storage.files import StepsFolder
from agentfs.storage.safe_open import Refused, hold_folder
from agentfs.storage.starting import Pool, Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, StepContext, ToolResult, fail
from agentfs.tools.launch import OUTPUT_CAP, GaveUp, NotStarted, Started, start
from agentfs.tools.output import Capture, OutputLog, text_result, value_result
from agentfs.tools.process import Never, ProcessMark, end_survivors, mark_of
from agentfs.tools.programs import OPEN_AIR
from agentfs.tools.protected import Unfenceable
from agentfs.tools.sandbox import Layout, environment, lay_out, unavailable_because
from agentfs.tools.secrets import SecretMask
from agentfs.tools.user_tools import FOLDER, Described, Found, Source, without_clashes

PROGRAM = Path(__file__).with_name("user_tool_worker.py")
PACKAGE = Path(__file__).parent.parent
LARGEST_REPLY = 80 * 1024 * 1024
STREAM_KEPT = 8192
MOST_IDLE = 16  # workers that wait for a call; as many that were prepared for one
_CHUNK = 65536


class NoWorker(Exception):
    """There is no worker for a call: why, and what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


# ── the sandbox of a worker ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Place:
    """The sandbox that a source needs now. A worker in an equal one will do."""

    source: tuple[Source, ...]
    layout: Layout
    env: tuple[tuple[str, str], ...]
    marks: tuple[object, ...]  # what differs once something was replaced under the same name


def find_place(confinement: Confinement, *source: Source) -> Place:
    """Return the sandbox for these tools in this confinement. Raises NoWorker or Refused."""
    if confinement.sandbox == "bubblewrap" and (why := unavailable_because()):
        raise NoWorker(why, confinement.change(OPEN_AIR))
    inner = replace(confinement, readable=(*confinement.readable, *_readable_for(source, confinement.workspace)))
    argv = [sys.executable, "-I", "-B", str(PROGRAM)]
    try:
        with hold_folder(str(confinement.workdir)) as held:
            workdir = os.fstat(held.fd).st_ino
        layout = lay_out(argv, inner)
    except Unfenceable as error:
        raise NoWorker(str(error), "choose another workdir") from None
    plain = {str(inner.workdir), *map(str, inner.readable), *map(os.path.realpath, (sys.prefix, sys.base_prefix))}
    locked = (path for path, kind, _ in layout.view.mounts if kind == "shown" and path not in plain)
    marks = (workdir, *map(_change_time, locked), *_tool_files(source))
    return Place(source, layout, tuple(environment(inner).items()), marks)


def _readable_for(found: Sequence[Source], root: Path) -> tuple[Path, ...]:
    """Return what a worker must see: tools/, agentfs itself, and where entry points are installed."""
    paths = [root / FOLDER, PACKAGE, *(Path(one.path).parent for one in found if one.path)]
    return tuple(dict.fromkeys(Path(os.path.realpath(path)) for path in paths if path.is_dir()))


def _change_time(path: str) -> int | None:
    """Return when a locked file last changed: one that is removed and made again may get the same number."""
    with suppress(OSError):
        return os.stat(path).st_ctime_ns
    return None


def _tool_files(found: Sequence[Source]) -> list[tuple[str, int, int, int]]:
    """Return what changes when a person edits their tools: names, sizes and times of the files in tools/."""
    folders = {os.path.dirname(one.path) for one in found if one.path and one.entry is None}
    marks = []
    with suppress(OSError):
        for folder in folders:
            with os.scandir(folder) as entries:
                files = [(one.name, one.stat()) for one in entries if one.name.endswith(".py")]
            marks += [(name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in files]
    return sorted(marks)


# ── workers ───────────────────────────────────────────────────────────────────────────────────────────────


class Worker:
    """A process that waits for a call, and what it prints to."""

    def __init__(self, place: Place, started: Started, channel: socket.socket, mark: ProcessMark) -> None:
        self.place, self.channel, self.mark = place, channel, mark
        self._started = started
        out, err = started.child.stdout, started.child.stderr
        self.streams = {pipe.fileno(): name for pipe, name in ((out, "stdout"), (err, "stderr")) if pipe}
        self.events = select.poll()
        # The answer is looked for first: once it is there, so is all that was printed before it.
        for fd in (channel.fileno(), *self.streams):
            os.set_blocking(fd, False)
            self.events.register(fd, select.POLLIN)

    def is_idle(self) -> bool:
        """Whether it lives and has printed nothing since its last call."""
        return not self.events.poll(0)

    def is_ready(self, context: StepContext) -> bool:
        """Wait for its first line; return whether it came. Raises GaveUp."""
        self.channel.settimeout(TIMING.tick)
        while True:
            with suppress(TimeoutError):
                line = self.channel.recv(_CHUNK)
                break
            if not context.may_wait():
                raise GaveUp
        self.channel.setblocking(False)
        return bool(line)

    def end(self) -> str:
        """Kill it with all it started; return the end of what it printed to stderr."""
        self.channel.close()
        end_survivors(self.mark)
        return self._started.end()


def start_worker(place: Place) -> Worker:
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


def _when_ready(worker: Worker, context: StepContext) -> Worker:
    """Return a worker that waits for its first call; one that never does is ended."""
    try:
        if worker.is_ready(context):
            return worker
    except BaseException:
        worker.end()
        raise
    raise NoWorker(f"the worker did not start: {worker.end()[-1000:]}")


class Workers:
    """The workers of one agentfs. Any thread may borrow one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Worker] = []  # the longest idle first
        self._prepared: dict[Place, Future[Worker]] = {}
        self._starter = Pool(1, "user-tools")  # a worker ends with the thread that started it: this one stays
        self._closed = False

    def prepare(self, place: Place) -> None:
        """Begin to start a worker that will be borrowed soon; borrowing it raises what goes wrong."""
        with self._lock:
            if place in self._prepared or any(one.place == place for one in self._idle):
                return
            self._prepared[place] = self._starter.submit(start_worker, place)
            oldest = list(self._prepared)[:-MOST_IDLE]
            unneeded = [self._prepared.pop(one) for one in oldest]
        for begun in unneeded:  # a run that never called the tool
            begun.add_done_callback(_end_started)

    def borrow(self, place: Place, context: StepContext) -> Worker:
        """Return a worker in that sandbox. Raises NoWorker or GaveUp."""
        while (worker := self._take_idle(place)) is not None:
            if worker.is_idle():
                return worker
            worker.end()
        with self._lock:
            begun = self._prepared.pop(place, None) or self._starter.submit(start_worker, place)
        while not wait([begun], TIMING.tick).done:
            if not context.may_wait():
                begun.add_done_callback(_end_started)
                raise GaveUp
        return _when_ready(begun.result(), context)

    def _take_idle(self, place: Place) -> Worker | None:
        with self._lock:
            worker = next((one for one in reversed(self._idle) if one.place == place), None)
            if worker is not None:
                self._idle.remove(worker)
            return worker

    def give_back(self, worker: Worker, *, spent: bool) -> None:
        """Take a worker back; one that is spent is ended with all it started."""
        unneeded = [worker]
        with self._lock:
            if not spent and not self._closed:
                self._idle.append(worker)
                unneeded = self._idle[:-MOST_IDLE]
                del self._idle[:-MOST_IDLE]
        for one in unneeded:
            one.end()

    def close(self) -> None:
        """End every worker that nobody has; the others end with their call."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            prepared, self._prepared = self._prepared, {}
        for begun in prepared.values():
            begun.add_done_callback(_end_started)
        for worker in idle:
            worker.end()
        self._starter.shutdown(wait=True)


def _end_started(begun: "Future[Worker]") -> None:
    with suppress(NoWorker):
        begun.result().end()


# ── one request ───────────────────────────────────────────────────────────────────────────────────────────


class Request:
    """One request to one worker: what it prints meanwhile, what it answers, how it ends."""

    def __init__(self, worker: Worker, context: StepContext) -> None:
        self.spent = True  # unless it answers, and says that nothing was left behind
        self._worker, self._context = worker, context
        self._log = OutputLog(context)
        self._captures: dict[int, Capture] = {}  # most tools print nothing
        self._answer, self._printed, self._ended = bytearray(), 0, False

    def send(self, content: Mapping[str, Any]) -> dict[str, Any] | ToolResult:
        """Return the worker's answer, or why there is none."""
        channel, events = self._worker.channel, self._worker.events
        with suppress(OSError):  # then it has ended, which is seen below
            channel.settimeout(TIMING.sandbox_start)  # it is waiting for this
            channel.sendall(json.dumps(content).encode("ascii") + b"\n")
        channel.setblocking(False)
        while not self._ended and not self._answer.endswith(b"\n"):
            if problem := self._problem():
                return problem
            for fd, _ in events.poll(TIMING.tick * 1000):
                self._print(fd) if fd in self._worker.streams else self._read()
        self._print_rest()
        return self._parse()

    def stderr(self) -> str:
        """Return the end of what was printed to stderr meanwhile."""
        return "".join(
            capture.tail() for fd, capture in self._captures.items() if self._worker.streams[fd] == "stderr"
        )

    def _read(self) -> None:
        try:
            chunk = self._worker.channel.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._answer += chunk
        self._ended = not chunk

    def _print(self, fd: int) -> bool:
        """Take some of what the tool printed; return whether there was any."""
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        self._printed += len(chunk)
        if chunk and fd not in self._captures:
            self._captures[fd] = Capture(STREAM_KEPT, self._context.mask, None)
        if chunk:
            self._log.output(self._worker.streams[fd], self._captures[fd].feed(chunk))
        return bool(chunk)

    def _problem(self) -> ToolResult | None:
        """Return why the worker must be ended now; None if it may go on."""
        if not self._context.may_wait():
            self._print_rest()
            return _gave_up(self._context)
        if self._printed > OUTPUT_CAP:
            return fail("output", f"it printed more than {OUTPUT_CAP // 2**20} MiB and was killed")
        if len(self._answer) > LARGEST_REPLY:
            return fail("output", f"it gave back more than {LARGEST_REPLY // 2**20} MiB and was killed")
        return None

    def _print_rest(self) -> None:
        """Take what is in the pipes: a worker flushes them before it answers."""
        for fd in self._worker.streams:
            while self._printed <= OUTPUT_CAP and self._print(fd):
                pass
        for fd, capture in self._captures.items():
            self._log.output(self._worker.streams[fd], capture.end())
        if self._captures:
            self._log.finish()

    def _parse(self) -> dict[str, Any] | ToolResult:
        try:
            answer = json.loads(self._answer)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            return fail("tool", "its worker ended before it gave anything back: it crashed, or ended Python")
        self.spent = answer.get("spent") is not False
        return answer


def _gave_up(context: StepContext) -> ToolResult:
    if context.stop.is_set():
        return fail("interrupted", "it was stopped")
    return ToolResult(failure=context.limit.failure(then=" and was killed"))


# ── load and call ─────────────────────────────────────────────────────────────────────────────────────────


def load(found: Sequence[Source], root: Path, sandbox: Sandbox, taken: Sequence[str]) -> Found:
    """Return the tools of these sources, loaded in a sandbox that can write nothing; bounded in time."""
    if not found:
        return Found()
    confinement = Confinement(
        workdir=root / FOLDER if (root / FOLDER).is_dir() else PACKAGE,
        workspace=root,
        run_files=root / "runs" / "none" / "none" / "files",
        writable=False,
        sandbox=sandbox,
    )
    context = StepContext(
        name="tools",
        confinement=confinement,
        steps_folder=StepsFolder.of(confinement.run_files.parent),
        deadline=time.monotonic() + TIMING.sandbox_start + TIMING.tool_load,
        stop=Never(),
        output_bytes=STREAM_KEPT,
        output_file=root / "runs" / "none",
        claim=lambda _mark: None,
        log=lambda _event, _fields: None,
        mask=SecretMask({}),
    )
    try:
        worker = _when_ready(start_worker(find_place(confinement, *found)), context)
    except (NoWorker, Refused, GaveUp) as error:
        return _report_unloaded(found, str(error))
    try:
        asked = {"sources": [asdict(one) for one in found], "folders": _folders(found), "seconds": TIMING.tool_load}
        answer = Request(worker, context).send(asked)
    finally:
        worker.end()
    if isinstance(answer, ToolResult):
        return _report_unloaded(found, answer.failure.message if answer.failure else "")
    tools = tuple(
        Described(ToolSpec(**one["spec"]), one["source"], one["line"], one["function"]) for one in answer["tools"]
    )
    return without_clashes(Found(tools, tuple(answer["problems"])), taken)


def _report_unloaded(found: Sequence[Source], why: str) -> Found:
    return Found((), tuple(f"{one.shown} could not be loaded: {why}" for one in found))


def _folders(found: Sequence[Source]) -> list[str]:
    """Return the folders in which the packages of entry points lie."""
    return list(dict.fromkeys(one.folder for one in found if one.folder))


@dataclass(frozen=True, slots=True)
class UserTool:
    """One of a person's own tools."""

    described: Described
    source: Source
    workers: Workers

    @property
    def spec(self) -> ToolSpec:
        return self.described.spec

    def prepare(self, confinement: Confinement) -> None:
        """Begin to start a worker. The call reports what goes wrong."""
        with suppress(NoWorker, Refused):
            self.workers.prepare(find_place(confinement, self.source))

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        try:
            place = find_place(context.confinement, self.source)
            worker = self.workers.borrow(place, context)
        except Refused as refused:
            return ToolResult(failure=refused.failure)
        except NoWorker as error:
            return fail("sandbox", str(error), error.hint)
        except GaveUp:
            return _gave_up(context)
        result = self._call_in(worker, given, context)
        harm = place.layout.view.undo_harm()
        return fail("outside", harm, "a tool may not change what git or agentfs runs") if harm else result

    def _call_in(self, worker: Worker, given: JsonObject, context: StepContext) -> ToolResult:
        try:
            context.claim(worker.mark)  # before anything of the person's runs
        except BaseException:
            self.workers.give_back(worker, spent=False)
            raise
        request = Request(worker, context)
        function, folders = self.described.function, _folders([self.source])
        try:
            answer = request.send(
                {
                    "source": asdict(self.source),
                    "function": function,
                    "folders": folders,
                    "input": given,
                    "traceparent": context.traceparent,
                }
            )
        finally:
            self.workers.give_back(worker, spent=request.spent)
        return answer if isinstance(answer, ToolResult) else _result(answer, context)


def _result(answer: Mapping[str, Any], context: StepContext) -> ToolResult:
    if "value" not in answer:
        return fail(str(answer.get("kind")), context.mask.text(str(answer.get("message"))))
    try:
        value = json_value(str(answer["value"]))
    except NotJson as error:
        return fail("tool", f"what it gave back is no JSON value that can be kept: {error}")
    try:
        return text_result(value, context) if isinstance(value, str) else value_result(value, context)
    except OSError as error:
        return fail("interrupted", f"it has run, but its output could not be kept: {error}")
