"""`on_wait` and `on_end`: a person's own commands, run once for each thing that a run waits with, and for each end.

What one was run for is in the run's `on_wait.log.jsonl` or `on_end.log.jsonl`, written before it starts: the next
driver reads it there. The commands run one after the other on a thread of their own and hold nobody up.
"""

import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.actions import Action
from agentfs.core.attention import Waiting, list_waiting
from agentfs.core.config import ON_END_VARIABLES, ON_WAIT_VARIABLES
from agentfs.core.excerpts import telling_line
from agentfs.core.mask import Mask
from agentfs.core.paths import run_id
from agentfs.core.records import Outcome
from agentfs.core.run_state import RunState
from agentfs.core.text import cut, first_line, inert
from agentfs.storage.clock import Clock
from agentfs.storage.files import JsonLines, read_lines, read_whole
from agentfs.storage.locks import locked
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING

OUTPUT_BYTES = 2000  # that are kept of what it printed
WIDTH = 200
Say = Callable[[str], None]


Notify = Callable[[RunState, Sequence[Action]], None]  # called after every turn


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that a command is run for: its name, what the log says of it, and the variables of the command."""

    thing: str
    about: Mapping[str, Any]
    environment: Mapping[str, str]


@dataclass(slots=True)
class Notifier:
    """A command of one process, and the thread that runs it."""

    command: str | Sequence[str]
    workspace: Path
    environment: Mapping[str, str]
    say: Say
    mask: Mask
    clock: Clock
    name: str = "on_wait"
    log: str = paths.ON_WAIT_LOG
    timeout: float = TIMING.on_wait
    _orders: "queue.SimpleQueue[tuple[Path, Notice]]" = field(default_factory=queue.SimpleQueue)
    _open: int = 0  # that were begun
    _done: int = 0  # and have ended
    _lock: threading.Lock = field(default_factory=threading.Lock)  # runs may order at the same time
    _thread: threading.Thread | None = None

    def of_run(self, folder: Path) -> Notify:
        """Return what is called after every turn of one run."""
        known: set[str] = set()  # what it was run for: read from the log, once there is something to run it for

        def look(state: RunState, actions: Sequence[Action]) -> None:
            for thing in list_waiting(state, actions[-1]):
                if not known:
                    known.update(name for line in read_lines(folder / self.log) for name in _names(line))
                names = {thing.thing, *thing.others}
                if known.isdisjoint(names) and self.order(folder, _waiting_notice(folder, thing)):
                    known.update(names)

        return look

    def order(self, folder: Path, notice: Notice) -> bool:
        """Have the command run; False: it cannot be written down, so it is tried again at the next turn."""
        try:
            self._begin()
            self.write(folder, "begins", {"thing": notice.thing, **notice.about})
        except (OSError, RuntimeError):
            return False
        with self._lock:
            self._open += 1
            self._orders.put((folder, notice))
        return True

    def _begin(self) -> None:
        """Start the thread; raises RuntimeError where there is no room for one."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run_all, name=self.name, daemon=True)
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """Give what has begun a moment to end."""
        end = time.monotonic() + TIMING.on_wait_linger
        while self._done < self._open and time.monotonic() < end:
            time.sleep(TIMING.poll)

    def _run_all(self) -> None:
        while True:
            folder, notice = self._orders.get()
            began = time.monotonic()
            trouble, output = self._run(notice)
            seconds = round(time.monotonic() - began, 3)
            about = {"thing": notice.thing, "trouble": trouble, "seconds": seconds, "output": output}
            with suppress(OSError):  # the run may have been moved or deleted meanwhile
                self.write(folder, "ended", about)
            if trouble:
                printed = inert(telling_line(self.mask.text(output)))
                doing = "waits" if self.name == "on_wait" else "has ended"
                self.say(
                    cut(f"{self.name} {trouble}{f': {printed}' if printed else ''} ({run_id(folder)} {doing})", WIDTH)
                )
            self._done += 1

    def _run(self, notice: Notice) -> tuple[str | None, str]:
        """Run the command to its end; return what went wrong with it, and the end of what it printed."""
        shell = isinstance(self.command, str)
        with tempfile.TemporaryFile() as output:  # not a pipe: it may outlive us
            try:
                process = Starter().start(
                    lambda: subprocess.Popen(
                        self.command,
                        shell=shell,
                        cwd=self.workspace,
                        env={**self.environment, **notice.environment},
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

    def write(self, folder: Path, event: str, about: dict[str, Any]) -> None:
        """Append a line to the log of what the command is run for."""
        with JsonLines(folder / self.log, self.mask, self.clock) as log:
            log.write(event, about)


def _waiting_notice(folder: Path, thing: Waiting) -> Notice:
    values = (run_id(folder), thing.what, str(folder / thing.file), first_line(thing.why), thing.how)
    about: dict[str, Any] = {"what": thing.what, "file": thing.file, "why": thing.why}
    if thing.others:
        about["others"] = [*thing.others]
    return Notice(thing.thing, about, dict(zip(ON_WAIT_VARIABLES, values, strict=True)))


def _names(line: Mapping[str, Any]) -> list[str]:
    """Return the things that a line of the log speaks of."""
    others = line.get("others")
    return [str(line.get("thing")), *map(str, others if isinstance(others, list) else ())]


# ── on_end ────────────────────────────────────────────────────────────────────────────────────────────────


class EndNotifier:
    """Runs `on_end` at most once for each outcome; what a driver that died left out is made up for.

    The log says that an end is coming before the outcome is written, and that the command begins before it starts. An
    end that is only announced is made up for by the next `watch`; one that has begun never is.
    """

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self.close = notifier.close

    def expect(self, folder: Path, outcome: Outcome) -> None:
        """Announce an end, before its outcome is written."""
        with suppress(OSError):
            self._notifier.write(folder, "ending", {"thing": outcome.ended_at})

    def ended(self, folder: Path, outcome: Outcome) -> None:
        """Have the command run for an outcome, unless it was."""
        if outcome.ended_at not in self._things(folder, "begins"):
            self._notifier.order(folder, _end_notice(folder, outcome))

    def make_up(self, folders: Iterable[Path]) -> None:
        """Have the command run for the ends that were announced, and that nobody drives any more."""
        for folder in folders:
            if not os.path.lexists(folder / self._notifier.log):
                continue
            if not self._things(folder, "ending") - self._things(folder, "begins"):
                continue
            with suppress(OSError, ValueError), locked(folder) as mine:
                outcome = Outcome.model_validate_json(read_whole(folder / paths.OUTCOME)) if mine else None
                if outcome and outcome.ended_at in self._things(folder, "ending"):
                    self.ended(folder, outcome)

    def _things(self, folder: Path, event: str) -> set[str]:
        lines = read_lines(folder / self._notifier.log)
        return {str(line.get("thing")) for line in lines if line.get("event") == event}


def _end_notice(folder: Path, outcome: Outcome) -> Notice:
    values = (run_id(folder), outcome.status, outcome.reason, first_line(outcome.summary))
    about = {"status": outcome.status, "why": outcome.reason}
    return Notice(outcome.ended_at, about, dict(zip(ON_END_VARIABLES, values, strict=True)))


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
