"""Commands of agentfs, started from a warm process that has imported everything and forks.

A start costs milliseconds instead of a third of a second; in every other respect the command is a process of its own,
with its own environment, folder, session and streams. What depends on how Python itself starts is left to a real start.

    test ── one JSON line, four descriptors ──► server ── fork ──► command
      ▲                                            │
      └────────── pid, then exit code ─────────────┘
"""

import array
import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from agentfs.models.openai import tls_context
from agentfs.storage.timing import TIMING, times, timing_of

HERE = Path(__file__).parent.parent
LONGEST = 1 << 20
SET_PTRACER = 0x59616D61  # PR_SET_PTRACER
_SELDOM = ("agentfs.testing", "agentfs.tools.user_tool_worker", "agentfs.tools.minder", "agentfs.gitdiff")
# What commands import where they use it.
_PACKAGES = (
    *("anyio._backends._asyncio", "anyio.streams.tls", "encodings.ascii", "encodings.utf_8_sig", "genai_prices.data"),
    *("git", "h11", "httpcore2", "httpx2", "jsonschema", "openai.resources.chat.completions", "pwd", "tomllib"),
    *("truststore", "watchdog.observers", "yaml"),
)
_ALONE = {"AGENTFS_PROOF_ACCEPTANCE": "false", "AGENTFS_EXECUTOR_REPAIR": "false"}  # it asks no model
_REHEARSED = """\
# Job

## Steps

### a
```sh
echo x | tee made
```
check: `test -s made`

### b
```sh
echo {{steps.a.output}}
```
"""
_COLD = ("PYTHON", "LC_", "LD_", "FAKETIME")  # variables that only a real start obeys
_KNOWN = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


def can_start(env: Mapping[str, str]) -> bool:
    """Whether a command in this environment may come from the warm process."""
    odd = [name for name in env if name.startswith(_COLD) and name not in _KNOWN]
    same = (("LANG", "C.UTF-8"), ("PYTHONPATH", str(HERE)))
    return not odd and all(env.get(name) == value for name, value in same)


