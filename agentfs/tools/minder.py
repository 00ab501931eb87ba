"""Minds a program that no sandbox holds. Run as a script, isolated: `minder.py ARGV…`.

Whatever the program starts, also in a session of its own and with its parents gone, stays a descendant of the minder
(a subreaper), and is ended with the program, and with agentfs itself. What the program clears away by force, say by
killing its own group, is beyond it: that is what the sandbox is for.
"""

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ORPHANED = signal.SIGRTMAX  # what the kernel sends us when agentfs is gone; no program is likely to send it
ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # to the whole group: meant for the program
OURS = (signal.SIGPIPE, signal.SIGXFSZ)  # what Python ignores, and a program must not inherit
PATIENCE_S = 5.0


def main(argv: list[str]) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)  # until there is a program that they can be meant for
    signal.signal(ORPHANED, _end_orphans)
    libc.prctl(PR_SET_PDEATHSIG, ORPHANED)
    program = _fork()
    if program == 0:
        _become(argv)
    _hand_on(program)
    status = _end_of(program)
    _end_the_rest()
    _leave_as(status)


def _fork() -> int:
    """Start a process; while there is no room for one, wait: our parent ends us in time."""
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(0.2)


def _become(argv: list[str]) -> None:
    try:
        for number in OURS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)
        os.execvp(argv[0], argv)  # noqa: S606 - the program we are here for
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(127)


def _hand_on(program: int) -> None:
    """From now on leave what is asked to the program, which is in the same group; what came too early it gets now."""
    early = signal.sigpending().intersection(ASKED)
    for number in ASKED:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)
    for number in early:
        os.kill(program, number)


def _end_of(program: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            return status


def _end_the_rest() -> None:
    """Kill our children until there are none; the children of those become ours."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def _children() -> Iterator[int]:
    me = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and _parent(name) == me:
            yield int(name)


def _parent(name: str) -> int | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    return int(text[text.rindex(b")") + 2 :].split()[1])


def _end_orphans(_number: int, _frame: FrameType | None) -> None:
    _end_the_rest()
    os._exit(1)


def _leave_as(status: int) -> None:
    """Exit as the program did, by a signal too: our parent learns how it ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1:])
