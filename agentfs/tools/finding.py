"""The tools list_files and search_files. They follow no link out of the working folder (see `places`)."""

import fnmatch
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, ToolResult
from agentfs.tools.bounded import SEARCH, TookTooLong, ask, pattern_problem
from agentfs.tools.capture import value_result
from agentfs.tools.places import PATH_SCHEMA, FileTool, closed, look_up, reading
from agentfs.tools.safe_open import DEEPEST, Folder, Refused

MOST_FILES = 100_000
MOST_HITS = 1000
HIT_WIDTH = 500
SEARCH_S = 60.0
_PATTERN = {"type": "string", "minLength": 1, "maxLength": 1000}


def _list_files(given: Mapping[str, Any], bench: Bench) -> ToolResult:
    start, pattern = given.get("path") or ".", (given.get("pattern") or "**").split("/")
    with reading(start, bench) as (folder, rest):
        found = [
            _joined(start, path)
            for path in _files(folder, rest, bench)
            if _matches(tuple(path.split("/")), tuple(pattern))
        ]
    return value_result(sorted(map(_printable, found)), bench)


def _joined(start: str, path: str) -> str:
    return os.path.normpath(os.path.join(start, path))


def _printable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _files(folder: Folder, start: str, bench: Bench) -> Iterator[str]:
    """Yield the files under a folder, relative to it; links to folders and what .git holds are left out."""
    waiting, count = [""], 0
    while waiting:
        look_up(bench, "listing")
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


def _search_files(given: Mapping[str, Any], bench: Bench) -> ToolResult:
    pattern, start = given["pattern"], given.get("path") or "."
    if problem := pattern_problem(pattern):
        raise Refused("input", problem)
    with reading(start, bench) as (folder, rest):
        try:
            paths, fd = sorted(_files(folder, rest, bench)), folder.open_folder(rest)
        except Refused as refused:
            if not isinstance(refused.__cause__, NotADirectoryError):
                raise
            paths, fd = [""], folder.open_file(rest)  # a single file may be searched, too
    try:
        hits = _searched(fd, paths, pattern, bench)
    finally:
        os.close(fd)
    return value_result([{**hit, "path": _printable(_joined(start, hit["path"]))} for hit in hits], bench)


def _searched(fd: int, paths: list[str], pattern: str, bench: Bench) -> list[dict[str, Any]]:
    deadline = min(bench.deadline, time.monotonic() + SEARCH_S)
    question = {"pattern": pattern, "folder": fd, "paths": paths, "most": MOST_HITS, "width": HIT_WIDTH}
    try:
        hits: list[dict[str, Any]] = ask(SEARCH, question, deadline=deadline, stop=bench.stop, fds=(fd,))
    except TookTooLong as late:
        if bench.stop.is_set():
            raise Refused("interrupted", "searching was stopped") from late
        hint = "simplify the pattern (nested repeats such as (a+)+ explode), or name a smaller folder in path"
        raise Refused("timeout", "the search took too long", hint) from late
    return hits


list_files = FileTool(
    ToolSpec(
        "list_files",
        "List the files in a folder; ** in the pattern stands for any folders",
        closed({"path": PATH_SCHEMA, "pattern": _PATTERN}),
        effects="read",
        repeatable=True,
    ),
    _list_files,
)
search_files = FileTool(
    ToolSpec(
        "search_files",
        "Find the lines that match a regular expression",
        closed({"pattern": _PATTERN, "path": PATH_SCHEMA}, "pattern"),
        effects="read",
        repeatable=True,
        text_field="pattern",
    ),
    _search_files,
)
