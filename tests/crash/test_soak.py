"""Many runs, some steps failing, and the daemon killed at random: all reach an outcome, and nothing grows.

`./test --full`: 2,000 runs of 10 steps; ends after ten minutes at the latest.

What failed while it was made: a first part that could not end, which killed the daemon for ever. Nothing of agentfs's.
"""

import json
import os
import random
import signal
import statistics
import time
from pathlib import Path

import pytest

from tests.daemons import Watching
from tests.sweeps import size
from tests.workspaces import Place, disagreements

STEPS = 10
FAILING = 0.05
MINUTES = 10.0
AHEAD = 200  # goals that wait in goals/ at most, so that the daemon lives with a steady number of runs


def goal(seed: int) -> str:
    """A chain of ten steps; one in twenty fails, and nothing answers to that."""
    chance = random.Random(seed)
    steps = [
        {"id": f"s{n}", "tool": "note", "input": {"text": f"{seed}.{n}"}, "depends_on": [f"s{n - 1}"] if n else []}
        if chance.random() >= FAILING
        else {"id": f"s{n}", "tool": "read_file", "input": {"path": "no-such"}, "depends_on": [f"s{n - 1}"] if n else [],
              "max_attempts": 1}
        for n in range(STEPS)
    ]  # fmt: skip
    return json.dumps({"goal": f"run {seed}", "steps": steps})


class Meter:
    """Samples the memory and the open files of a process."""

    def __init__(self, pid: int) -> None:
        self.folder = Path(f"/proc/{pid}")
        self.samples: list[tuple[int, int]] = []

    def sample(self) -> None:
        pages = int((self.folder / "statm").read_text().split()[1])
        self.samples.append((pages * 4, len(os.listdir(self.folder / "fd"))))

    def quarter(self, which: int, of: int) -> float:
        size = len(self.samples) // 4
        return statistics.mean(sample[of] for sample in self.samples[which * size : (which + 1) * size])


def ended(place: Place) -> int:
    return sum(1 for _ in place.runs.glob("*/g*/outcome.json"))


def feed(daemon: Watching, dropped: int, upto: int) -> int:
    """Drop goals as long as few wait."""
    while dropped < upto and sum(1 for name in os.listdir(daemon.goals) if name.endswith(".json")) < AHEAD:
        for _ in range(min(20, upto - dropped)):
            (daemon.goals / f".g{dropped}").write_text(goal(dropped))
            os.rename(daemon.goals / f".g{dropped}", daemon.goals / f"g{dropped}.json")
            dropped += 1
    return dropped


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_many_runs_failing_steps_and_random_kills(place: Place) -> None:
    count = size(16, 2000)
    deadline, chance = time.monotonic() + 60 * MINUTES, random.Random(7)
    dropped, kills, first = 0, 0, count * 2 // 5
    while ended(place) < first and time.monotonic() < deadline:
        with Watching(place) as daemon:
            lives = time.monotonic() + chance.uniform(0.3, 3.0 if count < 200 else 12.0)
            while time.monotonic() < min(lives, deadline) and ended(place) < first:
                dropped = feed(daemon, dropped, first)
                time.sleep(0.05)
            daemon.end(signal.SIGKILL)
            kills += 1
    with Watching(place) as daemon:
        meter = Meter(daemon.popen.pid)
        while ended(place) < count and time.monotonic() < deadline:
            dropped = feed(daemon, dropped, count)
            meter.sample()
            time.sleep(0.25)
        reached = ended(place)
    outcomes = [json.loads(path.read_text()) for path in place.runs.glob("*/g*/outcome.json")]
    failed = sum(one["status"] == "failed" for one in outcomes)
    print(f"{reached} of {count} runs, {failed} failed, {kills} kills, {len(meter.samples)} samples")
    assert reached == count, daemon.output()[-2000:]
    expected = {f"g{seed}": "read_file" not in goal(seed) for seed in range(count)}
    assert {one["run"].rpartition("/")[2]: one["status"] == "done" for one in outcomes} == expected
    assert len(list(place.runs.glob("*/*/run.json"))) == count
    if len(meter.samples) >= 40:
        memory, files = ((meter.quarter(1, of), meter.quarter(3, of)) for of in (0, 1))
        print(
            f"memory {memory[0] / 1024:.1f} -> {memory[1] / 1024:.1f} MiB, open files {files[0]:.1f} -> {files[1]:.1f}"
        )
        assert memory[1] <= 1.1 * memory[0]
        assert files[1] <= 1.1 * files[0] + 8  # so many packs of the ledger are kept open once they are there
    place.git("fsck", "--strict")
    assert disagreements(place.root) == []
