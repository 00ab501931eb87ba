"""One MCP server of one run: a sandbox with one process of ours in it (`mcp_worker`), which starts the server and
speaks the protocol; here only JSON arrives, bounded. It is asked one thing after the other.

One that does not answer in time, is stopped, or sends too much is ended; one that is lost between two calls is
started again before the next.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
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
    launch_in,
    literals_in,
    lock_of,
    read_offers,
    specs_of,
)
from agentfs.core.paths import inside
from agentfs.core.records import Failure, Sandbox
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.errors import UserError
from agentfs.storage.files import read_whole
from agentfs.storage.safe_open import hold_folder
from agentfs.storage.starting import Pool
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, StepContext, ToolResult
from agentfs.tools.launch import GaveUp
from agentfs.tools.protected import Unfenceable
from agentfs.tools.sandbox import View, environment, lay_out, readable_path
from agentfs.tools.secrets import is_secret
from agentfs.tools.user_tool_calls import NoWorker, Place, Request, Worker, start_worker

PROGRAM = Path(__file__).with_name("mcp_worker.py")
INSTALL = "pip install 'agentfs-plan[mcp]'"


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────


def read_config(root: Path) -> Any:
    """Return what .mcp.json holds. Raises UserError in words."""
    try:
        return json_value(read_whole(root / CONFIG).decode("utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no {CONFIG} in {root}: it says how the servers of [mcp] are started") from None
    except (OSError, UnicodeDecodeError, NotJson) as error:
        raise UserError(f"{root / CONFIG} cannot be read: {error}") from None


def server_commands(root: Path, settings: Settings) -> list[list[str]]:
    """Return the commands that start the servers of the settings, as far as .mcp.json reads."""
    found: list[list[str]] = []
    for name in settings.mcp.servers:
        with suppress(UserError, Unusable):
            launch = launch_in(read_config(root), name)
            found.append([launch.command, *launch.args])
    return found


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


def approved_specs(root: Path | None, settings: Settings) -> dict[str, ToolSpec]:
    """Return the tools of MCP servers as plans see them: from the lock alone, starting nothing."""
    if root is None or not settings.mcp.servers:
        return {}
    lock = read_lock(root)
    found = (
        spec
        for name in settings.mcp.servers
        if name in lock
        for spec in specs_of(name, lock[name], settings.mcp.server(name))
    )
    return {spec.name: spec for spec in found}


# ── one server ────────────────────────────────────────────────────────────────────────────────────────────


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

    def __init__(self, name: str, host: Host, starter: Pool) -> None:
        self.name, self._host, self._starter = name, host, starter
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
            self._worker = worker = self._begin(confinement, context)
            context.claim(worker.mark)  # before anything of the server runs
            self._say_hello(launch, confinement, context)
        except BaseException:
            self.end()
            raise

    def _begin(self, confinement: Confinement, context: StepContext) -> Worker:
        place = self._place(confinement)
        self._view = place.layout.view
        begun = self._starter.submit(start_worker, place)
        while not begun.done():
            if not context.may_wait():
                begun.add_done_callback(lambda late: late.result().end() if not late.exception() else None)
                raise GaveUp
            time.sleep(TIMING.poll)
        worker = begun.result()
        try:
            if worker.is_ready(context):
                return worker
        except BaseException:
            worker.end()
            raise
        raise NoWorker(f"the process that speaks to it did not start: {worker.end()[-1000:]}")

    def _place(self, confinement: Confinement) -> Place:
        try:
            with hold_folder(str(confinement.workdir)):
                layout = lay_out([sys.executable, "-I", "-B", str(PROGRAM)], confinement)
        except Unfenceable as error:
            raise NoWorker(str(error), f"choose other folders under [mcp.{self.name}]") from None
        env = {**environment(confinement), "HOME": str(confinement.workdir)}
        return Place((), layout, tuple(env.items()), ())

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
        if isinstance(answer, ToolResult) or "failed" in answer:
            raise Unusable(f"it does not start: {reason_in(answer)}", hint_in(answer))
        self.about = context.mask.text(str(answer.get("about") or ""))

    def ask(self, content: Mapping[str, Any], context: StepContext) -> dict[str, Any] | ToolResult:
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
        if isinstance(answer, ToolResult) or "failed" in answer:
            raise Unusable(f"it does not say what it offers: {reason_in(answer)}", hint_in(answer))
        listed = context.mask.value(answer.get("tools"), keys=True)  # what it says is kept, and told to models
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


def reason_in(answer: Mapping[str, Any] | ToolResult) -> str:
    """Return why an answer is none."""
    if isinstance(answer, ToolResult):
        return answer.failure.message if answer.failure else "it gave no answer"
    if answer.get("kind") == "setup":
        return f"this needs the extra `mcp`: {INSTALL}"
    return str(answer.get("failed"))


def hint_in(answer: Mapping[str, Any] | ToolResult) -> str | None:
    """Return what may be done about an answer that is none."""
    return None if isinstance(answer, ToolResult) else answer.get("hint")
