"""Run a command, and end with it whatever it leaves running: `contained.py [--most SECONDS] COMMAND ...`.

A process that a test left behind would keep the pipe open that `./test` writes to, and who reads it would wait for
ever. On Linux every process below this one stays below it, in whatever session and with whatever environment: an
orphan becomes a child of this process. What is found when the command ends is named, and killed.

`--most`: after so many seconds the command is killed, and the exit code is 124. A signal that asks this process to
end, or the end of who started it, ends the command too. The exit code is the command's.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PARENT_DIES, ADOPTS = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
TIMED_OUT = 124
PATIENCE = 10.0  # seconds, for what is killed to be gone


class Asked(BaseException):
    """A signal asks this process to end."""


def main(words: list[str]) -> int:
    most = 0
    if words[:1] == ["--most"]:
        most, words = int(words[1]), words[2:]
    _become_the_parent_of_orphans()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, _raise)
    command = subprocess.Popen(words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the command's
    signal.alarm(most)
    code = 1
    try:
        code = _wait_for(command.pid)
    except Asked as asked:
        number = asked.args[0]
        code = TIMED_OUT if number == signal.SIGALRM else 128 + number
        print(f"ended by {signal.Signals(number).name}; this was running:", file=sys.stderr)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        _end_what_is_left()
    return code


def _become_the_parent_of_orphans() -> None:
    with contextlib.suppress(OSError, AttributeError):  # only Linux has it; elsewhere children alone are found
        libc = ctypes.CDLL(None)
        libc.prctl(PARENT_DIES, signal.SIGTERM, 0, 0, 0)
        libc.prctl(ADOPTS, 1, 0, 0, 0)


def _raise(number: int, _frame: object) -> None:
    raise Asked(number)


def _wait_for(pid: int) -> int:
    """Reap every child until this one has ended; return its exit code."""
    while True:
        ended, how = os.waitpid(-1, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(how)
            return code if code >= 0 else 128 - code


def _end_what_is_left() -> None:
    end, named = time.monotonic() + PATIENCE, set[int]()
    while (left := _descendants(os.getpid())) and time.monotonic() < end:
        for pid, typed in left.items():
            if pid not in named and typed:
                print(f"left running, and killed: {pid} {typed[:200]}", file=sys.stderr)
            named.add(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.01)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants(pid: int) -> dict[int, str]:
    """Return every process below this one, and what was typed to start it: nothing of one that has ended."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        with contextlib.suppress(OSError):
            if name.isdigit():
                stat = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found, parents = dict[int, str](), [pid]
    while parents:
        for child in children.get(parents.pop(), []):
            found[child] = _typed(child)
            parents.append(child)
    return found


def _typed(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
