"""Carry out one order for a driver on another machine: `agentfs attempt` and Dask workers run this.

The attempt works as it does at home, in a steps folder of its own that sends on all that is written to it. Nothing
starts before the driver has answered `go`.
"""

import contextlib
import json
import os
import platform
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import agentfs
from agentfs.core import paths
from agentfs.core.config import ExecutorSettings, Settings, ToolSettings, WebSearchSettings
from agentfs.core.records import Failure, Sandbox
from agentfs.executor.attempt import Halt, asks_a_model, attempt, resume
from agentfs.executor.attempt_log import AlreadyClaimed
from agentfs.executor.checks import RealObserver
from agentfs.executor.task import Asked, Task
from agentfs.models import create_model
from agentfs.models.base import ModelSession
from agentfs.models.budget import Budget
from agentfs.places.assignment import Assignment, Token, Unreadable, check_token, decode, task_of
from agentfs.places.channel import Channel, Closed, Message
from agentfs.places.watchdog import watchdog_of_this_process
from agentfs.storage.clock import Clock
from agentfs.storage.files import SharedSync, StepsFolder
from agentfs.storage.timing import TIMING
from agentfs.tools import sandbox
from agentfs.tools.base import StepContext
from agentfs.tools.registry import Toolbox, builtins, opened_tools
from agentfs.tools.secrets import mask_for

RESULT, OUTPUT = ".result.json", ".output.txt"
PIECE = 1 << 20  # bytes of a file in one message


class Refused(Exception):
    """This machine cannot carry out the order. Its text says why."""


class DriverLine:
    """The attempt's end of the line: takes `go` and `stop`, ends the attempt in silence, sends signs of life."""

    def __init__(self, channel: Channel, stop: Halt, *, silence_s: float, alive_s: float) -> None:
        self._channel, self._stop = channel, stop
        self.watchdog = watchdog_of_this_process(silence_s)
        self._me = uuid.uuid4().hex  # a second start of the same attempt is another
        self._silence_s, self._alive_s = silence_s, alive_s
        self._answered, self._go, self._over = threading.Event(), False, threading.Event()
        self._thread = threading.Thread(target=self._listen, name="driver-line", daemon=True)
        self._thread.start()

    def may_begin(self, message: Message) -> bool:
        """Ask the driver whether this attempt may start now. No answer is a no."""
        with contextlib.suppress(Closed):
            self._channel.send({"kind": "begin", "from": self._me, "host": platform.node(), **message})
            self._answered.wait(self._silence_s)
        return self._go

    def send(self, message: Message) -> None:
        """Send something; a line that is cut ends the attempt."""
        try:
            self._channel.send({"from": self._me, **message})
        except Closed:
            self._halt("the line to its driver was cut")

    def close(self) -> None:
        self._over.set()

    def _listen(self) -> None:
        received = sent = _now()
        while not self._over.is_set():
            self.watchdog.beat()
            try:
                message = self._channel.receive(min(TIMING.log_follow, self._alive_s))
            except Closed:
                return self._halt("the line to its driver was cut")
            now = _now()
            if message is not None:
                received = now
                self._take(message)
            if now - received > self._silence_s:
                return self._halt(f"nothing came from its driver for {self._silence_s:g} s")
            if now - sent >= self._alive_s:
                sent = now
                self.send({"kind": "alive"})
        return None

    def _take(self, message: Message) -> None:
        match message.get("kind"):
            case "go" | "no" if message.get("to") == self._me:
                self._go = message["kind"] == "go"
                self._answered.set()
            case "stop":
                because = message.get("because")
                self._stop.halt(Failure.model_validate(because) if because else None)
            case _:
                pass

    def _halt(self, why: str) -> None:
        self._stop.halt(Failure(kind="interrupted", message=why))
        self._answered.set()


