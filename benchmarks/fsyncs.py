"""How many fsync calls a step costs, counted by strace: the slope between a short and a long run.

python benchmarks/fsyncs.py
"""

import re
import shutil
import sys
from pathlib import Path

from measuring import chain, run_steps, verdict, workspace

SHORT, LONG = 400, 1200  # both outlast the first commit: the ledger makes as many calls for either
CALLS = "fsync,fdatasync,syncfs,sync"


def main() -> bool:
    if shutil.which("strace") is None:
        print("fsync calls are not counted: strace is not installed")
        return True
    print("fsync calls per step")
    repeatable = slope(repeatable=True)
    careful = slope(repeatable=False)
    fine = verdict("a repeatable step", repeatable, 2.0, at_most=True, unit="")
    return verdict("a step that is not repeatable", careful, 4.0, at_most=True, unit="") and fine


def slope(*, repeatable: bool) -> float:
    with workspace() as root:
        short, long = (counted(root, size, repeatable=repeatable) for size in (SHORT, LONG))
    return round((long - short) / (LONG - SHORT), 1)  # the ledger's own vary by a few


def counted(root: Path, size: int, *, repeatable: bool) -> int:
    """Return the calls of one whole run, ledger and all."""
    trace = root.parent / f"trace-{size}"
    strace = ("strace", "-f", "-qq", "-e", f"trace={CALLS}", "-o", str(trace))
    run_steps(root, chain(size, repeatable=repeatable), f"counted-{size}", before=strace)
    return len(re.findall(r"\b(?:fsync|fdatasync|syncfs|sync)\(", trace.read_text()))


if __name__ == "__main__":
    sys.exit(not main())
