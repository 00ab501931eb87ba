"""`mcp` and `attempt`: what other programs start, and talk to over standard input and output.

`mcp` serves a workspace to other agents by the Model Context Protocol. What a client can do is written here: each
tool is one command, or one file edit, of the kind that asks a person before anything runs. None approves, rejects,
trusts, forgets or tops up, and none takes a path.
"""

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentfs import __version__
from agentfs.commands.common import here, must_be_trusted
from agentfs.core import paths
from agentfs.core.hashing import sha256_bytes
from agentfs.core.problems import Rejected, did_you_mean
from agentfs.errors import AgentfsError, UserError
from agentfs.storage.files import read_lines, read_whole
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp_types import CallToolResult, InputRequiredResult

MISSING = "this needs the extra `mcp`: pip install 'agentfs-plan[mcp]'"
MOST_GOAL, MOST_LINES, MOST_TEXT, MOST_LISTED = 1_000_000, 1000, 200_000, 50
SUFFIXES = Literal["md", "txt", "yaml", "json"]
_RUN = re.compile(r"[0-9A-Za-z][0-9A-Za-z/-]{0,80}\Z")
_STEP = re.compile(r"[a-z0-9][a-z0-9~-]{0,90}\Z")
State = Literal["waiting", "draft", "running", "planning", "paused", "done", "failed", "cancelled"]
INSTRUCTIONS = (
    "agentfs plans goals and runs them step by step; the plan is a file, and a person decides. Start runs and "
    "propose edits here; approving them is the person's, with the command that the answer names. Never try to "
    "approve, and do not write into runs/ yourself. To change a plan: show_run, then edit_plan with its plan_sha256."
)


def mcp(arguments: Namespace) -> int:
    """`agentfs mcp`"""
    workspace = here(arguments)
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        raise UserError(MISSING) from None
    from mcp_types import Resource

    class Server(MCPServer):
        async def list_resources(self) -> list[Resource]:  # runs come and go: the list is made when it is asked for
            return [Resource(uri=uri, name=name, mime_type=kind) for uri, name, kind in _resources(workspace)]

        async def call_tool(
            self, name: str, arguments: dict[str, Any], context: "Context[Any, Any] | None" = None
        ) -> "CallToolResult | InputRequiredResult":
            _must_be_known(name, arguments)  # the package drops what it does not know, without a word
            return await super().call_tool(name, arguments, context)

    server = Server("agentfs", instructions=INSTRUCTIONS, version=__version__)
    _add_tools(server, Client(workspace))
    _add_resources(server, workspace)
    server.run("stdio")
    return 0


