"""Two hundred goals of ten steps dropped at once, beside one of two thousand: what a run costs beside its steps.

    python benchmarks/many_goals.py [ROUNDS]

Both go through `agentfs watch`, from the first rename into goals/ until the last outcome is there. The steps do
nothing.
"""

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from measuring import chain, ratios, rounds, tell, verdict, workspace
from watching import Daemon, watching

RUNS, STEPS = 200, 10


def main(count: int) -> bool:
    with (
        ExitStack() as kept
    ):  # to the end: where many files were just deleted, some file systems are slow to make new
        acts = {
            f"one run of {RUNS * STEPS} steps": lambda: dropped(1, RUNS * STEPS, kept),
            f"{RUNS} runs of {STEPS} steps": lambda: dropped(RUNS, STEPS, kept),
        }
        taken = rounds(count, acts)
    print("goals dropped at once, until the last has ended")
    for name, values in taken.items():
        tell(name, values, unit="s")
    one, many = taken.values()
    return verdict(f"{RUNS} x {STEPS} / 1 x {RUNS * STEPS}", ratios(many, one), 1.5, at_most=True)


def dropped(runs: int, steps: int, kept: ExitStack) -> float:
    """Return the seconds from the first drop to the last outcome."""
    root = kept.enter_context(workspace())
    with watching(root) as daemon:
        goals = [_written(daemon, f"goal-{number}", steps) for number in range(runs)]
        began = time.time_ns()
        for goal in goals:
            os.rename(goal, root / "goals" / goal.name)
        ends = daemon.find("goal-*/outcome.json", runs)
        return (max(path.stat().st_ctime_ns for path in ends) - began) / 1e9


def _written(daemon: Daemon, name: str, steps: int) -> Path:
    goal = daemon.root / f"{name}.json"
    goal.write_text(json.dumps({"goal": name, "steps": chain(steps)}))
    return goal


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