def _now() -> float:
    """Return seconds that pass while this machine sleeps, too: its driver has counted them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class SendingFolder(StepsFolder):
    """A steps folder whose every change is sent to the driver. The name of the log is taken there, not here."""

    line: DriverLine | None = None

    def _send(self, **message: Any) -> None:
        if self.line is not None:
            self.line.send(message)

    def _watch_program(self, line: str) -> None:
        """Have the program that a line of the log names ended with this process, even if that is frozen."""
        entry = json.loads(line)
        if self.line is not None and entry["event"] in ("claim", "program") and entry.get("pid"):
            self.line.watchdog.watch(entry["pid"], entry["start_time"])

    def open_unnamed(self, flags: int) -> int | None:
        return os.open(f"{self.folder}/claim", flags | os.O_CREAT | os.O_EXCL, 0o600)

    def give_name(self, descriptor: int, name: str) -> None:  # noqa: ARG002 - it has its name in the scratch folder
        """Claim the attempt: the driver creates the log, with this first line. Raises FileExistsError for a no."""
        path = f"{self.folder}/claim"
        line = Path(path).read_text(encoding="utf-8")
        if self.line is None or not self.line.may_begin({"name": name, "line": line}):
            raise FileExistsError(name)
        self._watch_program(line)
        os.rename(path, f"{self.folder}/{name}")

    def append(self, descriptor: int, name: str, line: bytes) -> None:
        StepsFolder.append(self, descriptor, name, line)
        self._watch_program(line.decode("utf-8"))
        self._send(kind="append", name=name, line=line.decode("utf-8"))

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        if name.endswith(RESULT):
            self._send_output(name)
        else:
            StepsFolder.put(self, name, content, durable=False)  # a question: the next one gets another number
        self._send(kind="put", name=name, text=content.decode("utf-8"), durable=durable)

    def sync(self) -> None:
        """Do nothing: the driver makes durable what is sent, and nothing here outlives the attempt."""

    def sync_file(self, descriptor: int) -> None:
        """Do nothing, likewise."""

    def _send_output(self, result: str) -> None:
        """Send the whole output of an attempt, if it has a file of its own: before the result that names it."""
        whole = Path(self.folder) / (result.removesuffix(RESULT) + OUTPUT)
        if not whole.exists():
            return
        with open(whole, "rb") as file:
            while piece := file.read(PIECE):
                self._send(kind="piece", name=whole.name, bytes=piece.hex())
        self._send(kind="piece", name=whole.name, bytes="")


def serve(channel: Channel, environment: Mapping[str, str]) -> int:
    """Carry out the one assignment that arrives; return 0, or 1 if it was refused."""
    try:
        first = channel.receive(TIMING.place_orphan)
    except Closed:
        return 1
    try:
        match first:
            case {"kind": "assignment", "version": version, "assignment": text}:
                return carry_out(_readable(version, text), channel, environment)
            case {"kind": "probe", "token": token}:
                channel.send({"kind": "probed", **probe(token)})
                return 0
            case _:
                return 1
    except Refused as refusal:
        channel.send({"kind": "refused", "why": str(refusal)})
        return 1


def _readable(version: Any, text: Any) -> Assignment:
    """Return an assignment of this very release; another one's may mean something else."""
    if version != agentfs.__version__:
        raise Refused(f"{platform.node()} has agentfs {agentfs.__version__}, the driver is {version}")
    try:
        return decode(str(text))
    except Unreadable as error:
        raise Refused(str(error)) from None


def probe(token: Mapping[str, str]) -> dict[str, Any]:
    """Return what a driver wants to know of this machine before it sends work."""
    return {
        "version": agentfs.__version__,
        "host": platform.node(),
        "sandbox": sandbox.unavailable_because() or "bubblewrap",
        "shared": check_token(Token(token["path"], token["text"])),
        "at": Clock().stamp(),
    }


