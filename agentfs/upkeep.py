"""When the ledger is maintained: by a daemon that has nothing to do, or after a run, if it is quickly done.

Never while something runs that this process knows of. It ends as soon as there is something to do.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agentfs.ledger import Maintenance
from agentfs.ledger.maintenance import Done
from agentfs.storage.locks import locked
from agentfs.storage.run_folders import open_runs
from agentfs.workspace import Workspace

QUIET_SECONDS = 10.0  # with nothing to do, before it begins
LOOK_SECONDS = 60.0  # until it is seen again whether there is something to do
AGAIN_SECONDS = 300.0  # until it is tried again; each time it was of no use, twice as long
PATIENCE_SECONDS = 10.0  # after a run
QUICKLY_DONE = 30_000  # loose objects: some seconds' work
Tell = Callable[[str, str], None]  # an event, and its words


class Upkeep:
    """Maintains the ledger of a daemon, on a thread of its own, while the daemon is idle."""

    def __init__(self, maintenance: Maintenance, tell: Tell) -> None:
        self._maintenance, self._tell = maintenance, tell
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._idle_since: float | None = None
        self._not_before, self._pause = 0.0, AGAIN_SECONDS
        self._told = ""

    def tend(self, *, idle: bool) -> None:
        """Begin if it is time, stop if there is something to do. Call this often: it takes no time."""
        now = time.monotonic()
        if not idle:
            self._idle_since = None
            self._stop.set()
            return
        self._idle_since = self._idle_since or now
        if now < max(self._idle_since + QUIET_SECONDS, self._not_before) or self.is_running():
            return
        self._not_before = now + LOOK_SECONDS
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
        self._pause = AGAIN_SECONDS if useful else 2 * self._pause
        self._not_before = time.monotonic() + self._pause
        if done and (line := words(done)) != self._told:
            self._told = line
            self._tell("maintained" if done.trouble is None else "trouble", line)


def words(done: Done) -> str:
    """Return what was done, in a line."""
    if done.trouble is not None:
        return f"the ledger was not maintained: {done.trouble}"
    return f"the ledger was maintained: {done.packed} loose objects packed in {done.seconds:.1f} s"


def maintain_after_run(workspace: Workspace, say: Callable[[str], None]) -> None:
    """Do what is due, as git does after a commit: if it is quickly done, and nobody else is at work."""
    maintenance = Maintenance(workspace.runs)
    if not maintenance.due() or not _is_quiet(workspace):
        return
    if (loose := maintenance.loose()) > QUICKLY_DONE:
        say(f"the ledger has {loose} loose objects: `agentfs watch` packs them when it is idle, or: git -C runs gc")
        return
    sys.stdout.flush()  # whoever waits for the answer has it now
    stop = threading.Event()
    timer = threading.Timer(PATIENCE_SECONDS, stop.set)
    timer.start()
    try:
        done = maintenance.do(stop)
    except KeyboardInterrupt:  # the run is over: there is nothing else to interrupt
        return
    finally:
        timer.cancel()
    if done:
        say(words(done))


def _is_quiet(workspace: Workspace) -> bool:
    """Whether nobody watches goals/ or drives a run."""
    folders = [workspace.root / "goals", *open_runs(workspace.runs)]
    return all(_is_free(folder, workspace.runs) for folder in folders if folder.is_dir())


def _is_free(folder: Path, runs: Path) -> bool:
    try:
        with locked(folder, runs) as mine:
            return mine
    except OSError:
        return False
