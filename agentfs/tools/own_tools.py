"""A person's own tools as tools of agentfs: load them in a worker, call them in a worker, never in this process."""

import json
import os
import select
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfs.core.records import Failure, JsonObject, Sandbox
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, Confinement, Never, ToolResult
from agentfs.tools.capture import Capture, text_result, value_result
from agentfs.tools.launch import OUTPUT_CAP, GaveUp, NotStarted, OutputLog, run_program
from agentfs.tools.own import Described, Found, without_clashes
from agentfs.tools.own_crew import Crew, NoWorker, Worker
from agentfs.tools.own_rooms import PACKAGE, NoSandbox, folders_of, program, readable_for
from agentfs.tools.own_source import FOLDER, Source
from agentfs.tools.programs import OPEN_AIR
from agentfs.tools.protected import Unfenceable
from agentfs.tools.safe_open import Refused
from agentfs.tools.sandbox import environment, lay_out
from agentfs.tools.secrets import SecretMask
from agentfs.tools.values import NotJson, json_value

LOAD_S = 10.0
LARGEST_REPLY = 80 * 1024 * 1024
STREAM_KEPT = 8192
TICK_MS = 50
_CHUNK = 65536


# ── load ──────────────────────────────────────────────────────────────────────────────────────────────────


def load(found: Sequence[Source], root: Path, sandbox: Sandbox, taken: Sequence[str]) -> Found:
    """Return the tools of these sources, loaded in a sandbox that can write nothing; bounded in time."""
    if not found:
        return Found()
    inner = Confinement(
        workdir=root / FOLDER if (root / FOLDER).is_dir() else PACKAGE,
        workspace=root,
        run_files=root / "runs" / "none" / "none" / "files",
        readable=readable_for(found, root),
        writable=False,
        sandbox=sandbox,
    )
    asked = {
        "sources": [{"shown": one.shown, "path": one.path, "entry": one.entry} for one in found],
        "folders": folders_of(found),
        "seconds": LOAD_S,
    }
    said = _asked(program("describe", json.dumps(asked)), inner)
    if isinstance(said, str):
        return Found((), tuple(f"{one.shown} could not be loaded: {said}" for one in found))
    tools = tuple(_described(one) for answer in said for one in answer["tools"])
    problems = tuple(problem for answer in said for problem in answer["problems"])
    return without_clashes(Found(tools, problems), taken)


def _asked(argv: Sequence[str], confinement: Confinement) -> list[dict[str, Any]] | str:
    """Return what the worker answered, or why it did not."""
    nowhere = confinement.workspace / "runs" / "none"
    bench = Bench(
        confinement=confinement,
        deadline=time.monotonic() + LOAD_S + 5,
        stop=Never(),
        output_bytes=4 * 1024 * 1024,
        output_file=nowhere,
        claim=lambda _mark: None,
        log=lambda _event, _fields: None,
        mask=SecretMask({}),
    )
    try:
        _, done = run_program(
            lambda: lay_out(argv, confinement), env=environment(confinement), bench=bench, spill=False
        )
        answer: list[dict[str, Any]] = json.loads(done.stdout.text(""))
    except (OSError, Unfenceable, Refused, NotStarted) as error:
        return str(error)
    except ValueError:
        return f"the worker ended without an answer: {done.stderr.strip()[-500:]}"
    return answer


def _described(one: Mapping[str, Any]) -> Described:
    return Described(ToolSpec(**one["spec"]), one["source"], one["line"], one["function"])


# ── call ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class OwnTool:
    """One of a person's own tools."""

    described: Described
    source: Source
    crew: Crew

    @property
    def spec(self) -> ToolSpec:
        return self.described.spec

    def prepare(self, confinement: Confinement) -> None:
        """Begin to start its workers. What goes wrong is told by the call."""
        with suppress(Unfenceable, Refused, NoSandbox):
            self.crew.prepare(self.crew.room(confinement, self.source))

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        try:
            room = self.crew.room(bench.confinement, self.source)
            worker = self.crew.borrow(room, bench)
        except Refused as refused:
            return ToolResult(failure=refused.failure)
        except NoSandbox as error:
            return _failed("sandbox", str(error), bench.confinement.change(OPEN_AIR))
        except Unfenceable as error:
            return _failed("sandbox", str(error), "choose another workdir")
        except NoWorker as error:
            return _failed("sandbox", str(error))
        except GaveUp:
            return _gave_up(bench)
        result = self._with(worker, given, bench)
        harm = room.layout.view.undo_harm()
        return _failed("outside", harm, "a tool may not change what git or agentfs runs") if harm else result

    def _with(self, worker: Worker, given: JsonObject, bench: Bench) -> ToolResult:
        talk = Talk(worker, bench)
        try:
            bench.claim(worker.mark)  # before anything of the person's runs
            reply = talk.ask(self._request(given))
        except BaseException:
            self.crew.give_back(worker, spent=talk.begun)
            raise
        self.crew.give_back(worker, spent=talk.spent)
        return reply if isinstance(reply, ToolResult) else _result(reply, bench)

    def _request(self, given: JsonObject) -> dict[str, Any]:
        return {
            "source": self.source.shown,
            "path": self.source.path,
            "entry": self.source.entry,
            "folders": folders_of([self.source]),
            "function": self.described.function,
            "input": given,
        }


