"""A workspace with ten thousand finished runs: what `agentfs watch` costs while it has nothing to do, and `status`.

    python benchmarks/daemon_at_size.py [RUNS]

Processor time is the daemon's own and that of what it starts, over a while in which nothing happens.
"""

import os
import subprocess
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
        looks = [status(root) for _ in range(ROUNDS)]
    print(f"{runs} finished runs")
    fine = verdict("start-up until it watches", min(starts), 5.0, at_most=True, unit=" s")
    fine &= verdict("idle, of one core", share * 100, 1.0, at_most=True, unit="%")
    fine &= verdict("memory, at most", memory, 150.0, at_most=True, unit=" MB")
    return verdict("agentfs status", min(looks), 0.5, at_most=True, unit=" s") and fine


def aged(root: Path) -> None:
    """Let the runs have ended long before the ledger was written last, as they would have."""
    before = time.time() - 86_400
    for path in root.glob("runs/2*/*/outcome.json"):
        os.utime(path, (before, before))


def idle(daemon: Daemon) -> float:
    """Return which share of a core it uses while nothing happens."""
    time.sleep(SETTLING)
    before = daemon.cpu()
    time.sleep(IDLE)
    return (daemon.cpu() - before) / IDLE


def status(root: Path) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "agentfs", "status"], cwd=root, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