class Client:
    """What a client may do in one workspace. Raises UserError in words."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._one = threading.Lock()  # what commands print goes through one place

    # ── look ──────────────────────────────────────────────────────────────────────────────────────────────

    def list_runs(self, state: State | None = None, since: str | None = None) -> Any:
        """List runs, those that wait for a person first: id, state, why, steps done. since: 2d, 3h, or a day."""
        words = [*(["--state", state] if state else ()), *([f"--since={since}"] if since else ())]
        return self._looks("status", *words, "--json")

    def show_run(self, run: str) -> Any:
        """Show a run: its plan with each step's state and output, why it waits, and plan_sha256, for edit_plan."""
        page, folder = self._looks("show", self._run(run), "--json"), self._folder(run)
        try:
            digest = sha256_bytes(read_whole(folder / paths.PLAN))
        except OSError:
            digest = None
        return {**page, "plan_sha256": digest}

    def show_step(self, run: str, step: str) -> Any:
        """Show a step in full: its order, result and checks, attempt by attempt."""
        return self._looks("show", self._run(run), _step(step), "--json")

    def read_log(
        self, run: str, step: str | None = None, attempt: int | None = None, call: int | None = None, last: int = 100
    ) -> Any:
        """Read the last lines of a log: of a step's attempt (default: its latest), or of a call of the planner."""
        folder = self._folder(run)
        if (step is None) == (call is None):
            raise UserError("name a step, or a call of the planner")
        if call is not None:
            path = folder / paths.PLANNING / paths.call_file(max(1, call), "log")
            if not path.exists():
                raise UserError(f"there is no {path.relative_to(folder)}: no such call, or one that asked no model")
        else:
            number = attempt or self._latest(folder, _step(step or ""))
            path = folder / paths.STEPS / paths.step_file(_step(step or ""), number, "log")
        lines = [json.dumps(line, ensure_ascii=False) for line in read_lines(path)][-max(1, min(last, MOST_LINES)) :]
        kept, size = list[str](), 0
        for line in reversed(lines):
            size += len(line)
            if size > MOST_TEXT and kept:
                break
            kept.append(line[:MOST_TEXT])
        return {"log": str(path.relative_to(folder)), "lines": kept[::-1]}

    def check_goal(self, goal: str, form: SUFFIXES = "md") -> Any:
        """Check a goal or a runbook without running it: every problem, with line, column and what to write."""
        with _goal_file(goal, form) as path:
            code, out, err = self._command("check", str(path), "--json")
        found = json.loads(out) if out.strip() else []
        return {"ok": code == 0, "found": [{**one, "file": path.name} for one in found] or err.strip().splitlines()}

    # ── act: every one of these leaves the decision to a person ───────────────────────────────────────────

    def start_run(self, goal: str, form: SUFFIXES = "md") -> Any:
        """Start a run of a goal or a runbook. Its plan is a draft: nothing runs before a person approves it.

        A runbook of the workspace with values for its parameters: form yaml or json, and as the goal
        {"uses": "runbooks/NAME.md", "params": {"NAME": VALUE}}.
        """
        must_be_trusted(self._workspace)
        with _goal_file(goal, form) as path:
            run, said, code = _plan_goal(self._workspace.root, path)
            said = said.replace(f"{path.parent}/", "").removeprefix("agentfs: ")
        if run is None:
            raise UserError(said or "the goal was not taken")
        if code not in (None, 0):
            return {"run": run, "state": "stopped", "said": said, "next": f"agentfs status {run}"}
        state = "planning" if code is None else "draft"
        return {"run": run, "state": state, "next": f"a person looks at it and types: agentfs approve {run}"}

    def edit_plan(
        self, run: str, plan_sha256: str, steps: list[dict[str, Any]], because: str, client: str = "a client"
    ) -> Any:
        """Propose other steps for a run. A person is asked; nothing changes before they say yes.

        plan_sha256: of the plan that you read (show_run). steps: those that are not done, in full, in the form of
        plan.json. Done steps stay; a step that is not done and not listed leaves the plan; no gate can be dropped.
        """
        named = {"base": plan_sha256, "steps": steps, "because": because, "by": client}
        return self._changes("propose", run, **named)

    def replan(self, run: str, because: str) -> Any:
        """Ask the planner for another plan: a person is asked about it. What is done and still counts is kept."""
        return self._changes("replan_for_client", run, because=because)

    def pause(self, run: str) -> Any:
        """Let nothing new start; what runs finishes. Only a person resumes it."""
        return self._changes("pause", run, by_client=True)

    def cancel(self, run: str) -> Any:
        """End a run, and what runs in it."""
        return self._changes("cancel", run, by_client=True)

    def reply(self, run: str, text: str, step: str | None = None) -> Any:
        """Answer the question of a step's `ask`. Gates, drafts and proposals are a person's to answer."""
        return self._changes("reply_to_ask", run, text=text, step=_step(step) if step else None)

    # ── by commands ───────────────────────────────────────────────────────────────────────────────────────

    def _run(self, run: str) -> str:
        """Return the id of a run that a client names: no option, no path, no revision."""
        folder = self._folder(run)
        return f"{folder.parent.name}/{folder.name}"

    def _folder(self, run: str) -> Path:
        if not _RUN.match(run):
            raise UserError("a run is named by its id, such as 2026-11-16/tidy, or by the last part of it")
        return self._workspace.find_run(run)

    def _latest(self, folder: Path, step: str) -> int:
        from agentfs.ui.reading import step_files

        if (attempts := step_files(folder).get(step)) is None:
            raise UserError(f"{step} has not been tried yet")
        return max(attempts)

    def _looks(self, *words: str) -> Any:
        code, out, err = self._command(*words)
        if code not in (0, 2) or not out:
            raise UserError(err.strip().removeprefix("agentfs: ") or f"it failed with exit code {code}")
        return json.loads(out)

    def _command(self, *words: str) -> tuple[int, str, str]:
        from agentfs.commands import main

        out, err = io.StringIO(), io.StringIO()
        with self._one, redirect_stdout(out), redirect_stderr(err):
            try:
                code = main(["-C", str(self._workspace.root), *words])
            except SystemExit as left:
                code = int(left.code or 0)
        return code, out.getvalue(), err.getvalue()

    def _changes(self, command: str, run: str, **given: Any) -> Any:
        """Change a run as a command does; return what it says."""
        from agentfs.commands import change

        named = Namespace(folder=str(self._workspace.root), run=self._run(run), dry_run=False, **given)
        said = io.StringIO()
        with self._one, redirect_stderr(said):
            getattr(change, command)(named)
        return {"run": named.run, "said": said.getvalue().strip().splitlines()}


