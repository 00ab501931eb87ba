"""`agentfs watch` for the benchmarks: started, measured from outside, stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import Step

DEADLINE = 600.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Daemon:
    """A daemon that is watching."""

    root: Path
    pid: int
    startup: float  # seconds from its start until it said that it watches

    def drop(self, name: str, steps: list[Step], **fields: Any) -> int:
        """Rename a goal into goals/, as `mv` does; return when, in nanoseconds since the epoch."""
        beside = self.root / f".{name}.tmp"
        beside.write_text(json.dumps({"goal": name, "steps": steps, **fields}))
        moment = time.time_ns()
        os.rename(beside, self.root / "goals" / f"{name}.json")
        return moment

    def find(self, pattern: str, count: int = 1) -> list[Path]:
        """Wait until there are this many such files below the day's folders."""
        end = time.monotonic() + DEADLINE
        while len(found := list(self.root.glob(f"runs/2*/{pattern}"))) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(found)} of {count} {pattern}")
            time.sleep(0.05)
        return found

    def cpu(self) -> float:
        """Return the seconds of processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> float:
        """Return the most memory it has held, in MB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


@contextmanager
def watching(root: Path, **settings: str) -> Iterator[Daemon]:
    """Yield a daemon of this workspace; it is ended afterwards, with whatever it runs."""
    log = root.parent / "watch.txt"
    command = [sys.executable, "-m", "agentfs", "watch"]
    environment = {**os.environ, **settings}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # with compiled bytecode, as an installed program has it
    with log.open("wb") as told:
        began = time.perf_counter()
        popen = subprocess.Popen(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=told, stderr=told
        )
    try:
        while b"drop goals into" not in log.read_bytes():
            if popen.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.005)
        yield Daemon(root, popen.pid, time.perf_counter() - began)
    finally:
        popen.send_signal(signal.SIGTERM)
        popen.wait(60)
