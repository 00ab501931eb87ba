"""Nothing is left to do in a run of 1,000 steps: how long deciding that takes, beside having run it.

    python benchmarks/nothing_to_do.py [ROUNDS]

Deciding starts cold: every file is read, the state derived from nothing, the next actions decided.
"""

import json
import sys
import time
from datetime import datetime
from pathlib import Path

from measuring import chain, ratios, run_steps, tell, verdict, workspace

STEPS = 1000


def main(count: int) -> bool:
    running, deciding = [], []
    with workspace() as root:
        for number in range(count):
            folder = run_steps(root, chain(STEPS), f"long-{number}").folder
            running.append(seconds_of(folder))
            (folder / "outcome.json").unlink()  # else there would be nothing to decide
            deciding.append(min(decided(root, folder) for _ in range(3)))
    print(f"a run of {STEPS} steps with nothing left to do")
    tell("running it", [seconds * 1000 for seconds in running])
    tell("deciding that nothing is left", [seconds * 1000 for seconds in deciding])
    return verdict("deciding / running", ratios(deciding, running), 1 / 20, at_most=True)


def seconds_of(folder: Path) -> float:
    """Return how long a run took by its own account, from its beginning to its outcome."""
    outcome = json.loads((folder / "outcome.json").read_bytes())
    began, ended = (datetime.fromisoformat(outcome[field]) for field in ("started_at", "ended_at"))
    return (ended - began).total_seconds()


def decided(root: Path, folder: Path) -> float:
    """Return the seconds it takes to know that the run has ended."""
    from agentfs.core.actions import EndRun
    from agentfs.core.decide import decide
    from agentfs.core.run_state import Means, derive
    from agentfs.engine.run_reader import reader_for
    from agentfs.storage.workspace import load_settings
    from agentfs.tools.registry import specs

    settings = load_settings(root / "agentfs.toml", {})
    means = Means(repeatable={name: spec.repeatable for name, spec in specs().items()})
    began = time.perf_counter()
    facts = reader_for(folder, settings, patient=False).read()
    actions = decide(derive(facts, means), 4)
    taken = time.perf_counter() - began
    if not (len(actions) == 1 and isinstance(actions[0], EndRun)):
        raise SystemExit(f"something was left to do: {actions}")
    return taken


if __name__ == "__main__":
    raise SystemExit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
