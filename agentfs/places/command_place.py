"""A place behind a command: `docker run -i … agentfs attempt`, `ssh host agentfs attempt`, `srun …`."""

import collections
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from agentfs.places.channel import Closed, Message, PipeChannel
from agentfs.storage.starting import Starter
from agentfs.storage.timing import TIMING

KEPT_LINES = 20  # of what the command writes to its standard error


class CommandLine(PipeChannel):
    """The line to one process; closing it ends the process, and with that the attempt."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("a place is talked to over pipes")
        self._process, self._said = process, collections.deque[str](maxlen=KEPT_LINES)
        self._listener = threading.Thread(target=self._listen, args=(process.stderr,), daemon=True)
        self._listener.start()
        super().__init__(process.stdout, process.stdin, self._why)

    def _listen(self, stderr: IO[bytes]) -> None:
        with stderr:
            for line in stderr:
                if text := line.decode("utf-8", "replace").strip():
                    self._said.append(text[:500])

    def _why(self) -> str:
        """Return why the process is gone, in the last words it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(TIMING.grace)
            self._listener.join(TIMING.grace)
            return f"the command ended with {code}" + (f": {self._said[-1]}" if self._said else "")
        return "the command closed its output"

    def has_another(self) -> bool:
        return False

    def close(self) -> None:
        """End the command: by closing its input, then by signals to its process group."""
        with contextlib.suppress(OSError):  # what was not sent yet
            self._outgoing.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                if number is not None:
                    os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TIMING.grace)
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it left behind
        self._process.wait()
        self._reader.join(TIMING.grace)
        self._listener.join(TIMING.grace)


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Starts one process per attempt."""

    name: str
    command: Sequence[str]
    slots: int
    environment: Mapping[str, str]
    starter: Starter

    def workers(self) -> Sequence[str]:
        return ()

    def start(self, message: Message, worker: str | None = None) -> CommandLine:  # noqa: ARG002 - there is but one
        def begin() -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environment),
                start_new_session=True,
            )

        try:
            line = CommandLine(self.starter.start(begin))
        except OSError as error:
            raise Closed(f"{self.command[0]}: {error.strerror}") from None
        try:
            line.send(message)
        except Closed:
            line.close()
            raise
        return line

    def close(self) -> None:
        """Nothing outlives its attempt."""
