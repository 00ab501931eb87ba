"""The tools of MCP servers: what a person approved, servers that run, and calls.

A server runs in a sandbox of its own, with one process of ours in it (`mcp_worker`) that starts it and speaks the
protocol; here only JSON arrives, bounded. It starts when a tool of it is first called, is asked one thing at a time,
and ends with its run. One that does not answer in time, is stopped, or sends too much is ended; one that is lost
between two calls is started again before the next.
"""

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentfs import __version__
from agentfs.core.config import Settings
from agentfs.core.excerpts import TimeLimit, with_output
from agentfs.core.mcp import (
    CONFIG,
    LOCK,
    Launch,
    LockedServer,
    OfferedTool,
    Unusable,
    differences,
    launch_in,
    literals_in,
    lock_of,
    read_offers,
    spec_of,
)
from agentfs.core.paths import inside
from agentfs.core.records import Failure, JsonObject, Sandbox
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.errors import UserError
from agentfs.storage.files import read_whole
from agentfs.storage.safe_open import Refused, hold_folder
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, StepContext, Tool, ToolResult, fail
from agentfs.tools.launch import GaveUp
from agentfs.tools.output import json_or_text
from agentfs.tools.programs import HARM_HINT
from agentfs.tools.protected import Unfenceable
from agentfs.tools.sandbox import View, environment, make_layout, readable_path
from agentfs.tools.secrets import is_secret, mask_for
from agentfs.tools.workers import NoWorker, Place, Request, Worker, Workers, no_attempt, result_of

PROGRAM = Path(__file__).with_name("mcp_worker.py")
INSTALL = "pip install 'agentfs-plan[mcp]'"
UPDATE = "agentfs tools --update"


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────


