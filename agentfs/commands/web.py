"""`report` and `web`: a run as one page, the workspace in a browser. The acts of a page are the commands."""

import argparse
import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from agentfs.commands.common import here, listening, print_lines, report_unreadable, say, short_path
from agentfs.commands.parser import amount, count, defaults_of
from agentfs.core import paths
from agentfs.core.goal_file import RUNBOOKS
from agentfs.core.problems import Problem, Rejected
from agentfs.core.text import inert, size
from agentfs.errors import AgentfsError, BadFile, NoModel, UserError
from agentfs.storage.workspace import Workspace
from agentfs.ui.reading import Reading, names_of, read_run
from agentfs.ui.run_history import entries_of, plan_consequences
from agentfs.web.acts import Checked, Done, Runbook

if TYPE_CHECKING:
    import socket

    from agentfs.web.access import Access

INSTALL = "agentfs web needs the extra `web`: pip install 'agentfs-plan[web]' (uv tool install 'agentfs-plan[web]')"


# ── report ────────────────────────────────────────────────────────────────────────────────────────────────


def report(arguments: Namespace) -> int:
    """`agentfs report RUN [-o FILE]`"""
    workspace = here(arguments)
    found = read_run(workspace.find_run(arguments.run), workspace)
    source = page_of(found, workspace).encode("utf-8", "replace")
    if arguments.output in (None, "-"):
        sys.stdout.flush()
        sys.stdout.buffer.write(source)
        return report_unreadable(found)
    path = Path(arguments.output)
    try:
        path.write_bytes(source)
    except OSError as error:
        raise UserError(f"{inert(arguments.output)} cannot be written: {error.strerror}") from None
    say(f"{short_path(path)}: {size(len(source))}, opens in any browser")
    return report_unreadable(found)


def page_of(found: Reading, workspace: Workspace) -> str:
    """Return the report of a run, with times as this machine has them."""
    from agentfs.web.document import report as render
    from agentfs.web.gather import gather

    now = datetime.now().astimezone()
    return render(gather(found, workspace, now, now.tzinfo, commits_of(found.folder, workspace)))


def commits_of(folder: Path, workspace: Workspace) -> dict[int, str]:
    """Return the commit of each revision that the ledger has."""
    entries, _ = entries_of(folder, workspace.runs)
    return {
        entry["revision"]: entry["commit"] for entry in entries if entry["kind"] == "revision" and entry["commit"]
    }


# ── web ───────────────────────────────────────────────────────────────────────────────────────────────────


def web(arguments: Namespace) -> int:
    """`agentfs web [--port N] [--open] [--read-only]`"""
    try:
        import uvicorn

        from agentfs.web.app import make_app
        from agentfs.web.view import View
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("uvicorn", "starlette"):
            raise
        raise UserError(INSTALL) from None
    from agentfs.web.access import Access

    workspace = here(arguments)
    listener = _listener(arguments.port)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = Access(make_app(View(workspace, Commands(workspace), arguments.read_only)), arguments.read_only)
    app.entered = lambda code: say(f"a browser came in; for another one: {address}/enter?code={code}")
    _announce(workspace, app, address, read_only=arguments.read_only, open_it=arguments.open)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def _listener(port: int) -> "socket.socket":
    """Return a socket on loopback; nobody beyond this machine can reach it."""
    import socket

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)  # before the address is printed: its reader may ask at once
    except (OSError, OverflowError) as error:
        listener.close()
        words = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"port {port} of 127.0.0.1 cannot be used: {words} (another one: agentfs web --port N)"
        ) from None
    return listener


def _announce(workspace: Workspace, app: "Access", address: str, *, read_only: bool, open_it: bool) -> None:
    url = f"{address}/enter?code={app.code}"
    say(f"{inert(str(workspace.root))} in a browser{', read-only' if read_only else ''}; Ctrl-C ends it")
    print_lines([url])
    sys.stdout.flush()
    if open_it:
        import webbrowser

        if not webbrowser.open(url):
            say("no browser could be opened: open this address yourself (BROWSER names the one to use)")


# ── acts ──────────────────────────────────────────────────────────────────────────────────────────────────


