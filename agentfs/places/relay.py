"""The driver's end of attempts elsewhere: which places there are, what is sent, and what comes back.

A relay answers `go` once, records what arrives, and knows when to give up.
"""

import importlib.util
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

import agentfs
from agentfs.core import paths
from agentfs.core.config import ExecutorSettings, PlaceSettings, Settings
from agentfs.core.mask import Mask
from agentfs.core.records import Failure, Order, Result, Run
from agentfs.core.run_state import Bounds, Spent
from agentfs.core.tool_spec import runs_here
from agentfs.errors import UserError
from agentfs.executor.attempt import Halt, asks_a_model, publish_result, unstarted_result
from agentfs.executor.attempt_log import AlreadyClaimed, AttemptLog
from agentfs.executor.task import Asked, Task
from agentfs.models.base import usage_in
from agentfs.places.assignment import Assignment, ModelChoice, Tokens, encode
from agentfs.places.channel import Closed, CommandPlace, Line, Message, Place
from agentfs.places.dask_place import DaskPlace, is_safe
from agentfs.storage.clock import Clock
from agentfs.storage.files import StepsFolder, temp_name
from agentfs.storage.pool import Pool
from agentfs.storage.safe_open import MOST_LOG, read_text
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.base import StepContext


class Lost(Exception):
    """An attempt that began, did not end when it was asked to, and may still run: recovery will see to it."""


class Refused(Exception):
    """A machine of that place does not take the order, and will not if it is asked again."""


