"""Programs that will not end, or take all there is: processes, memory, output. The daemon stays up, and says what it was.

Leaving `minder.py` out of the launcher makes the unconfined half of the first two tests fail; leaving `--unshare-all`
out of bubblewrap's arguments the other half; taking `oom_score_adj` out of the gate makes the hog of memory take the daemon
along; counting no tasks lets the bombs run to their own end (each was tried).
"""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import Sandbox
from tests.contexts import confined, each_sandbox
from tests.daemons import Watching, book
from tests.sweeps import only_full
from tests.workspaces import Place, end, wait_for

MEMORY = Path("/sys/fs/cgroup/memory")
LEAVING = {
    "in the background": "sleep {word} >/dev/null 2>&1 &",
    "in a session of its own": "setsid sleep {word} >/dev/null 2>&1 &",
    "twice forked": "(setsid sh -c 'setsid sleep {word} & setsid sleep {word} &' >/dev/null 2>&1 &) ; sleep 0.2",
    "deaf to signals": "(trap '' TERM HUP INT; setsid sleep {word} >/dev/null 2>&1 &)",
    "holding the pipes": "setsid sleep {word} &",
}


def running(word: str) -> list[int]:
    """Return the processes that have this word among their arguments, wherever they run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if word.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
    return found


def a_place(place: Place, sandbox: Sandbox) -> Place:
    place.agentfs("init")
    if sandbox == "none":
        (place.root / "agentfs.toml").write_text('[tools]\nsandbox = "off"\n')
    return place


@each_sandbox
def test_nothing_survives_its_step(place: Place, sandbox: Sandbox) -> None:
    words = {name: f"{70000 + number}.{os.getpid():07}" for number, name in enumerate(LEAVING)}
    commands = [f"{text.format(word=words[name])}\necho done" for name, text in LEAVING.items()]
    a_place(place, sandbox)
    (place.root / "job.md").write_text(book(*commands))
    place.agentfs("run", "job.md")
    results = [place.read(f"steps/{chr(97 + n)}.1.result.json") for n in range(len(LEAVING))]
    assert [(one["output"], one["sandbox"]) for one in results] == [("done", sandbox)] * len(LEAVING)
    for name, word in words.items():
        wait_for(lambda word=word: running(word) == [], f"the end of what was left {name}", 5)  # type: ignore[misc]


@each_sandbox
def test_nothing_survives_a_driver_that_is_killed(place: Place, sandbox: Sandbox) -> None:
    """At once, not when the run is driven again: an effect that lands later is one nobody expects."""
    word = f"71000.{os.getpid():07}"
    a_place(place, sandbox)
    (place.root / "job.md").write_text(book(f"(setsid sleep {word} >/dev/null 2>&1 &); touch began; sleep {word}"))
    driver = place.begin("run", "job.md")
    wait_for(lambda: any(place.runs.glob("*/job/files/began")) and len(running(word)) >= 2, "the step to begin")
    end(driver, signal.SIGKILL)
    wait_for(lambda: running(word) == [], "the end of what it started", 5)


# Those that are started sleep, and there are never more than so many: should the fence fail, the machine lives on.
# They sleep for longer than it takes a busy machine to start 4096 of them.
BOMBS = {
    "bomb": "import os, time\nfor _ in range(6000):\n    if os.fork() == 0:\n        time.sleep(200)\n        os._exit(0)\ntime.sleep(200)",
    "threads": (
        "import threading, time\nthreading.stack_size(65536)\n"
        "for _ in range(6000):\n    threading.Thread(target=time.sleep, args=(200,), daemon=True).start()\ntime.sleep(200)"
    ),
}


@only_full
@confined
def test_bombs_are_ended_and_the_daemon_goes_on(place: Place) -> None:
    steps = [{"id": name, "tool": "python", "input": {"code": code}} for name, code in BOMBS.items()]
    common: dict[str, Any] = {"on_failure": "continue", "max_attempts": 1, "timeout_s": 180}
    with Watching(place) as daemon:
        daemon.drop("hogs.json", json.dumps({"goal": "Hogs", "steps": [{**step, **common} for step in steps]}))
        daemon.outcome("hogs", seconds=200)  # a busy machine starts 4096 threads slowly; the step has 180 s
        errors = {step["id"]: place.read(f"steps/{step['id']}.1.result.json", "hogs")["error"] for step in steps}
        assert {name: error["message"] for name, error in errors.items()} == {
            "bomb": "it started more than 4096 processes and threads and was killed",
            "threads": "it started more than 4096 processes and threads and was killed",
        }
        daemon.drop("still.md", book("echo here"))
        assert daemon.outcome("still")["answer"] == "here"


@confined
def test_ten_gigabytes_of_output_are_cut_off(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("prints.md", book("yes | head -c 10G", lines="retries: 0"))
        daemon.outcome("prints")
        error = place.read("steps/a.1.result.json", "prints")["error"]
        assert (error["kind"], error["message"]) == ("output", "it printed more than 256 MiB and was killed")
        assert sum(path.stat().st_size for path in place.run_folder("prints").rglob("*")) < 300 * 2**20
        daemon.drop("still.md", book("echo here"))
        assert daemon.outcome("still")["answer"] == "here"


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A group of processes that may have 512 MiB between them."""
    group = MEMORY / f"agentfs-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group of processes with little memory can be made here: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(512 * 2**20))
        yield group
    finally:
        wait_for(lambda: (group / "cgroup.procs").read_text() == "", "the group to be empty", 10)
        group.rmdir()


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a shell to enter the group")
@each_sandbox
def test_a_hog_of_memory_goes_before_the_daemon(place: Place, small_memory: Path, sandbox: Sandbox) -> None:
    """Many small ones: the daemon is the largest, and would be the first to go if the kernel were not told."""
    enter = ("sh", "-c", f'echo $$ > {small_memory}/cgroup.procs; exec "$@"', "sh")
    hog = "for i in $(seq 40); do python3 -c 'x = bytearray(20_000_000); import time; time.sleep(2)' & done; wait; exit 1"
    a_place(place, sandbox)
    with Watching(place, under=enter) as daemon:
        daemon.drop("hog.md", book(hog, lines="retries: 0"))
        assert daemon.outcome("hog")["status"] == "failed"
        daemon.drop("still.md", book("echo here"))
        assert daemon.outcome("still")["answer"] == "here"
