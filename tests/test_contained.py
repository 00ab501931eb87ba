"""`scripts/contained.py`, in which `./test` runs: it ends, and everything with it, whatever a test leaves behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from agentfs.tools.process import find_survivors, mark_of
from tests.workspaces import DEADLINE, wait_for

SCRIPT = Path(__file__).parent.parent / "scripts" / "contained.py"
LEAVES = "import subprocess, time; print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True)"


def contained(*words: str) -> "subprocess.Popen[str]":
    """Start a command; who reads what it prints waits until nobody has the pipe any more."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_what_a_command_leaves_in_a_session_of_its_own_ends_with_it() -> None:
    with contained(sys.executable, "-c", LEAVES) as process:
        printed, _ = process.communicate(timeout=DEADLINE)
    left = int(printed.splitlines()[0])
    assert printed.splitlines()[1:] == [f"left running, and killed: {left} sleep 1000"]
    assert process.returncode == 0
    assert not is_there(left)


def test_an_orphan_that_begins_others_without_end_is_ended_too() -> None:
    orphan = "(setsid sh -c 'while :; do sleep 0.01; done' &) ; exit 3"
    with contained("sh", "-c", orphan) as process:
        printed, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 3
    assert "while :" in printed


def test_a_command_that_never_ends_is_ended() -> None:
    with contained("--most", "1", sys.executable, "-c", f"{LEAVES}; time.sleep(1000)") as process:
        printed, _ = process.communicate(timeout=DEADLINE)
    lines = printed.splitlines()
    assert process.returncode == 124
    assert lines[1] == "ended by SIGALRM; this was running:"
    assert len(lines) == 4  # the command, and what it has started
    assert not is_there(int(lines[0]))


def test_it_ends_with_who_asks_it_to_end() -> None:
    with contained(sys.executable, "-c", f"{LEAVES}; time.sleep(1000)") as process:
        assert process.stdout is not None
        left = int(process.stdout.readline())
        process.terminate()
        process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + signal.SIGTERM
    assert not is_there(left)


def test_it_ends_with_who_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys\nsubprocess.run([sys.executable, {str(SCRIPT)!r}, 'sleep', '999'])"],
        start_new_session=True,
    ) as process:  # fmt: skip
        mark = mark_of(process.pid)
        assert mark is not None
        wait_for(lambda: len(find_survivors(mark)) == 3, "it to begin")
        process.kill()
        wait_for(lambda: not find_survivors(mark), "all of it to end")
