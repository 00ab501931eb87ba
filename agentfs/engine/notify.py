"""`on_wait`: a person's own command, run once for each thing that a run waits for them with.

Which things it was run for stands in the run's `on_wait.log.jsonl`, written before it starts: whoever drives the run
next reads it there. The commands run one after the other on a thread of their own and hold nobody up.
"""

import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.attention import Waiting, waiting
from agentfs.core.config import TOLD_ON_WAIT
from agentfs.core.decide import Action
from agentfs.core.excerpts import telling_line
from agentfs.core.mask import Mask
from agentfs.core.run_state import RunState
from agentfs.core.text import cut, first_line, inert
from agentfs.storage.clock import Clock
from agentfs.storage.jsonl import JsonLines, read_lines
from agentfs.storage.starting import Starter

TIMEOUT_SECONDS = 60.0
LINGER_SECONDS = 2.0  # at the end of the process: what takes longer runs on by itself
OUTPUT_BYTES = 2000  # that are kept of what it printed
WIDTH = 200
Say = Callable[[str], None]


RunBell = Callable[[RunState, Sequence[Action]], None]  # told of every turn


def no_bell(_folder: Path) -> RunBell:
    """Return the bell of a run where there is no command."""
    return lambda _state, _actions: None


@dataclass(slots=True)
class Bell:
    """The command of one process, and the thread that runs it."""

    command: str | Sequence[str]
    workspace: Path
    environment: Mapping[str, str]
    say: Say
    mask: Mask
    clock: Clock
    timeout: float = TIMEOUT_SECONDS
    _orders: "queue.SimpleQueue[tuple[Path, Waiting]]" = field(default_factory=queue.SimpleQueue)
    _open: int = 0  # that were begun
    _done: int = 0  # and have ended
    _one: threading.Lock = field(default_factory=threading.Lock)  # runs may ring at the same time
    _thread: threading.Thread | None = None

    def of_run(self, folder: Path) -> RunBell:
        """Return what is told of every turn of one run."""
        told: set[str] = set()  # read from the log, once there is something to tell

        def look(state: RunState, actions: Sequence[Action]) -> None:
            for thing in waiting(state, actions[-1]):
                if not told:
                    told.update(str(line.get("thing")) for line in read_lines(folder / paths.ON_WAIT_LOG))
                if thing.thing not in told and self._ring(folder, thing):
                    told.add(thing.thing)

        return look

    def _ring(self, folder: Path, thing: Waiting) -> bool:
        """Have the command run; False: it cannot be written down, so it is tried again at the next turn."""
        about = {"thing": thing.thing, "what": thing.what, "file": thing.file, "why": thing.why}
        try:
            self._begin()
            self._log(folder, "begins", about)
        except (OSError, RuntimeError):
            return False
        with self._one:
            self._open += 1
            self._orders.put((folder, thing))
        return True

    def _begin(self) -> None:
        """Start the thread; raises RuntimeError where there is no room for one."""
        with self._one:
            if self._thread is None:
                thread = threading.Thread(target=self._run_all, name="on_wait", daemon=True)
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """Give what has begun a moment to end."""
        end = time.monotonic() + LINGER_SECONDS
        while self._done < self._open and time.monotonic() < end:
            time.sleep(0.01)

    def _run_all(self) -> None:
        while True:
            folder, thing = self._orders.get()
            began = time.monotonic()
            trouble, output = self._run(folder, thing)
            seconds = round(time.monotonic() - began, 3)
            about = {"thing": thing.thing, "trouble": trouble, "seconds": seconds, "output": output}
            with suppress(OSError):  # the run may have been moved or deleted meanwhile
                self._log(folder, "ended", about)
            if trouble:
                said = inert(telling_line(self.mask.text(output)))
                self.say(cut(f"on_wait {trouble}{f': {said}' if said else ''} ({_run_id(folder)} waits)", WIDTH))
            self._done += 1

    def _run(self, folder: Path, thing: Waiting) -> tuple[str | None, str]:
        """Run the command to its end; return what went wrong with it, and the end of what it printed."""
        shell = isinstance(self.command, str)
        with tempfile.TemporaryFile() as output:  # not a pipe: it may outlive us
            try:
                process = Starter().start(
                    lambda: subprocess.Popen(
                        self.command,
                        shell=shell,
                        cwd=self.workspace,
                        env=self._environment(folder, thing),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
            except (OSError, ValueError) as error:
                return f"cannot be started ({error})", ""
            trouble = _wait(process, self.timeout)
            return trouble, _end_of(output)

    def _environment(self, folder: Path, thing: Waiting) -> dict[str, str]:
        told = (_run_id(folder), thing.what, str(folder / thing.file), first_line(thing.why), thing.how)
        return {**self.environment, **dict(zip(TOLD_ON_WAIT, told, strict=True))}

    def _log(self, folder: Path, event: str, about: dict[str, Any]) -> None:
        with JsonLines(folder / paths.ON_WAIT_LOG, self.mask, self.clock) as log:
            log.write(event, about)


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> str | None:
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"was ended after {seconds:g} s"
    return f"exited with {code}" if code else None


def _end_of(output: Any) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - OUTPUT_BYTES))
    text: str = output.read().decode("utf-8", "replace")
    return text


def _run_id(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"
