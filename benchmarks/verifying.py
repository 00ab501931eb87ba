"""`agentfs verify` over many runs: seconds, and the most memory that it and the git it starts took.

    python benchmarks/verifying.py [RUNS] [PER_DAY]

Copies of one real run, committed by the real ledger, two commits each; then maintained, as a daemon would.
"""

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import many
from measuring import chain, run_steps, workspace

from agentfs.ledger import Ledger
from agentfs.ledger.committer import pending_entries
from agentfs.ledger.maintenance import Maintenance

AT_ONCE = 64


def main(runs: int, per_day: int) -> bool:
    many.PER_DAY = per_day
    with workspace() as root:
        committed(root, runs)
        took, code, said = timed(root)
        print(said.strip())
        print(f"{took:.1f} s for {runs} runs, {per_day} a day; at most {_most():.0f} MiB")
        (victim,) = list((root / "runs").glob("*/run-7"))[:1]
        path = next(victim.glob("steps/*.1.result.json"))
        path.write_text(path.read_text().replace('"done"', '"failed"', 1))
        _, tampered, said = timed(root)
        print(said.strip().splitlines()[0])
        return code == 0 and tampered == 2


def committed(root: Path, runs: int) -> None:
    folder = run_steps(root, chain(2), "model").folder
    model = f"{folder.parent.name}/{folder.name}"
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ids = list(many._ids(folder.parent.name, runs - 1))  # noqa: SLF001 - the same names
    ledger = Ledger(root / "runs")
    for first in range(0, len(ids), AT_ONCE):
        some = ids[first : first + AT_ONCE]
        for one in some:
            renamed = {path: many._renamed(content, model, one) for path, content in files.items()}  # noqa: SLF001
            many._copy(root / "runs" / one, renamed)  # noqa: SLF001
        person = ("x", "x@x")
        ledger.commit_all([e for one in some for e in pending_entries(root / "runs" / one, {}, person, logs=False)])
    Maintenance(root / "runs").do(threading.Event())


def timed(root: Path) -> tuple[float, int, str]:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "agentfs", "verify"], cwd=root, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    return time.monotonic() - began, done.returncode, done.stdout + done.stderr


def _most() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(not main(given[0] if given else 10_000, given[1] if len(given) > 1 else 50))
