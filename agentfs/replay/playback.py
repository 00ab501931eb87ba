"""Models, tools and checks that give what a recording says they gave. Nothing is sent, run or read outside of it.

Each looks up what it is asked for by `whose`: the name of a call's or an attempt's conversation.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agentfs.agents.running import Attempted, replay_attempt, spoken_in
from agentfs.core import paths
from agentfs.core.mask import Mask
from agentfs.core.proof import Changes, Gather, Piece, check_sha256
from agentfs.core.records import CheckResult, Failure, JsonObject, JudgeCheck, ResolvedCheck, Result
from agentfs.core.steps import failure_kind
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson
from agentfs.executor.attempt import Halt
from agentfs.executor.checks import run_checks
from agentfs.executor.conversation import OUTPUT_LENGTH, PLAN, PLAN_NOTE
from agentfs.executor.evidence import SPOILED, TAMPERED, changes_in
from agentfs.executor.judging import EVIDENCE
from agentfs.models.base import (
    Garbled,
    LimitReached,
    ModelError,
    ModelSession,
    Refused,
    Reply,
    Request,
    Stopped,
    ToolCall,
    Unreachable,
)
from agentfs.models.budget import Tokens
from agentfs.models.capabilities import Capabilities, JsonMode, Payload, build_payload, tool_schema
from agentfs.models.text_protocol import parse_object
from agentfs.planner.acceptance import NOT_RUN
from agentfs.replay.recording import LOG, TOOL_FAILED, Conversation, Departure, Entry, Recording, Try
from agentfs.storage.clock import Clock
from agentfs.storage.files import OURS, read_lines
from agentfs.storage.safe_open import copy_regular
from agentfs.tools.base import Observer, Seen, StepContext, T, ToolResult

NOT_RECORDED = Failure(kind="model", message="the recording holds no answer to this")
SHOWN = 120  # characters on either side of a difference
_STOPS = ("interrupted", "superseded", "cancelled")
_AROUND = re.compile(r"\n\n# (?:Context|Working folder)\n\n.*?(?=\n\n# Tools\n\n)", re.DOTALL)
_MINUTES = re.compile(r"\b\d+ minutes of work\b")
_CUT = re.compile(r"\n… (\d+) characters cut …\n")
_FAILED = re.compile(rf"{re.escape(TOOL_FAILED)}([^)]*)\): (.*)\Z", re.DOTALL)


class Killed(BaseException):
    """Here the recorded agentfs was ended: nothing after this was ever written."""


@dataclass(slots=True)
class Playback:
    """Everything that a recording says came from outside, ready to be given again."""

    recording: Recording
    folder: Path  # of the run that is replayed
    mask: Mask
    paths: Callable[[str], str]  # makes texts of both runs comparable
    departures: list[Departure] = field(default_factory=list)
    call: int = 0  # the call of the planner that is being answered
    _passed: float = 0.0  # seconds that the recording says it took, beside what the replay really takes

    def clock(self) -> Clock:
        """Return a clock by which as much time passes as was recorded."""
        real = Clock()
        return Clock(monotonic=lambda: real.monotonic() + self._passed)

    def note(self, file: str, what: str, recorded: object, came: object, *, request: bool = False) -> None:
        self.departures.append(Departure(file, what, recorded, came, request=request))

    def spend(self, seconds: object) -> None:
        self._passed += float(seconds) if isinstance(seconds, int | float) else 0.0

    def spend_after(self, whose: str, seconds: object) -> None:
        """Let as much time pass as it took, or all there was, where that ended it."""
        self.spend(seconds)
        error, order = self.recording.error(whose), self.recording.order(whose)
        if self.recording.conversation(whose).is_replayed() and error and error.kind == "timeout" and order:
            self.spend(order.timeout_s)

    def stop_sign(self, whose: str) -> Halt:
        """Return a stop sign that is seen where it was seen then: when the recording has nothing more to give."""
        error = self.recording.error(whose)
        if error is not None and error.kind in _STOPS and not self.recording.was_killed(whose):
            return _RecordedStop(self.recording.conversation(whose), error)
        return Halt()


class _RecordedStop(Halt):
    def __init__(self, conversation: Conversation, because: Failure) -> None:
        super().__init__(because)
        self._conversation = conversation

    def is_set(self) -> bool:
        return self._conversation.is_replayed()


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RecordedModel:
    """Answers as the model of the recording did, failures and all, without waiting. Sends nothing."""

    name: str
    temperature: float | None
    playback: Playback

    def complete(self, request: Request, line: ModelSession) -> Reply:
        """Return the next recorded reply of this conversation."""
        conversation = self.playback.recording.conversation(line.name)
        while True:
            if not conversation.tries:
                raise self._nothing(request, line)
            played = conversation.tries.pop(0)
            sent = _as_sent(played, request, self.temperature)
            self._compare(sent, played, line, conversation)
            line.log_request(played.role, played.model, sent.messages, played.body)
            if played.end is None:
                raise Killed
            reply = self._take(played, played.end, line)
            if reply is not None:
                return reply

    def _compare(self, sent: Payload, played: Try, line: ModelSession, conversation: Conversation) -> None:
        """Note the first request that is not what was sent then; what follows it differs as a matter of course."""
        found = difference(sent, played, self.playback.mask, self.playback.paths)
        if found is not None and not conversation.differs:
            conversation.differs = True
            where, recorded, came = found
            self.playback.note(f"{line.name}{LOG}", f"request {played.number}, {where}", recorded, came, request=True)

    def _take(self, played: Try, end: Entry, line: ModelSession) -> Reply | None:
        """Log the end of a try; return the reply, raise what was raised, or None if it was tried again."""
        more = {key: value for key, value in end.items() if key not in ("event", "at", "number", "message", "usage")}
        if end["event"] == "failed":
            line.log_failure(played.usage(), more)
        else:
            line.log_reply(end.get("message") or {}, played.usage(), more)
        self._show_plan(line)
        self.playback.spend_after(line.name, end.get("seconds"))
        if end.get("again_in") is not None or end.get("form") == "ignored":
            return None
        if error := end.get("error"):
            raise _error(error, end)
        return _reply(end)

    def _show_plan(self, line: ModelSession) -> None:
        """Write PLAN.md as the model was shown it next: what changed it is not run again."""
        left = [one for one in self.playback.recording.conversation(line.name).tries if one.role == "executor"]
        shown = str(left[0].messages[-1].get("content")) if left and left[0].messages else ""
        if shown.startswith(PLAN_NOTE):
            path = self.playback.folder / paths.FILES / PLAN
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(shown.split("\n")[3:-1]), encoding="utf-8")

    def _nothing(self, request: Request, line: ModelSession) -> BaseException:
        """Return what happens where the recording holds no more requests."""
        error = self.playback.recording.error(line.name)
        if self.playback.recording.was_killed(line.name):
            return Killed()
        if error and error.kind == "unreachable" and not line.number:
            return Unreachable(error)  # no model was configured then
        line.log_request(request.role, self.name, request.messages)  # a limit of the run ends it here, as it did then
        recorded = f"no more requests: {error.message}" if error else "no more requests"
        came = f"the {request.role} asks once more"
        self.playback.note(f"{line.name}{LOG}", f"request {line.number}", recorded, came)
        return Garbled(NOT_RECORDED)


def _error(error: Mapping[str, Any], end: Entry) -> ModelError:
    failure = Failure.model_validate(error)
    if end["event"] == "reply":
        return (Refused if (end.get("message") or {}).get("refusal") else Garbled)(failure)
    kinds = {"unreachable": Unreachable, "interrupted": Stopped, "timeout": Stopped, "limit": LimitReached}
    return kinds.get(failure.kind, Garbled)(failure)


def _reply(end: Entry) -> Reply:
    message = end.get("taken_as") or end.get("message") or {}
    usage = end.get("usage") or {}
    tokens = (usage.get("input_tokens", 0), usage.get("cached_tokens", 0), usage.get("output_tokens", 0))
    return Reply(
        text=str(message.get("content") or ""),
        tool_calls=tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ),
        finish=str(end.get("finish") or "stop"),
        tokens=Tokens(*tokens, end.get("reasoning_tokens") or 0),
        spoken=bool(end.get("spoken")),
        restart=bool(end.get("restart")),
    )


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


def difference(now: Payload, played: Try, mask: Mask, paths: Callable[[str], str]) -> tuple[str, str, str] | None:
    """Return where a request differs from the recorded one, what was sent and what would be; None: nowhere.

    Not compared is what was read from the working folder, which a replay has not, and how many minutes are left.
    """

    def plain(message: Mapping[str, Any]) -> dict[str, str]:
        return {name: paths(_MINUTES.sub("", _AROUND.sub("", _text(value)))) for name, value in message.items()}

    for place, (was, one) in enumerate(zip(played.messages, now.messages, strict=False), start=1):
        if (old := plain(was)) != (new := plain(mask.value(dict(one), ours=OURS))):
            return _first_difference(f"message {place} ({one.get('role')})", old, new)
    if len(played.messages) != len(now.messages):
        return "messages", str(len(played.messages)), str(len(now.messages))
    old = plain({name: played.body.get(name) for name in now.options})
    new = plain(mask.value(dict(now.options), ours=OURS))
    return _first_difference("beside the messages", old, new) if old != new else None


def _as_sent(played: Try, request: Request, temperature: float | None) -> Payload:
    """Return a request as it would be sent to the endpoint that took the recorded one."""
    body = played.body
    if "schema" in body:  # a program
        if request.offers and not body.get("tools"):  # one that makes no native calls
            return Payload(build_payload(request, Capabilities(tools=False), None).messages, {"tools": []})
        return Payload(request.messages, {"tools": [tool_schema(offer) for offer in request.offers]})
    if not body:
        return Payload(request.messages, {})
    capabilities = Capabilities(
        json_mode=_json_mode(body),
        tools="tools" in body,
        temperature="temperature" in body,
        usage="stream_options" in body,
    )
    sent = build_payload(request, capabilities, temperature)
    compared = ("tools", "response_format", "tool_choice")
    return Payload(sent.messages, {name: sent.options.get(name) for name in compared})


def _json_mode(body: Mapping[str, Any]) -> JsonMode:
    match body:
        case {"response_format": {"type": "json_schema"}}:
            return "schema"
        case {"tool_choice": _}:
            return "tool"
        case {"response_format": _}:
            return "object"
        case _:
            return "text"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _first_difference(where: str, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str, str]:
    name = next(name for name in (*old, *new) if old.get(name) != new.get(name))
    was, now = old.get(name, ""), new.get(name, "")
    start = next((n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
    return f"{where}, {name}", _excerpt(was, start), _excerpt(now, start)


def _excerpt(text: str, start: int) -> str:
    begin, end = max(0, start - 30), start + SHOWN
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RecordedTool:
    """Gives what the tool gave, and runs nothing."""

    spec: ToolSpec
    playback: Playback

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        order = self.playback.recording.order(context.name)
        if order is not None and order.tool is None:
            return self._in_loop(given, context)
        context.claim(None)
        return self.of_step(context)

    def _in_loop(self, given: JsonObject, context: StepContext) -> ToolResult:
        conversation = self.playback.recording.conversation(context.name)
        for place, entry in enumerate(conversation.calls):
            if entry.get("tool") == self.spec.name and _arguments(entry) == given:
                del conversation.calls[: place + 1]
                self.playback.spend_after(context.name, entry.get("seconds"))
                return _result(str(entry.get("result") or ""), bool(entry.get("ok")), context)
        if self.playback.recording.was_killed(context.name):
            raise Killed
        self.playback.note(f"{context.name}{LOG}", f"a call of {self.spec.name}", "no such call", given)
        return ToolResult(failure=NOT_RECORDED)

    def of_step(self, context: StepContext) -> ToolResult:
        """Return what the tool gave to a step."""
        result = self.playback.recording.result(context.name)
        if result is None or self.playback.recording.was_killed(context.name):
            raise Killed
        self.playback.spend(result.duration_s)
        whole = self.playback.recording.folder / f"{context.name}.output.txt"
        if whole.is_file() and not context.output_file.exists():
            copy_regular(whole, context.output_file)
        return ToolResult(output=result.output, cut=result.cut, failure=self._failure(result, context))

    def _failure(self, result: Result, context: StepContext) -> Failure | None:
        """Return why the tool gave nothing: not what its checks, or a judge that nobody reached, made of it."""
        judged = any(played.role == "judge" for played in self.playback.recording.conversation(context.name).tries)
        if result.error is None or result.error.kind == "check" or judged:
            return None
        if result.status == "interrupted" and result.error.kind != "limit":
            return result.error.model_copy(update={"kind": "interrupted"})
        return result.error


def _arguments(entry: Entry) -> JsonObject | None:
    try:
        return parse_object(str(entry.get("arguments") or ""))
    except NotJson:
        return None


def _result(text: str, ok: bool, context: StepContext) -> ToolResult:
    """Return a result that comes to these very words again, once they are cut as they were."""
    found = _CUT.search(text) if len(text) > OUTPUT_LENGTH else None
    if found is not None and ok:
        os.close(os.open(context.output_file, os.O_CREAT | os.O_WRONLY, 0o600))
        os.truncate(context.output_file, OUTPUT_LENGTH - 1 + int(found[1]))  # only its size is asked for
        return ToolResult(output=_CUT.sub("  ", text, count=1), cut=True)
    if found is not None:
        text = _CUT.sub(" " * int(found[1]), text, count=1)
    failed = None if ok else _FAILED.match(text)
    return ToolResult(failure=Failure(kind=failed[1], message=failed[2])) if failed else ToolResult(output=text)


# ── checks and folders ───────────────────────────────────────────────────────────────────────────────────


class RecordedObserver(Observer):
    """Finds what the checks found then, and what became of the working folder. Only a judge is asked again.

    An attempt that waited is given all that it changed when it is first asked.
    """

    def __init__(self, playback: Playback) -> None:
        self.playback = playback
        self._given: set[tuple[str, str]] = set()
        self._untouched = False  # at the claim that was looked at last, nothing had changed

    def check(
        self,
        checks: Sequence[ResolvedCheck],
        context: StepContext,
        output: Any,
        gather: Gather,  # noqa: ARG002 - the evidence is what the judge was shown then
    ) -> tuple[CheckResult, ...]:
        whose = context.name
        if whose.endswith(paths.BEFORE):
            return tuple(self._before(check, whose.removesuffix(paths.BEFORE)) for check in checks)
        if whose.endswith(paths.ACCEPT):
            accepted = self.playback.recording.conversation(whose.removesuffix(paths.ACCEPT)).acceptances
            entry = accepted.pop(0) if accepted else {}
            self._untouched = bool(entry.get("untouched"))
            return tuple(CheckResult.model_validate(one) for one in entry.get("checks") or ())
        found = self._find_results(whose)
        return tuple(
            run_checks((check,), context, output, self._evidence(whose))[0]
            if isinstance(check, JudgeCheck)
            else self._find_result(check, found, place, whose)
            for place, check in enumerate(checks)
        )

    def _before(self, check: ResolvedCheck, whose: str) -> CheckResult:
        """Return what a check found before the work."""
        digest = check_sha256(check)
        if whose.startswith(paths.PLANNING):
            answer = self.playback.recording.answer(_number(whose))
            known = next((one for one in (answer.before if answer else ()) if one.sha256 == digest), None)
            ok, detail = (known.ok, known.detail) if known else (False, NOT_RUN)
        else:
            result = self.playback.recording.result(whose)
            ok, detail = result is not None and digest in result.held_before, ""
        return CheckResult(kind=check.kind, ok=ok, detail=detail)

    def _evidence(self, whose: str) -> Gather:
        """Return the evidence as the judge was shown it then, whatever lies in the folder now."""
        left = self.playback.recording.conversation(whose).tries
        shown = next((str(one.messages[1].get("content")) for one in left if one.role == "judge"), "")
        return lambda _condition: (Piece("", shown.partition(EVIDENCE)[2].removesuffix("\n")),)

    def _find_results(self, whose: str) -> tuple[CheckResult, ...] | None:
        """Return what was found; None where it is not recorded because nothing came of it."""
        recording = self.playback.recording
        if whose.startswith(paths.PLANNING):
            record, step = recording.checks(_number(whose)), whose.partition(".checks.")[2]
            if record is None or not step:
                return record.checks if record else None
            return next((one.checks for one in record.steps if one.step == step), None)
        if whose.endswith(paths.WHEN):
            result = recording.result(whose.removesuffix(paths.WHEN))
            skipped = result is not None and (result.status == "skipped" or failure_kind(result) == "when")
            return result.checks if result and skipped else None
        attempt = whose.removesuffix(paths.GATE_NEEDS).removesuffix(paths.NEEDS)
        result = recording.result(attempt)
        if result is None or (whose != attempt and not (result.error and result.error.kind == "needs")):
            return None
        if whose.endswith(paths.GATE_NEEDS) and f"{attempt}.question.md" in recording.files:
            return None  # they held then; what the result says was found after the yes
        return result.checks or None

    def _find_result(
        self, check: ResolvedCheck, found: tuple[CheckResult, ...] | None, place: int, whose: str
    ) -> CheckResult:
        if found is None:
            return CheckResult(kind=check.kind, ok=True, detail="it held")
        if place < len(found) and found[place].kind == check.kind:
            return found[place]
        self.playback.note(f"{whose}.result.json", f"check {place + 1}", "no such check", check.kind)
        return CheckResult(kind=check.kind, ok=False, detail=NOT_RECORDED.message)

    def see(self, what: Seen, name: str, look: Callable[[], T]) -> T:  # noqa: ARG002
        return cast("T", self._find_seen(what, name))

    def _find_seen(
        self, what: Seen, name: str
    ) -> Changes | list[str] | tuple[str, ...] | Attempted | Failure | bool | str | None:
        match what:
            case "agent":
                return self._agent(name)
            case "untouched":
                return self._untouched
            case "commit":
                result = self.playback.recording.result(name)
                return result.commit if result else None
            case "changes":
                return changes_in(self._log(name)) if self._is_new(what, name) else Changes()
            case "tampered":
                return self._files(name, TAMPERED) if self._is_new(what, name) else []
            case "spoiled":
                return self._files(name, SPOILED)
            case "touched":
                record = self.playback.recording.checks(_number(name))
                return record.touched if record else ()

    def _agent(self, whose: str) -> Attempted | Failure:
        """Return what an agent did then, from its stream; where it was not started, why."""
        entries = [*read_lines(self._log(whose))]
        found = spoken_in(entries)
        attempted = replay_attempt(found[1], entries) if found else None
        if attempted is not None:
            return attempted
        result = self.playback.recording.result(whose)
        return result.error if result and result.error else NOT_RECORDED

    def _files(self, whose: str, event: str) -> list[str]:
        found = [entry.get("files") for entry in read_lines(self._log(whose)) if entry.get("event") == event]
        return [str(path) for listed in found if isinstance(listed, list) for path in listed]

    def _is_new(self, what: str, whose: str) -> bool:
        known = (what, whose) in self._given
        self._given.add((what, whose))
        return not known

    def _log(self, whose: str) -> Path:
        return self.playback.recording.folder / f"{whose}{LOG}"


def _number(whose: str) -> int:
    """Return the number of the call that a name like `planning/2.checks.total` is about."""
    return int(whose.removeprefix(f"{paths.PLANNING}/").partition(".")[0])
