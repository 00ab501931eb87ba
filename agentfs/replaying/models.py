"""A model that answers as the one of a recording did. Sends nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentfs.core.records import Failure
from agentfs.executor import words
from agentfs.executor.scratchpad import PLAN
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
from agentfs.models.capabilities import Payload
from agentfs.replaying.playback import NOT_RECORDED, DriverDied, Playback, Reel
from agentfs.replaying.recording import LOG
from agentfs.replaying.requests import difference, put_as
from agentfs.replaying.tapes import Entry, Try


@dataclass(frozen=True, slots=True)
class RecordedModel:
    """Answers as the model of the recording did, failures and all, without waiting."""

    name: str
    temperature: float | None
    playback: Playback

    def complete(self, request: Request, line: ModelSession) -> Reply:
        """Return the next recorded reply of this conversation."""
        reel = self.playback.reel(line.name)
        while True:
            played = reel.next_try()
            if played is None:
                raise self._nothing(request, line)
            sent = put_as(played, request, self.temperature)
            self._compare(sent, played, line, reel)
            line.log_request(played.role, played.model, sent.messages, played.body)
            if played.end is None:
                raise DriverDied
            reply = self._ended(played, played.end, line)
            if reply is not None:
                return reply

    def _compare(self, sent: Payload, played: Try, line: ModelSession, reel: Reel) -> None:
        """Note the first request that is not what was sent then; what follows it differs as a matter of course."""
        if reel.differs:
            return
        found = difference(sent, played, self.playback.mask, self.playback.paths)
        if found is not None:
            reel.differs = True
            where = f"request {played.number}, {found.where}"
            self.playback.note(f"{line.name}{LOG}", where, found.recorded, found.came, request=True)

    def _ended(self, played: Try, end: Entry, line: ModelSession) -> Reply | None:
        """Note the end of a try; return the reply, raise what was raised, or None if it was tried again."""
        more = {key: value for key, value in end.items() if key not in ("event", "at", "number", "message", "usage")}
        if end["event"] == "failed":
            line.log_failure(played.usage(), more)
        else:
            line.log_reply(end.get("message") or {}, played.usage(), more)
        self._show_plan(line)
        self.playback.after(line.name, end.get("seconds"))
        if end.get("again_in") is not None or end.get("form") == "ignored":
            return None
        if error := end.get("error"):
            raise _raised(error, end)
        return _reply(end)

    def _show_plan(self, line: ModelSession) -> None:
        """Put PLAN.md as the model was shown it next: whatever changed it is not run again."""
        tries = self.playback.reel(line.name).tape.tries[self.playback.reel(line.name).tries :]
        shown = next((_plan_in(one) for one in tries if one.role == "executor"), None)
        if shown is not None:
            path = self.playback.folder / "files" / PLAN
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown, encoding="utf-8")

    def _nothing(self, request: Request, line: ModelSession) -> BaseException:
        """Return what happens where the recording holds no more requests."""
        if self.playback.died(line.name):
            return DriverDied()
        error = self.playback.error(line.name)
        line.log_request(
            request.role, self.name, request.messages
        )  # a limit of the run stops it here, as it did then
        self.playback.note(
            f"{line.name}{LOG}",
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
        case "limit":
            return LimitReached(failure)
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
        spoken=bool(end.get("spoken")),
        restart=bool(end.get("restart")),
    )