class Talk:
    """One call to one worker: what it is asked, what it prints, how it ends."""

    def __init__(self, worker: Worker, bench: Bench) -> None:
        self.begun = False
        self.spent = True  # unless it answers, and says that it left nothing behind
        self._worker, self._bench = worker, bench
        self._log = OutputLog(bench)
        self._streams = {worker.out: "stdout", worker.err: "stderr"}
        self._captures: dict[int, Capture] = {}  # most tools print nothing
        self._reply, self._printed, self._over, self._mute = bytearray(), 0, False, False
        self._found: list[tuple[int, int]] = []  # what there was to read when it was last looked

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any] | ToolResult:
        """Return the worker's answer, or why there is none."""
        content = json.dumps(request).encode("ascii")
        self.begun = True
        waiting = self._write(memoryview(struct.pack("!Q", len(content)) + content))
        heard = self._worker.heard
        if waiting:
            heard.modify(self._worker.talk, select.POLLIN | select.POLLOUT)
        while not self._complete() and not self._over:
            if problem := self._problem():
                return problem
            self._found = heard.poll(TICK_MS)
            for fd, events in self._found:
                if fd in self._streams:
                    if not self._print(fd) and events & select.POLLHUP:
                        heard.unregister(fd)  # the tool has closed it
                        self._mute = True
                    continue
                if events & select.POLLOUT and not (waiting := self._write(waiting)):
                    heard.modify(fd, select.POLLIN)
                if events & ~select.POLLOUT:
                    self._listen()
        return self._end()

    def _write(self, waiting: memoryview) -> memoryview:
        try:
            return waiting[self._worker.talk.send(waiting) :]
        except BlockingIOError:
            return waiting
        except OSError:
            self._over = True
            return waiting[:0]

    def _listen(self) -> None:
        try:
            chunk = self._worker.talk.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._reply += chunk
        self._over = self._over or not chunk

    def _print(self, fd: int) -> bool:
        """Take some of what the tool printed; return whether there was any."""
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        self._printed += len(chunk)
        if fd not in self._captures:
            self._captures[fd] = Capture(STREAM_KEPT, self._bench.mask, None)
        self._log.output(self._streams[fd], self._captures[fd].feed(chunk))
        return bool(chunk)

    def _complete(self) -> bool:
        return len(self._reply) >= 8 and len(self._reply) - 8 >= struct.unpack("!Q", self._reply[:8])[0]

    def _problem(self) -> ToolResult | None:
        """Return why it must be ended now; None if it may go on."""
        if self._bench.stop.is_set() or time.monotonic() >= self._bench.deadline:
            self._take_rest()
            return _gave_up(self._bench)
        if self._printed > OUTPUT_CAP:
            return _failed("output", f"it printed more than {OUTPUT_CAP // 2**20} MiB and was killed")
        if len(self._reply) > LARGEST_REPLY:
            return _failed("output", f"it gave back more than {LARGEST_REPLY // 2**20} MiB and was killed")
        return None

    def _take_rest(self) -> None:
        """Take what is in the pipes: a worker flushes them before it answers."""
        spoke = {fd for fd, _ in self._found} if self._complete() else self._streams.keys()
        for fd in self._streams.keys() & spoke:
            while self._printed <= OUTPUT_CAP and self._print(fd):
                pass
        for fd, capture in self._captures.items():
            self._log.output(self._streams[fd], capture.end())
        if self._captures:
            self._log.finish()

    def _end(self) -> dict[str, Any] | ToolResult:
        self._take_rest()
        try:
            reply = json.loads(self._reply[8:]) if self._complete() else None
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            return _failed("tool", "its worker ended before it gave anything back: it crashed, or ended Python")
        self.spent = self._mute or reply.get("spent") is not False
        return reply


def _result(reply: Mapping[str, Any], bench: Bench) -> ToolResult:
    if "value" not in reply:
        return _failed(str(reply.get("kind")), bench.mask.text(str(reply.get("message"))))
    try:
        value = json_value(str(reply["value"]))
    except NotJson as error:
        return _failed("tool", f"what it gave back is no JSON value that can be kept: {error}")
    try:
        return text_result(value, bench) if isinstance(value, str) else value_result(value, bench)
    except OSError as error:
        return _failed("interrupted", f"it has run, but its output could not be kept: {error}")


def _gave_up(bench: Bench) -> ToolResult:
    if bench.stop.is_set():
        return _failed("interrupted", "it was stopped")
    return ToolResult(failure=bench.limit.failure(then=" and was killed"))


def _failed(kind: str, message: str, hint: str | None = None) -> ToolResult:
    return ToolResult(failure=Failure(kind=kind, message=message, hint=hint))