def carry_out(assignment: Assignment, channel: Channel, environment: Mapping[str, str]) -> int:
    """Carry out an order for its driver."""
    if wrong := check_token(assignment.token):
        raise Refused(wrong)
    confined = _sandbox(assignment)
    stop = Halt()
    line = DriverLine(channel, stop, silence_s=assignment.silence_s, alive_s=assignment.alive_s)
    scratch = tempfile.TemporaryDirectory(prefix="agentfs-attempt-", ignore_cleanup_errors=True)
    with scratch as folder, _tools(assignment, confined) as box:
        steps = SendingFolder(folder, SharedSync(folder), line)
        context = _context(assignment, confined, steps, stop, box, environment)
        try:
            _attempt(assignment, task_of(assignment, environment), context, line)
        except AlreadyClaimed:
            line.send({"kind": "unclaimed"})
        finally:
            line.send({"kind": "over"})
            line.close()
    return 0


def _attempt(assignment: Assignment, task: Task, context: StepContext, line: DriverLine) -> None:
    if assignment.log is None or assignment.reply is None:
        found = attempt(task, context)
    else:
        name = paths.step_file(task.order.step, task.order.attempt, "log")
        Path(context.steps_folder.folder, name).write_text(assignment.log, encoding="utf-8")
        if not line.may_begin({"name": name, "line": None}):
            raise AlreadyClaimed(name)
        found = resume(task, assignment.reply, context)
    if isinstance(found, Asked):
        line.send({"kind": "asked", "count": found.count})


def _sandbox(assignment: Assignment) -> Sandbox:
    """Return how programs are confined here."""
    because = "" if assignment.sandbox == "off" else sandbox.unavailable_because()
    if because is None:
        return "bubblewrap"
    if assignment.sandbox == "require":
        raise Refused(f'sandbox = "require", but {platform.node()} has none: {because}')
    return "none"


@contextlib.contextmanager
def _tools(assignment: Assignment, confined: Sandbox) -> Iterator[Toolbox]:
    """Yield the tools of an order. A person's own are loaded only for one that names them: that takes a worker."""
    order, built_in = assignment.order, builtins(assignment.search_url)
    if {order.tool or "note", *(order.tools or ())} <= built_in.keys():
        yield Toolbox(built_in)
        return
    settings = Settings(tools=ToolSettings(web_search=WebSearchSettings(url=assignment.search_url)))
    with opened_tools(assignment.confinement.workspace, confined, settings) as box:
        yield box


def _context(
    assignment: Assignment,
    confined: Sandbox,
    steps: StepsFolder,
    stop: Halt,
    box: Toolbox,
    environment: Mapping[str, str],
) -> StepContext:
    order, clock = assignment.order, Clock()
    room = replace(
        assignment.confinement,
        sandbox=confined,
        programs=confined != "none" or assignment.unconfined,
        env={name: environment[name] for name in assignment.env if name in environment},
    )
    executor = assignment.model.settings if assignment.model else ExecutorSettings()
    tools = ToolSettings(env=assignment.env, web_search=WebSearchSettings(url=assignment.search_url))
    mask = mask_for(Settings(tools=tools, executor=executor), environment, box.tools)
    name = paths.conversation(order.step, order.attempt)
    context = StepContext(
        name=name,
        confinement=room,
        steps_folder=steps,
        mask=mask,
        deadline=clock.monotonic() + order.timeout_s,
        stop=stop,
        output_bytes=assignment.output_bytes,
        output_file=Path(steps.path(order.step, order.attempt, "output")),
        claim=lambda _mark: None,
        log=lambda _event, _fields: None,
        observer=RealObserver(),
        clock=clock,
        tools=box.tools,
    )
    if assignment.model is None or not asks_a_model(order, box.tools):
        return context
    chosen = assignment.model
    session = ModelSession(context.log, Budget(assignment.left), stop, context.deadline, name=name)
    model = create_model(chosen.settings, chosen.name, chosen.temperature, environment)
    return replace(context, model=model, session=session)
