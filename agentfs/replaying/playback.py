"""Models, tools and checks that give what a recording says they gave. Nothing of theirs touches anything.

Each looks up by `whose` what it is for: the conversation of a call or an attempt. What differs is noted.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.clock import Clock
from agentfs.core.catalogue import ToolSpec
from agentfs.core.records import (
    CheckResult,
    Failure,
    JsonObject,
    JudgeCheck,
    ResolvedCheck,
    Result,
)
from agentfs.executor import words
from agentfs.executor.calling import OUTPUT_LENGTH
from agentfs.executor.checks import run_checks
from agentfs.executor.offers import arguments_of
from agentfs.executor.scratchpad import PLAN
from agentfs.models.base import Reply, Request, Tokens, ToolCall
from agentfs.models.errors import Garbled, ModelError, Refused, Stopped, Unreachable
from agentfs.models.ladder import Asked
from agentfs.models.line import Line
from agentfs.replaying.compare import Departure
from agentfs.replaying.recording import LOG, Recording
from agentfs.replaying.requests import difference, put_as
from agentfs.replaying.tapes import Entry, Tape, Try
from agentfs.replaying.timeline import CUT_MESSAGE
from agentfs.tools.base import Bench, Mask, ToolResult
from agentfs.tools.values import NotJson

NOT_RECORDED = Failure(kind="model", message="the recording holds no answer to this")
_CUT = re.compile(r"\n… (\d+) characters cut …\n")
_FAILED = re.compile(r"It failed \(([^)]*)\): (.*)\Z", re.DOTALL)


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
class _Reel:
    """How far one tape has been played."""

    tape: Tape
    tries: int = 0
    calls: int = 0
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
    _reels: dict[str, _Reel] = field(default_factory=dict)

    def reel(self, whose: str) -> _Reel:
        return self._reels.setdefault(whose, _Reel(self.recording.tape(whose)))

    def note(self, file: str, what: str, recorded: object, came: object, *, request: bool = False) -> None:
        self.departures.append(Departure(file, what, recorded, came, request=request))

    def has_stopped(self, whose: str) -> bool:
        """Whether the recorded attempt was stopped at this point."""
        error = _error(self.recording.result(whose))
        return error is not None and error.kind == "interrupted" and error.message != CUT_MESSAGE

    def after(self, whose: str, seconds: object) -> None:
        """Let as much time pass as it took, or all there was, where that ended it."""
        self.time.passed += float(seconds) if isinstance(seconds, int | float) else 0.0
        error, order = _error(self.recording.result(whose)), self.recording.order(whose)
        if self.reel(whose).played() and error and error.kind == "timeout" and order:
            self.time.passed += order.timeout_s

    def died(self, whose: str) -> bool:
        """Whether the recorded driver was ended while this went on."""
        error = _error(self.recording.result(whose))
        call = whose.removeprefix("planning/")
        if call.isdigit() and int(call) in self.recording.calls:
            answer = self.recording.calls[int(call)].answer
            error = answer.error if answer else None
            return answer is None or (error is not None and error.message == CUT_MESSAGE)
        return error is not None and error.message == CUT_MESSAGE


def _error(result: Result | None) -> Failure | None:
    return result.error if result else None


def _arguments(entry: Entry) -> JsonObject | None:
    try:
        return arguments_of(str(entry.get("arguments") or ""))
    except NotJson:
        return None


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RecordedModel:
    """Answers as the model of the recording did, failures and all, without waiting."""

    name: str
    temperature: float | None
    playback: Playback

    def complete(self, request: Request, line: Line) -> Reply:
        """Return the next recorded reply of this conversation."""
        reel = self.playback.reel(line.whose)
        while True:
            played = reel.next_try()
            if played is None:
                raise self._nothing(request, line)
            sent = put_as(played, request, self.temperature)
            self._compare(sent, played, line, reel)
            line.request(played.role, played.model, sent.messages, {"body": played.body})
            if played.end is None:
                raise DriverDied
            reply = self._ended(played, played.end, line)
            if reply is not None:
                return reply

    def _compare(self, sent: Asked, played: Try, line: Line, reel: _Reel) -> None:
        """Note the first request that is not what was sent then; what follows it differs as a matter of course."""
        if reel.differs:
            return
        found = difference(sent, played, self.playback.mask, self.playback.paths)
        if found is not None:
            reel.differs = True
            where = f"request {played.number}, {found.where}"
            self.playback.note(f"{line.whose}{LOG}", where, found.recorded, found.came, request=True)

    def _ended(self, played: Try, end: Entry, line: Line) -> Reply | None:
        """Note the end of a try; return the reply, raise what was raised, or None if it was tried again."""
        more = {key: value for key, value in end.items() if key not in ("event", "at", "number", "message", "usage")}
        if end["event"] == "failed":
            line.failed(played.usage(), more)
        else:
            line.reply(end.get("message") or {}, played.usage(), more)
        self._show_plan(line)
        self.playback.after(line.whose, end.get("seconds"))
        if end.get("again_in") is not None or end.get("form") == "ignored":
            return None
        if error := end.get("error"):
            raise _raised(error, end)
        return _reply(end)

    def _show_plan(self, line: Line) -> None:
        """Put PLAN.md as the model was shown it next: whatever changed it is not run again."""
        tries = self.playback.reel(line.whose).tape.tries[self.playback.reel(line.whose).tries :]
        shown = next((_plan_in(one) for one in tries if one.role == "executor"), None)
        if shown is not None:
            path = self.playback.folder / "files" / PLAN
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown, encoding="utf-8")

    def _nothing(self, request: Request, line: Line) -> BaseException:
        """Return what happens where the recording holds no more requests."""
        if self.playback.died(line.whose):
            return DriverDied()
        error = _error(self.playback.recording.result(line.whose))
        line.request(
            request.role, self.name, request.messages, {}
        )  # a limit of the run stops it here, as it did then
        self.playback.note(
            f"{line.whose}{LOG}",
            f"request {line.number}",
            f"no more requests: {error.message}" if error else "no more requests",
            f"the {request.role} asks once more",
        )
        return Garbled(NOT_RECORDED)


def _plan_in(one: Try) -> str | None:
    content = str(one.messages[-1].get("content")) if one.messages else ""
    if not content.startswith(words.PLAN_NOTE):
        return None
    return "\n".join(content.split("\n")[3:-1])


def _raised(error: Mapping[str, Any], end: Entry) -> ModelError:
    failure = Failure.model_validate(error)
    if end["event"] == "reply":
        return (Refused if (end.get("message") or {}).get("refusal") else Garbled)(failure)
    match failure.kind:
        case "unreachable":
            return Unreachable(failure)
        case "interrupted" | "timeout":
            return Stopped(failure)
        case _:
            return Garbled(failure)


def _reply(end: Entry) -> Reply:
    message = end.get("taken_as") or end.get("message") or {}
    calls = message.get("tool_calls") or ()
    usage = end.get("usage") or {}
    return Reply(
        text=str(message.get("content") or ""),
        tool_calls=tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls
        ),
        finish=str(end.get("finish") or "stop"),
        tokens=Tokens(
            usage.get("input_tokens", 0),
            usage.get("cached_tokens", 0),
            usage.get("output_tokens", 0),
            end.get("reasoning_tokens") or 0,
        ),
        model=end.get("served_by"),
        request_id=end.get("request_id"),
    )


def _told(text: str, ok: bool, bench: Bench) -> ToolResult:
    """Return what a model is told in these words of, once they are cut as they were."""
    found = _CUT.search(text) if len(text) > OUTPUT_LENGTH else None
    if found is not None and ok:
        os.close(os.open(bench.output_file, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.truncate(bench.output_file, OUTPUT_LENGTH - 1 + int(found[1]))  # only its size is asked for
        return ToolResult(output=_CUT.sub("  ", text, count=1), cut=True)
    if found is not None:
        text = _CUT.sub(" " * int(found[1]), text, count=1)
    failed = None if ok else _FAILED.match(text)
    return ToolResult(failure=Failure(kind=failed[1], message=failed[2])) if failed else ToolResult(output=text)


# ── tools and checks ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RecordedTool:
    """Gives what the tool gave, and runs nothing."""

    spec: ToolSpec
    playback: Playback

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        order = self.playback.recording.order(bench.whose)
        if order is not None and order.tool is None:
            return self._in_a_loop(given, bench)
        bench.claim(None)
        return self._of_a_step(bench)

    def _in_a_loop(self, given: JsonObject, bench: Bench) -> ToolResult:
        entry = self.playback.reel(bench.whose).next_call(self.spec.name, given)
        if entry is None:
            if self.playback.died(bench.whose):
                raise DriverDied
            self.playback.note(f"{bench.whose}{LOG}", f"a call of {self.spec.name}", "no such call", given)
            return ToolResult(failure=NOT_RECORDED)
        self.playback.after(bench.whose, entry.get("seconds"))
        return _told(str(entry.get("result") or ""), bool(entry.get("ok")), bench)

    def _of_a_step(self, bench: Bench) -> ToolResult:
        result = self.playback.recording.result(bench.whose)
        if self.playback.died(bench.whose):
            raise DriverDied
        if result is None:
            return ToolResult(failure=NOT_RECORDED)
        self.playback.time.passed += result.duration_s
        self._copy_output(bench)
        return ToolResult(output=result.output, cut=result.cut, failure=self._failure(result, bench))

    def _copy_output(self, bench: Bench) -> None:
        found = self.playback.recording.folder / f"{bench.whose}.output.txt"
        if found.is_file() and not bench.output_file.exists():
            shutil.copyfile(found, bench.output_file)

    def _failure(self, result: Result, bench: Bench) -> Failure | None:
        """Return why the tool gave nothing: not what its checks, or a judge that nobody reached, made of it."""
        judged = any(played.role == "judge" for played in self.playback.reel(bench.whose).tape.tries)
        if result.error is None or result.error.kind == "check" or judged:
            return None
        if result.status == "interrupted" and result.error.kind != "limit":
            return Failure(kind="interrupted", message=result.error.message, hint=result.error.hint)
        return result.error


@dataclass(frozen=True, slots=True)
class RecordedChecks:
    """Finds what the checks found. Only a judge is asked again, of the recording."""

    playback: Playback

    def __call__(
        self, checks: Sequence[ResolvedCheck], bench: Bench, output: Any, evidence: Sequence[str]
    ) -> tuple[CheckResult, ...]:
        found = self._found(bench.whose)
        return tuple(
            run_checks((check,), bench, output, evidence)[0]
            if isinstance(check, JudgeCheck)
            else self._recorded(check, found, place, bench)
            for place, check in enumerate(checks)
        )

    def _found(self, whose: str) -> tuple[CheckResult, ...] | None:
        """Return what was found; None where it is not recorded because nothing came of it."""
        if whose.startswith("planning/"):
            number = whose.removeprefix("planning/").removesuffix(".checks")
            record = self.playback.recording.calls[int(number)].checks if number.isdigit() else None
            return record.checks if record else None
        result = self.playback.recording.result(whose)
        if result is None or (whose.endswith(".needs") and _kind(result) != "needs"):
            return None
        return result.checks or None

    def _recorded(
        self, check: ResolvedCheck, found: tuple[CheckResult, ...] | None, place: int, bench: Bench
    ) -> CheckResult:
        if found is None:
            return CheckResult(kind=check.kind, ok=True, detail="it held")
        if place < len(found) and found[place].kind == check.kind:
            return found[place]
        self.playback.note(f"{bench.whose}.result.json", f"check {place + 1}", "no such check", check.kind)
        return CheckResult(kind=check.kind, ok=False, detail=NOT_RECORDED.message)


def _kind(result: Result) -> str | None:
    return result.error.kind if result.error else None
