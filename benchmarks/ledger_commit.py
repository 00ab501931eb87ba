"""A commit in a ledger of many runs, beside `git add` + `git commit` there and beside the same in an empty ledger.

    python benchmarks/ledger_commit.py [RUNS]

Measured in turn, so that the ratios hold on a noisy machine. A commit of ours is durable (fsync); git's by default is
not, and is measured so. Then maintenance: what it takes, and how long `git log -p` of one old plan takes afterwards.
"""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from many import finished_runs
from measuring import ratios, rounds, tell, verdict, workspace

from agentfs.ledger import Entry, Ledger
from agentfs.ledger.maintenance import Maintenance

ROUNDS = 15
RUN = "2026-01-01/measured"
QUIET = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "gc.auto=0")


def main(runs: int) -> bool:
    with workspace() as root:
        old = finished_runs(root, runs)[runs // 10]
        large, small = root / "runs", Ledger.create(root.parent / "small").root
        theirs = root.parent / "theirs"
        shutil.copytree(large, theirs)
        acts: dict[str, Callable[[], float]] = {
            "in an empty ledger": ours(small, index=False),
            f"in one of {runs} runs": ours(large, index=False),
            "the same, and the index in step": ours(large, index=True),
            "git add + commit there": gits(theirs),
        }
        taken = rounds(ROUNDS, acts)
        print("a commit of one changed plan of 5 KB")
        for name, values in taken.items():
            tell(name, values)
        empty, full, _, added = taken.values()
        fine = verdict("a commit / git add + commit", ratios(full, added), 0.2, at_most=True)
        fine &= verdict(f"{runs} runs / empty", ratios(full, empty), 1.5, at_most=True)
        return maintained(large, old) and fine


def maintained(root: Path, old: str) -> bool:
    """Measure `git log -p` of an old plan before maintenance and after it."""
    before = [logged(root, old) for _ in range(3)]
    done = Maintenance(root).do(threading.Event())
    assert done is not None
    assert done.trouble is None, done.trouble
    print(f"maintenance: {done.packed} loose objects packed and the graph written in {done.seconds:.1f} s")
    after = [logged(root, old) for _ in range(9)]
    tell("git log -p of one plan before", before)
    tell("git log -p of one plan after", after)
    return verdict("git log -p after maintenance", min(after) / 1000, 0.2, at_most=True, unit=" s")


def logged(root: Path, run: str) -> float:
    began = time.perf_counter()
    command = ["git", "log", "-p", "--no-textconv", "--", f"{run}/plan.json"]
    said = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    assert said.count(b"Agentfs-Run:") == 1
    return (time.perf_counter() - began) * 1000


def plan(number: int, salt: str = "") -> bytes:
    return (f"{number} {salt} " * 5000)[:5000].encode()


def ours(root: Path, *, index: bool) -> Callable[[], float]:
    ledger, numbers = Ledger(root), iter(range(1000))

    def act() -> float:
        content = plan(next(numbers), f"{index}")
        (root / RUN).mkdir(parents=True, exist_ok=True)
        (root / RUN / "plan.json").write_bytes(content)
        began = time.perf_counter()
        at = datetime(2026, 1, 1, tzinfo=UTC)
        assert ledger.commit(Entry(RUN, {"plan.json": content, "goal.md": b"x"}, "x", "x", "x@x", at))
        assert not index or ledger.sync_index(RUN)
        return (time.perf_counter() - began) * 1000

    return act


def gits(root: Path) -> Callable[[], float]:
    numbers = iter(range(1000))

    def act() -> float:
        path = root / RUN / "plan.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plan(next(numbers)))
        began = time.perf_counter()
        for words in (("add", "-f", str(path)), ("commit", "-qm", "x")):
            subprocess.run(["git", *QUIET, *words], cwd=root, check=True)
        return (time.perf_counter() - began) * 1000

    return act


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
