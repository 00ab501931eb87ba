"""The driver's end of an attempt elsewhere: answer `go` once, write down what comes back, know when to give up."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.mask import Mask
from agentfs.core.records import Failure, Order, Result
from agentfs.executor.attempt import Halt, publish_result, unstarted_result
from agentfs.executor.attempt_log import AlreadyClaimed, AttemptLog
from agentfs.executor.task import Asked
from agentfs.models.base import usage_in
from agentfs.places.channel import Channel, Closed, Message
from agentfs.storage.clock import Clock
from agentfs.storage.files import StepsFolder, temp_name
from agentfs.storage.timing import TIMING


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
    _heard: float = field(default_factory=time.monotonic)
    _sent: float = 0.0
    _stopped: float | None = None

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
        self._heard = self._sent = time.monotonic()
        try:
            while not self._finished:
                if why := self._over(line):
                    return why
                if (arrived := line.receive(TIMING.tick)) is not None:
                    self._take(arrived, line)
                elif self._is_silent():  # not before all that arrived is read: this process may have slept
                    return f"nothing came from it for {TIMING.place_orphan:g} s"
        except Closed as closed:
            return str(closed) or "the line to it was cut"
        finally:
            line.close()
        return ""

    def _over(self, line: Line) -> str | None:
        """Say what is due to be said; return why nothing more is waited for, if that is so."""
        now = time.monotonic()
        if self.stop.is_set() and self._stopped is None:
            self._stopped = now
            because = self.stop.because
            line.send({"kind": "stop", "because": because.model_dump() if because else None})
        if now - self._sent >= TIMING.place_alive:
            self._sent = now
            line.send({"kind": "alive"})
        if self._stopped is None or (self.starter is not None and not self._gives_up(now)):
            return None
        return "it was stopped"

    def _gives_up(self, now: float) -> bool:
        """Whether this process ends, and has waited long enough for the attempt to end first."""
        return self.stop.is_leaving and self._stopped is not None and now - self._stopped > TIMING.place_stop

    def _is_silent(self) -> bool:
        return self.starter is not None and time.monotonic() - self._heard > TIMING.place_orphan

    def _take(self, message: Message, line: Line) -> None:
        kind, sender = message.get("kind"), message.get("from")
        if kind == "refused" and self.starter is None:  # else: of a second start, which has no say
            why = str(message.get("why"))
            raise Closed(why) if line.has_another() else Refused(why)
        if kind == "begin":
            self._begin(message, line)
        if sender != self.starter or sender is None:
            return  # a second start of the attempt, by whatever engine: it has no say
        self._heard = time.monotonic()
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
        """Create the claim and answer `go`: once. Whoever asks after that gets a no."""
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
            temp = f"{self.steps.unwatched}/{temp_name('output')}"
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
        """Wait until it has ended itself, then record that it was cut off. Nobody knows how far it came.

        Who wants it stopped waits as well: what takes its place may not start beside it. Only a process that ends
        leaves that to the next driver.
        """
        while (left := self._heard + TIMING.place_orphan - time.monotonic()) > 0:
            if self.stop.is_leaving:
                raise Lost(why)
            time.sleep(min(TIMING.tick, left))
        lost = Failure(kind="interrupted", message=f"the attempt at {self.place.name} was lost: {why}")
        return self._record_cut_off(self.stop.because or lost)

    def _record_cut_off(self, error: Failure) -> Result:
        usage = usage_in(self.log.path)
        blank = unstarted_result(self.order, "interrupted", error, self.clock, "bubblewrap")
        more: dict[str, Any] = {"usage": usage, "started_at": self.order.issued_at}
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
