"""`agentfs status` in a workspace of 10,000 finished runs and 200 open ones, and forgetting 1,000 of them.

    python benchmarks/many_runs.py [RUNS [ROUNDS]]

With compiled bytecode, as an installed program has it, and the files' names warm in the kernel. Forgetting is told
beside `rm -rf` of as many other runs: deleting is the disk's time, whoever does it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from many import finished_runs
from measuring import chain, rounds, run_steps, tell, verdict, workspace

SCRIPT = Path(sys.executable).with_name("agentfs")
OPEN, OPEN_STEPS, HALF = 200, 10, 5
STATUS_SECONDS, OPEN_SECONDS = 0.5, 1.0


def main(count: int, times: int) -> bool:
    with workspace() as root, workspace() as other, tempfile.TemporaryDirectory() as bytecode:
        runs = finished_runs(root, count, steps=3)
        open_runs(other, OPEN)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode  # filled by the first round, which does not count

        def asked(folder: Path, *words: str) -> Callable[[], float]:
            return lambda: seconds(folder, environment, str(SCRIPT), *words)

        acts = {
            f"status, {count:,} finished runs": asked(root, "status"),
            "status --state failed": asked(root, "status", "--state", "failed"),
            "status --since 1h --json": asked(root, "status", "--since", "1h", "--json"),
            f"status, {OPEN} open runs of {OPEN_STEPS} steps": asked(other, "status"),
        }
        rounds(1, acts)
        taken = rounds(times, acts)
        print("a workspace with many runs")
        for name, values in taken.items():
            tell(name, [value * 1000 for value in values])
        forgotten(root, runs, environment)
    first, *_, last = taken.values()
    fine = verdict(f"status, {count:,} finished runs", min(first), STATUS_SECONDS, at_most=True, unit=" s")
    return verdict(f"status, {OPEN} open runs", min(last), OPEN_SECONDS, at_most=True, unit=" s") and fine


def forgotten(root: Path, runs: list[str], environment: dict[str, str]) -> None:
    """Tell how long it takes to forget a tenth of the runs, and to delete as many others by hand."""
    some = max(1, len(runs) // 10)
    tell(f"forget {some:,} runs", [seconds(root, environment, str(SCRIPT), "forget", *runs[:some])], "s")
    folders = [str(root / "runs" / run) for run in runs[some : 2 * some]]
    tell(f"rm -rf of {some:,} others", [seconds(root, environment, "rm", "-rf", *folders)], "s")


def seconds(folder: Path, environment: dict[str, str], *command: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.perf_counter() - began


def open_runs(root: Path, count: int) -> None:
    """Fill a workspace with runs that have come half way."""
    folder = run_steps(root, chain(OPEN_STEPS), "model").folder
    model = f"{folder.parent.name}/{folder.name}"
    left_out = {"outcome.json"} | {
        path.name for n in range(HALF, OPEN_STEPS) for path in folder.glob(f"steps/s{n}.*")
    }
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in left_out]
    for number in range(count):
        copy = folder.with_name(f"open-{number}")
        for path in files:
            place = copy / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes().replace(model.encode(), f"{folder.parent.name}/{copy.name}".encode()))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    raise SystemExit(not main(*given, *(10_000, 5)[len(given) :]))