@dataclass(slots=True)
class Relay:
    """One attempt elsewhere, as its driver sees it."""

    order: Order
    place: Place
    steps: StepsFolder
    log: AttemptLog
    stop: Halt
    mask: Mask
    clock: Clock
    found: Result | Asked | None = None
    starter: str | None = None  # the process that got the `go`
    host: str | None = None  # and its machine
    _finished: bool = False
    _output: tuple[int, str] | None = None  # descriptor and temporary name of the whole output that is arriving
    _received_at: float = field(default_factory=time.monotonic)
    _sent_at: float = 0.0
    _stopped_at: float | None = None

    def run(self, message: Message) -> Result | Asked:
        """Have the order carried out there. Raises AlreadyClaimed if another executor has it."""
        until = None
        try:
            while True:
                why = self._follow(message)
                if self.found is not None:
                    return self.found
                if self.starter is not None:
                    return self._orphan(why)
                until = until or time.monotonic() + TIMING.place_start  # it may have waited for a worker until now
                if self.stop.is_set() or time.monotonic() >= until:
                    return self._record_unstarted(why)
                time.sleep(TIMING.place_again)
        except Refused as refusal:
            return self._record_unstarted(str(refusal))
        finally:
            self.log.close()

    # ── while it runs ───────────────────────────────────────────────────────────────────────────────────

    def _follow(self, message: Message) -> str:
        """Follow one start of the attempt to its end; return why the line ended."""
        try:
            line = self.place.start(message)
        except Closed as closed:
            return str(closed) or "it could not be started"
        self._received_at = self._sent_at = time.monotonic()
        try:
            while not self._finished:
                if why := self._send_due(line):
                    return why
                if (arrived := line.receive(TIMING.tick)) is not None:
                    self._handle(arrived, line)
                elif self.starter is not None and time.monotonic() - self._received_at > TIMING.place_orphan:
                    # Not before all that arrived is read: this process may have slept.
                    return f"nothing came from it for {TIMING.place_orphan:g} s"
        except Closed as closed:
            return str(closed) or "the line to it was cut"
        finally:
            line.close()
        return ""

    def _send_due(self, line: Line) -> str | None:
        """Send what is due; return why to stop waiting, if there is a reason."""
        now = time.monotonic()
        if self.stop.is_set() and self._stopped_at is None:
            self._stopped_at = now
            because = self.stop.because
            line.send({"kind": "stop", "because": because.model_dump() if because else None})
        if now - self._sent_at >= TIMING.place_alive:
            self._sent_at = now
            line.send({"kind": "alive"})
        if self._stopped_at is None:
            return None
        # An attempt that has begun is to end first, unless this process ends, and has waited long enough for that.
        gives_up = self.stop.is_leaving and now - self._stopped_at > TIMING.place_stop
        return "it was stopped" if self.starter is None or gives_up else None

    def _handle(self, message: Message, line: Line) -> None:
        kind, sender = message.get("kind"), message.get("from")
        if kind == "refused" and self.starter is None:  # a second start is not listened to
            why = str(message.get("why"))
            raise Closed(why) if line.has_another() else Refused(why)
        if kind == "begin":
            self._begin(message, line)
        if sender != self.starter or sender is None:
            return  # a second start of the attempt: it is not listened to
        self._received_at = time.monotonic()
        match message:
            case {"kind": "append", "line": str() as text}:
                self.log.append(text.encode("utf-8"))
            case {"kind": "piece", "bytes": str() as piece}:
                self._take_piece(bytes.fromhex(piece))
            case {"kind": "put", "name": str() as name, "text": str() as text}:
                self._put(name, text)
            case {"kind": "asked", "count": int() as count}:
                self.found = Asked("", {}, count)
            case {"kind": "over"}:
                self._finished = True
            case _:
                pass

    def _begin(self, message: Message, line: Line) -> None:
        """Create the claim and answer `go`, once; every later `begin` gets a no."""
        sender = str(message.get("from"))
        if self.starter is not None:
            line.send({"kind": "no", "to": sender})
            return
        try:
            self._claim(message)
        except AlreadyClaimed:
            line.send({"kind": "no", "to": sender})
            raise
        self.starter, self.host = sender, str(message.get("host"))
        line.send({"kind": "go", "to": sender})

    def _claim(self, message: Message) -> None:
        first = message.get("line")
        if first is None:
            self.log.reopen()
            self.log.write("resumed", {"place": self.place.name, "host": str(message.get("host"))})
            return
        claim = json.loads(str(first))
        fields = {name: value for name, value in claim.items() if name not in ("event", "at")}
        self.log.create({**fields, "place": self.place.name, "host": str(message.get("host"))})

    def _put(self, name: str, text: str) -> None:
        """Publish what the attempt wrote: questions and its result, and nothing under another attempt's name."""
        own = f"{self.order.step}.{self.order.attempt}."
        if not name.startswith(own) or "/" in name:
            raise Refused(f"it wants to write {name}, which is not a file of this attempt")
        if name != paths.step_file(self.order.step, self.order.attempt, "result"):
            self.steps.put(name, text.encode("utf-8"), durable=True)
            return
        try:
            result = Result.model_validate_json(text)
        except ValidationError as error:
            raise Closed(f"its result does not read: {error.error_count()} fields are wrong") from None
        named = (result.run, result.step, result.attempt, result.key)
        if named != (self.order.run, self.order.step, self.order.attempt, self.order.key):
            raise Closed("its result belongs to another order")
        result = result.model_copy(update={"place": self.place.name, "host": self.host})
        self.found = publish_result(result, self.steps, self.mask)

    def _take_piece(self, piece: bytes) -> None:
        """Take a piece of the whole output; an empty one ends it, and it appears."""
        name = paths.step_file(self.order.step, self.order.attempt, "output")
        if self._output is None:
            temp = f"{self.steps.folder}/{temp_name('output')}"
            self._output = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), temp
        descriptor, temp = self._output
        if piece:
            os.write(descriptor, piece)
            return
        os.fsync(descriptor)
        os.close(descriptor)
        self._output = None
        os.rename(temp, f"{self.steps.folder}/{name}")

    # ── when nothing comes back ─────────────────────────────────────────────────────────────────────────

    def _orphan(self, why: str) -> Result:
        """Wait until it has ended itself, then record that it was cut off: how far it came is not known.

        A cancelled attempt is waited for too: what takes its place may not start beside it. Only a process that ends
        leaves that to the next driver.
        """
        while (left := self._received_at + TIMING.place_orphan - time.monotonic()) > 0:
            if self.stop.is_leaving:
                raise Lost(why)
            time.sleep(min(TIMING.tick, left))
        lost = Failure(kind="interrupted", message=f"the attempt at {self.place.name} was lost: {why}")
        blank = unstarted_result(self.order, "interrupted", self.stop.because or lost, self.clock, "bubblewrap")
        more: dict[str, Any] = {"usage": usage_in(self.log.path), "started_at": self.order.issued_at}
        more |= {"place": self.place.name, "host": self.host}
        return publish_result(blank.model_copy(update=more), self.steps, self.mask)

    def _record_unstarted(self, why: str) -> Result:
        """Record that it never began: nothing was claimed, so nothing was done."""
        if self.stop.is_set():
            error = self.stop.because or Failure(kind="interrupted", message="it was stopped before it began")
            blank = unstarted_result(self.order, "interrupted", error, self.clock, "none")
        else:
            error = Failure(
                kind="place",
                message=f"the place {self.place.name} cannot carry it out: {why}",
                hint="`agentfs doctor` probes every place",
            )
            blank = unstarted_result(self.order, "failed", error, self.clock, "none")
        return publish_result(blank.model_copy(update={"place": self.place.name}), self.steps, self.mask)