def read_config(root: Path) -> Any:
    """Return what .mcp.json holds. Raises UserError in words."""
    try:
        return json_value(read_whole(root / CONFIG).decode("utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no {CONFIG} in {root}: it says how the servers of [mcp] are started") from None
    except (OSError, UnicodeDecodeError, NotJson) as error:
        raise UserError(f"{root / CONFIG} cannot be read: {error}") from None


def server_command(root: Path, name: str) -> tuple[str, ...]:
    """Return the command that starts a server; nothing where .mcp.json does not say."""
    with suppress(UserError, Unusable):
        launch = launch_in(read_config(root), name)
        return launch.command, *launch.args
    return ()


def written_secrets(root: Path) -> dict[str, str]:
    """Return the secrets that .mcp.json holds as they are, by name: of every server, used or not."""
    found: dict[str, str] = {}
    with suppress(UserError):
        for server, name, value in literals_in(read_config(root)):
            if name.lower() == "authorization":
                found[f"{name} of {server}"] = value.rpartition(" ")[2]  # without its scheme
            elif is_secret(name):
                found[f"{name} of {server}"] = value
    return found


def read_lock(root: Path) -> dict[str, LockedServer]:
    """Return what a person has approved; nothing where there is no lock, or none that reads."""
    with suppress(OSError, UnicodeDecodeError, NotJson):
        return lock_of(json_value(read_whole(root / LOCK).decode("utf-8")))
    return {}


def approved_specs(root: Path, settings: Settings) -> dict[str, ToolSpec]:
    """Return the tools of MCP servers as plans see them: from the lock alone, starting nothing."""
    return {spec.name: spec for _, _, _, spec in _list_approved(root, settings)}


def _list_approved(root: Path, settings: Settings) -> Iterator[tuple[str, LockedServer, OfferedTool, ToolSpec]]:
    """Yield each approved tool that the settings let steps call, with its server."""
    lock = read_lock(root)
    for name in filter(lock.__contains__, settings.mcp.servers):
        own = settings.mcp.server(name)
        for tool in lock[name].tools.values():
            if own.tools is None or tool.name in own.tools:
                yield name, lock[name], tool, spec_of(name, tool, own)


# ── one server ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Host:
    """What servers are started with, whatever the run."""

    root: Path
    settings: Settings
    environment: Mapping[str, str]
    sandbox: Sandbox
    protected: tuple[Path, ...] = ()

    def launch(self, name: str) -> Launch:
        """Return how a server is started. Raises Unusable."""
        try:
            return launch_in(read_config(self.root), name)
        except UserError as error:
            raise Unusable(str(error)) from None

    def confinement(self, name: str, own: Path) -> Confinement:
        """Return what a server may touch; `own`: an empty folder, its home. Raises Unusable."""
        settings = self.settings.mcp.server(name)
        writable = tuple(Path(self._path(one)) for one in settings.write)
        for path in writable:
            if not path.is_dir():
                raise Unusable(f"{path} is not a folder (write under [mcp.{name}] names it)")
        return Confinement(
            workdir=own,
            workspace=Path(os.path.realpath(self.root)),
            run_files=own / "none",
            readable=(*(Path(self._path(one)) for one in settings.read), PROGRAM.parent.parent),
            also_writable=writable,
            network=settings.network,
            sandbox=self.sandbox,
            env={one: self.environment[one] for one in settings.env if one in self.environment},
            protected=self.protected,
        )

    def _path(self, named: str) -> str:
        return readable_path(os.path.join(os.path.realpath(self.root), os.path.expanduser(named)))

    def cwd(self, confinement: Confinement) -> str:
        """Return where a server is started: in the workspace if it sees it, else in its own folder."""
        root = str(confinement.workspace)
        sees = (*confinement.readable, *confinement.also_writable)
        shown = confinement.sandbox == "none" or any(inside(root, str(path)) for path in sees)
        return root if shown else str(confinement.workdir)


class Server:
    """One server of one run: a process, or none yet."""

    def __init__(self, name: str, host: Host, workers: Workers) -> None:
        self.name, self._host, self._workers = name, host, workers
        self.turn = threading.Lock()  # one call at a time
        self.about = ""
        self._worker: Worker | None = None
        self._own: Path | None = None
        self._view: View | None = None  # of its sandbox, while it runs
        self._harm: list[str] = []

    def connect(self, context: StepContext) -> None:
        """Start it unless it runs, and claim the attempt in its name. Raises Unusable, NoWorker, Refused, GaveUp."""
        if self._worker is not None:
            context.claim(self._worker.mark)
            return
        launch = self._host.launch(self.name).filled(
            self._host.settings.mcp.server(self.name), self._host.environment
        )
        if launch.url and not self._host.settings.mcp.server(self.name).network:
            raise Unusable(f"it is reached over the network: set network = true under [mcp.{self.name}]")
        self._own = Path(os.path.realpath(tempfile.mkdtemp(prefix="agentfs-mcp-")))
        try:
            confinement = self._host.confinement(self.name, self._own)
            place = self._place(confinement)
            self._view = place.layout.view
            self._worker = self._workers.borrow(place, context)
            context.claim(self._worker.mark)  # before anything of the server runs
            self._say_hello(launch, confinement, context)
        except BaseException:
            self.end()
            raise

    def _place(self, confinement: Confinement) -> Place:
        try:
            with hold_folder(str(confinement.workdir)):
                layout = make_layout([sys.executable, "-I", "-B", str(PROGRAM)], confinement)
        except Unfenceable as error:
            raise NoWorker(str(error), f"choose other folders under [mcp.{self.name}]") from None
        return Place(layout, tuple((environment(confinement) | {"HOME": str(confinement.workdir)}).items()))

    def _say_hello(self, launch: Launch, confinement: Confinement, context: StepContext) -> None:
        start = {
            "command": launch.command,
            "args": [*launch.args],
            "env": dict(launch.env),
            "url": launch.url,
            "headers": dict(launch.headers),
            "cwd": self._host.cwd(confinement),
            "version": __version__,
        }
        answer = self.ask({"start": start}, _within(TIMING.mcp_start, context))
        if isinstance(answer, Failure) or "failed" in answer:
            raise Unusable(f"it does not start: {reason_in(answer)}", hint_in(answer))
        self.about = context.mask.text(str(answer.get("about") or ""))

    def ask(self, content: Mapping[str, Any], context: StepContext) -> dict[str, Any] | Failure:
        """Return what it answers, or why it does not; one that cannot go on is ended."""
        if self._worker is None:
            raise RuntimeError("connect first")
        request = Request(self._worker, context)
        try:
            answer = request.send(content)
        finally:
            if request.spent:
                self.end()
        if isinstance(answer, dict) and answer.get("code") is not None:  # it ended: what it printed may say why
            return {**answer, "failed": with_output(str(answer["failed"]), request.stderr()), "hint": self._hint()}
        return answer

    def _hint(self) -> str | None:
        """Return what may keep a server from running that runs elsewhere, and where that is set."""
        if self._host.sandbox == "none":
            return None
        settings = self._host.settings.mcp.server(self.name)
        shown = ", ".join(["the system's folders", *settings.read, *settings.write])
        network = "" if settings.network else "; it has no network"
        return f"it sees {shown}{network}: more is read, write and network under [mcp.{self.name}] in agentfs.toml"

    def find_harm(self) -> str | None:
        """Undo what it did that no program may do; return what that was, since this was last asked."""
        self._undo_harm()
        found, self._harm = self._harm, []
        return "; ".join(found) or None

    def _undo_harm(self) -> None:
        if harm := self._view.undo_harm() if self._view else None:
            self._harm.append(harm)

    def offers(self, context: StepContext) -> tuple[dict[str, OfferedTool], list[str]]:
        """Return what it offers now. Raises Unusable."""
        answer = self.ask({"list": True}, _within(TIMING.mcp_list, context))
        if isinstance(answer, Failure) or "failed" in answer:
            raise Unusable(f"it does not say what it offers: {reason_in(answer)}", hint_in(answer))
        listed = context.mask.value(answer.get("tools"), keys=True)  # what it says is kept, and shown to models
        return read_offers(self.name, listed if isinstance(listed, list) else ())

    def offers_when_called(self, context: StepContext) -> dict[str, OfferedTool]:
        """Return what it offers now; one that was lost since its last call is started again. Raises as `connect`."""
        was_connected = self._worker is not None
        self.connect(context)
        try:
            return self.offers(context)[0]
        except Unusable:
            if not was_connected or self._worker is not None:
                raise
        self.connect(context)
        return self.offers(context)[0]

    def end(self) -> None:
        """End its process with all that it started."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()
        self._undo_harm()
        self._view = None
        own, self._own = self._own, None
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


def _within(seconds: float, context: StepContext) -> StepContext:
    """Return a context in which something has to happen soon."""
    soon = context.now() + seconds
    return context if soon >= context.deadline else replace(context, deadline=soon, limit=_Soon(seconds))


class _Soon(TimeLimit):
    """A time limit that no step can raise."""

    def failure(self, what: str = "it gave no answer", then: str = "") -> Failure:
        return Failure(kind="timeout", message=f"{what} within {self.seconds:g} s{then}")


def reason_in(answer: Mapping[str, Any] | Failure) -> str:
    """Return why an answer is none."""
    if isinstance(answer, Failure):
        return answer.message
    if answer.get("kind") == "setup":
        return f"this needs the extra `mcp`: {INSTALL}"
    return str(answer.get("failed"))


def hint_in(answer: Mapping[str, Any] | Failure) -> str | None:
    """Return what may be done about an answer that is none."""
    return None if isinstance(answer, Failure) else answer.get("hint")


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────


class McpServers:
    """The servers of one agentfs. Any thread may call their tools."""

    def __init__(self, host: Host) -> None:
        self.host, self._lock = host, threading.Lock()
        self._servers: dict[tuple[str, str], Server] = {}
        self._workers = Workers()

    def tools(self) -> dict[str, Tool]:
        """Return the approved tools, ready to be called."""
        return {
            spec.name: McpTool(spec, name, tool, server.launch_sha256, self)
            for name, server, tool, spec in _list_approved(self.host.root, self.host.settings)
        }

    @contextmanager
    def borrow(self, run: str, name: str, context: StepContext) -> Iterator[Server]:
        """Yield a run's server when nobody else is asking it anything. Raises GaveUp."""
        with self._lock:
            server = self._servers.setdefault((run, name), Server(name, self.host, self._workers))
        while not server.turn.acquire(timeout=TIMING.tick):
            if not context.may_wait():
                raise GaveUp
        try:
            yield server
        finally:
            server.turn.release()

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
        self._workers.close()


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
            if self.servers.host.launch(self.server).sha256 != self.launch_sha256:
                return self._changed_tool(
                    f"{CONFIG} starts the server {self.server} in another way than was approved"
                )
            with self.servers.borrow(run, self.server, context) as server:
                return self._call_on(server, given, context)
        except Unusable as error:
            return fail("tool", f"the MCP server {self.server}: {context.mask.text(str(error))}", error.hint)
        except NoWorker as error:
            return fail("sandbox", f"the MCP server {self.server}: {error}", error.failure.hint)
        except Refused as refused:
            return ToolResult(failure=refused.failure)
        except GaveUp:
            return ToolResult(failure=context.why_ended())

    def _call_on(self, server: Server, given: JsonObject, context: StepContext) -> ToolResult:
        now = server.offers_when_called(context)
        if differs := differences(self.approved, now.get(self.approved.name)):
            words = "; ".join(differs)
            return self._changed_tool(f"{self.spec.name} is not the tool that was approved: {words}")
        meta = {"traceparent": context.traceparent} if context.traceparent else {}
        answer = server.ask({"call": self.approved.name, "arguments": given, "meta": meta}, context)
        if harm := server.find_harm():
            return fail("outside", harm, HARM_HINT)
        if isinstance(answer, Failure):
            return ToolResult(failure=answer)
        if "failed" in answer:
            words = context.mask.text(f"the MCP server {self.server}: {reason_in(answer)}")
            return fail(str(answer.get("kind")), words, hint_in(answer))
        return _result(answer, context)

    def _changed_tool(self, words: str) -> ToolResult:
        return fail("changed", words, f"look at it: {UPDATE}; then agentfs retry RUN STEP")


def _result(answer: Mapping[str, Any], context: StepContext) -> ToolResult:
    """Return what a call gave back: the value it is, else its text, else what each part is."""
    parts = [part for part in answer.get("content") or () if isinstance(part, dict)]
    if answer.get("error"):
        return fail("tool", context.mask.text("\n".join(_texts(parts)) or "it failed and did not say why"))
    value = answer.get("structured")
    return result_of(_value(parts) if value is None else value, context)


def _value(parts: list[dict[str, Any]]) -> Any:
    if any(part.get("type") != "text" for part in parts):
        return [_part(part) for part in parts]
    return json_or_text("\n".join(_texts(parts)))


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
    problems: tuple[str, ...] = ()


def ask_servers(host: Host, say: Callable[[str], None] = lambda _words: None) -> Iterator[Offer]:
    """Yield what each server of the settings offers: each is started for that, and ended."""
    workers = Workers()
    try:
        for name in host.settings.mcp.servers:
            say(f"starting {name}…")
            yield _offer_of(Server(name, host, workers), host)
    finally:
        workers.close()


def _offer_of(server: Server, host: Host) -> Offer:
    context = _context(host)
    try:
        server.connect(context)
        tools, problems = server.offers(context)
        return Offer(server.name, LockedServer(host.launch(server.name).sha256, server.about, tools), tuple(problems))
    except Unusable as error:
        why, hint = str(error), error.hint
    except Refused as refused:
        why, hint = str(refused), refused.failure.hint
    except GaveUp as error:
        why, hint = str(error), None
    finally:
        server.end()
    return Offer(server.name, None, (context.mask.text(why), *([f"hint: {hint}"] if hint else ())))


def _context(host: Host) -> StepContext:
    confinement = Confinement(host.root, host.root, host.root / "runs" / "none" / "none" / "files")
    mask = mask_for(host.settings, host.environment, ()).hiding(written_secrets(host.root))
    return no_attempt(confinement, TIMING.mcp_start + TIMING.mcp_list, mask)
