"""The program in which a person's own tools run, inside the sandbox. Run as a script, isolated (`python -I`):

    user_tool_worker.py FD      answer requests on the socket FD, one after another, until it ends

A request is a line of JSON, and so is its answer; the first line of all says that the worker is ready.
{"sources", "folders", "seconds"} asks what tools there are: each source is loaded in a process of its own.
{"source", "function", "folders", "input"} calls one. The person's module is loaded at its first call, never before:
until then nothing of theirs has run. `spent` in an answer says that the tool left something behind.
"""

import contextlib
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import posix
import socket
import sys
import threading
import time
import traceback
import types
import typing
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentfs.tools.user_tools import MARK, Found, adapter_for, describe_all

LARGEST_REPLY = 64 * 1024 * 1024
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)

Answer = dict[str, Any]
_LOADED: dict[tuple[str, str], tuple[Callable[..., Any], TypeAdapter[dict[str, Any]]]] = {}


# ── load a person's module ────────────────────────────────────────────────────────────────────────────────


class LoadFailed(Exception):
    """A module cannot be loaded: why."""


def load(source: Answer) -> Any:
    """Return the module of a source, or the one function that its entry point names."""
    try:
        if source["entry"] is not None:
            module, _, attribute = source["entry"].partition(":")
            loaded = importlib.import_module(module)
            return getattr(loaded, attribute) if attribute else loaded
        return _load_file(source["path"] or "")
    except BaseException as error:  # noqa: BLE001 - also SystemExit: a module may do anything while it is loaded
        raise LoadFailed(f"{source['shown']} could not be loaded: {_why(error, source['path'])}") from None


def _load_file(path: str) -> types.ModuleType:
    """Load one file of tools/ as a module of the package `tools`, so that it can import its neighbours."""
    folder, stem = os.path.dirname(path), os.path.basename(path).removesuffix(".py")
    if "tools" not in sys.modules:
        package = types.ModuleType("tools")
        package.__path__ = [folder]
        sys.modules["tools"] = package
        sys.path.append(folder)  # behind everything: a file called json.py must not hide the real one
    name = f"tools.{stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _why(error: BaseException, path: str | None) -> str:
    """Return what went wrong, with the line of the person's own file where it did."""
    if isinstance(error, SyntaxError) and error.lineno:
        where = "" if error.filename == path else f"{os.path.basename(error.filename or '')}, "
        return f"{where}line {error.lineno}: {error.msg}"
    line = _line_in(error, path)
    words = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"line {line}: {words}" if line else words


def _line_in(error: BaseException, path: str | None) -> int | None:
    """Return the last line of a file that an error passed through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return frames[-1].lineno if frames else None


def functions(loaded: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions under @tool that a module itself has, or the one function that was named."""
    if not isinstance(loaded, types.ModuleType):
        return {loaded.__name__: loaded} if hasattr(loaded, MARK) else {}
    own = {name: value for name, value in vars(loaded).items() if inspect.isroutine(value) and hasattr(value, MARK)}
    return {name: value for name, value in own.items() if value.__module__ == loaded.__name__}


# ── what tools there are ──────────────────────────────────────────────────────────────────────────────────


def describe_sources(request: Answer) -> Answer:
    """Return what each source holds. One that hangs or crashes spoils nothing for the others."""
    import multiprocessing

    for name in ("agentfs.core.tool_spec", "pydantic.json_schema"):
        importlib.import_module(name)  # once, before the children that need it are forked
    sys.path.extend(request["folders"])
    context = multiprocessing.get_context("fork")
    running = []
    for source in request["sources"]:
        ours, theirs = context.Pipe(duplex=False)
        context.Process(target=_describe_into, args=(theirs, source), daemon=True).start()
        theirs.close()
        running.append((source["shown"], ours))
    until = time.monotonic() + request["seconds"]
    found = [_receive(pipe, shown, until, request["seconds"]) for shown, pipe in running]
    return {"tools": [one for part in found for one in part["tools"]],
            "problems": [one for part in found for one in part["problems"]]}  # fmt: skip


def _describe_into(pipe: Any, source: Answer) -> None:
    try:
        pipe.send_bytes(json.dumps(asdict(describe_functions(source["shown"], load(source)))).encode("utf-8"))
    except LoadFailed as failed:
        pipe.send_bytes(json.dumps(asdict(Found((), (str(failed),)))).encode("utf-8"))


