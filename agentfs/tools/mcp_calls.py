"""Call the tools of MCP servers as a person approved them, and ask servers what they offer.

A server is started when a tool of it is first called, and ends with its run (`mcp_connections`).
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core.mcp import (
    CONFIG,
    LockedServer,
    OfferedTool,
    Unusable,
    differences,
    specs_of,
)
from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.storage.files import StepsFolder
from agentfs.storage.safe_open import Refused
from agentfs.storage.starting import Pool
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, StepContext, Tool, ToolResult
from agentfs.tools.launch import GaveUp
from agentfs.tools.mcp_connections import Host, Server, hint_in, read_lock, reason_in, written_secrets
from agentfs.tools.output import text_result, value_result
from agentfs.tools.process import Never
from agentfs.tools.secrets import mask_for
from agentfs.tools.user_tool_calls import NoWorker

UPDATE = "agentfs tools --update"


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────


class McpServers:
    """The servers of one agentfs. Any thread may call their tools."""

    def __init__(self, host: Host) -> None:
        self._host, self._lock = host, threading.Lock()
        self._servers: dict[tuple[str, str], Server] = {}
        self._starter = Pool(1, "mcp")  # a process ends with the thread that started it: this one stays

    def tools(self) -> dict[str, Tool]:
        """Return the approved tools, ready to be called."""
        lock, settings, found = read_lock(self._host.root), self._host.settings.mcp, dict[str, Tool]()
        for name in settings.servers:
            for spec in specs_of(name, lock[name], settings.server(name)) if name in lock else ():
                tool = lock[name].tools[spec.name.removeprefix(f"mcp__{name}__")]
                found[spec.name] = McpTool(spec, name, tool, lock[name].launch_sha256, self)
        return found

    @contextmanager
    def borrowed(self, run: str, name: str, context: StepContext) -> Iterator[Server]:
        """Yield a run's server when nobody else is asking it anything. Raises GaveUp."""
        with self._lock:
            server = self._servers.setdefault((run, name), Server(name, self._host, self._starter))
        while not server.turn.acquire(timeout=TIMING.tick):
            if not context.may_wait():
                raise GaveUp
        try:
            yield server
        finally:
            server.turn.release()

    def launch_sha256(self, name: str) -> str:
        return self._host.launch(name).sha256

    def end(self, run: Path) -> None:
        """End the servers of a run."""
        with self._lock:
            over = [self._servers.pop(key) for key in [*self._servers] if key[0] == str(run)]
        for server in over:
            with server.turn:
                server.end()

    def close(self) -> None:
        """End all of them."""
        for run in {key[0] for key in self._servers}:
            self.end(Path(run))
        self._starter.shutdown(wait=True)


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of one server, as a person approved it."""

    spec: ToolSpec
    server: str
    approved: OfferedTool
    launch_sha256: str
    servers: McpServers

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        run = str(Path(context.steps_folder.folder).parent)
        try:
            if self.servers.launch_sha256(self.server) != self.launch_sha256:
                return self._changed_tool(
                    f"{CONFIG} starts the server {self.server} in another way than was approved"
                )
            with self.servers.borrowed(run, self.server, context) as server:
                return self._call_on(server, given, context)
        except Unusable as error:
            return _failure("tool", f"the MCP server {self.server}: {context.mask.text(str(error))}", error.hint)
        except Refused as refused:
            return ToolResult(failure=refused.failure)
        except NoWorker as error:
            return _failure("sandbox", f"the MCP server {self.server}: {error}", error.hint)
        except GaveUp:
            return ToolResult(failure=context.why_over() or Failure(kind="interrupted", message="it was stopped"))

    def _call_on(self, server: Server, given: JsonObject, context: StepContext) -> ToolResult:
        now = server.offers_when_called(context)
        if differs := differences(self.approved, now.get(self.approved.name)):
            words = "; ".join(differs)
            return self._changed_tool(f"{self.spec.name} is not the tool that was approved: {words}")
        meta = {"traceparent": context.traceparent} if context.traceparent else {}
        answer = server.ask({"call": self.approved.name, "arguments": given, "meta": meta}, context)
        if harm := server.find_harm():
            return _failure("outside", harm, "a tool may not change what git or agentfs runs")
        if isinstance(answer, ToolResult):
            return answer
        if "failed" in answer:
            words = context.mask.text(f"the MCP server {self.server}: {reason_in(answer)}")
            return _failure(str(answer.get("kind")), words, hint_in(answer))
        return _result(answer, context)

    def _changed_tool(self, words: str) -> ToolResult:
        return _failure("changed", words, f"look at it: {UPDATE}; then agentfs retry RUN STEP")


def _failure(kind: str, message: str, hint: str | None = None) -> ToolResult:
    return ToolResult(failure=Failure(kind=kind, message=message, hint=hint))


def _result(answer: Mapping[str, Any], context: StepContext) -> ToolResult:
    """Return what a call gave back: the value it is, else its text, else what each part is."""
    parts = [part for part in answer.get("content") or () if isinstance(part, dict)]
    if answer.get("error"):
        return _failure("tool", context.mask.text("\n".join(_texts(parts)) or "it failed and did not say why"))
    value = answer.get("structured")
    if value is None:
        value = _value(parts)
    try:
        return text_result(value, context) if isinstance(value, str) else value_result(value, context)
    except OSError as error:
        return _failure("interrupted", f"it has run, but its output could not be kept: {error}")


def _value(parts: list[dict[str, Any]]) -> Any:
    if any(part.get("type") != "text" for part in parts):
        return [_part(part) for part in parts]
    text = "\n".join(_texts(parts))
    if text.lstrip().startswith(("{", "[")):
        with suppress(NotJson):
            return json_value(text)
    return text


def _texts(parts: list[dict[str, Any]]) -> list[str]:
    return [str(part.get("text")) for part in parts if part.get("type") == "text"]


def _part(part: dict[str, Any]) -> Any:
    """Return a part of an answer; bytes are only counted."""
    if part.get("type") == "text":
        return {"type": "text", "text": part.get("text")}
    kept = {name: value for name, value in part.items() if name not in ("data", "_meta", "annotations", "resource")}
    if isinstance(resource := part.get("resource"), dict):
        kept["resource"] = {name: value for name, value in resource.items() if name != "blob"}
    size = len(str(part.get("data") or (part.get("resource") or {}).get("blob") or "")) * 3 // 4
    return {**kept, "bytes": size} if size else kept


# ── what a server offers, for a person to look at ─────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server offers now, or why that is not known."""

    name: str
    locked: LockedServer | None = None
    problems: tuple[str, ...] = field(default_factory=tuple)


