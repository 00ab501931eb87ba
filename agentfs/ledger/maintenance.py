"""Keep a ledger of many runs fast: packs of what was written file by file, a commit-graph that knows changed paths.

Git does it, when `git gc --auto` would, but for what takes a lock that a killed git would leave behind for ever; and
nothing is deleted that no commit refers to. It has a process group of its own that can be ended at any moment.
Commits go on meanwhile: neither the branch nor the index is locked. A person's lock, rebase or `git gc` is waited
for. Never while something runs that this process knows of. Nothing is remembered: whether it is time is seen from the
files.
"""

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentfs.ledger.branch import UNDERWAY, start_time
from agentfs.ledger.git import BRANCH, Git, LedgerError, end, read_settings
from agentfs.storage.locks import locked
from agentfs.storage.safe_open import read_text
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace, open_runs

LOOSE, PACKS = 6700, 50  # git's own defaults of gc.auto and gc.autoPackLimit
SETTINGS = (
    "core.commitGraph=true",
    "core.fsync=all",  # of what is packed the files are removed
)
GRAPH = ("commit-graph", "write", "--reachable", "--changed-paths", "--no-progress")
PACK = ("repack", "-d", "-l", "-n", "-q")
MERGE = (*PACK, "-a", "-k")  # all packs become one, with what no commit refers to
QUICKLY_DONE = 30_000  # loose objects: some seconds' work
_NICE = 10
_OBJECT = re.compile(r"[0-9a-f]{38}")
Report = Callable[[str, str], None]  # an event, and its words


@dataclass(frozen=True, slots=True)
class Maintained:
    """How it ended: how many objects were packed, in how many seconds, and what git says if it failed."""

    packed: int
    seconds: float
    trouble: str | None

    def __str__(self) -> str:
        if self.trouble is not None:
            return f"the ledger was not maintained: {self.trouble}"
        return f"the ledger was maintained: {self.packed} loose objects packed in {self.seconds:.1f} s"


class Maintenance:
    """Of one `runs/` folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.git = root, root / ".git"

    def due(self) -> bool:
        """Whether `git gc --auto` would have something to do, seen as git sees it: by one folder of 256."""
        limit = _number(read_settings(self.git / "config").get("gc.auto"), LOOSE)
        if limit <= 0:
            return False  # a person has switched it off
        return self._has_many_packs() or len(_objects(self.git / "objects" / "17")) > -(-limit // 256)

    def _has_many_packs(self) -> bool:
        names = _names(self.git / "objects" / "pack")
        packs = sum(name.endswith(".pack") and f"{name[:-5]}.keep" not in names for name in names)
        return 0 < _number(read_settings(self.git / "config").get("gc.autopacklimit"), PACKS) < packs

    def count_loose(self) -> int:
        """Return how many objects are files of their own."""
        return sum(len(_objects(self.git / "objects" / f"{number:02x}")) for number in range(256))

    def do(self, stop: threading.Event) -> Maintained | None:
        """Do it; None if asked to stop before the end. The graph first: after it there is a reason to go on."""
        began, before = time.monotonic(), self.count_loose()
        trouble = self._find_obstacle()
        for words in (GRAPH, MERGE if self._has_many_packs() else PACK) if trouble is None else ():
            failure = self._run(words, stop)
            if stop.is_set():
                return None
            trouble = failure or trouble
        return Maintained(max(0, before - self.count_loose()), time.monotonic() - began, trouble)

    def _run(self, words: tuple[str, ...], stop: threading.Event) -> str | None:
        """Run git; return what it says if it fails."""
        try:
            process = Git(self.root, *SETTINGS).start(*words)
        except LedgerError as why:
            return str(why)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PGRP, process.pid, _NICE)
        try:
            while process.poll() is None and not stop.wait(TIMING.maintain_tick):
                pass  # what it says is a few lines: they wait in the pipe
        finally:
            if process.poll() is None:
                end(process)
        lines = process.communicate()[1].decode("utf-8", "replace").strip().splitlines()
        return (lines[0] if lines else f"git ended with {process.returncode}") if process.returncode else None

    def _find_obstacle(self) -> str | None:
        """Return what of a person's is under way, which is waited for."""
        locks = sorted(name for name in _names(self.git) if name.endswith(".lock"))
        for name in (*locks, f"{BRANCH}.lock", *UNDERWAY):
            if os.path.lexists(self.git / name):
                return f"{self.git / name} exists; it is tried again (if no git command is running, delete that file)"
        return "a `git gc` is under way" if self._has_gc() else None

    def _has_gc(self) -> bool:
        """Whether a person's `git gc` runs: its file names process and machine, and stays behind if it is killed."""
        try:
            pid, _, machine = read_text(self.git / "gc.pid").strip().partition(" ")
        except OSError:
            return False
        return machine != os.uname().nodename or not pid.isdigit() or start_time(int(pid)) is not None


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text) else default


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def _objects(folder: Path) -> list[str]:
    return [name for name in _names(folder) if _OBJECT.fullmatch(name)]


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────


class Upkeep:
    """Maintains the ledger of a daemon, on a thread of its own, while the daemon is idle."""

    def __init__(self, maintenance: Maintenance, report: Report) -> None:
        self._maintenance, self._report = maintenance, report
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._idle_since: float | None = None
        self._not_before, self._pause = 0.0, TIMING.idle_again
        self._last_line = ""

    def tend(self, *, idle: bool) -> None:
        """Begin if it is time, stop if there is something to do. Call this often: it takes no time."""
        now = time.monotonic()
        if not idle:
            self._idle_since = None
            self._stop.set()
            return
        self._idle_since = self._idle_since or now
        if now < max(self._idle_since + TIMING.idle, self._not_before) or self.is_running():
            return
        self._not_before = now + TIMING.idle_look
        if self._maintenance.due():
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._work, args=(self._stop,), name="upkeep", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # there is no room for one more: another time
                self._thread = None

    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self, stop: threading.Event) -> None:
        done = self._maintenance.do(stop)
        useful = done is not None and done.trouble is None and not self._maintenance.due()
        self._pause = TIMING.idle_again if useful else 2 * self._pause
        self._not_before = time.monotonic() + self._pause
        if done and str(done) != self._last_line:
            self._last_line = str(done)
            self._report("maintained" if done.trouble is None else "trouble", str(done))


def maintain_after_run(workspace: Workspace, say: Callable[[str], None]) -> None:
    """Do what is due, as git does after a commit: if it is quickly done, and no other process is at work."""
    maintenance = Maintenance(workspace.runs)
    if not maintenance.due() or not _is_quiet(workspace):
        return
    if (loose := maintenance.count_loose()) > QUICKLY_DONE:
        say(f"the ledger has {loose} loose objects: `agentfs watch` packs them when it is idle, or: git -C runs gc")
        return
    sys.stdout.flush()  # the waiting process has the answer now
    stop = threading.Event()
    timer = threading.Timer(TIMING.maintain_after_run, stop.set)
    timer.start()
    try:
        done = maintenance.do(stop)
    except KeyboardInterrupt:  # the run is over: there is nothing else to interrupt
        return
    finally:
        timer.cancel()
    if done:
        say(str(done))


def _is_quiet(workspace: Workspace) -> bool:
    """Whether no process watches goals/ or drives a run."""
    for folder in filter(Path.is_dir, (workspace.root / "goals", *open_runs(workspace.runs))):
        try:
            with locked(folder, workspace.runs) as is_free:
                if not is_free:
                    return False
        except OSError:
            return False
    return True