_COMMANDS = {  # act of a page -> where it is: imported when it is called
    "approve": "change.approve_one",
    "reject": "change.reject_one",
    **{name: f"change.{name}" for name in ("reply", "replan", "pause", "cancel", "retry", "skip")},
    "fork": "fork.fork",
    "restore": "fork.restore",
    "resume": "resume.take_up_only",
}


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands as acts of a page: the same functions, the same files, under the same name."""

    workspace: Workspace

    def perform(self, act: str, run: str, fields: Mapping[str, str], *, dry_run: bool) -> Done:
        """Call the command, and return its messages."""
        printed: list[str] = []

        def call() -> None:
            module, _, function = _COMMANDS[act].partition(".")
            command = getattr(importlib.import_module(f"agentfs.commands.{module}"), function)
            command(self._arguments(act, run, fields, dry_run=dry_run))

        done = _listen(call, run, printed)
        made = printed[-1].strip() if act == "fork" and printed else ""
        return replace(done, run=made) if done.ok and paths.is_run_id(made) else done

    def _arguments(self, act: str, run: str, fields: Mapping[str, str], *, dry_run: bool) -> Namespace:
        """Return the arguments of the command; values of fields never become options."""
        given = {name: value.strip() or None for name, value in fields.items()}
        revision = given.get("revision")
        if revision is not None and not (revision.isascii() and revision.isdigit() and len(revision) < 9):
            raise UserError(f"{inert(revision)!r} is not the number of a revision")
        named = f"{run}@{revision}" if revision and act in ("approve", "reject", "fork", "restore") else run
        typed = {
            "folder": str(self.workspace.root),
            "run": named,
            "step": given.get("step"),
            "because": given.get("because"),
            "text": fields.get("text", ""),
            "name": given.get("name"),
            "shown": given.get("question"),
            "dry_run": dry_run,
        }
        return Namespace(**{**defaults_of(act), **typed, **_top_ups(given)})

    def check_plan(self, run: str, source: bytes) -> Checked:
        """Return what a plan would mean for a run."""
        from agentfs.commands.editing import problems_of

        found = read_run(self.workspace.find_run(run), self.workspace)
        state = found.readable()
        if problems := problems_of(found.folder, self.workspace, source):
            return Checked(tuple(problems), None)
        return Checked((), plan_consequences(state, source))

    def save_plan(self, run: str, source: bytes, base: str) -> Done:
        """Save a plan if it is valid, and if plan.json is still what was edited."""
        from agentfs.commands.editing import open_run, reopen, save_plan, say_who_continues

        def save() -> None:
            opened = open_run(self.workspace, self.workspace.find_run(run))
            save_plan(opened, source, base)
            reopen(opened)
            say_who_continues(opened)

        return _listen(save, run, [])

    # ── goals ─────────────────────────────────────────────────────────────────────────────────────────────

    def runbooks(self) -> tuple[str, ...]:
        """Return the goals in runbooks/."""
        names = names_of(self.workspace.root / RUNBOOKS)
        return tuple(f"{RUNBOOKS}/{name}" for name in names if Path(name).suffix.lower() in paths.GOAL_SUFFIXES)

    def runbook(self, file: str) -> Runbook:
        """Return what a goal in runbooks/ takes, or what is wrong with it."""
        from agentfs.commands.check import judge, surroundings
        from agentfs.engine.goal_source import goal_from

        if file not in self.runbooks():
            raise UserError(f"there is no {inert(file)!r}")
        try:
            source = goal_from(str(self.workspace.root / file), self.workspace.root, lambda: b"")
            goal = judge(source, surroundings(self.workspace.root), with_values=False).parsed
        except NoModel as error:
            return Runbook(file, file, (), (error.problem,))
        except (Rejected, BadFile) as error:
            return Runbook(file, file, (), tuple(error.problems))
        return Runbook(file, goal.title, tuple(goal.params.values()))

    def check_goal(self, name: str, source: bytes) -> tuple[Problem, ...]:
        """Return what is wrong with a goal, as `watch` would say."""
        from agentfs.commands.check import dropped_problems

        try:
            return dropped_problems(self.workspace, _goal_name(name), source)
        except UserError as error:
            return (Problem(str(error), ""),)

    def drop_goal(self, name: str, source: bytes) -> Done:
        """Put a goal into goals/, whole; one that is there is not replaced."""
        from agentfs.storage.files import publish
        from agentfs.storage.locks import is_watched

        path = self.workspace.root / "goals" / _goal_name(name)
        try:
            path.parent.mkdir(exist_ok=True)
            publish(path, source, durable=True)
        except FileExistsError:
            return Done(ok=False, words=(f"goals/{path.name} is there already: choose another name",))
        except OSError as error:
            return Done(ok=False, words=(f"goals/{path.name} cannot be written: {error.strerror}",))
        driven = is_watched(self.workspace.root)
        then = "`agentfs watch` takes it up" if driven else "nothing watches goals/; go on with: agentfs watch"
        return Done(ok=True, words=(f"goals/{path.name} is dropped", then))


def _listen(act: Callable[[], None], run: str, printed: list[str]) -> Done:
    """Do something, and return its messages; what it printed is put into the list."""
    words: list[str] = []
    try:
        with listening(words.append, printed.append):
            act()
    except AgentfsError as error:
        from agentfs.commands.editing import OutOfDate

        return Done(ok=False, words=(*words, str(error)), stale=isinstance(error, OutOfDate))
    except Rejected as error:
        return Done(ok=False, words=(*words, *(one.shown(paths.PLAN) for one in error.problems)))
    words = [line for line in words if not line.startswith("dry run: ")]  # the page says so itself
    return Done(ok=True, words=tuple(words), run=run)


def _goal_name(name: str) -> str:
    """Return the name of a goal's file: a name, not a path, that `watch` would take."""
    if name != os.path.basename(name) or not name.isprintable() or name.startswith((".", "-")) or len(name) > 120:
        raise UserError(f"{inert(name)!r} is not the name of a file (letters, digits, - and a suffix)")
    if Path(name).suffix.lower() not in paths.GOAL_SUFFIXES:
        raise UserError(f"{inert(name)!r}: a goal ends in {', '.join(paths.GOAL_SUFFIXES)}")
    return name


def _top_ups(given: Mapping[str, str | None]) -> dict[str, float | None]:
    """Return how much is added to which limit, as the options of `resume` take it."""
    kinds = {"minutes": amount, "cost_usd": amount, "requests": count, "tokens": count, "replans": count}
    found: dict[str, float | None] = {}
    for name, kind in kinds.items():
        text = given.get(name)
        try:
            found[name] = None if text is None else kind(text)
        except argparse.ArgumentTypeError as error:
            raise UserError(f"{name.replace('_usd', '')}: {inert(str(error))}") from None
    return found
