"""1,000 independent steps of 10 ms, eight at once: how much of the ideal is reached.

    python benchmarks/parallel.py [ROUNDS]

Once with a tool in this process, once with a person's own tool in its worker processes, once in LangGraph.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from measuring import Step, newest, peer, peer_python, rounds, run_steps, tell, timed, verdict, workspace

STEPS, SECONDS, PLACES = 1000, 0.01, 8
IDEAL = STEPS * SECONDS / PLACES
SETTINGS = f"[limits]\nparallel = {PLACES}\n"
OWN = f'''
import time
from agentfs import tool

@tool(repeatable=True, effects="none")
def nap(text: str) -> str:
    """Take ten milliseconds."""
    time.sleep({SECONDS})
    return text
'''


def main(count: int) -> bool:
    python, numbers = peer_python(), itertools.count()
    with workspace(SETTINGS) as root:
        (root / "tools").mkdir(exist_ok=True)
        (root / "tools" / "nap.py").write_text(OWN)
        with workspace(SETTINGS) as other:
            acts = {
                "a tool in the process": lambda: in_process(other, f"wide-{next(numbers)}"),
                "a person's own tool, in workers": lambda: (
                    run_steps(root, wide("nap"), f"wide-{next(numbers)}").seconds
                ),
            }
            if python:
                acts["LangGraph + SqliteSaver"] = lambda: peer(python, "wide", STEPS)
            taken = rounds(count, acts)
    print(f"{STEPS} independent steps of {SECONDS * 1000:g} ms, {PLACES} at once: ideal {IDEAL * 1000:g} ms")
    for name, values in taken.items():
        tell(name, [value * 1000 for value in values])
    shares = {name: IDEAL / min(values) * 100 for name, values in taken.items()}
    fine = [verdict(name, share, 70, at_most=False, unit="%") for name, share in list(shares.items())[:2]]
    if python:
        print(f"         LangGraph + SqliteSaver: {shares['LangGraph + SqliteSaver']:.2f}%")
    return all(fine)


def wide(tool: str) -> list[Step]:
    return [{"id": f"s{n}", "tool": tool, "input": {"text": f"{n}"}, "depends_on": []} for n in range(STEPS)]


def in_process(root: Path, name: str) -> float:
    """Run the plan in a process whose `note` takes ten milliseconds."""
    goal = root.parent / f"{name}.json"
    goal.write_text(json.dumps({"goal": name, "steps": wide("note")}))
    subprocess.run([sys.executable, __file__, "--napping", str(root), str(goal)], check=True)
    return timed(newest(root, name), [f"s{n}" for n in range(STEPS)]).seconds


def run_napping(root: str, goal: str) -> int:
    from agentfs.cli import main as agentfs
    from agentfs.core.records import JsonObject
    from agentfs.tools import registry
    from agentfs.tools.base import Bench, ToolResult
    from agentfs.tools.note import Note

    class Nap:
        spec = Note.spec

        def call(self, given: JsonObject, bench: Bench) -> ToolResult:
            bench.claim(None)
            time.sleep(SECONDS)
            return ToolResult(output=given["text"])

    registry.Note = Nap  # type: ignore[assignment,misc]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with open(Path(goal).with_suffix(".txt"), "w", encoding="utf-8") as sys.stderr:
        return agentfs(["-C", root, "run", goal])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--napping"]:
        raise SystemExit(run_napping(*sys.argv[2:]))
    raise SystemExit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
