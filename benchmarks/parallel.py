"""1,000 independent steps of 10 ms, eight at once: how much of the ideal is reached.

    python benchmarks/parallel.py [ROUNDS]

Once with a tool in this process, once with a person's own tool in its worker processes, once in LangGraph. Beside
them what this machine gives with nothing around it: eight threads that take ten milliseconds and write a durable file
each, alone and with a bare worker process each to take them in.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measuring import (
    Step,
    durable_file,
    newest,
    peer,
    peer_python,
    rounds,
    run_steps,
    tell,
    timed,
    verdict,
    workspace,
)

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
            acts["bare threads, a durable file each"] = lambda: bare_threads(other.parent / f"bare-{next(numbers)}")
            acts["the same, with a bare process each"] = lambda: bare_workers(other.parent / f"bare-{next(numbers)}")
            if python:
                acts["LangGraph + SqliteSaver"] = lambda: peer(python, "wide", STEPS)
            taken = rounds(count, acts)
    print(f"{STEPS} independent steps of {SECONDS * 1000:g} ms, {PLACES} at once: ideal {IDEAL * 1000:g} ms")
    for name, values in taken.items():
        tell(name, [value * 1000 for value in values])
    shares = {name: IDEAL / min(values) * 100 for name, values in taken.items()}
    fine = [
        verdict(name, share, least, at_most=False, unit="%")
        for (name, share), least in zip(list(shares.items())[:2], (70, 50), strict=True)
    ]
    for name, share in list(shares.items())[2:]:
        print(f"         {name}: {share:.2f}%")
    return all(fine)


def wide(tool: str) -> list[Step]:
    return [{"id": f"s{n}", "tool": tool, "input": {"text": f"{n}"}, "depends_on": []} for n in range(STEPS)]


def in_process(root: Path, name: str) -> float:
    """Run the plan in a process whose `note` takes ten milliseconds."""
    goal = root.parent / f"{name}.json"
    goal.write_text(json.dumps({"goal": name, "steps": wide("note")}))
    subprocess.run([sys.executable, __file__, "--napping", str(root), str(goal)], check=True)
    return timed(newest(root, name), [f"s{n}" for n in range(STEPS)]).seconds


def bare_threads(folder: Path, nap: Callable[[int], None] = lambda _place: time.sleep(SECONDS)) -> float:
    """Return the seconds that threads take which nap and write, and do nothing else."""
    folder.mkdir()
    left = iter(range(STEPS))

    def work(place: int) -> None:
        for number in left:  # one C call gives out the next number: no two threads get the same
            nap(place)
            durable_file(folder, f"s{number}.json", temp=f"temp-{place}")

    began = time.perf_counter()
    with ThreadPoolExecutor(PLACES) as pool:
        list(pool.map(work, range(PLACES)))
    return time.perf_counter() - began


def bare_workers(folder: Path) -> float:
    """The same with the naps taken in processes, which are there already: a line to each, a line back."""
    program = f"import sys, time\nfor line in sys.stdin: time.sleep({SECONDS}); print(line, end='', flush=True)"
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    workers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0) for _ in range(PLACES)]

    def nap(place: int) -> None:
        os.write(workers[place].stdin.fileno(), b"x\n")  # type: ignore[union-attr]
        os.read(workers[place].stdout.fileno(), 100)  # type: ignore[union-attr]

    try:
        for place in range(PLACES):
            nap(place)  # so that all have started
        return bare_threads(folder, nap)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def run_napping(root: str, goal: str) -> int:
    from agentfs.commands import main as agentfs
    from agentfs.core.records import JsonObject
    from agentfs.engine import attempts  # noqa: F401 - first: it runs a real note in the driver's own thread
    from agentfs.tools import text_tools
    from agentfs.tools.base import LocalTool, StepContext, ToolResult

    def nap(given: JsonObject, _context: StepContext) -> ToolResult:
        time.sleep(SECONDS)
        return ToolResult(output=given["text"])

    text_tools.note = LocalTool(text_tools.note.spec, nap)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with open(Path(goal).with_suffix(".txt"), "w", encoding="utf-8") as sys.stderr:
        return agentfs(["-C", root, "run", goal])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--napping"]:
        raise SystemExit(run_napping(*sys.argv[2:]))
    raise SystemExit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