def _receive(pipe: Any, shown: str, until: float, seconds: float) -> Answer:
    try:
        if pipe.poll(max(0.0, until - time.monotonic())):
            found: Answer = json.loads(pipe.recv_bytes())
            return found
        why = f"it had not been loaded after {seconds:g} s"
    except (EOFError, OSError, ValueError):
        why = "it ended Python"
    return {"tools": [], "problems": [f"{shown} could not be loaded: {why}"]}


def describe_functions(shown: str, loaded: Any) -> Found:
    """Return the tools of what was loaded, and what is wrong with those that cannot be."""
    found = functions(loaded).items()
    return describe_all(shown, ((name, made, _def_line(inspect.unwrap(made))) for name, made in found))


def _def_line(made: Callable[..., Any]) -> int:
    """Return the line of `def`: Python counts a function from its first decorator."""
    try:
        lines, start = inspect.getsourcelines(made)
    except (OSError, TypeError):
        return int(getattr(getattr(made, "__code__", None), "co_firstlineno", 1))
    return start + next((n for n, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), 0)


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────


def call(request: Answer) -> Answer:
    """Call a function; return its value as JSON text, or what went wrong."""
    try:
        function, adapter = _load(request)
        given = adapter.validate_python(request["input"])
    except LoadFailed as failed:
        return {"kind": "tool", "message": str(failed)}
    except ValidationError as error:
        wrong = (f"{'/'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
        return {"kind": "input", "message": "; ".join(wrong)}
    try:
        return _json_text(function(**given))
    except BaseException as error:  # noqa: BLE001 - also SystemExit: whatever a tool raises is its failure
        return {"kind": "tool", "message": _error_text(error, request["source"])}


def _load(request: Answer) -> tuple[Callable[..., Any], TypeAdapter[dict[str, Any]]]:
    source, name = request["source"], request["function"]
    key = source["shown"], name
    if key not in _LOADED:
        sys.path.extend(folder for folder in request["folders"] if folder not in sys.path)
        found = functions(load(source))
        if name not in found:
            raise LoadFailed(f"{source['shown']} no longer has a tool {name!r}")
        _LOADED[key] = found[name], adapter_for(found[name])
    return _LOADED[key]


def _json_text(value: Any) -> Answer:
    """Return a value as JSON text: dataclasses, models, dates and paths become what JSON has for them."""
    try:
        text = json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        return {"kind": "tool", "message": f"what it gave back is no JSON value: {error}"}
    if len(text) > LARGEST_REPLY:
        return {"kind": "output", "message": f"it gave back more than {LARGEST_REPLY // 2**20} MiB"}
    return {"value": text}


def _error_text(error: BaseException, source: Answer) -> str:
    """Return type, message, and the line of the person's own file; the log gets the frames."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is ours
    print("".join(traceback.format_list(frames)), file=sys.stderr, end="")
    line = _line_in(error, source["path"])
    place = f" ({source['shown']}:{line})" if line else ""
    return f"{type(error).__name__}: {str(error)[:4000]}".removesuffix(": ") + place


# ── serve ─────────────────────────────────────────────────────────────────────────────────────────────────


def serve(channel: socket.socket) -> None:
    """Answer every line, until the socket ends."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a tool leaves behind becomes a child of ours, and is found
    with channel.makefile("rwb") as lines:
        _send(lines, {"ready": True})
        for line in lines:
            request = json.loads(line)
            if request.get("traceparent"):
                os.environ["TRACEPARENT"] = request["traceparent"]
            before = _surroundings()  # with what is set here: only the tool's own changes count
            answer = describe_sources(request) if "sources" in request else call(request)
            _flush()
            _send(lines, answer | {"spent": _has_children() or _surroundings() != before})


def _send(lines: Any, answer: Answer) -> None:
    lines.write(json.dumps(answer).encode("ascii") + b"\n")
    lines.flush()


def _surroundings() -> tuple[Any, ...]:
    """Return what a tool must not change for the next call in this worker."""
    try:
        streams = [os.fstat(fd).st_ino for fd in (1, 2)]
        return os.getcwd(), streams, dict(posix.environ), set(threading.enumerate())
    except OSError:
        return ()


def _has_children() -> bool:
    """Whether a child still lives; those that have ended are taken off the list."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    _LIBC.fflush(None)


def main() -> None:
    number = int(sys.argv[1])
    os.set_inheritable(number, False)
    typing.cast("Any", sys.stdout).reconfigure(encoding="utf-8", errors="replace", line_buffering=True)
    serve(socket.socket(fileno=number))
    os._exit(0)  # a thread that a tool left does not keep it alive


if __name__ == "__main__":
    main()
