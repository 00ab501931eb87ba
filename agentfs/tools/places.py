"""Where the file tools may read and write: the working folder, and for reading what the settings add.

Turns a path as a plan spells it into an open folder and a rest that cannot leave it; what may not be written
is asked of `protected`.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentfs.core.paths import inside
from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, Confinement, ToolResult
from agentfs.tools.protected import Sight, Unfenceable, why_read_only
from agentfs.tools.safe_open import READABLE, Folder, Refused, hold_folder

PATH_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 4096, "description": "Relative to the working folder"}


@dataclass(frozen=True, slots=True)
class FileTool:
    """A tool that works on files in this process: claims, acts, and answers in words when it may not."""

    spec: ToolSpec
    act: Callable[[Mapping[str, Any], Bench], ToolResult]

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        bench.claim(None)
        try:
            return self.act(given, bench)
        except Refused as refused:
            return ToolResult(failure=refused.failure)


def closed(fields: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Return the schema of an input that holds these fields and no others."""
    return {"type": "object", "properties": dict(fields), "required": list(required), "additionalProperties": False}


@contextmanager
def reading(path: str, bench: Bench) -> Iterator[tuple[Folder, str]]:
    """Yield the folder that a path to read lies in, held, and the rest of the path."""
    confinement = bench.confinement
    may_read, workdir = _may_read(confinement), os.fspath(confinement.workdir)
    if not os.path.isabs(path) or inside(path, workdir):
        with hold_folder(workdir, may_read=may_read) as folder:
            yield folder, "." if path == workdir else path.removeprefix(workdir + "/")
            return
    for readable in confinement.readable:
        root = os.fspath(readable)
        if path == root or (inside(path, root) and os.path.isdir(root)):
            above, rest = (root, path[len(root) + 1 :]) if os.path.isdir(root) else os.path.split(root)
            with hold_folder(above, READABLE, may_read) as folder:
                yield folder, rest or "."
                return
    raise _outside(path, confinement.change("add its folder to read"))


def _may_read(confinement: Confinement) -> Callable[[str], None]:
    sight = Sight(confinement)

    def may_read(real: str) -> None:
        if why := sight.why_hidden(real):
            raise Refused("outside", why)

    return may_read


def _outside(path: str, way_out: str) -> Refused:
    return Refused("outside", f"{path} lies outside the working folder", f"use a path relative to it, or {way_out}")


@contextmanager
def writing(path: str, bench: Bench) -> Iterator[tuple[int, str]]:
    """Yield the open folder that a file is to be written in, and the file's name."""
    confinement = bench.confinement
    workdir = os.fspath(confinement.workdir)
    path = path.removeprefix(workdir.rstrip("/") + "/")
    if os.path.isabs(path):
        raise _outside(path, "choose another folder with workdir in the goal")
    if not confinement.writable:
        raise Refused("outside", f"{path} may not be written: the working folder is only shown here")

    def may_write(real: str) -> None:
        try:
            why = why_read_only(real, confinement)
        except Unfenceable as error:
            raise Refused("sandbox", str(error), "choose another workdir") from error
        if why:
            raise Refused("outside", f"{os.path.relpath(real, workdir)} may not be written: {why}")

    with hold_folder(workdir) as folder:
        parent, name = folder.open_parent(path, may_write)
        try:
            yield parent, name
        finally:
            os.close(parent)


def look_up(bench: Bench, doing: str) -> None:
    if bench.stop.is_set():
        raise Refused("interrupted", f"{doing} was stopped")
    if time.monotonic() >= bench.deadline:
        late = bench.limit.failure(f"{doing} did not end")
        raise Refused(late.kind, late.message, late.hint)


def read_beneath(path: str, bench: Bench, most: int) -> tuple[int, bytes] | Failure:
    """Return the size and the first bytes of a file that tools may read, or why there are none: for checks."""
    try:
        with reading(path, bench) as (folder, rest), os.fdopen(folder.open_file(rest), "rb") as file:
            return os.fstat(file.fileno()).st_size, file.read(most)
    except Refused as refused:
        return refused.failure