def _step(step: str) -> str:
    if not _STEP.match(step):
        raise UserError("a step is named by its id")
    return step


@contextmanager
def _goal_file(goal: str, form: str) -> Iterator[Path]:
    """Yield a goal as a file that no other user can read, for as long as the block lasts."""
    if not goal.strip() or len(goal) > MOST_GOAL:
        raise UserError(f"a goal has between 1 and {MOST_GOAL} characters")
    with tempfile.TemporaryDirectory(prefix="agentfs-goal-") as folder:
        path = Path(folder) / f"{_name_in(goal)}.{form}"
        path.write_bytes(goal.encode("utf-8", "replace"))
        yield path


def _name_in(goal: str) -> str:
    """Return a name for a goal: from its first line, which may be a heading."""
    text = re.sub(r"\A---\n.*?\n---\n", "", goal, flags=re.DOTALL).strip()
    return paths.run_name(text.partition("\n")[0]) if text[:1] not in ("{", "[") else "goal"


def _plan_goal(root: Path, goal: Path) -> tuple[str | None, str, int | None]:
    """Plan a goal in another process; return its run, its messages, and its exit code (None: it goes on)."""
    argv = [sys.executable, "-m", "agentfs", "-C", str(root), "plan", str(goal), "--approve", "plan", "--for-client"]
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=root,
        start_new_session=True, env={**os.environ},
    )  # fmt: skip
    said = list[str]()
    reader = threading.Thread(target=lambda: said.extend(child.stderr or ()), daemon=True)
    reader.start()
    end = time.monotonic() + TIMING.mcp_begin
    while child.poll() is None and time.monotonic() < end:
        time.sleep(TIMING.tick)
    reader.join(TIMING.tick)
    run = next((match[1] for line in said if (match := _BEGAN.match(line))), None)
    return run, "".join(said).strip()[-4000:], child.poll()


_BEGAN = re.compile(r"(\d{4}-\d\d-\d\d/[a-z0-9][a-z0-9-]*): working in ")


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────


def _add_tools(server: "MCPServer", client: Client) -> None:
    from mcp_types import ToolAnnotations

    looking = (client.list_runs, client.show_run, client.show_step, client.read_log, client.check_goal)
    acting = (client.start_run, client.edit_plan, client.replan, client.pause, client.cancel, client.reply)
    for tool in (*looking, *acting):
        ends, looks = tool == client.cancel, tool in looking
        hints = ToolAnnotations(read_only_hint=looks, destructive_hint=ends, open_world_hint=False)
        server.add_tool(_in_words(tool), name=tool.__name__, annotations=hints, structured_output=False)


def _must_be_known(name: str, arguments: Iterable[str]) -> None:
    """Raise, for the client, if a call of a tool has arguments that the tool does not take."""
    import inspect

    from mcp.server.mcpserver.exceptions import ToolError

    tool = None if name.startswith("_") else getattr(Client, name, None)
    known = [one for one in inspect.signature(tool).parameters if one != "self"] if tool else []
    if tool and (unknown := [one for one in arguments if one not in known]):
        takes = f"it takes {', '.join(known)}"
        words = (f"{name} takes no argument {one!r} ({did_you_mean(one, known, takes)})" for one in unknown)
        raise ToolError("; ".join(words))


