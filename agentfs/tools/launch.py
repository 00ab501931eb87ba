"""Starts a program, watches it, and ends it with all it started. Decides nothing about what may run.

The order of events: the sandbox is set up, with a shell in it that waits at a gate; the folders in it are compared
with those that were meant; the launcher is named in the claim; the gate opens, and the shell becomes the program.
If we die before that, the gate closes and the launcher ends by itself: nothing ran.
The leader's number is kept from reuse (it is not reaped) until its whole group has been ended.
Where no sandbox holds a program, a minder stays with it: what it leaves behind is found and ended.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Literal, Protocol

from agentfs.storage.safe_open import LOOK, Folder, hold_folder, open_without_links
from agentfs.storage.timing import TIMING
from agentfs.tools.base import StepContext
from agentfs.tools.output import Capture, OutputLog
from agentfs.tools.process import StopSign, descendants, kill_family, kill_group, mark_of, raise_shortage, signal_all
from agentfs.tools.sandbox import SHOW, WRITE, Layout, takes_descriptors

OUTPUT_CAP = 256 * 1024 * 1024  # bytes of stdout and stderr together, before the program is killed
STDERR_KEPT = 8192
READ_SIZE = 65536
MOST_TASKS = 4096  # processes and threads of one program, before it is killed
MINDER = Path(__file__).with_name("minder.py")
TRIES = 3  # to set one up while the folders change
# Its first word carries its number: the kernel adds the sender. What is not opened ends.
_GATE = 'echo >&0 && read -r go && exec "$@" <'
_CREDENTIALS = struct.Struct("3i")
_DESCRIPTORS = {SHOW: "--ro-bind-fd", WRITE: "--bind-fd"}
MOST_HELD = 64  # of one sandbox: a process may have a thousand files open

EndedBy = Literal["timeout", "stop", "output", "disk", "tasks", "idle", "listener"]


class Listener(Protocol):
    """Takes what a program prints as it comes, in the place of the log; and may want it to end."""

    def receive(self, known: bytes) -> bool:
        """Take it, and return whether it counts: else the program is as silent as before."""
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
    """A program could not be started, and nothing of it ran: why."""


class Changed(NotStarted):
    """What a sandbox was made from was not the same when it had been made."""


class GaveUp(NotStarted):
    """The deadline or the stop sign came before the program."""


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
        """End a launcher that did not get to its gate; return what it printed to stderr."""
        self.gate.close()
        kill_family(self.child.pid)
        self.child.wait()
        words = (self.child.stderr.read(STDERR_KEPT) if self.child.stderr else b"") or b""
        for pipe in (self.child.stdout, self.child.stderr):
            if pipe is not None:
                pipe.close()
        return words.decode("utf-8", "replace").strip()


def start(
    layout: Layout,
    env: Mapping[str, str],
    stop: StopSign,
    deadline: float,
    *,
    fds: tuple[int, ...] = (),
    out: int = PIPE,
    given: bytes | None = None,
) -> Started:
    """Start a launcher and see it to its gate. Raises OSError, Refused, or NotStarted: then nothing ran.

    It ends with the thread that started it. `fds`: what else the program inherits; `out`: its stdout;
    `given`: what it reads on stdin.
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
                stdout=out,
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
            pid = _first_word(ours, stop, min(deadline, time.monotonic() + TIMING.sandbox_start))
            wrong = layout.why_unlike(pid, workdir.fd) if pid and layout.outer else None
        except OSError as error:
            started.end()
            raise NotStarted(f"it cannot be looked into: {error}") from error
        except BaseException:
            started.end()
            raise
    if pid is None or wrong:
        words = started.end()
        if not wrong:
            raise_shortage(words)
        raise Changed(f"{wrong} was replaced while it was set up") if wrong else NotStarted(words or "it ended")
    _go_first_when_memory_runs_out(pid)
    return started


def _launcher(
    layout: Layout, workdir: Folder, stack: contextlib.ExitStack, given: bytes | None
) -> tuple[list[str], str, tuple[int, ...]]:
    """Return what waits at the gate and then becomes the program, or its minder; where; and what it inherits."""
    stdin = () if given is None else (_in_memory(given, stack),)
    gate = ("/bin/sh", "-c", _GATE + (f"/proc/self/fd/{stdin[0]}" if stdin else os.devnull), "sh")
    if not layout.outer:
        return (
            [*gate, sys.executable, "-I", "-S", "-B", str(MINDER), *layout.argv],
            f"/proc/self/fd/{workdir.fd}",
            stdin,
        )
    calls = _in_memory(_no_keys(), stack)
    files = {path: _in_memory(content, stack) for path, content in layout.home.items()}
    bwrap, *words = layout.outer
    words[-3:-3] = [word for path, fd in files.items() for word in ("--perms", "0600", "--file", str(fd), path)]
    held: list[int] = []
    if takes_descriptors(bwrap):
        words = list(_hold_folders(words, held))
        for fd in held:
            stack.callback(os.close, fd)
    return [bwrap, "--seccomp", str(calls), *words, *gate, *layout.argv], "/", (calls, *held, *files.values(), *stdin)


def _in_memory(content: bytes, stack: contextlib.ExitStack) -> int:
    """Return a descriptor from which this can be read, until the stack closes."""
    fd = os.memfd_create("agentfs")
    stack.callback(os.close, fd)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _hold_folders(words: Sequence[str], fds: list[int]) -> Iterator[str]:
    """Yield words for bubblewrap in which folders are not named but open: outermost first, as many as may be."""
    rest = iter(words)
    for word in rest:
        if word not in _DESCRIPTORS or len(fds) >= MOST_HELD:
            yield word
            continue
        path, place = next(rest), next(rest)
        try:
            fds.append(open_without_links(path, LOOK))
        except OSError:
            continue  # gone, or a link by now: that is seen when the sandbox is looked at
        yield from (_DESCRIPTORS[word], str(fds[-1]), place)


