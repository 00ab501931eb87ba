"""A chain of durable steps that do nothing, beside a bare loop and beside LangGraph.

python benchmarks/chain.py [ROUNDS]
"""

import itertools
import statistics
import sys
from pathlib import Path

from measuring import Ran, bare_loop, chain, peer, peer_python, ratios, rounds, run_steps, tell, verdict, workspace

SIZES = (200, 1000)


def main(count: int) -> bool:
    python, numbers = peer_python(), itertools.count()
    fine = True
    for size in SIZES:
        runs: list[Ran] = []
        with workspace() as root:

            def ours(size: int = size, root: Path = root, runs: list[Ran] = runs) -> float:
                runs.append(run_steps(root, chain(size), f"chain-{next(numbers)}"))
                return runs[-1].per_step * 1000

            def bare(size: int = size, root: Path = root) -> float:
                return bare_loop(root.parent / f"bare-{next(numbers)}", size) / size * 1000

            def theirs(size: int = size) -> float:
                return peer(python, "chain", size) / size * 1000 if python else 0.0

            acts = {"bare loop": bare, "agentfs": ours} | ({"LangGraph + SqliteSaver": theirs} if python else {})
            taken = rounds(count, acts)
        print(f"chain of {size} steps, per step")
        for name, values in taken.items():
            tell(name, values)
        fine &= verdict("agentfs / bare loop", ratios(taken["agentfs"], taken["bare loop"]), 2.5, at_most=True)
        if python:
            faster = ratios(taken["LangGraph + SqliteSaver"], taken["agentfs"])
            fine &= verdict("LangGraph / agentfs", faster, 1.0 if size == SIZES[0] else 4.0, at_most=False)
    fine &= verdict("last 100 of 1,000 / first 100", statistics.median(map(flatness, runs)), 1.2, at_most=True)
    return fine


def flatness(ran: Ran) -> float:
    return (ran.ends[-1] - ran.ends[-101]) / ran.ends[99]


if __name__ == "__main__":
    raise SystemExit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