class Command:
    """A command that was started: what subprocess.Popen is, as far as tests use it.

    `keyboard`: its stdin is a terminal, and becomes the terminal of its session. `held`: it waits for `release()`
    before it does anything, so that it can be traced from its first call on. `instead`, as `MODULE:FUNCTION`: this
    function is called with `given` in the place of the command; what it returns is the exit code.
    """

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        keyboard: bool = False,
        held: bool = False,
        instead: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.args = [sys.executable, "-m", "agentfs", *words]
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._status, theirs = socket.socketpair()
        request = {
            "words": list(words),
            "cwd": str(cwd),
            "env": dict(env),
            "keyboard": keyboard,
            "held": held,
            "instead": instead,
            "given": dict(given or {}),
        }
        with theirs:
            _server().send(request, (*streams, theirs.fileno()))
        self._lines = self._status.makefile("r")
        self.pid = int(self._lines.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def __del__(self) -> None:
        for end in (self._lines, self._status):  # of one that a test killed and did not wait for
            end.close()

    def release(self) -> None:
        """Let a command begin that is held."""
        self._status.sendall(b"\n")

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ready, _, _ = select.select([self._status], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # ended and reaped, but its code has not reached us yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it prints until its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        printed: dict[IO[str] | None, list[bytes]] = {self.stdout: [], self.stderr: []}
        open_ones = [one for one in printed if one is not None]
        while open_ones:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select(open_ones, [], [], left)
            if not ready:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            for one in ready:
                if piece := os.read(one.fileno(), 65536):
                    printed[one].append(piece)
                else:
                    open_ones.remove(one)
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        texts = [b"".join(pieces).decode("utf-8", "replace") for pieces in printed.values()]
        for stream in printed:
            if stream is not None:
                stream.close()
        return texts[0], texts[-1]


def begin(words: Sequence[str], cwd: Path, env: Mapping[str, str], *, held: bool = False) -> Command:
    """Start a command in a session of its own; its output is read from pipes."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        begun = Command(words, cwd, env, (nothing, out_end, err_end), held=held)
    finally:
        for descriptor in (nothing, out_end, err_end):
            os.close(descriptor)
    begun.stdout, begun.stderr = (os.fdopen(end, encoding="utf-8", errors="replace") for end in (out, err))
    return begun


def run(
    words: Sequence[str], cwd: Path, env: Mapping[str, str], given: str | None, seconds: float
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write((given or "").encode())
        stdin.seek(0)
        begun = Command(words, cwd, env, (stdin.fileno(), out.fileno(), err.fileno()))
        try:
            code = begun.wait(seconds)
        except subprocess.TimeoutExpired:
            begun.kill()
            begun.wait()
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    return subprocess.CompletedProcess(begun.args, code, *texts)


# ── the warm process ──────────────────────────────────────────────────────────────────────────────────────


class _Server:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno()), str(os.getpid())],
                cwd=HERE,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.close)

    def send(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        self._socket.sendmsg([json.dumps(request).encode()], passed)

    def close(self) -> None:
        self._socket.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()


_starting = threading.Lock()


def _server() -> _Server:
    with _starting:  # threads of a test may ask for it at the same time
        return _only_server()


@cache
def _only_server() -> _Server:
    return _Server()


def _warm_up() -> None:
    """Import, and keep, what a command would import and work out for itself."""
    for one in pkgutil.walk_packages([str(HERE / "agentfs")], "agentfs."):
        if not one.name.startswith(_SELDOM) and not one.name.endswith("__main__"):
            importlib.import_module(one.name)
    for name in _PACKAGES:
        importlib.import_module(name)
    from agentfs.commands import parser
    from agentfs.core.json_schema import all_schemas
    from agentfs.tools.registry import sources

    all_schemas()  # these, the certificates and the entry points are kept
    tls_context()
    sources(None)
    parser.build()
    _rehearse()
    gc.collect()
    gc.freeze()  # what is there already is not walked through, and so not copied, in every child


def _rehearse() -> None:
    """Drive a goal to its end in this process: what commands compile and look up on their way is then kept."""
    from agentfs.commands import main

    environment, path, folder = dict(os.environ), list(sys.path), os.getcwd()
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with tempfile.TemporaryDirectory(prefix="agentfs-rehearsal-") as root, tempfile.TemporaryFile("w") as printed:
        os.environ.clear()
        os.environ.update({"HOME": root, "PATH": environment["PATH"], "LANG": "C.UTF-8", **_ALONE})
        os.chdir(root)
        Path("job.md").write_text(_REHEARSED, encoding="utf-8")
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            for words in (("init",), ("run", "job.md"), ("show", "job"), ("status",), ("log", "job")):
                main(words)
        os.chdir(folder)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment)
    for number, handler in handlers.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)
    assert threading.active_count() == 1, "a process with threads cannot fork"


def serve(control: socket.socket, asker: int) -> None:
    """Fork a child for every request, and say how each ends, until the process that asks has ended; then end them.

    A process that a test has forked may hold the other end of `control` for longer.
    """
    _warm_up()
    awake, wakes = socket.socketpair()
    for end in (awake, wakes):
        end.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, socket.socket] = {}
    waited_for: list[socket.socket | int] = [control, awake, asker]
    while True:
        ready, _, _ = select.select(waited_for, [], [])
        if awake in ready:
            awake.recv(4096)
            _reap(children)
        if asker in ready:
            return _end(children)
        if control in ready:
            message, descriptors, _, _ = socket.recv_fds(control, LONGEST, 4)
            if not message:
                return _end(children)
            status = socket.socket(fileno=descriptors[3])
            request = json.loads(message)
            if request["instead"]:
                importlib.import_module(request["instead"].partition(":")[0])  # once, and not in every child
            child = os.fork()
            if child == 0:
                os.close(asker)
                if request["held"]:
                    _wait_for_release(status)
                _be_command(request, descriptors[:3], (control, awake, wakes, status, *children.values()))
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            children[child] = status
            with contextlib.suppress(OSError):
                status.sendall(f"{child}\n".encode())


def _reap(children: dict[int, socket.socket]) -> None:
    for child in list(children):
        pid, how = os.waitpid(child, os.WNOHANG)
        if pid:
            with contextlib.suppress(OSError), children.pop(child) as status:
                status.sendall(f"{os.waitstatus_to_exitcode(how)}\n".encode())


def _end(children: Mapping[int, socket.socket]) -> None:
    """Kill the commands that still run, each with its session."""
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


def _wait_for_release(status: socket.socket) -> None:
    """Wait until this process is let go; where Yama asks for it, allow any process to trace it."""
    ctypes.CDLL(None).prctl(SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    status.recv(1)


def _be_command(request: dict[str, Any], streams: Sequence[int], others: Sequence[socket.socket]) -> NoReturn:
    """Become the command, with everything that a new process would have."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
    for descriptor in streams:
        os.close(descriptor)
    for other in others:
        other.close()
    os.setsid()
    if request["keyboard"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    _read_environment_again()
    sys.argv = ["agentfs", *request["words"]]
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8", "surrogateescape")  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8", "surrogateescape")  # noqa: SIM115
    binary = open(2, "wb", closefd=False)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(binary, "utf-8", "backslashreplace", line_buffering=True)
    os._exit(_ended(request))


def _read_environment_again() -> None:
    """Have what was read from the environment at an import be what this process's own says."""
    time.tzset()
    for one in times():
        object.__setattr__(TIMING, one.name, getattr(timing_of(os.environ), one.name))
    if any(name.startswith("SSL") for name in os.environ):
        tls_context.cache_clear()
    if "dask" in sys.modules:
        sys.modules["dask"].config.refresh()


def _ended(request: Mapping[str, Any]) -> int:
    module, _, function = (request["instead"] or "agentfs.commands:main").partition(":")
    code = 1
    try:
        code = getattr(importlib.import_module(module), function)(request["given"] or request["words"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does: wait for what is no daemon
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), os.pidfd_open(int(sys.argv[2])))