def _first_word(gate: socket.socket, stop: StopSign, deadline: float) -> int | None:
    """Wait for the gate's first word; return the number of the process that sent it, None if it ended without one."""
    gate.settimeout(TIMING.tick)
    while True:
        with contextlib.suppress(TimeoutError):
            word, extra, _, _ = gate.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            break
        if stop.is_set() or time.monotonic() >= deadline:
            raise GaveUp
    gate.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    gate.settimeout(None)
    pids: list[int] = [_CREDENTIALS.unpack(value)[0] for _, kind, value in extra if kind == socket.SCM_CREDENTIALS]
    return pids[0] if word and pids else None


def _go_first_when_memory_runs_out(pid: int) -> None:
    """Let the kernel end what agentfs starts before agentfs itself: it lets anybody ask for that."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"500")


def run_program(
    make: Callable[[], Layout],
    *,
    env: Mapping[str, str],
    context: StepContext,
    spill: bool = True,
    given: bytes | None = None,
    listener: Listener | None = None,
) -> tuple[Layout, Finished]:
    """Run a program to its end, or to the deadline, the stop sign or the cap; what is left of it is killed.

    `make`: says how; asked again while folders change. `spill`: a long stdout also goes to the context's output file.
    `given`: what it reads on stdin. `listener`: who takes its stdout.
    Raises what `start` and `make` raise, and whatever `context.claim` raises; in all these cases nothing ran.
    """
    failed = 0
    for one_try in context.starter.tries(context.may_wait):
        if context.stop.is_set():
            raise GaveUp
        with one_try:
            layout = make()
            try:
                started = start(layout, env, context.stop, context.deadline, given=given)
                break
            except GaveUp:
                raise
            except NotStarted:
                failed += 1
                if failed == TRIES:
                    raise
    return layout, _watch_to_the_end(started, context, listener, spill=spill)


def _watch_to_the_end(started: Started, context: StepContext, listener: Listener | None, *, spill: bool) -> Finished:
    child = started.child
    out = Capture(context.output_bytes, context.mask, context.output_file if spill else None)
    err = Capture(STDERR_KEPT, context.mask, None)
    try:
        context.claim(mark_of(child.pid))
        started.release()
        watch = _Watch(child, context, out, err, listener)
        watch.to_the_end()
    finally:
        kill_group(child.pid) if _has_exited(child.pid) else kill_family(child.pid)
        code = child.wait()
        started.gate.close()
        _close(child, out)
    exit_code, number = (code, None) if code >= 0 else (None, -code)
    return Finished(exit_code, number, watch.ended_by, watch.problem, out, err.tail())


def _close(child: subprocess.Popen[bytes], out: Capture) -> None:
    out.close()
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


class _Watch:
    """Reads both pipes as they fill, until the leader has exited."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        context: StepContext,
        out: Capture,
        err: Capture,
        listener: Listener | None = None,
    ) -> None:
        self.ended_by: EndedBy | None = None
        self.problem: str | None = None
        self._pid, self._context = child.pid, context
        self._log, self._listener = OutputLog(context), listener
        self._spoke = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._open = 0
        self._read = 0
        self._asked = False
        self._kill_at = float("inf")
        self._crowd = _tasks_here() + MOST_TASKS
        for pipe, name, capture in ((child.stdout, "stdout", out), (child.stderr, "stderr", err)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe.fileno(), selectors.EVENT_READ, (name, capture))
                self._open += 1

    def to_the_end(self) -> None:
        with self._selector, _exit_wakes(self._selector, self._pid):
            self._turn(TIMING.tick)
            while not _has_exited(self._pid):
                self._look_around()
                self._turn(TIMING.tick)
            self._drain()
        self._log.finish()

    def _turn(self, wait_s: float) -> None:
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
                self._spoke = time.monotonic()
            if not chunk:
                self._selector.unregister(fd)
                self._open -= 1

    def _keep(self, name: str, capture: Capture, chunk: bytes) -> bool:
        """Take a chunk, or with none the end of the stream; return whether it counts as a sign of life."""
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

    def _look_around(self) -> None:
        now = time.monotonic()
        if self._read > OUTPUT_CAP:
            self._end_because("output", at_once=True)
        elif self._context.stop.is_set():
            self._end_because("stop")
        elif now >= self._context.deadline:
            self._end_because("timeout")
        elif self._listener is not None and self._listener.wants_end():
            self._end_because("listener")
        elif self._listener is not None and now - self._spoke >= self._listener.idle_s():
            self._end_because("idle")
        elif _tasks_here() > self._crowd and _tasks_of(self._pid) > MOST_TASKS:
            self._end_because("tasks", at_once=True)
        if self.ended_by and not self._asked:
            self._asked = _ask_to_end(self._pid, confined=self._context.confinement.sandbox == "bubblewrap")
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
            self._turn(left)
        for key in list(self._selector.get_map().values()):
            if key.data:
                name, capture = key.data
                self._keep(name, capture, b"")


@contextlib.contextmanager
def _exit_wakes(selector: selectors.BaseSelector, pid: int) -> Iterator[None]:
    """Let the leader's exit end a wait at once; where the kernel cannot, the next tick does."""
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
    """Return how many processes and threads this machine has: one look, before all of them are counted."""
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
def _no_keys() -> bytes:
    """Return a filter for the kernel: calls for keys are answered as by one that has none, on any machine.

    Its keys know no namespaces: a program with a session keyring of its own still reaches its user's by number.
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
