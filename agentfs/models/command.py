"""A model that is a program: the request as JSON on its stdin, a message on its stdout.

It is the person's own program and runs as they would run it: in their environment, not in the sandbox.

    {"role": "planner", "model": "…", "messages": […], "tools": […], "schema": {…} or null, "temperature": 0}
    {"content": "…", "tool_calls": [{"name": "shell", "arguments": {…}}], "usage": {"input_tokens": 12, …}}

Other JSON is the answer itself, and so is plain text.
"""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import IO, Any

from agentfs.core.documents import too_deep
from agentfs.core.excerpts import with_output
from agentfs.core.records import Failure, JsonObject
from agentfs.models.assembly import Assembly, Malformed, Said
from agentfs.models.base import Reply, Request, usage_of
from agentfs.models.bounding import TooLarge
from agentfs.models.errors import Garbled, ModelError, Unreachable
from agentfs.models.ladder import Habits, asked, taught_by, tool_of
from agentfs.models.letting_go import TICK_S, is_over, stopped
from agentfs.models.line import Line
from agentfs.models.prices import Price, unknown
from agentfs.models.reading import message_of, reply_of, taken_as

LARGEST_ANSWER = 8 * 1024 * 1024
STDERR_KEPT = 8192
MOST_USD = 1_000_000.0  # that one answer may claim to have cost
_MESSAGE = {"role", "content", "tool_calls", "usage", "refusal", "finish_reason", "model"}
_SAYS = {"content", "tool_calls", "refusal"}


class CommandModel:
    """Any program that answers."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        table: str = "planner",
        temperature: float | None = None,
        price: Price = unknown,
    ) -> None:
        self._name, self._command, self._environment = name, tuple(command), dict(environment)
        self._table, self._temperature, self._price = table, temperature, price
        self._habits = Habits(rung="text")  # as found in this process: a program changes with its file

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: Request, line: Line) -> Reply:
        """Return what the program answers."""
        body, messages = self._body(request), self._messages(request)
        line.request(request.role, self.name, messages, {"body": body})
        began = time.monotonic()
        whole = {"role": request.role, "model": self.name, "messages": list(messages), **body}
        try:
            said, cost = _said(self._run(whole, line))
        except ModelError as error:
            usage = usage_of(request.role, self.name, cost_usd=None)
            seconds = round(time.monotonic() - began, 3)
            line.failed(usage, {"error": error.failure.model_dump(exclude_none=True), "seconds": seconds})
            raise
        return self._read(request, said, cost, line, began)

    def _messages(self, request: Request) -> tuple[JsonObject, ...]:
        return (
            request.messages
            if self._habits.tools
            else asked(replace(request, form=None), self._habits, None).messages
        )

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "tools": [tool_of(offer) for offer in request.offers] if self._habits.tools else [],
            "schema": request.form.schema if request.form else None,
        }
        return body if self._temperature is None else {**body, "temperature": self._temperature}

    def _read(self, request: Request, said: Said, cost: float | None, line: Line, began: float) -> Reply:
        if cost is None and said.tokens:
            cost = self._price(said.tokens)
        usage = usage_of(request.role, self.name, said.tokens, cost)
        told = {"finish": said.finish, "seconds": round(time.monotonic() - began, 3)}
        raw, habits = message_of(said), self._habits
        if learnt := taught_by(request, habits, said):
            self._habits = learnt.habits
        try:
            reply = reply_of(request, habits, said, None, self._habits)
        except ModelError as error:
            line.reply(raw, usage, {**told, "error": error.failure.model_dump(exclude_none=True)})
            raise
        line.reply(raw, usage, {**told, **taken_as(raw, reply)})
        return reply

    def _run(self, request: Mapping[str, Any], line: Line) -> bytes:
        """Return what the program prints; it ends when it is done, or when the line says so."""
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as errors:
            asked.write(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace"))
            asked.seek(0)
            program = self._started(asked, errors)
            try:
                printed = _printed(program, line)
            finally:
                code = _ended(program)
            if code != 0:
                raise self._crashed(code, _tail(errors))
            return printed

    def _started(self, asked: IO[bytes], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                self._command,
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError, IndexError) as error:
            what = " ".join(self._command) or "no program"
            reason = getattr(error, "strerror", None) or str(error)
            raise Unreachable(
                Failure(
                    kind="unreachable",
                    message=f"the program of the {self._table} cannot be started: {what}: {reason}",
                    hint=f"set command under [{self._table}] in agentfs.toml",
                )
            ) from None

    def _crashed(self, code: int, errors: str) -> Unreachable:
        how = f"exit {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"
        hint = f"the program is command under [{self._table}] in agentfs.toml"
        what = f"{self._command[0]} failed ({how})"
        message = with_output(what, errors) if errors else f"{what}, and said nothing on stderr"
        return Unreachable(Failure(kind="unreachable", message=message, hint=hint))


def _printed(program: "subprocess.Popen[bytes]", line: Line) -> bytes:
    """Return all it prints, up to the moment it exits."""
    if program.stdout is None:
        raise RuntimeError("its stdout is a pipe")
    printed, pipe = bytearray(), program.stdout.fileno()
    while True:
        if is_over(line):
            raise stopped(line)
        if not select.select([pipe], [], [], TICK_S)[0]:
            continue
        chunk = os.read(pipe, 65536)
        printed += chunk
        line.heard(len(printed))
        if len(printed) > LARGEST_ANSWER:
            raise Garbled(Failure(kind="model", message=f"the answer is larger than {LARGEST_ANSWER // 2**20} MiB"))
        if not chunk:
            _wait(program, line)
            return bytes(printed)


def _wait(program: "subprocess.Popen[bytes]", line: Line) -> None:
    while True:
        with suppress(subprocess.TimeoutExpired):
            program.wait(TICK_S)
            return
        if is_over(line):
            raise stopped(line)


def _ended(program: "subprocess.Popen[bytes]") -> int:
    """End what is left of the program and all it started; return how it exited."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, signal.SIGKILL)
    if program.stdout:
        program.stdout.close()
    return program.wait()


