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

from agentfs.core.excerpts import with_output
from agentfs.core.records import Failure, JsonObject
from agentfs.core.values import too_deep
from agentfs.models.base import Garbled, ModelError, ModelSession, Reply, Request, Unreachable
from agentfs.models.budget import Price, unknown_price, usage_of
from agentfs.models.capabilities import (
    Capabilities,
    build_payload,
    learn_from_response,
    log_reading,
    read_reply,
    tool_schema,
)
from agentfs.models.endpoint import Malformed, Response, ResponseBuilder, TooLarge
from agentfs.storage.timing import TIMING

LARGEST_ANSWER = 8 * 1024 * 1024
STDERR_KEPT = 8192
MOST_USD = 1_000_000.0  # that one answer may claim to have cost
_MESSAGE_FIELDS = {"role", "content", "tool_calls", "usage", "refusal", "finish_reason", "model"}
_CONTENT_FIELDS = {"content", "tool_calls", "refusal"}


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
        price: Price = unknown_price,
    ) -> None:
        self._name, self._command, self._environment = name, tuple(command), dict(environment)
        self._table, self._temperature, self._price = table, temperature, price
        self._capabilities = Capabilities(json_mode="text")  # not kept: a program changes with its file

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: Request, session: ModelSession) -> Reply:
        """Return what the program answers."""
        began, body, messages = time.monotonic(), self._body(request), self._messages(request)
        session.log_request(request.role, self.name, messages, body)
        whole = {"role": request.role, "model": self.name, "messages": list(messages), **body}
        try:
            response, cost = _parse_answer(self._run(whole, session))
        except ModelError as error:
            seconds = round(time.monotonic() - began, 3)
            details = {"error": error.failure.model_dump(exclude_none=True), "seconds": seconds}
            session.log_failure(usage_of(request.role, self.name), details)
            raise
        if cost is None and response.tokens:
            cost = self._price(response.tokens)
        usage = usage_of(request.role, self.name, response.tokens, cost)
        capabilities = self._capabilities
        if learnt := learn_from_response(request, capabilities, response):
            self._capabilities = learnt.capabilities
        details = {"finish": response.finish, "seconds": round(time.monotonic() - began, 3)}
        return log_reading(
            session, response, usage, details, lambda: read_reply(request, capabilities, response, learnt)
        )

    def _messages(self, request: Request) -> tuple[JsonObject, ...]:
        if self._capabilities.tools:
            return request.messages
        return build_payload(replace(request, form=None), self._capabilities, None).messages

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "tools": [tool_schema(offer) for offer in request.offers] if self._capabilities.tools else [],
            "schema": request.form.schema if request.form else None,
        }
        return body if self._temperature is None else {**body, "temperature": self._temperature}

    def _run(self, request: Mapping[str, Any], session: ModelSession) -> bytes:
        """Return what the program prints until it exits; at the end it is killed with all it started."""
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace"))
            stdin.seek(0)
            with self._start(stdin, stderr) as program:
                try:
                    printed = _read_output(program, session)
                finally:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(program.pid, signal.SIGKILL)
            if program.returncode != 0:
                stderr.seek(max(stderr.seek(0, os.SEEK_END) - STDERR_KEPT, 0))
                raise self._crash_error(program.returncode, stderr.read().decode("utf-8", "replace").strip())
            return printed

    def _start(self, stdin: IO[bytes], stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                self._command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._environment,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError, IndexError) as error:
            what = " ".join(self._command) or "no program"
            reason = getattr(error, "strerror", None) or str(error)
            message = f"the program of the {self._table} cannot be started: {what}: {reason}"
            raise _unreachable(message, f"set command under [{self._table}] in agentfs.toml") from None

    def _crash_error(self, code: int, errors: str) -> Unreachable:
        how = f"exit {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"
        what = f"{self._command[0]} failed ({how})"
        message = with_output(what, errors) if errors else f"{what}, and said nothing on stderr"
        return _unreachable(message, f"the program is command under [{self._table}] in agentfs.toml")


def _unreachable(message: str, hint: str) -> Unreachable:
    return Unreachable(Failure(kind="unreachable", message=message, hint=hint))


def _read_output(program: "subprocess.Popen[bytes]", session: ModelSession) -> bytes:
    """Return all it prints until it exits; raise once that is too large, or the session is over."""
    if program.stdout is None:
        raise RuntimeError("its stdout is a pipe")
    printed, pipe = bytearray(), program.stdout.fileno()
    while not session.is_over():
        has_exited = program.poll() is not None  # looked at first: what it printed before is in the pipe
        is_ready = select.select([pipe], [], [], 0 if has_exited else TIMING.tick)[0]
        chunk = os.read(pipe, 65536) if is_ready else b""
        printed += chunk
        session.on_progress(len(printed))
        if len(printed) > LARGEST_ANSWER:
            raise Garbled(Failure(kind="model", message=f"the answer is larger than {LARGEST_ANSWER // 2**20} MiB"))
        if has_exited and not chunk:
            return bytes(printed)
        if is_ready and not chunk:  # it has closed its output
            with suppress(subprocess.TimeoutExpired):
                program.wait(TIMING.tick)
    raise session.stop_error()


def _parse_answer(printed: bytes) -> tuple[Response, float | None]:
    """Return what an answer says, and what it says it cost."""
    text = printed.decode("utf-8", "replace").strip()
    if not text:
        raise Garbled(Failure(kind="model", message="the program answered nothing", hint="it must print its answer"))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    builder = ResponseBuilder()
    try:
        builder.add(_as_completion(value, text))
    except TooLarge:
        raise Garbled(Failure(kind="model", message="the answer is too large")) from None
    except Malformed as malformed:
        raise Garbled(Failure(kind="model", message=f"the answer is malformed: {malformed}")) from None
    return builder.response(), _cost(value)


def _as_completion(value: Any, text: str) -> dict[str, Any]:
    """Return an answer as a completion: it may be one, or a message, or just the content of one."""
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        return value
    is_message = isinstance(value, dict) and value.keys() <= _MESSAGE_FIELDS and value.keys() & _CONTENT_FIELDS
    if not is_message or too_deep(value):
        return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    content, calls = value.get("content"), value.get("tool_calls")
    words = content if isinstance(content, str | None) else json.dumps(content, ensure_ascii=False)
    calls = [_as_call(call) for call in calls] if isinstance(calls, list) else None
    message = {**value, "content": words, "tool_calls": calls}
    choice = {"message": message, "finish_reason": value.get("finish_reason") or "stop"}
    return {"choices": [choice], "usage": value.get("usage"), "model": value.get("model")}


def _as_call(call: Any) -> Any:
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
