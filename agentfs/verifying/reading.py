"""One run's folder as records and hashes. Reads only; what does not read is told, the rest is still there."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.agreement import Fault, RunFiles
from agentfs.core.hashing import sha256_bytes
from agentfs.core.records import Answer, Call, Order, Outcome, Record, Result, Revision, Run
from agentfs.disk import read_whole
from agentfs.owed import blob_sha

R = TypeVar("R", bound=Record)
PARTS = (paths.PLANNING, paths.REVISIONS, paths.STEPS)


@dataclass(slots=True)
class Folder:
    """What lies in a run's folder: the name git gives to every file's content, and the records in them."""

    root: str
    blobs: dict[str, str] = field(default_factory=dict)
    files: RunFiles = field(default_factory=lambda: RunFiles(""))
    faults: list[Fault] = field(default_factory=list)


def read_folder(folder: Path) -> Folder:
    """Read a run; each file once."""
    found = Folder(str(folder), files=RunFiles(f"{folder.parent.name}/{folder.name}"))
    torn: list[tuple[str, int]] = []
    for path in _paths(str(folder)):
        if paths.writing_of(path) == "appended":  # it may be large, and is compared piece by piece
            found.blobs[path] = ""
            continue
        try:
            source = read_whole(f"{folder}/{path}")
        except FileNotFoundError:  # it was there a moment ago: `blobs` says that it is not
            continue
        except OSError as error:
            found.faults.append(Fault(path, f"cannot be read: {error.strerror}"))
            continue
        found.blobs[path] = blob_sha(source)
        _take(path, source, found, torn)
    found.files.paths = frozenset(found.blobs)
    for step, attempt in torn:  # an order is not fsynced: after a power cut it may be empty
        result = found.files.results.get((step, attempt))
        if result is not None and result.status != "interrupted":
            order = f"{paths.STEPS}/{paths.step_file(step, attempt, 'order')}"
            found.faults.append(Fault(order, "does not read, and it was carried out"))
    return found


def _paths(folder: str) -> Iterator[str]:
    """Yield the paths of agentfs's own files, but for what the steps made and views."""
    for part in ("", *PARTS):
        try:
            with os.scandir(f"{folder}/{part}") as entries:
                listed = [one.name for one in entries if one.name[0] != "." and one.is_file(follow_symlinks=False)]
        except OSError:
            continue
        for name in sorted(listed):
            if part or name in (paths.RUN, paths.PLAN, paths.OUTCOME) or _is_goal(name):
                yield f"{part}/{name}" if part else name


def _is_goal(name: str) -> bool:
    return any(name == f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES)


def _take(path: str, source: bytes, found: Folder, torn: list[tuple[str, int]]) -> None:
    """Take in one file by its name."""
    files, (part, _, name) = found.files, path.rpartition("/")
    if path == paths.RUN:
        files.run = _record(path, source, Run, found)
    elif path == paths.OUTCOME:
        files.outcome = _record(path, source, Outcome, found)
    elif part == paths.REVISIONS and (revision := paths.parse_revision_file(name)):
        _take_revision(path, source, *revision, found)
    elif part == paths.PLANNING:
        _take_call(path, source, name, found)
    elif part == paths.STEPS and (step := paths.parse_step_file(name)):
        if step.kind == "result" and (result := _record(path, source, Result, found)):
            files.results[step.step, step.attempt] = result
        elif step.kind == "order":
            try:
                files.orders[step.step, step.attempt] = Order.model_validate_json(source)
            except ValidationError:
                torn.append((step.step, step.attempt))


def _take_revision(path: str, source: bytes, number: int, kind: str, found: Folder) -> None:
    if kind == "plan":
        found.files.plans[number] = sha256_bytes(source)
    elif record := _record(path, source, Revision, found):
        found.files.revisions[number] = record


def _take_call(path: str, source: bytes, name: str, found: Folder) -> None:
    files, file = found.files, paths.parse_call_file(name)
    if file is None:
        number, _, rest = name.partition(".")
        if number.isdigit() and _is_goal(rest):
            files.goals[int(number)] = sha256_bytes(source)
    elif file.kind == "call" and (call := _record(path, source, Call, found)):
        files.calls[file.call] = call
    elif file.kind == "answer" and (answer := _record(path, source, Answer, found)):
        files.answers[file.call] = answer
    elif file.kind == "plan":
        files.tries.setdefault(file.call, set()).add(sha256_bytes(source))


def _record(path: str, source: bytes, kind: type[R], found: Folder) -> R | None:
    try:
        return kind.model_validate_json(source)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(str(part) for part in first["loc"]) or "the file"
        found.faults.append(Fault(path, f"does not read ({where}: {first['msg']})"))
        return None
