"""Every figure, one after the other; the exit code says whether all targets are reached.

python benchmarks/all.py
"""

import subprocess
import sys
from pathlib import Path

# Those that make many files come first: a file system may be slow to make new ones where many were just deleted.
FIGURES = (
    "chain.py", "parallel.py", "nothing_to_do.py", "fsyncs.py", "startup.py", "many_runs.py",
    "ledger_commit.py", "daemon_at_size.py", "drop_latency.py", "many_goals.py",
    "items.py", "web.py", "places.py", "split_cost.py", "proof_cost.py",
)  # fmt: skip


def main() -> int:
    codes = []
    for name in FIGURES:
        codes.append(subprocess.run([sys.executable, Path(__file__).with_name(name)], check=False).returncode)
        print()
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
