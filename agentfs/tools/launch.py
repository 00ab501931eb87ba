"""Start a program at a gate in its sandbox, watch it, and end it with all it started. Decides nothing.

In this order: the sandbox is set up, with a shell in it that waits at a gate; the folders in it are compared with
those that were meant; the launcher is named in the claim; the gate opens, and the shell becomes the program.
If agentfs dies before that, the gate closes and the launcher ends by itself: nothing ran.
The leader's pid is kept from reuse (it is not reaped) until its whole group has been ended.
Where no sandbox holds a program, a minder stays with it, which finds and ends what it leaves behind.
"""

import contextlib
import errno
import functools
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Literal, Protocol

from agentfs.storage.safe_open import LOOK, Folder, hold_folder, open_without_links
from agentfs.storage.timing import TIMING
from agentfs.tools.base import StepContext
from agentfs.tools.output import Capture, OutputLog
from agentfs.tools.process import StopSign, descendants, kill_family, kill_group, mark_of, raise_shortage, signal_all
from agentfs.tools.sandbox import SHOW, WRITE, Layout, binds_open_folders

OUTPUT_CAP = 256 * 1024 * 1024  # bytes of stdout and stderr together, before the program is killed
STDERR_KEPT = 8192
READ_SIZE = 65536
MOST_TASKS = 4096  # processes and threads of one program, before it is killed
MINDER = Path(__file__).with_name("minder.py")
# Its first line tells us its pid, which the kernel adds. If we close the gate, it ends.
_GATE = 'echo >&0 && read -r go && exec "$@" <'
_CREDENTIALS = struct.Struct("3i")
_BIND_OPEN = {SHOW: "--ro-bind-fd", WRITE: "--bind-fd"}
MOST_HELD = 64  # folders of one sandbox: a process may have a thousand files open

EndedBy = Literal["timeout", "stop", "output", "disk", "tasks", "idle", "listener"]


