"""SIGTERM, and a daemon that is gone all at once: nothing is left running, and the next one takes over."""

import os
import signal
import subprocess
import sys

import pytest

from tests.daemons import Watching, book
from tests.stories.test_watch_trouble import children, is_running, is_unfinished
from tests.sweeps import FULL
from tests.workspaces import DEADLINE, Place, end, wait_for

GRACE = 5.0 if FULL else DEADLINE  # seconds until what ran is gone; a busy machine is no fault
TAKEOVER = 2.0 if FULL else DEADLINE  # seconds until the next daemon drives what the last one drove
STUBBORN = "trap '' TERM INT HUP; echo begun >> effects; (trap '' TERM; sleep 600) & while true; do sleep 0.1; done"


@pytest.mark.parametrize("sandbox", ["off", "auto"])
@pytest.mark.parametrize("driven_by", ["run", "watch"])
def test_sigterm_ends_what_will_not_end_and_settles_it(place: Place, sandbox: str, driven_by: str) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(f'[tools]\nsandbox = "{sandbox}"\n')
    goal = place.goal(book(STUBBORN, lines="repeatable"))
    if driven_by == "watch":
        os.rename(place.root / goal, place.root / "goals" / goal)
    process = place.begin("run", goal) if driven_by == "run" else place.begin("watch")
    wait_for(lambda: any(place.runs.glob("*/*/files/effects")), "the step to begin")
    below = children(process.pid)
    assert len(below) >= 2
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: not any(map(is_running, [process.pid, *below])), "the end of all that ran", GRACE)
    assert end(process)[0] == 130
    assert is_unfinished(place.run_folder("job")) == []
    assert place.read("steps/a.1.result.json")["status"] == "interrupted"


SLOW = "echo begun >> effects; while ! test -e go; do sleep 0.02; done; echo ended >> effects; echo x"


def test_a_killed_daemon_is_followed_by_the_next(place: Place) -> None:
    with Watching(place) as first:
        first.drop("job.md", book(SLOW, lines="repeatable"))
        folder = first.folder("job")
        wait_for((folder / "files" / "effects").exists, "the step to begin")
        first.end(signal.SIGKILL)
    second = subprocess.Popen(
        [sys.executable, "-m", "agentfs", "watch"],
        cwd=place.root,
        env=place.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for((folder / "steps" / "a.2.log.jsonl").exists, "the next daemon to take over", TAKEOVER)
        (folder / "files" / "go").touch()
        wait_for((folder / "outcome.json").exists, "the end of the run")
    finally:
        second.send_signal(signal.SIGTERM)
        second.wait(timeout=DEADLINE)
    assert place.read("steps/a.1.result.json")["status"] == "interrupted"
    assert place.read("outcome.json")["answer"] == "x"
