"""How far a recording has been played: what came from outside, ready to be given again, and what was found to differ.

Whoever gives it (`models`, `tools`) looks up by `whose` what it is for: the conversation of a call or an attempt.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.clock import Clock
from agentfs.core import paths
from agentfs.core.records import CheckResult, Failure, JsonObject
from agentfs.executor.arguments import arguments_of
from agentfs.replaying.compare import Departure
from agentfs.replaying.recording import Recording
from agentfs.replaying.tapes import Entry, Tape, Try
from agentfs.replaying.timeline import CUT_MESSAGE
from agentfs.tools.base import Mask
from agentfs.tools.values import NotJson

NOT_RECORDED = Failure(kind="model", message="the recording holds no answer to this")


class DriverDied(BaseException):
    """Here the recorded driver was ended: nothing after this was ever written."""


@dataclass(slots=True)
class Time:
    """Time that passes only as recorded, beside what a replay really takes."""

    real: Clock = field(default_factory=Clock)
    passed: float = 0.0

    def now(self) -> float:
        return self.real.monotonic() + self.passed

    def clock(self) -> Clock:
        return Clock(monotonic=self.now)


@dataclass(slots=True)
class Reel:
    """How far one tape has been played."""

    tape: Tape
    tries: int = 0
    calls: int = 0
    accepted: int = 0
    differs: bool = False  # it has been noted that what is sent is not what was sent

    def next_try(self) -> Try | None:
        if self.tries == len(self.tape.tries):
            return None
        self.tries += 1
        return self.tape.tries[self.tries - 1]

    def next_call(self, tool: str, given: JsonObject) -> Entry | None:
        """Return what a call of this tool brought, passing over calls that never reached a tool."""
        for place in range(self.calls, len(self.tape.calls)):
            entry = self.tape.calls[place]
            if entry.get("tool") == tool and _arguments(entry) == given:
                self.calls = place + 1
                return entry
        return None

    def next_acceptance(self) -> tuple[CheckResult, ...]:
        """Return what the plan's checks found when the loop claimed to be done this time."""
        self.accepted += 1
        found = self.tape.acceptances[self.accepted - 1 : self.accepted]
        return tuple(CheckResult.model_validate(one) for entry in found for one in entry.get("checks") or ())

    def played(self) -> bool:
        """Whether nothing more is on it that came from outside."""
        return self.tries == len(self.tape.tries) and self.calls >= len(self.tape.calls)


@dataclass(slots=True)
class Playback:
    """Everything that a recording says came from outside, ready to be given again."""

    recording: Recording
    folder: Path  # of the run that is replayed
    mask: Mask
    paths: Callable[[str], str]  # makes texts of both runs comparable
    time: Time = field(default_factory=Time)
    departures: list[Departure] = field(default_factory=list)
    _reels: dict[str, Reel] = field(default_factory=dict)

    def reel(self, whose: str) -> Reel:
        return self._reels.setdefault(whose, Reel(self.recording.tape(whose)))

    def note(self, file: str, what: str, recorded: object, came: object, *, request: bool = False) -> None:
        self.departures.append(Departure(file, what, recorded, came, request=request))

    def error(self, whose: str) -> Failure | None:
        """Return what the recording says went wrong with an attempt, or with a call."""
        number = whose.removeprefix(f"{paths.PLANNING}/")
        call = self.recording.calls.get(int(number)) if number.isdigit() else None
        settled = call.answer if call else self.recording.result(whose)
        return settled.error if settled else None

    def died(self, whose: str) -> bool:
        """Whether the recorded driver was ended while this went on."""
        error = self.error(whose)
        return error is not None and error.message == CUT_MESSAGE

    def has_stopped(self, whose: str) -> bool:
        """Whether somebody stopped it."""
        error = self.error(whose)
        return error is not None and error.kind == "interrupted" and not self.died(whose)

    def after(self, whose: str, seconds: object) -> None:
        """Let as much time pass as it took, or all there was, where that ended it."""
        self.time.passed += float(seconds) if isinstance(seconds, int | float) else 0.0
        error, order = self.error(whose), self.recording.order(whose)
        if self.reel(whose).played() and error and error.kind == "timeout" and order:
            self.time.passed += order.timeout_s


def _arguments(entry: Entry) -> JsonObject | None:
    try:
        return arguments_of(str(entry.get("arguments") or ""))
    except NotJson:
        return None
