"""The tools read_file, write_file and edit_file. They cannot leave the working folder (see `places`)."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.base import Bench, ToolResult
from agentfs.tools.capture import Capture
from agentfs.tools.finding import list_files, search_files
from agentfs.tools.places import PATH_SCHEMA, FileTool, closed, look_up, reading, writing
from agentfs.tools.safe_open import Folder, Refused, real_path

LARGEST_READ = 256 * 1024 * 1024
LARGEST_EDIT = 16 * 1024 * 1024
_CHUNK = 65536
_TEXT = {"type": "string"}


def _read_file(given: Mapping[str, Any], bench: Bench) -> ToolResult:
    path = given["path"]
    capture = Capture(bench.output_bytes, bench.mask, bench.output_file)
    with reading(path, bench) as (folder, rest), os.fdopen(folder.open_file(rest), "rb") as file:
        if os.fstat(file.fileno()).st_size > LARGEST_READ:
            raise Refused(
                "input", f"{path} is larger than {LARGEST_READ // 2**20} MiB", "read a part of it with shell"
            )
        try:
            while capture.valid and (chunk := file.read(_CHUNK)):
                look_up(bench, "reading")
                capture.feed(chunk)
            capture.end()
        except OSError as error:
            raise Refused("disk", f"{path} cannot be read or kept: {error}") from error
        finally:
            capture.close()
    if not capture.valid:
        with suppress(FileNotFoundError):
            os.unlink(bench.output_file)
        raise Refused("input", f"{path} is not UTF-8 text", "use shell or python for other files")
    return ToolResult(capture.text(bench.output_file.name), cut=capture.cut)


def _write_file(given: Mapping[str, Any], bench: Bench) -> ToolResult:
    try:
        content = given["content"].encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refused("input", f"content holds what is not text: {error.reason}") from error
    with writing(given["path"], bench) as (parent, name):
        _replace(parent, name, content)
        return ToolResult({"path": _shown(parent, name, bench), "bytes": len(content)})


def _edit_file(given: Mapping[str, Any], bench: Bench) -> ToolResult:
    path, old = given["path"], given["old"]
    with writing(path, bench) as (parent, name):
        text = _text_of(Folder(parent), name, path)
        if (count := _count(text, old)) != 1:
            found = "is not in" if count == 0 else f"occurs {count} times in"
            raise Refused("input", f"the text to replace {found} {path}", "old must match exactly once")
        try:
            content = text.replace(old, given["new"], 1).encode("utf-8")
        except UnicodeEncodeError as error:
            raise Refused("input", f"new holds what is not text: {error.reason}") from error
        _replace(parent, name, content)
        return ToolResult({"path": _shown(parent, name, bench)})


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


def _shown(parent: int, name: str, bench: Bench) -> str:
    return os.path.relpath(os.path.join(real_path(parent), name), bench.confinement.workdir)


read_file = FileTool(
    ToolSpec("read_file", "Read a text file", closed({"path": PATH_SCHEMA}, "path"), "read", True, "path"), _read_file
)
write_file = FileTool(
    ToolSpec(
        "write_file",
        "Write a text file, whole; folders on the way are made",
        closed({"path": PATH_SCHEMA, "content": _TEXT}, "path", "content"),
        effects="write",
        repeatable=True,
    ),
    _write_file,
)
edit_file = FileTool(
    ToolSpec(
        "edit_file",
        "Replace a piece of a text file that stands in it exactly once",
        closed({"path": PATH_SCHEMA, "old": _TEXT | {"minLength": 1}, "new": _TEXT}, "path", "old", "new"),
        effects="write",
        repeatable=False,
    ),
    _edit_file,
)
FILE_TOOLS = (read_file, write_file, edit_file, list_files, search_files)