def _tail(errors: IO[bytes]) -> str:
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(size - STDERR_KEPT, 0))
    return errors.read().decode("utf-8", "replace").strip()


def _said(printed: bytes) -> tuple[Said, float | None]:
    """Return what an answer says, and what it says it cost."""
    text = printed.decode("utf-8", "replace").strip()
    if not text:
        raise Garbled(Failure(kind="model", message="the program answered nothing", hint="it must print its answer"))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    assembly = Assembly()
    try:
        assembly.take(_completion(value, text))
    except TooLarge:
        raise Garbled(Failure(kind="model", message="the answer is too large")) from None
    except Malformed as malformed:
        raise Garbled(Failure(kind="model", message=f"the answer is malformed: {malformed}")) from None
    return assembly.said(), _cost(value)


def _completion(value: Any, text: str) -> dict[str, Any]:
    """Return an answer as a completion: it may be one, or a message, or just what there is to say."""
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        return value
    if not (isinstance(value, dict) and value.keys() <= _MESSAGE and value.keys() & _SAYS) or too_deep(value):
        return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    content = value.get("content")
    words = content if isinstance(content, str | None) else json.dumps(content, ensure_ascii=False)
    calls = value.get("tool_calls")
    message = {
        **value,
        "content": words,
        "tool_calls": [_call(call) for call in calls] if isinstance(calls, list) else None,
    }
    choice = {"message": message, "finish_reason": value.get("finish_reason") or "stop"}
    return {"choices": [choice], "usage": value.get("usage"), "model": value.get("model")}


def _call(call: Any) -> Any:
    """Return a tool call in the protocol's form; a name and its arguments are enough."""
    if not isinstance(call, dict) or "function" in call:
        return call
    return {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("arguments")}}


def _cost(value: Any) -> float | None:
    usage = value.get("usage") if isinstance(value, dict) else None
    cost = usage.get("cost_usd") if isinstance(usage, dict) else None
    if not isinstance(cost, int | float) or isinstance(cost, bool) or not 0 <= cost <= MOST_USD:
        return None
    return float(cost)