# ── the places of a process, and what is sent there ───────────────────────────────────────────────────────


@dataclass(slots=True)
class OpenPlace:
    """A place of this process, with a thread for every attempt that it may carry out at once."""

    place: Place
    pool: Executor
    busy: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def free(self) -> int:
        """Return how many attempts it could take now."""
        return max(0, self.place.slots - self.busy)

    def take(self, more: int = 1) -> None:
        """Count an attempt that was given to this place, or (-1) one that has ended."""
        with self._lock:
            self.busy += more


@dataclass(frozen=True, slots=True)
class Places:
    """Where attempts may run beside here, and what they need of the settings."""

    opened: Mapping[str, OpenPlace] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)  # those that cannot be used as the settings are, and why
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)
    search_url: str = ""
    tokens: Tokens = field(default_factory=Tokens)  # in the working folders of what is sent
    recorded: bool = False  # a replay: what ran elsewhere is played here


@contextmanager
def opened_places(settings: Settings, environment: Mapping[str, str], starter: Starter) -> Iterator[Places]:
    """Yield the places of the settings; nothing is started or reached before an attempt is.

    One that cannot be used matters to the steps that run there; the default place is that of all.
    """
    if (default := settings.executor.place) is not None and default not in settings.places:
        raise UserError("{} ({})".format(*no_such_place(default)))
    opened: dict[str, OpenPlace] = {}
    broken: dict[str, str] = {}
    for name, one in settings.places.items():
        try:
            place = create_place(name, one, settings.limits.parallel, environment, starter)
        except UserError as error:
            if name == default:
                raise
            broken[name] = str(error)
        else:
            opened[name] = OpenPlace(place, Pool(place.slots, f"place-{name}"))
    places = Places(opened, broken, settings.executor, settings.tools.web_search.url)
    try:
        yield places
    finally:
        for there in opened.values():
            there.pool.shutdown(wait=True)
            there.place.close()
        if opened:
            places.tokens.close()


def no_such_place(default: str) -> tuple[str, str]:
    """Return what is wrong with a default place that the settings do not describe, and how to fix it."""
    fix = f"add [places.{default}] to agentfs.toml, or take place out of [executor]"
    return f"there is no place {default!r}", fix


def place_problem(one: PlaceSettings) -> tuple[str, str] | None:
    """Return what is wrong with the settings of a place, and how to fix it."""
    if one.kind == "command":
        return None if one.command else ("it has no command", 'set command = ["ssh", "host", "agentfs", "attempt"]')
    if not one.scheduler and not one.scheduler_file:
        return "it names no scheduler", 'set scheduler = "tls://host:8786", or scheduler_file'
    if one.scheduler and not one.insecure and not is_safe(one.scheduler):
        fix = "use tls://, or set insecure = true if you trust that network"
        return f"{one.scheduler} is beyond this machine, and not protected by TLS", fix
    if importlib.util.find_spec("distributed") is None:
        return "Dask is not installed", "pip install 'agentfs-plan[cluster]'"
    return None


def create_place(
    name: str, settings: PlaceSettings, slots: int, environment: Mapping[str, str], starter: Starter
) -> Place:
    """Return a place as the settings describe it."""
    slots = settings.slots or slots
    if problem := place_problem(settings):
        raise UserError(f"[places.{name}]: {problem[0]} ({problem[1]})")
    if settings.kind == "command":
        return CommandPlace(name, settings.command or (), slots, environment, starter)
    return DaskPlace(name, slots, settings.scheduler, settings.scheduler_file, settings.insecure)


