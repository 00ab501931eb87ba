"""Benchmarks with a model in them still run: their script answers what agentfs really asks."""

import subprocess
import sys
from pathlib import Path

from tests.contexts import confined
from tests.workspaces import DEADLINE

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def rows(name: str, *words: str) -> list[list[str]]:
    """Run a benchmark; return the cells of the table that it prints, without its head."""
    command = [sys.executable, str(BENCHMARKS / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE * 3, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_smallest_job_of_each_kind_runs_to_its_end_and_is_counted() -> None:
    counted = {
        kind: (int(requests), sent, judged)
        for kind, _, requests, sent, judged, *_ in rows("split_cost.py", "--smallest")
    }
    looks = 4  # and the report; a model does each in two requests, a judge looks at what no check can tell
    assert {kind: requests for kind, (requests, _, _) in counted.items()} == {
        "one loop": looks + 2,
        "split": 1 + 3 * looks + 2,
        "split, one replan": 2 + 3 * looks + 2,
        "split, every step a tool": 1,
    }
    assert [kind for kind, (_, sent, _) in counted.items() if sent == "0"] == []
    assert [kind for kind, (_, _, judged) in counted.items() if judged != "0"] == ["split", "split, one replan"]


@confined
def test_what_proof_costs_is_counted() -> None:
    counted = [[cell.partition(" ")[0] for cell in cells] for _, *cells in rows("proof_cost.py")]
    assert counted == [["2", "3", "5"], ["1", "1", "2"]]  # requests
