"""The tools read_file, write_file, edit_file, list_files and search_files, and where they may read and write.

That is the working folder, and for reading what the settings add; they follow no link out of it. A path as a plan
spells it becomes an open folder and a rest that cannot leave it; what may not be written is asked of `protected`.
"""

import fnmatch
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from agentfs.core.paths import inside, spell_path
from agentfs.core.records import Failure
from agentfs.core.tool_spec import ToolSpec
from agentfs.storage.safe_open import DEEPEST, READABLE, Folder, Refused, hold_folder, real_path
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, LocalTool, StepContext, ToolResult, closed_schema
from agentfs.tools.output import capturing, value_result
from agentfs.tools.process import TookTooLong, ask
from agentfs.tools.protected import Visibility, why_read_only

LARGEST_READ = 256 * 1024 * 1024
LARGEST_EDIT = 16 * 1024 * 1024
MOST_FILES = 100_000
MOST_HITS = 1000
HIT_WIDTH = 500
LONGEST_PATTERN = 1000
PATH_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 4096, "description": "Relative to the working folder"}
_CHUNK = 65536
_TEXT = {"type": "string"}
_PATTERN = {"type": "string", "minLength": 1, "maxLength": LONGEST_PATTERN}


# ── where ─────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def reading(path: str, context: StepContext) -> Iterator[tuple[Folder, str]]:
    """Yield the folder that a path to read lies in, held, and the rest of the path."""
    confinement = context.confinement
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
    sight = Visibility(confinement)

    def may_read(real: str) -> None:
        if why := sight.why_hidden(real):
            raise Refused("outside", why)

    return may_read


def _outside(path: str, way_out: str) -> Refused:
    return Refused("outside", f"{path} lies outside the working folder", f"use a path relative to it, or {way_out}")


@contextmanager
def writing(path: str, context: StepContext) -> Iterator[tuple[int, str]]:
    """Yield the open folder that a file is to be written in, and the file's name."""
    confinement = context.confinement
    workdir = os.fspath(confinement.workdir)
    path = path.removeprefix(workdir.rstrip("/") + "/")
    if os.path.isabs(path):
        raise _outside(path, "choose another folder with workdir in the goal")
    if not confinement.writable:
        raise Refused("outside", f"{path} may not be written: the working folder is only shown here")

    def may_write(real: str) -> None:
        if why := why_read_only(real, confinement):
            raise Refused("outside", f"{os.path.relpath(real, workdir)} may not be written: {why}")

    with hold_folder(workdir) as folder:
        parent, name = folder.open_parent(path, may_write)
        try:
            yield parent, name
        finally:
            os.close(parent)


def read_allowed(path: str, context: StepContext, most: int) -> tuple[int, bytes] | Failure:
    """Return the size and the first bytes of a file that tools may read, or why there are none: for checks."""
    try:
        with reading(path, context) as (folder, rest), os.fdopen(folder.open_file(rest), "rb") as file:
            return os.fstat(file.fileno()).st_size, file.read(most)
    except Refused as refused:
        return refused.failure


# ── read, write, edit ─────────────────────────────────────────────────────────────────────────────────────


def _read_file(given: Mapping[str, Any], context: StepContext) -> ToolResult:
    path = given["path"]
    with reading(path, context) as (folder, rest), os.fdopen(folder.open_file(rest), "rb") as file:
        if os.fstat(file.fileno()).st_size > LARGEST_READ:
            raise Refused(
                "input", f"{path} is larger than {LARGEST_READ // 2**20} MiB", "read a part of it with shell"
            )
        try:
            with capturing(context) as capture:
                while capture.valid and (chunk := file.read(_CHUNK)):
                    context.refuse_if_over("reading did not end")
                    capture.feed(chunk)
        except OSError as error:
            raise Refused("disk", f"{path} cannot be read or kept: {error}") from error
    if not capture.valid:
        with suppress(FileNotFoundError):
            os.unlink(context.output_file)
        raise Refused("input", f"{path} is not UTF-8 text", "use shell or python for other files")
    return ToolResult(capture.text(context.output_file.name), cut=capture.cut)


