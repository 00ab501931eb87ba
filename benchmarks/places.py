"""500 attempts of 100 ms on a Dask cluster of four worker processes, beside bare Dask with the same work.

    python benchmarks/places.py [ROUNDS] [ATTEMPTS]

The work is `sh -c "sleep 0.1"`: as the task of bare Dask (a process, no sandbox, no record), as a step on the
cluster, and as a step here with as many at once; each once before it counts, so that all is imported. Then a chain,
one attempt after the other, there and here: what one more attempt costs. And steps that do nothing, as many as the
driver can handle, in one run and as goals of one step each: what saturates first.
"""

import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measuring import Ran, Step, ratios, rounds, run_steps, tell, verdict, workspace
from watching import watching

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")

WORKERS, SECONDS, CHAIN = 4, 0.1, 30


def main(count: int, attempts: int) -> bool:
    from tests.clusters import Cluster

    with tempfile.TemporaryDirectory(prefix="agentfs-bench-") as folder:
        cluster, numbers = Cluster(Path(folder)), itertools.count()
        try:
            cluster.start(WORKERS)
            limits = f"[limits]\nparallel = {WORKERS}\nsteps = 2000\n"
            with workspace(cluster.settings(slots=2 * WORKERS) + limits) as root, bare(cluster.address) as map_bare:

                def run(place: str | None, command: str, steps: int, *, chained: bool = False) -> Ran:
                    return run_steps(root, plan(steps, command, place, chained=chained), f"job-{next(numbers)}")

                nap = f"sleep {SECONDS}"
                map_bare(4 * WORKERS)
                run("cluster", nap, 4 * WORKERS)
                taken = rounds(
                    count,
                    {
                        "bare Dask": lambda: map_bare(attempts),
                        "agentfs on that cluster": lambda: run("cluster", nap, attempts).seconds,
                        "agentfs here": lambda: run(None, nap, attempts).seconds,
                        "chain there": lambda: run("cluster", "true", CHAIN, chained=True).per_step,
                        "chain here": lambda: run(None, "true", CHAIN, chained=True).per_step,
                        "nothing, on that cluster": lambda: run("cluster", "true", attempts).seconds,
                        "goals of one such step": lambda: drop_goals(root, attempts, f"goal-{next(numbers)}"),
                    },
                )
        finally:
            cluster.close()
    return report(taken, attempts)


def report(taken: dict[str, list[float]], attempts: int) -> bool:
    print(f"{attempts} attempts of {SECONDS * 1000:g} ms, {WORKERS} worker processes")
    for name, values in taken.items():
        tell(name, [value * 1000 for value in values])
    middle = {name: statistics.median(values) for name, values in taken.items()}
    more = (middle["chain there"] - middle["chain here"]) * 1000
    print(f"         one attempt more, there than here: {more:.1f} ms (median)")
    print(f"         attempts a second that do nothing: {attempts / middle['nothing, on that cluster']:.1f} (median)")
    print(
        f"         goals a second of one such step each: {attempts / middle['goals of one such step']:.1f} (median)"
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"         processor time of all agentfs drivers: {used.ru_utime + used.ru_stime:.1f} s")
    pairs = zip(taken["bare Dask"], taken["agentfs on that cluster"], strict=True)
    share = statistics.median(100 * bare / ours for bare, ours in pairs)
    best = 100 * ratios(taken["bare Dask"], taken["agentfs on that cluster"])
    print(f"         of bare Dask's throughput, best rounds: {best:.0f} %")
    return verdict("of bare Dask's throughput, median of the rounds", share, 50, at_most=False, unit=" %")


def drop_goals(root: Path, count: int, name: str) -> float:
    """Return the seconds from the first drop to the last outcome."""
    with watching(root) as daemon:
        began = time.time_ns()
        for number in range(count):
            daemon.drop(f"{name}-{number}", plan(1, "true", "cluster", chained=False))
        ends = daemon.find(f"{name}-*/outcome.json", count)
        return (max(path.stat().st_ctime_ns for path in ends) - began) / 1e9


def plan(count: int, command: str, place: str | None, *, chained: bool) -> list[Step]:
    where = {"place": place} if place else {}
    return [
        {
            "id": f"s{number}",
            "tool": "shell",
            "input": {"command": command},
            "depends_on": [f"s{number - 1}"] if chained and number else [],
            **where,
        }
        for number in range(count)
    ]


@contextmanager
def bare(address: str) -> Iterator["Bare"]:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        yield Bare(client)


class Bare:
    """Bare Dask: a task per attempt, its results gathered."""

    def __init__(self, client: "object") -> None:
        self.client = client

    def __call__(self, attempts: int) -> float:
        began = time.perf_counter()
        futures = self.client.map(sleep_in_a_shell, range(attempts), pure=False)  # type: ignore[attr-defined]
        self.client.gather(futures)  # type: ignore[attr-defined]
        return time.perf_counter() - began


def sleep_in_a_shell(_number: int) -> int:
    return subprocess.run(["sh", "-c", "sleep 0.1"], check=True).returncode


if __name__ == "__main__":
    words = sys.argv[1:]
    raise SystemExit(not main(int(words[0]) if words else 3, int(words[1]) if words[1:] else 500))
