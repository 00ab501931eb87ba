"""This agentfs beside another release of it: what a person waits for, measured with both in turn.

    python benchmarks/beside_release.py OTHER_PYTHON [ROUNDS]

OTHER_PYTHON is the interpreter of a virtual environment into which the other release is installed, for example from a
`git worktree` of its tag. Each figure is the median of the rounds here over the median there; 1.5 is the most.
"""

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from drop_latency import latencies, share
from many_goals import dropped
from measuring import agentfs, chain, rounds, run_steps, tell, verdict, workspace
from parallel import OWN, SETTINGS, wide
from watching import watching

MOST = 1.5
HERE = "this one"


def main(other: str, count: int) -> bool:
    with (
        ExitStack() as kept
    ):  # to the end: where many files were just deleted, some file systems are slow to make new
        both = [Release(HERE, sys.executable, kept), Release("the other", other, kept)]
        fine = True
        for name, measure in MEASURES.items():
            acts = {one.name: partial(one.measured, measure) for one in both}
            rounds(1, acts)  # caches, bytecode
            fine &= compare(name, rounds(count, acts))
    return fine


def compare(name: str, taken: dict[str, list[float]]) -> bool:
    print(name)
    for release, values in taken.items():
        tell(release, values)
    here, there = map(statistics.median, taken.values())
    return verdict(f"{name}, here / there", here / there, MOST, at_most=True)


@dataclass
class Release:
    """One release, by its interpreter, and workspaces that it has made."""

    name: str
    python: str
    kept: ExitStack
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _root: Path | None = None

    def measured(self, measure: "Callable[[Release], float]") -> float:
        """Return the milliseconds, or what else is measured, with every command started by this interpreter."""
        with by(self.python):
            return measure(self)

    @property
    def root(self) -> Path:
        """A workspace with a run that has ended, and a person's own tool."""
        if self._root is None:
            self._root = self.kept.enter_context(workspace(SETTINGS))
            (self._root / "tools").mkdir(exist_ok=True)
            (self._root / "tools" / "nap.py").write_text(OWN)
            run_steps(self._root, chain(3), "small")
        return self._root

    def next_name(self) -> str:
        return f"run-{next(self._numbers)}"


@contextmanager
def by(python: str) -> Iterator[None]:
    """Have the helpers start another interpreter: they take sys.executable."""
    before, sys.executable = sys.executable, python
    try:
        yield
    finally:
        sys.executable = before


def starts(release: Release, *words: str) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    command = [release.python, "-m", "agentfs", *words]
    subprocess.run(command, cwd=release.root, env=environment, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def runs_one_step(release: Release) -> float:
    goal = release.root.parent / "one.md"
    goal.write_text("# One\n\n## Steps\n\n### one\n```sh\necho one\n```\n")
    began = time.perf_counter()
    agentfs(release.root, "run", str(goal))
    return (time.perf_counter() - began) * 1000


def chains(release: Release, steps: int) -> float:
    return run_steps(release.root, chain(steps), release.next_name()).per_step * 1000


def own_tools(release: Release) -> float:
    return run_steps(release.root, wide("nap"), release.next_name()).seconds * 1000


def goals_at_once(release: Release) -> float:
    return dropped(200, 10, release.kept) * 1000


def first_order(_release: Release) -> float:
    with workspace() as root, watching(root) as daemon:
        return share(latencies(daemon, 20), 50) * 1000


MEASURES: dict[str, Callable[[Release], float]] = {
    "agentfs --help": lambda release: starts(release, "--help"),
    "agentfs status": lambda release: starts(release, "status"),
    "a run of one shell step, all of it": runs_one_step,
    "a chain of 200 steps, a step": lambda release: chains(release, 200),
    "a chain of 1,000 steps, a step": lambda release: chains(release, 1000),
    "1,000 x 10 ms of a person's own tool, eight at once": own_tools,
    "200 goals of ten steps dropped at once": goals_at_once,
    "from drop to first order, p50": first_order,
}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    raise SystemExit(not main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5))