def _write_file(given: Mapping[str, Any], context: StepContext) -> ToolResult:
    try:
        content = given["content"].encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refused("input", f"content holds what is not text: {error.reason}") from error
    with writing(given["path"], context) as (parent, name):
        _replace(parent, name, content)
        return ToolResult({"path": _show_path(parent, name, context), "bytes": len(content)})


def _edit_file(given: Mapping[str, Any], context: StepContext) -> ToolResult:
    path, old = given["path"], given["old"]
    with writing(path, context) as (parent, name):
        text = _text_of(Folder(parent), name, path)
        if (count := _count(text, old)) != 1:
            found = "is not in" if count == 0 else f"occurs {count} times in"
            raise Refused("input", f"the text to replace {found} {path}", "old must match exactly once")
        try:
            content = text.replace(old, given["new"], 1).encode("utf-8")
        except UnicodeEncodeError as error:
            raise Refused("input", f"new holds what is not text: {error.reason}") from error
        _replace(parent, name, content)
        return ToolResult({"path": _show_path(parent, name, context)})


def _text_of(folder: Folder, name: str, path: str) -> str:
    with os.fdopen(folder.open_file(name), "rb") as file:
        content = file.read(LARGEST_EDIT + 1)
    if len(content) > LARGEST_EDIT:
        raise Refused("input", f"{path} is larger than {LARGEST_EDIT // 2**20} MiB", "edit it with shell or python")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("input", f"{path} is not UTF-8 text", "use shell or python for other files") from error


def _count(text: str, old: str) -> int:
    """Count the places where `old` begins, overlapping ones too."""
    count, at = 0, text.find(old)
    while at >= 0:
        count, at = count + 1, text.find(old, at + 1)
    return count


def _replace(parent: int, name: str, content: bytes) -> None:
    """Put a file in its place, whole or not at all, keeping the mode of what was there."""
    temporary = f".agentfs-{secrets.token_hex(8)}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent)
        try:
            with os.fdopen(fd, "wb") as file:
                with suppress(FileNotFoundError):
                    os.fchmod(fd, os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & 0o777)
                file.write(content)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(temporary, dir_fd=parent)
            raise
    except OSError as error:
        raise Refused("disk", f"{name} cannot be written: {os.strerror(error.errno or 0)}") from error


def _show_path(parent: int, name: str, context: StepContext) -> str:
    return os.path.relpath(os.path.join(real_path(parent), name), context.confinement.workdir)


# ── list and search ───────────────────────────────────────────────────────────────────────────────────────


def _list_files(given: Mapping[str, Any], context: StepContext) -> ToolResult:
    start, pattern = given.get("path") or ".", (given.get("pattern") or "**").split("/")
    with reading(start, context) as (folder, rest):
        found = [
            _join(start, path)
            for path in _files(folder, rest, context)
            if _matches(tuple(path.split("/")), tuple(pattern))
        ]
    return value_result(sorted(map(spell_path, found)), context)


def _join(start: str, path: str) -> str:
    return os.path.normpath(os.path.join(start, path))


