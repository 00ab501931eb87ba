"""Keep a ledger of many runs fast: packs of what was written file by file, a commit-graph that knows changed paths.

Git does it: what `git gc --auto` does, but for what takes a lock that a killed git would leave behind for ever. It
has a process group of its own that can be ended at any moment: until git has finished nothing is taken away, and what
is unreachable stays for git's own two weeks. Commits go on meanwhile: neither the branch nor the index is locked. A
person's lock, rebase or `git gc` is waited for. Nothing is remembered: whether it is time is seen from the files.
"""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from agentfs.installation import find_program
from agentfs.ledger.claims import start_time
from agentfs.ledger.identity import settings
from agentfs.ledger.index import UNDERWAY
from agentfs.ledger.program import command, environment
from agentfs.ledger.refs import BRANCH
from agentfs.storage.safe_open import read_text

LOOSE, PACKS = 6700, 50  # git's own defaults of gc.auto and gc.autoPackLimit
_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.02
_NICE = 10
_OBJECT = re.compile(r"[0-9a-f]{38}")
_HOOK = "gc.recentobjectshook"  # the one setting by which a repository makes `git gc` run a program of its choice
SETTINGS = (
    "core.commitGraph=true",
    "core.fsync=all",  # of what is packed the files are removed
)
GRAPH = ("commit-graph", "write", "--reachable", "--changed-paths", "--no-progress")
PACK = ("repack", "-d", "-l", "-n", "-q")
MERGE = (*PACK, "-A", "--unpack-unreachable=2.weeks.ago")
PRUNE = ("prune", "--expire=2.weeks.ago")


@dataclass(frozen=True, slots=True)
class Done:
    """How it ended: how many objects were packed, in how many seconds, and what git said if it failed."""

    packed: int
    seconds: float
    trouble: str | None


class Maintenance:
    """Of one `runs/` folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.git = root, root / ".git"

    def due(self) -> bool:
        """Whether `git gc --auto` would have something to do, seen as git sees it: by one folder of 256."""
        limit = _number(settings(self.git / "config").get("gc.auto"), LOOSE)
        if limit <= 0:
            return False  # a person has switched it off
        return len(_objects(self.git / "objects" / "17")) > -(-limit // 256) or self._has_many_packs()

    def loose(self) -> int:
        """Return how many objects are files of their own."""
        return sum(len(_objects(self.git / "objects" / f"{number:02x}")) for number in range(256))

    def do(self, stop: threading.Event) -> Done | None:
        """Do it; None if there is no git, or if asked to stop before the end."""
        program = find_program("git")
        if program is None:
            return None
        began, before = time.monotonic(), self.loose()
        trouble = self._standing() or self._planted(program)
        for words in self._words() if trouble is None else ():
            said = self._run(command(program, *words, settings=SETTINGS), stop)
            if stop.is_set():
                return None
            trouble = said or trouble
        return Done(max(0, before - self.loose()), time.monotonic() - began, trouble)

    def _run(self, line: list[str], stop: threading.Event) -> str | None:
        """Run git; return what it said if it failed."""
        with tempfile.TemporaryFile() as said:
            try:
                popen = subprocess.Popen(
                    line,
                    env=environment(self.root),
                    cwd=self.root,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
            except OSError as error:
                return f"git cannot be started: {error.strerror}"
            _see_out(popen, stop)
            said.seek(0)
            lines = said.read(4096).decode("utf-8", "replace").strip().splitlines()
        return (lines[0] if lines else f"git ended with {popen.returncode}") if popen.returncode else None

    def _words(self) -> tuple[tuple[str, ...], ...]:
        """Return what git is told. The graph is first: ended after it, there is still a reason to go on next time."""
        return (GRAPH, MERGE, PRUNE) if self._has_many_packs() else (GRAPH, PACK)

    def _has_many_packs(self) -> bool:
        names = _names(self.git / "objects" / "pack")
        packs = sum(name.endswith(".pack") and f"{name[:-5]}.keep" not in names for name in names)
        return 0 < _number(settings(self.git / "config").get("gc.autopacklimit"), PACKS) < packs

    def _standing(self) -> str | None:
        """Return what of a person's is under way, which is waited for."""
        locks = sorted(name for name in _names(self.git) if name.endswith(".lock"))
        for name in (*locks, f"{BRANCH}.lock", *UNDERWAY):
            if os.path.lexists(self.git / name):
                return (
                    f"{self.git / name} stands; it is tried again (if no git command is under way, delete that file)"
                )
        return "a `git gc` is under way" if self._has_gc() else None

    def _has_gc(self) -> bool:
        """Whether a person's `git gc` runs: its file names process and machine, and stays behind if it is killed."""
        try:
            pid, _, machine = read_text(self.git / "gc.pid").strip().partition(" ")
        except OSError:
            return False
        return machine != os.uname().nodename or not pid.isdigit() or start_time(int(pid)) is not None

    def _planted(self, program: str) -> str | None:
        """Return why git is not run at all: a setting names a program that it would start."""
        asked = command(program, "config", "--get-all", _HOOK)
        try:
            found = subprocess.run(
                asked, env=environment(self.root), cwd=self.root, capture_output=True, check=False, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return "git does not answer"
        if found.returncode == 0:
            return f"{_HOOK} in runs/.git/config names a program, and agentfs runs none (do it: git -C runs gc)"
        return None if found.returncode == 1 else "runs/.git/config does not read (`git -C runs config -l` says more)"


def _see_out(popen: "subprocess.Popen[bytes]", stop: threading.Event) -> None:
    """Wait for the end of a process, or end it when asked to stop."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, popen.pid, _NICE)
    try:
        while popen.poll() is None:
            if stop.wait(_LOOK_SECONDS):
                break
    finally:
        if popen.poll() is None:
            _end(popen)


def _end(popen: "subprocess.Popen[bytes]") -> None:
    """End a process group: git removes its own locks if it is asked; killed, only if it does not listen."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(_STOP_SECONDS)
            return


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text) else default


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def _objects(folder: Path) -> list[str]:
    return [name for name in _names(folder) if _OBJECT.fullmatch(name)]