class Listener(Protocol):
    """Gets a program's stdout instead of the log, and may want the program to end."""

    def receive(self, known: bytes) -> bool:
        """Take some output; return whether it counts as a sign of life."""
        ...

    def idle_s(self) -> float:
        """Return how long the program may be silent now."""
        ...

    def wants_end(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended, and what it printed."""

    exit_code: int | None  # None: it ended by a signal
    signal: int | None
    ended_by: EndedBy | None  # why we ended it; None: it ended by itself
    problem: str | None  # with "disk": why its output could not be kept
    stdout: Capture
    stderr: str  # its tail


class NotStarted(Exception):
    """The program could not be started, and nothing of it ran."""


class GaveUp(NotStarted):
    """The deadline passed or the stop sign was set before the program started."""


@dataclass(frozen=True, slots=True)
class Started:
    """A launcher that waits at its gate, in the sandbox that was asked for."""

    child: "subprocess.Popen[bytes]"
    gate: socket.socket

    def release(self) -> None:
        """Open the gate: the program runs."""
        with contextlib.suppress(BrokenPipeError), self.gate:
            self.gate.sendall(b"go\n")

    def end(self) -> str:
        """Kill it with all it started; return what it printed to stderr."""
        self.gate.close()
        kill_family(self.child.pid)
        self.child.wait()
        stderr = (self.child.stderr.read(STDERR_KEPT) if self.child.stderr else b"") or b""
        _close_pipes(self.child)
        return stderr.decode("utf-8", "replace").strip()


def _close_pipes(child: "subprocess.Popen[bytes]") -> None:
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def start(
    layout: Layout,
    env: Mapping[str, str],
    stop: StopSign,
    deadline: float,
    *,
    fds: tuple[int, ...] = (),
    given: bytes | None = None,
) -> Started:
    """Start a launcher and wait until it is at its gate. Raises OSError, Refused, or NotStarted: then nothing ran.

    It ends with the thread that started it. `fds`: what else the program inherits; `given`: what it reads on stdin.
    """
    with hold_folder(layout.workdir) as workdir, contextlib.ExitStack() as stack:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        stack.enter_context(theirs)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            argv, cwd, own = _launcher(layout, workdir, stack, given)
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=theirs.fileno(),
                stdout=PIPE,
                stderr=PIPE,
                bufsize=0,
                pass_fds=(*own, *fds),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        theirs.close()
        started = Started(child, ours)
        try:
            pid = _wait_at_gate(ours, stop, min(deadline, time.monotonic() + TIMING.sandbox_start))
            replaced = layout.find_replaced(pid, workdir.fd) if pid and layout.outer else None
        except OSError as error:
            started.end()
            raise NotStarted(f"it cannot be looked into: {error}") from error
        except BaseException:
            started.end()
            raise
    if replaced:
        started.end()
        raise NotStarted(f"{replaced} was replaced while it was set up")
    if pid is None:
        stderr = started.end()
        raise_shortage(stderr)
        raise NotStarted(stderr or "it ended")
    _prefer_to_kill(pid)
    return started


def _launcher(
    layout: Layout, workdir: Folder, stack: contextlib.ExitStack, given: bytes | None
) -> tuple[list[str], str, tuple[int, ...]]:
    """Return what waits at the gate and then becomes the program, or its minder; where; and what it inherits."""
    stdin = () if given is None else (_in_memory(given, stack),)
    gate = ("/bin/sh", "-c", _GATE + (f"/proc/self/fd/{stdin[0]}" if stdin else os.devnull), "sh")
    if not layout.outer:
        minder = (sys.executable, "-I", "-S", "-B", str(MINDER))
        return [*gate, *minder, *layout.argv], f"/proc/self/fd/{workdir.fd}", stdin
    calls = _in_memory(_keyring_filter(), stack)
    files = {path: _in_memory(content, stack) for path, content in layout.home.items()}
    bwrap, *words = layout.outer
    words[-3:-3] = [word for path, fd in files.items() for word in ("--perms", "0600", "--file", str(fd), path)]
    held: list[int] = []
    if binds_open_folders(bwrap):
        words = list(_hold_folders(words, held, stack))
    return [bwrap, "--seccomp", str(calls), *words, *gate, *layout.argv], "/", (calls, *held, *files.values(), *stdin)


def _hold_folders(words: Sequence[str], held: list[int], stack: contextlib.ExitStack) -> Iterator[str]:
    """Yield bubblewrap's words with folders open instead of named: outermost first, as many as may be."""
    rest = iter(words)
    for word in rest:
        if word not in _BIND_OPEN or len(held) >= MOST_HELD:
            yield word
            continue
        path, place = next(rest), next(rest)
        try:
            fd = open_without_links(path, LOOK)
        except OSError:
            continue  # gone, or a link by now: that is seen when the sandbox is looked at
        stack.callback(os.close, fd)
        held.append(fd)
        yield from (_BIND_OPEN[word], str(fd), place)


def _in_memory(content: bytes, stack: contextlib.ExitStack) -> int:
    """Return a descriptor from which this can be read, until the stack closes."""
    fd = os.memfd_create("agentfs")
    stack.callback(os.close, fd)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _wait_at_gate(gate: socket.socket, stop: StopSign, deadline: float) -> int | None:
    """Wait for the launcher's first line; return its pid, None if it ended without one."""
    gate.settimeout(TIMING.tick)
    while True:
        with contextlib.suppress(TimeoutError):
            line, extra, _, _ = gate.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            break
        if stop.is_set() or time.monotonic() >= deadline:
            raise GaveUp
    gate.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    gate.settimeout(None)
    pids: list[int] = [_CREDENTIALS.unpack(value)[0] for _, kind, value in extra if kind == socket.SCM_CREDENTIALS]
    return pids[0] if line and pids else None


def _prefer_to_kill(pid: int) -> None:
    """Have the kernel end what agentfs starts before agentfs itself, when memory runs out."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"500")


def watch(started: Started, context: StepContext, listener: Listener | None, *, spill: bool) -> Finished:
    """Claim the attempt, let the program run, and watch it to its end, the deadline, the stop sign or the cap.

    What is left of it then is killed. `spill`: a long stdout also goes to the context's output file.
    Raises what `context.claim` raises: then nothing ran.
    """
    child = started.child
    out = Capture(context.output_bytes, context.mask, context.output_file if spill else None)
    err = Capture(STDERR_KEPT, context.mask, None)
    try:
        context.claim(mark_of(child.pid))
        started.release()
        watching = _Watch(child, context, out, err, listener)
        watching.to_the_end()
    finally:
        kill_group(child.pid) if _has_exited(child.pid) else kill_family(child.pid)
        code = child.wait()
        started.gate.close()
        out.close()
        _close_pipes(child)
    exit_code, number = (code, None) if code >= 0 else (None, -code)
    return Finished(exit_code, number, watching.ended_by, watching.problem, out, err.tail())


class _Watch:
    """Reads both pipes as they fill, until the leader has exited."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        context: StepContext,
        out: Capture,
        err: Capture,
        listener: Listener | None,
    ) -> None:
        self.ended_by: EndedBy | None = None
        self.problem: str | None = None
        self._pid, self._context = child.pid, context
        self._log, self._listener = OutputLog(context), listener
        self._last_output = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._open = 0
        self._read = 0
        self._was_asked = False
        self._kill_at = float("inf")
        self._most_tasks = _tasks_here() + MOST_TASKS
        for pipe, name, capture in ((child.stdout, "stdout", out), (child.stderr, "stderr", err)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe.fileno(), selectors.EVENT_READ, (name, capture))
                self._open += 1

    def to_the_end(self) -> None:
        with self._selector, _exit_wakes(self._selector, self._pid):
            self._read_once(TIMING.tick)
            while not _has_exited(self._pid):
                self._check_limits()
                self._read_once(TIMING.tick)
            self._drain()
        self._log.finish()

    def _read_once(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            if key.data:
                self._take(key.fd, *key.data)
            else:
                self._selector.unregister(key.fd)  # the leader has exited: no need to say so again

    def _take(self, fd: int, name: str, capture: Capture) -> None:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(fd, READ_SIZE)
            self._read += len(chunk)
            if self._keep(name, capture, chunk):
                self._last_output = time.monotonic()
            if not chunk:
                self._selector.unregister(fd)
                self._open -= 1

    def _keep(self, name: str, capture: Capture, chunk: bytes) -> bool:
        """Capture and log a chunk, or the end if it is empty; return whether it counts as a sign of life."""
        if self.ended_by in ("output", "disk"):
            return False
        try:
            known = capture.feed(chunk) if chunk else capture.end()
            if self._listener is not None and name == "stdout":
                return self._listener.receive(known)
            self._log.output(name, known)
        except OSError as error:
            self.problem = str(error)
            self._end_because("disk", at_once=True)
        return True

    def _check_limits(self) -> None:
        now = time.monotonic()
        if self._read > OUTPUT_CAP:
            self._end_because("output", at_once=True)
        elif self._context.stop.is_set():
            self._end_because("stop")
        elif now >= self._context.deadline:
            self._end_because("timeout")
        elif self._listener is not None and self._listener.wants_end():
            self._end_because("listener")
        elif self._listener is not None and now - self._last_output >= self._listener.idle_s():
            self._end_because("idle")
        elif _tasks_here() > self._most_tasks and _tasks_of(self._pid) > MOST_TASKS:
            self._end_because("tasks", at_once=True)
        if self.ended_by and not self._was_asked:
            self._was_asked = _ask_to_end(self._pid, confined=self._context.confinement.sandbox == "bubblewrap")
        if now >= self._kill_at:
            kill_family(self._pid)

    def _end_because(self, why: EndedBy, *, at_once: bool = False) -> None:
        if self.ended_by is None:
            self.ended_by = why
            self._kill_at = time.monotonic() + TIMING.grace
        if at_once:
            self._kill_at = 0

    def _drain(self) -> None:
        """Take what is left in the pipes; a child that holds them open gets a moment, no more."""
        until = time.monotonic() + TIMING.drain
        while self._open and (left := until - time.monotonic()) > 0 and self._read <= OUTPUT_CAP:
            self._read_once(left)
        for key in list(self._selector.get_map().values()):
            if key.data:
                name, capture = key.data
                self._keep(name, capture, b"")


@contextlib.contextmanager
def _exit_wakes(selector: selectors.BaseSelector, pid: int) -> Iterator[None]:
    """Have the leader's exit end a wait at once; where the kernel has no pidfd, the next tick does."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        yield
        return
    try:
        selector.register(fd, selectors.EVENT_READ, None)
        yield
    finally:
        os.close(fd)


def _tasks_here() -> int:
    """Return how many processes and threads this machine has: cheap, so it comes before counting a program's."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].partition("/")[2])


def _tasks_of(leader: int) -> int:
    return sum(member.threads for member in descendants(leader))


def _has_exited(pid: int) -> bool:
    """Return whether the leader has exited, and leave it unreaped: its number must not be given away yet."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ask_to_end(leader: int, *, confined: bool) -> bool:
    """Send SIGTERM to the program; return whether it was there to get it.

    In the sandbox not to bubblewrap, which would kill the program at once, but to what it started: its first
    child is bubblewrap again, which ignores the signal, and only what that one starts is the program.
    """
    if confined:
        family = [member.pid for member in descendants(leader)]
        signal_all(family, signal.SIGTERM)
        return len(family) > 1
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGTERM)
    return True


# ── system calls that a confined program may not make ─────────────────────────────────────────────────────


_LOAD, _EQUAL, _AT_LEAST, _MORE_THAN, _AND, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x54, 0x06
_NUMBER, _MACHINE = 0, 4  # where they are in what the kernel shows a filter
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_OTHER_WIDTH = 0xBFFFFFFF  # x86's x32 has its own bit in the same numbers
_KEYS = {  # AUDIT_ARCH_… -> add_key; request_key and keyctl are the next two
    0xC000003E: 248,  # x86_64
    0x40000003: 286,  # i386
    0xC00000B7: 217,  # aarch64
    0x40000028: 309,  # arm
    0xC00000F3: 217,  # riscv64
    0xC0000102: 217,  # loongarch64
    0xC0000015: 269,  # ppc64le
    0x80000015: 269,  # ppc64
    0x80000016: 278,  # s390x
}


@functools.cache
def _keyring_filter() -> bytes:
    """Return a seccomp filter with which the kernel's calls for keys do not exist, whatever the machine.

    Keyrings know no namespaces: a program with a session keyring of its own still reaches its user's by number.
    """
    lines: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _MACHINE)]
    for machine, first in _KEYS.items():
        lines += [
            (_EQUAL, 0, 6, machine),  # another: on to the next
            (_LOAD, 0, 0, _NUMBER),
            (_AND, 0, 0, _OTHER_WIDTH),
            (_AT_LEAST, 0, 2, first),
            (_MORE_THAN, 1, 0, first + 2),
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
            (_RETURN, 0, 0, _ALLOW),
        ]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