def ask_servers(host: Host, say: Callable[[str], None] = lambda _words: None) -> Iterator[Offer]:
    """Yield what each server of the settings offers: each is started for that, and ended."""
    starter = Pool(1, "mcp")
    try:
        for name in host.settings.mcp.servers:
            say(f"starting {name}…")
            yield _offer_of(Server(name, host, starter), host)
    finally:
        starter.shutdown(wait=True)


def _offer_of(server: Server, host: Host) -> Offer:
    context = _context(host)
    try:
        server.connect(context)
        tools, problems = server.offers(context)
        return Offer(server.name, LockedServer(host.launch(server.name).sha256, server.about, tools), tuple(problems))
    except (Unusable, NoWorker, GaveUp) as error:
        hint = None if isinstance(error, GaveUp) else error.hint
        return Offer(server.name, None, (context.mask.text(str(error)), *([f"hint: {hint}"] if hint else ())))
    except Refused as refused:
        return Offer(server.name, None, (refused.failure.message,))
    finally:
        server.end()


def _context(host: Host) -> StepContext:
    own = host.root / "runs" / "none" / "none"
    return StepContext(
        name="tools",
        confinement=Confinement(host.root, host.root, own / "files"),
        steps_folder=StepsFolder.of(own),
        deadline=time.monotonic() + TIMING.mcp_start + TIMING.mcp_list,
        stop=Never(),
        output_bytes=65536,
        output_file=own / "none",
        claim=lambda _mark: None,
        log=lambda _event, _fields: None,
        mask=mask_for(host.settings, host.environment, ()).hiding(written_secrets(host.root)),
    )
