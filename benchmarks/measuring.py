"""What the benchmarks share: a workspace to run in, the bare loop, the peer, and how figures are told.

Whatever is compared is measured in turn, round by round, in one run: other load then falls on all of it alike.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "agentfs-benchmarks")
# Where to write; by default where temporary files go. Taken out: agentfs refuses a setting that it does not know.
PLACE = os.environ.pop("AGENTFS_BENCH_DIR", None)
PEER_PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite")
KILOBYTE = b"x" * 1000
Step = dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """One run of agentfs, timed by its own records: from the first order to the last result, without start-up."""

    folder: Path
    seconds: float
    ends: tuple[float, ...]  # seconds after the first order, in the order in which the steps ended

    @property
    def per_step(self) -> float:
        return self.seconds / len(self.ends)


@contextmanager
def workspace(settings: str = "") -> Iterator[Path]:
    """Yield a new workspace that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="agentfs-bench-", dir=PLACE) as name:
        root = Path(name, "work")
        agentfs(root.parent, "init", str(root))
        (root / "agentfs.toml").write_text(settings)
        yield root


def agentfs(folder: Path, *arguments: str, before: tuple[str, ...] = ()) -> None:
    """Run a command as a person would, its progress going to a file."""
    with open(folder / "progress.txt", "ab") as progress:
        command = [*before, sys.executable, "-m", "agentfs", *arguments]
        subprocess.run(command, cwd=folder, stdout=progress, stderr=progress, check=True)


def run_steps(root: Path, steps: list[Step], name: str, before: tuple[str, ...] = ()) -> Ran:
    """Run a plan with `agentfs run`, in a process of its own."""
    goal = root.parent / f"{name}.json"
    goal.write_text(json.dumps({"goal": name, "steps": steps}))
    agentfs(root, "run", str(goal), before=before)
    return timed(newest(root, name), [step["id"] for step in steps])


def newest(root: Path, name: str) -> Path:
    return max(root.glob(f"runs/2*/{name}*"), key=lambda folder: folder.stat().st_ctime_ns)


def timed(folder: Path, ids: list[str]) -> Ran:
    """Return how long a run took, from its orders and results."""
    began = min(_moment(folder / "steps" / f"{step}.1.json", "issued_at") for step in ids)
    ends = sorted(_moment(folder / "steps" / f"{step}.1.result.json", "ended_at") - began for step in ids)
    return Ran(folder, ends[-1], tuple(ends))


def _moment(path: Path, field: str) -> float:
    return datetime.fromisoformat(json.loads(path.read_bytes())[field]).timestamp()


def chain(count: int, **more: Any) -> list[Step]:
    """Return steps that do nothing, each after the one before it."""
    return [
        {
            "id": f"s{n}",
            "tool": "note",
            "input": {"text": f"step {n}"},
            "depends_on": [f"s{n - 1}"] if n else [],
            **more,
        }
        for n in range(count)
    ]


def bare_loop(folder: Path, count: int) -> float:
    """Write one durable file of a kilobyte per step and nothing else; return the seconds."""
    folder.mkdir()
    began = time.perf_counter()
    for number in range(count):
        durable_file(folder, f"s{number}.json")
    return time.perf_counter() - began


def durable_file(folder: Path, name: str, temp: str = "temp") -> None:
    """Write a kilobyte so that it survives a power cut."""
    opened = os.open(folder / temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(opened, KILOBYTE)
    os.fsync(opened)
    os.close(opened)
    os.rename(folder / temp, folder / name)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(opened)
    os.close(opened)


def peer_python() -> Path | None:
    """Return a Python that has LangGraph, installed now if need be; None, saying why, if it cannot be had."""
    python = CACHE / "langgraph" / "bin" / "python"
    if not python.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(CACHE / "langgraph")], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PEER_PACKAGES], check=False, capture_output=True)
    found = subprocess.run([python, "-c", "import langgraph.checkpoint.sqlite"], check=False, capture_output=True)
    if found.returncode:
        print(f"LangGraph is left out: {' and '.join(PEER_PACKAGES)} could not be installed in {python.parents[1]}")
        return None
    return python


def peer(python: Path, kind: str, count: int) -> float:
    """Return the seconds LangGraph takes for the same work."""
    with tempfile.TemporaryDirectory(prefix="agentfs-bench-", dir=PLACE) as folder:
        command = [python, HERE / "peer.py", kind, str(count), folder]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rounds(count: int, acts: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Measure each in turn, round by round."""
    taken: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(count):
        for name, act in acts.items():
            taken[name].append(act())
    return taken


def tell(words: str, values: list[float], unit: str = "ms") -> None:
    print(f"  {words:48} best {min(values):8.2f} {unit}   median {statistics.median(values):8.2f} {unit}")


def verdict(words: str, reached: float, target: float, *, at_most: bool, unit: str = "x") -> bool:
    """Print a figure beside its target; return whether it is reached."""
    fine = reached <= target if at_most else reached >= target
    bound = "at most" if at_most else "at least"
    print(f"  {'ok    ' if fine else 'MISSED'} {words}: {reached:.2f}{unit} (target: {bound} {target:g}{unit})")
    return fine


def ratios(ours: list[float], theirs: list[float]) -> float:
    """Return ours over theirs: of the best rounds, which other load has touched least."""
    return min(ours) / min(theirs)
