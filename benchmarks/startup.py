"""How long commands take to start, beside a Python that does nothing.

    python benchmarks/startup.py [ROUNDS]

With compiled bytecode, as an installed program has it; `status` in a workspace with one run that has ended.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import chain, ratios, rounds, run_steps, tell, verdict, workspace

SCRIPT = Path(sys.executable).with_name("agentfs")


def main(count: int) -> bool:
    with workspace() as root, tempfile.TemporaryDirectory() as bytecode:
        run_steps(root, chain(3), "small")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode  # filled by the first round, which does not count

        def started(*command: str) -> float:
            began = time.perf_counter()
            subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)
            return (time.perf_counter() - began) * 1000

        acts = {
            "python -c pass": lambda: started(sys.executable, "-c", "pass"),
            "agentfs --help": lambda: started(str(SCRIPT), "--help"),
            "agentfs status": lambda: started(str(SCRIPT), "status"),
        }
        rounds(1, acts)
        taken = rounds(count, acts)
    print("start-up")
    for name, values in taken.items():
        tell(name, values)
    bare = taken["python -c pass"]
    fine = verdict("agentfs status / python", ratios(taken["agentfs status"], bare), 8, at_most=True)
    return verdict("agentfs --help / python", ratios(taken["agentfs --help"], bare), 6, at_most=True) and fine


if __name__ == "__main__":
    raise SystemExit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
