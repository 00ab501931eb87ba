"""From the rename of a goal into goals/ until its first order is there: alone, and with fifty runs active.

    python benchmarks/drop_latency.py [GOALS]

0.3 s of it is the rule that a goal must have held still. Goals are dropped one after the other, at moments that fall
anywhere in the daemon's rounds. Active are runs with an attempt under way, each a chain of steps of some seconds in
the sandbox; then runs of steps that do nothing, which ask for as many turns as they can get.
"""

import os
import random
import sys
import time

from measuring import Step, chain, verdict, workspace
from watching import Daemon, watching

ACTIVE = 50
PLACES = str(ACTIVE + 14)  # a goal that had to wait for a place would measure the others' steps
ENOUGH = 2500  # steps: more than are done before the last goal is dropped


def main(count: int) -> bool:
    with workspace() as root, watching(root) as daemon:
        alone = latencies(daemon, count)
    told("nothing else to do", alone)
    fine = verdict("p50, nothing else to do", share(alone, 50), 0.45, at_most=True, unit=" s")
    for words, steps in ((f"{ACTIVE} runs of 3 s steps", sleeps()), (f"{ACTIVE} runs of empty steps", chain(ENOUGH))):
        with workspace() as root, watching(root, AGENTFS_LIMITS_PARALLEL=PLACES) as daemon:
            beside = latencies_beside(daemon, count, steps)
        told(words, beside)
        fine &= verdict(f"p99, {words}", share(beside, 99), 1.0, at_most=True, unit=" s")
    return fine


def sleeps() -> list[Step]:
    return [
        {"id": f"s{n}", "tool": "shell", "input": {"command": "sleep 3"}, "depends_on": [f"s{n - 1}"] if n else []}
        for n in range(100)
    ]


def latencies_beside(daemon: Daemon, count: int, steps: list[Step]) -> list[float]:
    for number in range(ACTIVE):
        daemon.drop(f"busy-{number}", steps)
    daemon.find("busy-*/steps/s0.1.log.jsonl", ACTIVE)
    taken = latencies(daemon, count)
    ended = daemon.find("busy-*/outcome.json", 0)
    assert not ended, f"{len(ended)} of the runs that should be active have ended"
    return taken


def latencies(daemon: Daemon, count: int) -> list[float]:
    """Return the seconds of each goal, the least first."""
    random.seed(0)
    taken = []
    for number in range(count):
        time.sleep(random.uniform(0.0, 0.3))  # noqa: S311 - not a secret
        dropped = daemon.drop(f"goal-{number}", chain(1))
        (order,) = daemon.find(f"goal-{number}/steps/s0.1.json")
        taken.append((os.stat(order).st_ctime_ns - dropped) / 1e9)
    return sorted(taken)


def share(taken: list[float], percent: int) -> float:
    """Return the value that so many percent do not exceed."""
    return taken[min(len(taken) - 1, len(taken) * percent // 100)]


def told(words: str, taken: list[float]) -> None:
    figures = "   ".join(f"{name} {share(taken, p):.3f} s" for name, p in (("p50", 50), ("p90", 90), ("p99", 99)))
    print(f"from drop to first order, {len(taken)} goals, {words}\n  least {taken[0]:.3f} s   {figures}")


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