@dataclass(frozen=True, slots=True)
class Remote:
    """What an attempt elsewhere needs of its driver."""

    run: Run
    own_steps: bool  # a person wrote them: they may run where there is no sandbox
    bounds: Bounds
    spent: Callable[[], Spent]
    count: Callable[[Result], None]  # adds what an attempt asked of models


def attempt_elsewhere(
    task: Task, context: StepContext, remote: Remote, places: Places, stop: Halt, reply: str | None = None
) -> Result | Asked:
    """Have an order carried out at its place. Raises AlreadyClaimed, or Lost where it may still run.

    Where the settings of the place are wrong, nothing is tried: raises UserError, and the order waits for a fix.
    """
    order = task.order
    if why := places.broken.get(order.place or ""):
        raise UserError(why)
    one = places.opened.get(order.place or "")
    if one is None:
        hint = f"add [places.{order.place}], or take `place` out of the step"
        return _refuse(order, context, f"there is no place {order.place!r} in agentfs.toml", hint)
    if foreign := next(filter(runs_here, order.tools or ()), None):
        hint = "take the tool out of the step, or `place`"
        return _refuse(order, context, f"the tool {foreign!r} runs where the run is driven, not at a place", hint)
    if remote.run.isolation is not None:  # a step's commit is made where its worktree is
        hint = "take `place` out of the step, or `isolate` out of the goal"
        return _refuse(order, context, "the steps of a run with a worktree of its own run here", hint)
    log = AttemptLog(context.steps_folder, order, context.mask, context.clock)
    relay = Relay(order, one.place, context.steps_folder, log, stop, context.mask, context.clock)
    found = relay.run(_message(task, context, remote, places, reply))
    if isinstance(found, Result):
        remote.count(found)
    return found


def _refuse(order: Order, context: StepContext, why: str, hint: str) -> Result:
    error = Failure(kind="place", message=why, hint=hint)
    blank = unstarted_result(order, "failed", error, context.clock, "none")
    return publish_result(blank, context.steps_folder, context.mask)


def _message(task: Task, context: StepContext, remote: Remote, places: Places, reply: str | None) -> Message:
    order, run, executor = task.order, remote.run, places.executor
    model = None
    if asks_a_model(order, context.tools):
        name = order.model or run.models.executor or executor.model
        model = ModelChoice(executor, name, run.models.executor_temperature)
    assignment = Assignment(
        version=agentfs.__version__,
        place=order.place or "",
        order=order,
        loop=task.loop,
        proof=task.proof,
        retry_wait_s=task.retry_wait_s,
        agent=task.agent.agent if task.agent else None,
        confinement=replace(context.confinement, env={}),
        env=run.env,  # by name: what is not set here may be set there
        sandbox=run.sandbox,
        unconfined=run.sandbox == "off" or remote.own_steps,
        output_bytes=context.output_bytes,
        left=_left(remote.bounds, remote.spent()),
        model=model,
        search_url=places.search_url,
        token=places.tokens.of(context.confinement.workdir),
        silence_s=TIMING.place_silence,
        alive_s=TIMING.place_alive,
        log=None
        if reply is None
        else read_text(context.steps_folder.path(order.step, order.attempt, "log"), MOST_LOG),
        reply=reply,
    )
    return {"kind": "assignment", "version": agentfs.__version__, "assignment": encode(assignment)}


def _left(bounds: Bounds, spent: Spent) -> Bounds:
    """Return what a run may still ask of models."""
    return replace(
        bounds,
        requests=max(0, bounds.requests - spent.requests),
        tokens=max(0, bounds.tokens - spent.tokens),
        cost_usd=max(0.0, bounds.cost_usd - spent.cost_usd),
    )


def wait_for_orphan(stop: Halt, since: float) -> bool:
    """Wait until an attempt elsewhere has ended itself, as its driver is gone; return whether it surely has.

    Only a process that ends waits no longer: a person who cancels the run, or edits the step, may start it again.
    """
    while time.monotonic() < since + TIMING.place_orphan:
        if stop.is_leaving:
            return False
        time.sleep(TIMING.tick)
    return True
