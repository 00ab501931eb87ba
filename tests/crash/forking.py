"""Forks of the warm process do the work: a start costs milliseconds, and so a death.

`words` are a command; without words it is one pass of a daemon over everything there is to do. `cut`: the child kills
itself before that many changes of the disk; of those only whose path has `near` in it.
"""

import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace, ended_runs, load_settings, open_runs
from tests import warm
from tests.drives import Quiet
from tests.workspaces import Place

CHANGES = ("open", "write", "fsync", "link", "rename", "replace", "unlink", "mkdir", "rmdir", "utime")
UNEXPECTED = 70
HELD_SECONDS = 10.0


class Forks:
    """The parent's side."""

    def run(
        self, root: Path, env: Mapping[str, str], *words: str, cut: int | None = None, near: str = ""
    ) -> tuple[int, str]:
        """Let a child do something; return how it ended (-9: it was cut off), and its output."""
        given = {"root": str(root), "words": words, "cut": cut, "near": near}
        with open(root.parent / "output", "w+b") as output, open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), output.fileno(), output.fileno())
            code = warm.Command(words, root, env, streams, instead=f"{__name__}:carry_out", given=given).wait()
            output.seek(0)
            return code, output.read().decode("utf-8", "replace")

    def command(self, place: Place, *words: str) -> int:
        """Run a command of a place to its end; return its exit code."""
        code, output = self.run(place.root, place.env, *words)
        assert "Traceback" not in output, output
        return code


# ── the child's side ──────────────────────────────────────────────────────────────────────────────────────


def _hurry() -> None:
    """Wait for nobody: no other process writes here."""
    quick = replace(TIMING, complete=0.0, restless=0.001, commit_pause=0.0)
    for module in (completeness, driving, committer):
        module.__dict__["TIMING"] = quick


def carry_out(given: dict[str, Any]) -> int:
    """Do what was asked for, in a process of its own."""
    _hurry()
    if given["cut"] is not None:
        _die_after(given["cut"], given["near"])
    try:
        return command(given["words"]) if given["words"] else one_pass(Path(given["root"]))
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:  # noqa: BLE001 - whatever it is, it is reported
        traceback.print_exc()
        return UNEXPECTED


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
        assert time.monotonic() < deadline, f"{folder} is held by another process"
        stop.wake.wait(0.01)
