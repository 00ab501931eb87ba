"""A chain of durable steps that do nothing, beside a bare loop and beside LangGraph.

python benchmarks/chain.py [ROUNDS]
"""

import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from measuring import Ran, bare_loop, chain, peer, peer_python, ratios, rounds, run_steps, tell, verdict, workspace

SIZES = (200, 1000)
PEER = "LangGraph + SqliteSaver"


def main(count: int) -> bool:
    with (
        workspace() as root
    ):  # one for all: where many files were just deleted, some file systems are slow to make new
        short, long = (Chains(root, size) for size in SIZES)
        fine = [chains.measure(count, least) for chains, least in ((short, 1.0), (long, 4.0))]
    flat = statistics.median(map(flatness, long.runs))
    return verdict("last 100 of 1,000 / first 100", flat, 1.2, at_most=True) and all(fine)


@dataclass
class Chains:
    """Chains of one length: ours, a bare loop, LangGraph's."""

    root: Path
    size: int
    runs: list[Ran] = field(default_factory=list)

    def measure(self, count: int, least: float) -> bool:
        """Tell what a step takes in each; whether ours is quick enough, and LangGraph's `least` times slower."""
        python = peer_python()
        acts = {"bare loop": self.bare, "agentfs": self.ours}
        if python:
            acts[PEER] = lambda: peer(python, "chain", self.size) / self.size * 1000
            acts[f"{PEER}, one node for all"] = lambda: peer(python, "loop", self.size) / self.size * 1000
        taken = rounds(count, acts)
        print(f"chain of {self.size} steps, per step")
        for name, values in taken.items():
            tell(name, values)
        fine = verdict("agentfs / bare loop", ratios(taken["agentfs"], taken["bare loop"]), 2.5, at_most=True)
        if python:
            fine &= verdict("LangGraph / agentfs", ratios(taken[PEER], taken["agentfs"]), least, at_most=False)
        return fine

    def ours(self) -> float:
        self.runs.append(run_steps(self.root, chain(self.size), f"chain-{self.size}-{len(self.runs)}"))
        return self.runs[-1].per_step * 1000

    def bare(self) -> float:
        folder = self.root.parent / f"bare-{self.size}-{len(self.runs)}"
        return bare_loop(folder, self.size) / self.size * 1000


def flatness(ran: Ran) -> float:
    return (ran.ends[-1] - ran.ends[-101]) / ran.ends[99]


if __name__ == "__main__":
    raise SystemExit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
