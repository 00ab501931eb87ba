"""A workspace with ten thousand finished runs: what `agentfs watch` costs there while it has nothing to do.

    python benchmarks/daemon_at_size.py [RUNS]

Processor time is the daemon's own, over a while in which nothing happens. (`agentfs status` there: `many_runs.py`.)
"""

import os
import sys
import time
from pathlib import Path

from many import finished_runs
from measuring import verdict, workspace
from watching import Daemon, watching

SETTLING, IDLE = 5.0, 20.0  # seconds
ROUNDS = 3


def main(runs: int) -> bool:
    with workspace() as root:
        finished_runs(root, runs)
        aged(root)
        starts, memory, share = [], 0.0, 1.0
        for _ in range(ROUNDS):
            with watching(root) as daemon:
                starts.append(daemon.startup)
                share = min(share, idle(daemon))
                memory = max(memory, daemon.memory())
    print(f"{runs} finished runs")
    fine = verdict("start-up until it watches", min(starts), 5.0, at_most=True, unit=" s")
    fine &= verdict("idle, of one core", share * 100, 1.0, at_most=True, unit="%")
    return verdict("memory", memory, 150.0, at_most=True, unit=" MB") and fine


def aged(root: Path) -> None:
    """Let the outcomes be the last of their runs' files, and the ledger younger than all of them, as ever."""
    for path in root.glob("runs/2*/*/outcome.json"):
        os.utime(path)
    later = time.time() + 3600
    os.utime(root / "runs" / ".git" / "refs" / "heads" / "main", (later, later))


def idle(daemon: Daemon) -> float:
    """Return which share of a core it uses while nothing happens."""
    time.sleep(SETTLING)
    before = daemon.cpu()
    time.sleep(IDLE)
    return (daemon.cpu() - before) / IDLE


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
