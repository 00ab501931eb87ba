"""The program in which a person's own tools run, inside the sandbox. Run as a script, isolated (`python -I`):

    own_worker.py describe JSON   load each source in a process of its own; on stdout, what was found in each
    own_worker.py serve FD        on the socket FD: each message with three descriptors (talk, stdout, stderr) becomes
                                  a worker: a fork that waits for calls. The end of the socket is the end of all.

A worker gets frames of JSON, {"source", "path", "entry", "function", "input"}, and gives frames of JSON back. The
person's module is loaded by the worker at its first call, never before: until then nothing of theirs has run.
"""

import contextlib
import ctypes
import json
import os
import posix
import selectors
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from dataclasses import asdict
from typing import Any, NoReturn

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentfs.tools import own_schema
from agentfs.tools.starting import Starter

LARGEST_REPLY = 64 * 1024 * 1024
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None)


# ── describe ──────────────────────────────────────────────────────────────────────────────────────────────


def describe(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what each source holds. One that hangs or crashes spoils nothing for the others."""
    sys.path.extend(asked["folders"])
    readers = [_begin(source) for source in asked["sources"]]
    said = _read_all([fd for _, fd in readers], time.monotonic() + asked["seconds"])
    answers = []
    for source, (pid, _), text in zip(asked["sources"], readers, said, strict=True):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        answers.append(_answer(source, text, status, asked["seconds"]))
    return answers


def _begin(source: dict[str, Any]) -> tuple[int, int]:
    """Load a source in a child; return its number, and where it will say what it found."""
    ours, theirs = os.pipe()
    pid = Starter().start(os.fork)
    if pid:
        os.close(theirs)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid, ours
    try:
        os.setpgid(0, 0)
        os.dup2(2, 1)  # what a module prints is not our answer
        found = _found(source)
        with os.fdopen(theirs, "w", encoding="utf-8") as pipe:
            json.dump(found, pipe)
    finally:
        os._exit(0)


def _found(source: dict[str, Any]) -> dict[str, Any]:
    try:
        loaded = own_schema.load(source["shown"], source["path"], source["entry"])
        return asdict(own_schema.describe_all(source["shown"], loaded))
    except own_schema.LoadFailed as failed:
        return {"tools": [], "problems": [str(failed)]}


def _read_all(fds: list[int], deadline: float) -> list[bytes]:
    said = dict.fromkeys(fds, b"")
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 65536)
                said[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
    return list(said.values())


def _answer(source: dict[str, Any], text: bytes, status: int, seconds: float) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        late = f"it had not been loaded after {seconds:g} s" if code == -signal.SIGKILL else "it ended Python"
        return {"tools": [], "problems": [f"{source['shown']} could not be loaded: {late}"]}
    return answer


# ── serve ─────────────────────────────────────────────────────────────────────────────────────────────────


def _any_function(text: str = "") -> None:
    """Stands for the tools to come."""


def serve(control: socket.socket) -> NoReturn:
    """Make a worker of every message, until the socket ends."""
    own_schema.adapter_for(_any_function)  # pydantic imports most of itself now, once, and not in every worker
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers: whoever asked for one knows how it ends
    while True:
        _, fds, _, _ = socket.recv_fds(control, 16, 3)
        if len(fds) != 3:
            os._exit(0)
        if Starter().start(os.fork) == 0:
            control.close()
            _become_worker(*fds)
        for fd in fds:
            os.close(fd)


def _become_worker(talk: int, out: int, err: int) -> NoReturn:
    try:
        os.setsid()
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a tool leaves behind stays in the family, and is found
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for fd in (out, err):
            os.close(fd)
        os.set_inheritable(talk, False)
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1)  # noqa: SIM115 - until the end
        _work(socket.socket(fileno=talk))
    finally:
        os._exit(1)


def _work(talk: socket.socket) -> None:
    talk.sendall(b"!")  # the kernel tells the other side who said it: that is how it learns our number
    home, environment = os.getcwd(), dict(posix.environ)
    while (request := _frame(talk)) is not None:
        threads = set(threading.enumerate())
        reply = _reply(json.loads(request))
        _flush()
        left = _children_are_left() or bool(set(threading.enumerate()) - threads)
        reply["spent"] = left or _cwd() != home or posix.environ != environment  # os.environ, not decoded each time
        _send(talk, reply)


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _frame(talk: socket.socket) -> bytes | None:
    size = _exactly(talk, 8)
    return None if size is None else _exactly(talk, struct.unpack("!Q", size)[0])


def _exactly(talk: socket.socket, size: int) -> bytes | None:
    kept = bytearray()
    while len(kept) < size:
        chunk = talk.recv(min(size - len(kept), 1 << 20))
        if not chunk:
            return None
        kept += chunk
    return bytes(kept)


def _send(talk: socket.socket, reply: dict[str, Any]) -> None:
    content = json.dumps(reply).encode("ascii")
    talk.sendall(struct.pack("!Q", len(content)) + content)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    _LIBC.fflush(None)


def _children_are_left() -> bool:
    """Whether a child still lives; those that have ended are taken off the list."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


_LOADED: dict[str, tuple[Any, TypeAdapter[dict[str, Any]]]] = {}


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    """Call the function; return its value as JSON text, or what went wrong."""
    try:
        function, adapter = _function(request)
        given = adapter.validate_python(request["input"])
    except own_schema.LoadFailed as failed:
        return {"kind": "tool", "message": str(failed)}
    except ValidationError as error:
        return {"kind": "input", "message": _input_words(error)}
    try:
        return _kept(function(**given))
    except BaseException as error:  # noqa: BLE001 - also SystemExit: whatever a tool raises is its failure
        return {"kind": "tool", "message": _words(error, request)}


def _function(request: dict[str, Any]) -> tuple[Any, TypeAdapter[dict[str, Any]]]:
    key = f"{request['source']} {request['function']}"
    if key not in _LOADED:
        sys.path.extend(folder for folder in request["folders"] if folder not in sys.path)
        found = own_schema.functions(own_schema.load(request["source"], request["path"], request["entry"]))
        if request["function"] not in found:
            raise own_schema.LoadFailed(f"{request['source']} no longer has a tool {request['function']!r}")
        function = found[request["function"]]
        _LOADED[key] = function, own_schema.adapter_for(function)
    return _LOADED[key]


def _kept(value: Any) -> dict[str, Any]:
    """Return a value as JSON text: dataclasses, models, dates and paths become what JSON has for them."""
    try:
        text = json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        return {"kind": "tool", "message": f"what it gave back is no JSON value: {error}"}
    if len(text) > LARGEST_REPLY:
        return {"kind": "output", "message": f"it gave back more than {LARGEST_REPLY // 2**20} MiB"}
    return {"value": text}


def _input_words(error: ValidationError) -> str:
    return "; ".join(f"{'/'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))


def _words(error: BaseException, request: dict[str, Any]) -> str:
    """Return type, message, and the line of the person's own file; the log gets the frames."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is ours
    print("".join(traceback.format_list(frames)), file=sys.stderr, end="")
    line = own_schema.line_in(error, request["path"])
    place = f" ({request['source']}:{line})" if line else ""
    return f"{type(error).__name__}: {str(error)[:4000]}".removesuffix(": ") + place


def main() -> None:
    if sys.argv[1] == "serve":
        serve(socket.socket(fileno=int(sys.argv[2])))
    json.dump(describe(json.loads(sys.argv[2])), sys.stdout)


if __name__ == "__main__":
    main()
