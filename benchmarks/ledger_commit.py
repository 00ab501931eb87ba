"""How long a commit takes in a ledger of many runs, beside `git add` + `git commit` of the same file.

    python benchmarks/ledger_commit.py [RUNS]

All work on copies of one repository, in turn, so that the ratios hold on a noisy machine. Times are the least and
the median of the rounds, in milliseconds. Ours is durable (fsync); git by default is not: the last line makes it so.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from agentfs.ledger import Entry, Ledger

ROUNDS = 15
RUN = "2026-01-01/tidy-0"
QUIET = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "gc.auto=0")


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        base = Path(place, "base")
        filled(base, runs)
        acts: dict[str, Callable[[int], object]] = {
            "agentfs: commit": ours(copied(base, "one"), index=False),
            "agentfs: commit + index": ours(copied(base, "two"), index=True),
            "git add + commit": gits(base),
            "git, durable": gits(base, "-c", "core.fsync=all"),
        }
        times: dict[str, list[float]] = {name: [] for name in acts}
        for number in range(ROUNDS):
            for name, act in acts.items():
                began = time.perf_counter()
                act(number)
                times[name].append((time.perf_counter() - began) * 1000)
        told(runs, times)


def told(runs: int, times: dict[str, list[float]]) -> None:
    floor = statistics.median(times["agentfs: commit"])
    print(f"{runs} runs, one changed 5 KB plan\n{'':26}{'least':>8}{'median':>8}{'ratio':>8}")
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:26}{min(taken):8.1f}{median:8.1f}{median / floor:8.1f}")


def filled(root: Path, runs: int) -> None:
    """Make a ledger of many runs, 50 a day, with `git fast-import`."""
    ledger = Ledger.create(root)
    lines = ["commit refs/heads/main", "committer x <x@x> 1767225600 +0000", "data 1", "x"]
    for number in range(runs):
        for name in ("run.json", "goal.md", "plan.json", "revisions/1.json"):
            text = f"{number} {name}"
            lines += [f"M 644 inline {day(number)}/tidy-{number}/{name}", f"data {len(text)}", text]
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input="\n".join(lines), text=True, check=True)
    subprocess.run(["git", "reset", "-q", "--hard"], cwd=root, check=True)
    assert ledger.trouble() is None


def copied(base: Path, name: str) -> Path:
    """Return a copy of the repository with the files of the one run that changes."""
    root = base.with_name(name)
    shutil.copytree(base / ".git", root / ".git")
    shutil.copytree(base / RUN, root / RUN)
    return root


def day(number: int) -> str:
    ordinal = datetime(2026, 1, 1, tzinfo=UTC).toordinal() + number // 50
    return datetime.fromordinal(ordinal).strftime("%Y-%m-%d")


def plan(number: int, salt: str = "") -> bytes:
    return (f"{number} {salt} " * 5000)[:5000].encode()


def ours(root: Path, *, index: bool) -> Callable[[int], object]:
    ledger = Ledger(root)

    def act(number: int) -> None:
        (root / RUN / "plan.json").write_bytes(plan(number))
        known = ledger.committed(RUN)
        known.pop("plan.json")
        at = datetime(2026, 1, 1, tzinfo=UTC)
        assert ledger.commit(Entry(RUN, {"plan.json": plan(number)}, "x", "x", "x@x", at, known))
        assert not index or ledger.sync_index(RUN)

    return act


def gits(root: Path, *settings: str) -> Callable[[int], object]:
    def act(number: int) -> None:
        path = root / RUN / "plan.json"
        path.write_bytes(plan(number, " ".join(settings)))
        for words in (("add", "-f", str(path)), ("commit", "-qm", "x")):
            subprocess.run(["git", *QUIET, *settings, *words], cwd=root, check=True, env=os.environ)

    return act


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
