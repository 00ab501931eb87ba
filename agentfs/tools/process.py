"""Processes: find them in /proc, end them with all they started. Knows no sandbox and no tool."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING

T = TypeVar("T")
WORKER = Path(__file__).with_name("bounded_worker.py")
MOST_MEMORY = 2 * 1024**3  # bytes, of that worker
MOST_SECONDS = 300  # of the processor


class StopSign(Protocol):
    """Anything with `is_set()`: a threading.Event will do."""

    def is_set(self) -> bool: ...


class Never:
    """A stop sign that is never set."""

    def is_set(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """Identifies a process group, also after this process has gone."""

    pid: int
    pgid: int
    start_time: int  # field 22 of /proc/PID/stat: clock ticks since boot
    boot_id: str


# ── start ─────────────────────────────────────────────────────────────────────────────────────────────────


def raise_shortage(message: str) -> None:
    """Raise OSError if bubblewrap could not start a program because the system has no room for one."""
    for number in (errno.EAGAIN, errno.ENOMEM):
        if message.startswith("bwrap: ") and message.rstrip().endswith(os.strerror(number)):
            raise OSError(number, os.strerror(number))


# ── find ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/PID/stat, as far as it matters here."""

    pid: int
    state: str
    parent: int
    pgid: int
    session: int
    start_time: int
    threads: int = 1


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def read_stat(pid: int) -> ProcessStat | None:
    """Return what /proc says of a process; None if there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold anything, spaces and ) too
    state, parent, pgid, session = fields[0].decode(), *map(int, fields[1:4])
    return ProcessStat(pid, state, parent, pgid, session, int(fields[19]), int(fields[17]))


def all_processes() -> Iterator[ProcessStat]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := read_stat(int(name))):
            yield found


def descendants(pid: int) -> list[ProcessStat]:
    """Return the children of a process and theirs, as far as their parents still live."""
    by_parent: dict[int, list[ProcessStat]] = {}
    for found in all_processes():
        by_parent.setdefault(found.parent, []).append(found)
    family, parents = [], [pid]
    while parents:
        children = by_parent.pop(parents.pop(), [])
        family += children
        parents += [child.pid for child in children]
    return family


def mark_of(pid: int) -> ProcessMark | None:
    """Return what identifies a process for as long as this machine is up."""
    found = read_stat(pid)
    return ProcessMark(pid, found.pgid, found.start_time, boot_id()) if found else None


# ── end ───────────────────────────────────────────────────────────────────────────────────────────────────


def kill_family(leader: int) -> None:
    family = descendants(leader)  # first: children of a dead parent can no longer be found
    kill_group(leader)
    signal_all([member.pid for member in family], signal.SIGKILL)


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def find_survivors(mark: ProcessMark) -> tuple[int, ...]:
    """Return what is left of a program that another process started: its group, its session, their children.

    A number that was given to another process since means that the group was empty: then nothing is left.
    """
    if mark.boot_id != boot_id() or mark.pgid in (os.getpgrp(), os.getsid(0)):
        return ()
    leader = read_stat(mark.pid)
    if leader and leader.start_time != mark.start_time:
        return ()
    found = [member for member in all_processes() if _belongs(member, mark)]
    found += [child for member in found for child in descendants(member.pid)]
    return tuple(sorted({member.pid for member in found if member.state not in "ZX"} - {os.getpid()}))


def _belongs(member: ProcessStat, mark: ProcessMark) -> bool:
    return mark.pgid in (member.pgid, member.session) and member.start_time >= mark.start_time


def end_survivors(mark: ProcessMark) -> bool:
    """Kill what is left of a program that another process started; return whether anything was."""
    survivors = find_survivors(mark)
    until = time.monotonic() + TIMING.grace
    left = survivors
    while left and time.monotonic() < until:
        signal_all(left, signal.SIGKILL)
        time.sleep(TIMING.poll_ended)
        left = find_survivors(mark)
    return bool(survivors)


# ── questions that may take for ever ──────────────────────────────────────────────────────────────────────


class TookTooLong(Exception):
    """The worker was ended before it had an answer, or ran out of memory."""


def ask(question: Mapping[str, Any], *, deadline: float, stop: StopSign, fds: tuple[int, ...] = ()) -> Any:
    """Return the answer of `bounded_worker`; TookTooLong at the deadline or the stop sign."""
    with Starter().start(
        lambda: subprocess.Popen(
            [sys.executable, "-I", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LANG": "C.UTF-8"},
            cwd="/",
            pass_fds=fds,
            start_new_session=True,
        ),
        lambda: time.monotonic() < deadline and not stop.is_set(),
    ) as child:
        given: bytes | None = json.dumps(question).encode()
        try:
            _set_bounds(child.pid)
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = child.communicate(given, timeout=TIMING.tick)
                    break
                given = None  # communicate remembers what it has not written yet
                if time.monotonic() >= deadline or stop.is_set():
                    raise TookTooLong
        finally:
            child.kill()
    if child.returncode < 0 or b"MemoryError" in err:
        raise TookTooLong
    if child.returncode != 0:
        raise RuntimeError(f"{WORKER.name} ended with {child.returncode}: {err.decode('utf-8', 'replace')[-2000:]}")
    return json.loads(out)


def _set_bounds(pid: int) -> None:
    """Bound the memory of the worker, and its processor time: it ends even if no process is left to kill it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    if not hasattr(resource, "prlimit"):  # other systems than Linux
        return
    for what, most in ((resource.RLIMIT_AS, MOST_MEMORY), (resource.RLIMIT_CPU, MOST_SECONDS)):
        with contextlib.suppress(ProcessLookupError, ValueError, PermissionError):
            resource.prlimit(pid, what, (most, most))
