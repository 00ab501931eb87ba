"""What it costs to have done shown: requests and tokens, with `[proof] acceptance` off and on.

python benchmarks/proof_cost.py       # the table that docs/proof.md shows

`agentfs run` drives the real engine against a scripted server; a token is four characters of what that was sent.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfs.testing import ScriptedReply, ScriptedServer
from agentfs.testing.replies import calls, plan, says

Body = dict[str, Any]

ONE = "Write the names in data.csv, sorted, to names.txt\n"
WORK = (
    calls(("shell", {"command": "sort data.csv > names.txt"})),
    calls(("finish", {"ok": True, "output": "written", "surprising": None, "blocked": None, "evidence": []})),
)
PROGRAM = says(
    '```python\nnames = sorted(open("data.csv").read().split())\nopen("names.txt", "w").write("\\n".join(names))\n```'
)
USELESS = plan({"checks": [{"kind": "command", "run": "test -s names.txt"}]})  # whatever is in it
MET = plan({"quote": "added: names.txt", "because": "The names were written to the file.", "met": True})

TEN = "Write the numbers from 1 to 10 to numbers.txt, one a line\n"
CHECKS = [{"kind": "command", "run": 'test "$(cat numbers.txt)" = "$(seq 10)"'}]
STEPS: list[Body] = [
    {
        "id": f"add-{number}",
        "description": f"Add {number} to numbers.txt",
        "why": "The goal asks for it",
        "tool": "shell",
        "input": {"command": f"echo {number} >> numbers.txt"},
        "depends_on": [f"add-{number - 1}"] if number > 1 else [],
        "success_condition": f"The last line of numbers.txt is {number}",
    }
    for number in range(1, 11)
]


@dataclass(frozen=True)
class Job:
    """A goal, the mode in which it is done, and what the models say in turn."""

    goal: str
    mode: str
    said: tuple[ScriptedReply, ...]
    acceptance: bool = True
    words: str = ""  # on what is asked


# A row for each goal: acceptance is off, on, and on where no check can tell.
ROWS = {
    "one step, one loop (`auto`)": (
        Job(ONE, "auto", WORK, acceptance=False),
        Job(ONE, "auto", (PROGRAM, *WORK)),
        Job(ONE, "auto", (USELESS, USELESS, *WORK, MET), words=": asked twice for checks, then a judge"),
    ),
    "ten steps with a tool each (`split`)": (
        Job(TEN, "split", (plan({"steps": STEPS}),), acceptance=False),
        Job(
            TEN,
            "split",
            (plan({"steps": STEPS, "checks": CHECKS}),),
            words=": the planner writes them with its plan",
        ),
        Job(
            TEN,
            "split",
            (plan({"steps": STEPS}), plan({"checks": CHECKS})),
            words=": a planner that wrote none is asked for them",
        ),
    ),
}


def tell_cost(job: Job) -> str:
    """Run a job with the real command; return what was sent, in words."""
    with ScriptedServer(job.said) as server, tempfile.TemporaryDirectory(prefix="agentfs-bench-") as folder:
        _run(job, server, Path(folder))
    server.done()
    sent = sum(len(_asked(body)) // 4 for body in server.requests)
    count = len(server.requests)
    return f"{count} request{'s' if count > 1 else ''}, {round(sent, -1):,} tokens{job.words}"


def _run(job: Job, server: ScriptedServer, root: Path) -> None:
    work = root / "work"
    work.mkdir()
    (work / "goal.md").write_text(job.goal, encoding="utf-8")
    (work / "data.csv").write_text("dora\ncid\nann\n", encoding="utf-8")
    settings = {
        "AGENTFS_PLANNER_BASE_URL": server.url,
        "AGENTFS_EXECUTOR_BASE_URL": server.url,
        "AGENTFS_PROOF_ACCEPTANCE": json.dumps(job.acceptance),
        "XDG_STATE_HOME": str(root / "state"),
        "XDG_CACHE_HOME": str(root / "cache"),
    }
    command = [sys.executable, "-m", "agentfs", "run", "goal.md", "--mode", job.mode, "--workdir", "."]
    environment = {**os.environ, **settings}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{job.goal.strip()}: exit {done.returncode}\n{done.stderr}")


def _asked(body: Body) -> str:
    return json.dumps([body.get("response_format"), body.get("tools"), body["messages"]], ensure_ascii=False)


def main() -> None:
    print("| goal | off | on | on, and no check can tell |\n|---|---|---|---|")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for goal, jobs in ROWS.items():
            print(f"| {goal} | {' | '.join(pool.map(tell_cost, jobs))} |")


if __name__ == "__main__":
    main()
