"""A process that has imported agentfs and lets children of itself do the work: a start costs milliseconds, and so a death.

    python -m tests.crash.forking      one JSON request per line in, one JSON reply per line out

A request: `root`, `env`, `words` (a command; none: one pass of a daemon over everything there is to do), `cut` (the
child kills itself before that many changes of the disk; null: never) and `near` (of these only those of such paths).
"""

import importlib
import json
import os
import pkgutil
import queue
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # noqa: F401 - what children import anew each time is imported here

import agentfs
from agentfs.commands import main as command
from agentfs.core.config import Settings
from agentfs.daemon.inbox import Inbox
from agentfs.engine import foreground as driving
from agentfs.engine.driver import World
from agentfs.engine.foreground import Stop, drive
from agentfs.engine.means import catalogue_of
from agentfs.engine.world import open_driver, open_world
from agentfs.ledger import committer
from agentfs.storage import completeness
from agentfs.storage.dropped_goals import StillChanging
from agentfs.storage.locks import locked
from agentfs.storage.settings import load_settings
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace, ended_runs, open_runs
from tests.drives import Quiet
from tests.workspaces import Place

CHANGES = ("open", "write", "fsync", "link", "rename", "replace", "unlink", "mkdir", "rmdir", "utime")
SELDOM = ("agentfs.models", "agentfs.testing", "agentfs.replay")
UNEXPECTED = 70
HELD_SECONDS = 10.0


class Forks:
    """The parent's side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forking"],
            cwd=Path(__file__).parent.parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, root: Path, env: Mapping[str, str], *words: str, cut: int | None = None, near: str = ""
    ) -> tuple[int, str]:
        """Let a child do something; return how it ended (-9: it was cut off), and what it said."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"root": str(root), "env": dict(env), "words": words, "cut": cut, "near": near}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        reply = json.loads(self._process.stdout.readline())
        return reply["code"], reply["said"]

    def command(self, place: Place, *words: str) -> int:
        """Run a command of a place to its end; return its exit code."""
        code, said = self.run(place.root, place.env, *words)
        assert "Traceback" not in said, said
        return code

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=10)


class Stable:
    """Forks that all tests share: each is lent to one at a time, and made when none is there."""

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[Forks] = queue.SimpleQueue()

    @contextmanager
    def lent(self) -> Iterator[Forks]:
        try:
            forks = self._free.get_nowait()
        except queue.Empty:
            forks = Forks()
        try:
            yield forks
        finally:
            self._free.put(forks)

    def close(self) -> None:
        while not self._free.empty():
            self._free.get().close()


STABLE = Stable()


# ── the child's side ──────────────────────────────────────────────────────────────────────────────────────


def serve() -> None:
    for one in pkgutil.walk_packages(agentfs.__path__, "agentfs."):
        if not one.name.startswith(SELDOM) and not one.name.endswith("__main__"):
            importlib.import_module(one.name)  # once, and not in every child
    for line in sys.stdin:
        request = json.loads(line)
        said = Path(request["root"]).parent / "said"
        child = os.fork()
        if child == 0:
            _be_child(request, said)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"code": code, "said": said.read_text(errors="replace")}), flush=True)


def _hurry() -> None:
    """Wait for nobody: no other process writes here."""
    quick = replace(TIMING, complete=0.0, restless=0.001, commit_pause=0.0)
    for module in (completeness, driving, committer):
        module.__dict__["TIMING"] = quick


def _be_child(request: dict[str, Any], said: Path) -> None:
    """Do what was asked for, as a process of its own, and end."""
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.setsid()
    os.chdir(request["root"])
    os.environ.clear()
    os.environ.update(request["env"])
    _hurry()
    if request["cut"] is not None:
        _die_after(request["cut"], request["near"])
    try:
        code = command(request["words"]) if request["words"] else one_pass(Path(request["root"]))
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:  # noqa: BLE001 - whatever it is, it is told
        traceback.print_exc()
        code = UNEXPECTED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _die_after(changes: int, near: str) -> None:
    """Let so many changes of the disk through, of those whose path has this in it, then be gone."""
    left = [changes]

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            changing = name != "open" or (len(given) > 1 and given[1] & os.O_CREAT)
            if changing and (not near or any(near in str(one) for one in given)):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **more)

        return call

    for name in CHANGES:
        real = getattr(os, name)
        setattr(os, name, counted(name, real))
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if real in able:
                able.add(getattr(os, name))  # commands ask what the system can do


def one_pass(root: Path) -> int:
    """Do what a daemon does, once: take the goals, drive every open run until it rests, commit what is owed."""
    workspace, stop, environment = Workspace(root), Stop(), dict(os.environ)
    settings = load_settings(workspace.settings, environment)
    with open_world(workspace, settings, environment, print, stop.wake.set) as world:
        world.committer.look_through(ended_runs(workspace.runs))
        _take(Inbox(workspace, settings, catalogue_of(settings, environment), planner=False))
        while True:
            before = set(open_runs(workspace.runs))
            for folder in sorted(before):
                _drive(folder, settings, world, stop)
            begun = world.take_begun()
            for _, hold in begun:
                hold.close()  # it is driven in the next round
            if not begun and set(open_runs(workspace.runs)) == before:
                break
        while not world.committer.is_idle():
            stop.wake.wait(0.005)
    return 0


def _take(inbox: Inbox) -> None:
    inbox.finish_intakes()
    inbox.bring_back()
    while (found := inbox.look()).complete or found.restless:
        for path in found.complete:
            try:
                with inbox.taking(path):
                    pass
            except StillChanging:
                continue


def _drive(folder: Path, settings: Settings, world: World, stop: Stop) -> None:
    """Drive a run. A program that was just being started holds the lock of a killed driver until it is begun."""
    deadline = time.monotonic() + HELD_SECONDS
    while True:
        with locked(folder) as mine:
            if mine:
                drive(open_driver(folder, world), stop, Quiet())
                return
        assert time.monotonic() < deadline, f"{folder} is held by somebody else"
        stop.wake.wait(0.01)


if __name__ == "__main__":
    serve()
