"""1,000 items of one step beside 1,000 steps: what one of them costs, medians of a few rounds.

python benchmarks/items.py [--count 1000] [--rounds 3]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET = 1.0  # an item costs no more than a step


def steps(count: int) -> list[dict[str, object]]:
    return [{"id": f"s{n}", "tool": "note", "input": {"text": str(n)}, "depends_on": []} for n in range(count)]


def items(count: int) -> list[dict[str, object]]:
    one = {"id": "s", "tool": "note", "input": {"text": "{{item}}"}, "depends_on": []}
    return [{**one, "each": [f"i{n}" for n in range(count)]}]


def seconds(plan: list[dict[str, object]]) -> float:
    """Return how long a run of these steps takes, from its first order to its outcome."""
    with tempfile.TemporaryDirectory() as folder:
        goal = Path(folder) / "job.json"
        goal.write_text(json.dumps({"goal": "count", "steps": plan}), encoding="utf-8")
        environment = {**os.environ, "AGENTFS_LIMITS_PARALLEL": "8", "HOME": folder}
        began = time.monotonic()
        words = [sys.executable, "-m", "agentfs", "-C", folder, "run", str(goal)]
        subprocess.run(words, env=environment, cwd=folder, check=True, capture_output=True)
        return time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    none = statistics.median(seconds(steps(1)) for _ in range(asked.rounds))
    each = [(seconds(steps(asked.count)), seconds(items(asked.count))) for _ in range(asked.rounds)]
    of_steps = statistics.median(one for one, _ in each)
    of_items = statistics.median(other for _, other in each)
    cost = [(taken - none) / asked.count * 1000 for taken in (of_steps, of_items)]
    print(f"a run of one step  {none:.2f} s")
    print(f"{asked.count} steps  {of_steps:.2f} s, {cost[0]:.2f} ms each")
    print(f"{asked.count} items  {of_items:.2f} s, {cost[1]:.2f} ms each")
    ratio = cost[1] / cost[0]
    print(f"item / step  {ratio:.2f}  {'ok' if ratio <= TARGET else 'MISSED'} (target {TARGET:g})")
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