def _in_words(tool: Callable[..., Any]) -> Callable[..., str]:
    """Return a tool whose mistakes are words for the client, and whose answer is JSON."""
    import functools

    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def called(*args: Any, **given: Any) -> str:
        with _mistakes_as(ToolError):
            return json.dumps(tool(*args, **given), ensure_ascii=False, indent=1)

    return called


@contextmanager
def _mistakes_as(kind: type[Exception]) -> Iterator[None]:
    """Raise errors as ones whose message reaches the client; the package logs any other with its traceback."""
    try:
        yield
    except (AgentfsError, Rejected) as error:
        raise kind(str(error)) from None
    except OSError as error:
        raise kind(error.strerror or str(error)) from None


def _resources(workspace: Workspace) -> Iterator[tuple[str, str, str]]:
    """Yield the resources on offer: plan and status of the newest runs, and the schemas."""
    from agentfs.core.json_schema import all_schemas

    for folder in islice(workspace.run_folders(), MOST_LISTED):
        run = paths.run_id(folder)
        yield f"agentfs://runs/{run}/{paths.PLAN}", f"plan of {run}", "application/json"
        yield f"agentfs://runs/{run}/{paths.STATUS}", f"status of {run}", "text/markdown"
    for name in all_schemas():
        yield f"agentfs://schemas/{name.split('.')[0]}", f"schema of {name.split('.')[0]}", "application/json"


def _add_resources(server: "MCPServer", workspace: Workspace) -> None:
    """Add what can be read: plans, STATUS.md, results, schemas."""
    from mcp.server.mcpserver.exceptions import ResourceNotFoundError

    folder = Client(workspace)._folder  # noqa: SLF001 - the one way to name a run

    def read(day: str, name: str, *rest: str) -> str:
        with _mistakes_as(ResourceNotFoundError):
            return read_whole(folder(f"{day}/{name}").joinpath(*rest)).decode("utf-8", "replace")

    @server.resource("agentfs://runs/{day}/{name}/plan.json", mime_type="application/json")
    def plan(day: str, name: str) -> str:
        """The plan of a run."""
        return read(day, name, paths.PLAN)

    @server.resource("agentfs://runs/{day}/{name}/STATUS.md", mime_type="text/markdown")
    def status(day: str, name: str) -> str:
        """What a run is doing."""
        return read(day, name, paths.STATUS)

    @server.resource("agentfs://runs/{day}/{name}/steps/{step}/{attempt}/result.json", mime_type="application/json")
    def result(day: str, name: str, step: str, attempt: str) -> str:
        """How an attempt ended."""
        number = int(attempt) if attempt.isascii() and attempt.isdigit() and attempt[0] != "0" else 0
        if not number:
            raise ResourceNotFoundError("attempts are numbered from 1")
        with _mistakes_as(ResourceNotFoundError):
            return read(day, name, paths.STEPS, paths.step_file(_step(step), number, "result"))

    @server.resource("agentfs://schemas/{name}", mime_type="application/json")
    def schema(name: str) -> str:
        """The JSON Schema of a record: plan, goal, run, result …"""
        from agentfs.core.json_schema import all_schemas

        found = all_schemas().get(f"{name.removesuffix('.schema.json')}.schema.json")
        if found is None:
            names = ", ".join(one.split(".")[0] for one in all_schemas())
            raise ResourceNotFoundError(f"there is no schema {name!r}: {names}")
        return found.decode("utf-8")


# ── attempt ────────────────────────────────────────────────────────────────────────────────────────────────


def attempt(_arguments: Namespace) -> int:
    """Take one assignment from standard input, carry it out, and send what comes of it to standard output."""
    from agentfs.places.channel import standard_channel
    from agentfs.places.elsewhere import serve

    if sys.stdin.isatty():
        raise UserError("this is started by a place (see [places] in agentfs.toml), and talks to a driver over pipes")
    return serve(standard_channel(), os.environ)