def _files(folder: Folder, start: str, context: StepContext) -> Iterator[str]:
    """Yield the files under a folder, relative to it; links to folders and what .git holds are left out."""
    waiting, count = [""], 0
    while waiting:
        context.refuse_if_over("listing did not end")
        below = waiting.pop()
        if below.count("/") >= DEEPEST:
            raise Refused("input", f"folders are nested more than {DEEPEST} deep", "name a smaller folder in path")
        try:
            fd = folder.open_folder(os.path.join(start, below) if below else start)
        except Refused:
            if below:  # gone meanwhile, or not ours to read
                continue
            raise
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    path = os.path.join(below, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting += [] if entry.name == ".git" else [path]
                    elif _is_file(folder, os.path.join(start, path), entry) and folder.shows(fd, entry.name):
                        count += 1
                        yield path
        finally:
            os.close(fd)
        if count > MOST_FILES:
            raise Refused("input", f"there are more than {MOST_FILES} files", "name a smaller folder in path")


def _is_file(folder: Folder, path: str, entry: os.DirEntry[str]) -> bool:
    if not entry.is_symlink():
        return entry.is_file(follow_symlinks=False)
    try:
        os.close(folder.open_file(path))
    except Refused:
        return False
    return True


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a path fits a glob; `**` stands for any number of folders, and at the end for any file.

    Positions are advanced together, so that no pattern takes more than parts x pattern comparisons.
    """
    places = {0}
    for part in parts:
        places = _past_stars(places, pattern)
        stay = {at for at in places if at < len(pattern) and pattern[at] == "**"}
        moved = {at + 1 for at in places - stay if at < len(pattern) and fnmatch.fnmatchcase(part, pattern[at])}
        places = stay | moved
    return len(pattern) in _past_stars(places, pattern)


def _past_stars(places: set[int], pattern: tuple[str, ...]) -> set[int]:
    reached = set(places)
    for at in sorted(places):
        place = at
        while place < len(pattern) and pattern[place] == "**":
            place += 1
            reached.add(place)
    return reached


def _search_files(given: Mapping[str, Any], context: StepContext) -> ToolResult:
    pattern, start = given["pattern"], given.get("path") or "."
    if problem := pattern_problem(pattern):
        raise Refused("input", problem)
    with reading(start, context) as (folder, rest):
        try:
            paths, fd = sorted(_files(folder, rest, context)), folder.open_folder(rest)
        except Refused as refused:
            if not isinstance(refused.__cause__, NotADirectoryError):
                raise
            paths, fd = [""], folder.open_file(rest)  # a single file may be searched, too
    try:
        hits = _search(fd, paths, pattern, context)
    finally:
        os.close(fd)
    return value_result([{**hit, "path": spell_path(_join(start, hit["path"]))} for hit in hits], context)


def _search(fd: int, paths: list[str], pattern: str, context: StepContext) -> list[dict[str, Any]]:
    deadline = min(context.deadline, time.monotonic() + TIMING.search)
    question = {"pattern": pattern, "folder": fd, "paths": paths, "most": MOST_HITS, "width": HIT_WIDTH}
    try:
        hits: list[dict[str, Any]] = ask(question, deadline=deadline, stop=context.stop, fds=(fd,))
    except TookTooLong as late:
        if context.stop.is_set():
            raise Refused("interrupted", "it was stopped") from late
        hint = "simplify the pattern (nested repeats such as (a+)+ explode), or name a smaller folder in path"
        raise Refused("timeout", "the search took too long", hint) from late
    return hits


def pattern_problem(pattern: str) -> str | None:
    """Return what is wrong with a regular expression; None if it can be used."""
    if len(pattern) > LONGEST_PATTERN:
        return f"the pattern has {len(pattern)} characters; {LONGEST_PATTERN} are allowed"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the pattern is not a regular expression: {error}"
    return None


# ── the tools ─────────────────────────────────────────────────────────────────────────────────────────────

read_file = LocalTool(
    ToolSpec("read_file", "Read a text file", closed_schema({"path": PATH_SCHEMA}, "path"), "read", True, "path"),
    _read_file,
)
write_file = LocalTool(
    ToolSpec(
        "write_file",
        "Write a text file, whole; folders on the way are made",
        closed_schema({"path": PATH_SCHEMA, "content": _TEXT}, "path", "content"),
        effects="write",
        repeatable=True,
    ),
    _write_file,
)
edit_file = LocalTool(
    ToolSpec(
        "edit_file",
        "Replace a piece of a text file that stands in it exactly once",
        closed_schema({"path": PATH_SCHEMA, "old": _TEXT | {"minLength": 1}, "new": _TEXT}, "path", "old", "new"),
        effects="write",
        repeatable=False,
    ),
    _edit_file,
)
list_files = LocalTool(
    ToolSpec(
        "list_files",
        "List the files in a folder; ** in the pattern stands for any folders",
        closed_schema({"path": PATH_SCHEMA, "pattern": _PATTERN}),
        effects="read",
        repeatable=True,
    ),
    _list_files,
)
search_files = LocalTool(
    ToolSpec(
        "search_files",
        "Find the lines that match a regular expression",
        closed_schema({"pattern": _PATTERN, "path": PATH_SCHEMA}, "pattern"),
        effects="read",
        repeatable=True,
        text_field="pattern",
    ),
    _search_files,
)
FILE_TOOLS = (read_file, write_file, edit_file, list_files, search_files)
