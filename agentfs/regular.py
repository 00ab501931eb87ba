"""Reads whole files by name that somebody else may have put there: records, settings, sources, texts of people.

No link is followed, no pipe, device or lease is waited for, and nothing is read that is larger than its reader wants.
`tools/safe_open` does the same for paths that a step names, which may lead anywhere. Opens and reads; writes nothing.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from agentfs.system import flags

_READ = flags("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
_NOFOLLOW = flags("O_NOFOLLOW")
_FOLDER = flags("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC")
_CHUNK = 65_536
_NO_FILE = "it is no regular file (a link, a pipe, a device or a folder)"
MEGABYTE = 1_000_000
MOST_RECORD = 64 * MEGABYTE  # what agentfs writes itself is far smaller, unless limits.output_bytes says otherwise
MOST_LINE = 64 * MEGABYTE
MOST_LOG = 4_000 * MEGABYTE  # a log is read line by line
MOST_SOURCE = 8 * MEGABYTE  # what a person writes: settings, tools, prompts, goals, plans


class NotRegular(OSError):
    """There is no file with content, or too much of it: a link, a pipe, a device, a file without end."""

    mode: int = 0  # what it is, where that is known


def read_regular(path: str | os.PathLike[str], most: int, *, links: bool = False, folder: int | None = None) -> bytes:
    """Return what a file holds. No link is followed, no pipe or device waited for, and no larger file read.

    Raises OSError: NotRegular for those, BlockingIOError while another process holds a lease. `links`: a link is
    followed all the same; what it leads to must be regular. `folder`: an open folder that the path begins in.
    """
    descriptor = open_regular(path, links=links, folder=folder)
    try:
        chunks = [os.read(descriptor, _CHUNK)]
        while len(chunks[-1]) == _CHUNK:  # runs have thousands of small files: most are read in one go
            if len(chunks) == 1 and os.fstat(descriptor).st_size > most:
                raise _too_large(path, most)
            if len(chunks) * _CHUNK > most:  # it grows while it is read
                raise _too_large(path, most)
            chunks.append(os.read(descriptor, _CHUNK))
    finally:
        os.close(descriptor)
    return b"".join(chunks)


def open_regular(path: str | os.PathLike[str], *, links: bool = False, folder: int | None = None) -> int:
    """Open a regular file for reading; NotRegular if it is anything else, IsADirectoryError if it is a folder."""
    try:
        descriptor = os.open(path, _READ if links else _READ | _NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise
        raise _not_regular(path, os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise _not_regular(path, mode)


def _not_regular(path: str | os.PathLike[str], mode: int) -> NotRegular:
    error = NotRegular(errno.EINVAL, _NO_FILE, os.fspath(path))
    error.mode = mode
    return error


def read_open(descriptor: int, most: int) -> bytes:
    """Return the content of an open file, from its beginning; raises NotRegular if it is larger than `most`."""
    chunks, size = [], 0
    while chunk := os.pread(descriptor, _CHUNK, size):
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise _too_large("", most)
    return b"".join(chunks)


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names in a folder that is no link."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folder
        if os.path.islink(folder):
            raise NotRegular(errno.ELOOP, "it is a link", os.fspath(folder))
        return os.listdir(folder)
    descriptor = os.open(folder, _FOLDER | _NOFOLLOW)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def _too_large(path: str | os.PathLike[str], most: int) -> NotRegular:
    return NotRegular(errno.EFBIG, f"it is larger than {most // 1_000_000} MB", os.fspath(path))


@contextmanager
def reading(path: str | os.PathLike[str], *, links: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file to be read in parts, however large it is."""
    with os.fdopen(open_regular(path, links=links), "rb") as file:
        yield file


def lines_of(path: str | os.PathLike[str], most: int = MOST_LOG) -> Iterator[bytes]:
    """Yield the lines of a regular file, one that is too long in pieces; of one that never ends, so much."""
    with reading(path) as file:
        while (line := file.readline(MOST_LINE)) and (most := most - len(line)) > 0:
            yield line


def read_text(path: str | os.PathLike[str], most: int = MOST_SOURCE) -> str:
    """Return the text of a regular file; what is no UTF-8 in it is replaced."""
    return read_regular(path, most).decode("utf-8", "replace")
