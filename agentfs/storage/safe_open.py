"""Open what another process or user may have put under a name: records, settings, sources, whatever a step names.

No link is followed that agentfs did not mean to follow, no pipe, device or lease is waited for, only regular files
are read, and no more of them than their reader wants. The kernel's openat2 decides where there is one; elsewhere
every component is opened in turn. A path begins in a folder that is held by a descriptor: one that the caller holds,
or the root, for an absolute path. Commands resolve the workspace once, so a link on a path beneath it was put there
since; only `runs` may be a person's own link, to another disk. Opens, reads and copies.
"""

import errno
import functools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Protocol

from agentfs.storage.system import flags, libc_call

AnyPath = str | os.PathLike[str]
_OPENAT2 = 437  # the same number on every architecture that has the call, but alpha
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_FOLDER = flags("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC")
_FILE = flags("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")  # waits for no FIFO and no lease
_NO_LINK = flags("O_NOFOLLOW")
LOOK = flags("O_PATH", "O_NOFOLLOW", "O_CLOEXEC")
_TRIES = 16  # openat2 says EAGAIN when something was renamed while it went through a `..`
_LINKS = 8
_MOST_LINKS = 40  # on one path, as for the kernel
_CHUNK = 65_536
_OPENS_FOLDERS = hasattr(os, "O_DIRECTORY")  # Windows opens none
READABLE = "the readable folder"  # one of [tools] read
DEEPEST = 200  # folders in one path
MEGABYTE = 1_000_000
MOST_RECORD = 64 * MEGABYTE  # what agentfs writes itself is far smaller, unless limits.output_bytes says otherwise
MOST_LINE = 64 * MEGABYTE
MOST_LOG = 4_000 * MEGABYTE  # a log is read line by line
MOST_SOURCE = 8 * MEGABYTE  # what a person writes: settings, tools, prompts, goals, plans


class NotRegular(OSError):
    """It is not a regular file of bounded size, but a link, a pipe, a device, or a file that is too large."""

    mode: int = 0  # what it is, where that is known


class Refused(Exception):
    """A path or an address that a step may not use, and why."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        from agentfs.core.records import Failure  # commands that only read a name or two do without it

        super().__init__(message)
        self.failure: Failure = Failure(kind=kind, message=message, hint=hint)


# ── the one way to open ───────────────────────────────────────────────────────────────────────────────────


class _Opener(Protocol):
    def __call__(self, folder: int, path: str, wanted: int, *, links: bool = False) -> int: ...


@functools.cache
def _call_openat2() -> Callable[[int, bytes, int, int], int]:
    """Return the system call, as a function of a folder, a path, flags, and how to resolve."""
    import ctypes

    call = libc_call("syscall")
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = functools.cache(lambda wanted, resolve: (ctypes.c_uint64 * 3)(wanted, 0, resolve))  # struct open_how
    number, size = ctypes.c_long(_OPENAT2), ctypes.c_size_t(24)

    def openat2(folder: int, path: bytes, wanted: int, resolve: int) -> int:
        fd = call(number, folder, path, how(wanted, resolve), size)
        return fd if fd >= 0 else -ctypes.get_errno()

    return openat2


def _openat2(folder: int, path: str, wanted: int, *, links: bool = False) -> int:
    """Open a path that stays in a folder. `links`: those that stay in it are followed."""
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | (0 if links else _RESOLVE_NO_SYMLINKS)
    call, name = _call_openat2(), os.fsencode(path)
    for _ in range(_TRIES):
        if (fd := call(folder, name, wanted, resolve)) >= 0:
            return fd
        if fd == -errno.EINTR or (links and fd == -errno.EAGAIN):  # without `..`, EAGAIN says that there is a lease
            continue
        raise OSError(-fd, os.strerror(-fd), path)
    raise OSError(errno.EXDEV, "it keeps changing", path)


def _step_by_step(folder: int, path: str, wanted: int, *, links: bool = False) -> int:  # noqa: ARG001 - as the other
    """Open without openat2: every component by itself, following no link at all."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise OSError(errno.EXDEV, "it leads out", path)
    current = os.open(".", _FOLDER, dir_fd=folder)
    for left in range(len(parts) - 1, -1, -1):
        part = parts[-left - 1]
        try:
            below = os.open(part, (_FOLDER if left else wanted) | _NO_LINK, dir_fd=current)
        except NotADirectoryError:
            if stat.S_ISLNK(os.stat(part, dir_fd=current, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, "a link", path) from None
            raise
        finally:
            os.close(current)
        current = below
    return current


@functools.cache
def _opener() -> _Opener:
    """Return the strongest way to open that this kernel offers."""
    try:
        os.close(_openat2(_root(), ".", _FOLDER))
    except OSError:
        return _step_by_step
    return _openat2


@functools.cache
def _root() -> int:
    return os.open("/", _FOLDER | flags("O_PATH"))


def open_without_links(path: AnyPath, wanted: int = _FOLDER, root: int | None = None) -> int:
    """Open an absolute path on which no link lies, seen from a root. Raises OSError, for a link with ELOOP."""
    name = os.fspath(path)
    try:
        if not _OPENS_FOLDERS:
            return _open_by_path(name, wanted)
        name = name if name.startswith("/") else os.path.abspath(name)
        return _opener()(_root() if root is None else root, name.strip("/") or ".", wanted)
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def _open_by_path(path: str, wanted: int) -> int:
    """Open where no folder can be held, on Windows."""
    if os.path.islink(path):
        raise OSError(errno.ELOOP, "a link", path)
    return os.open(path, wanted)


def _open_found(path: AnyPath, wanted: int) -> int:
    """Open what lies under a path of a workspace: through no link but one that a person made of `runs` itself."""
    try:
        return open_without_links(path, wanted)
    except OSError as error:
        above, runs, inside = f"{os.fspath(path)}/".partition("/runs/")
        if error.errno != errno.ELOOP or not runs or not _OPENS_FOLDERS:
            raise
    with hold_named(f"{above}/runs") as held:
        return _opener()(held, inside.rstrip("/") or ".", wanted)


# ── regular files ─────────────────────────────────────────────────────────────────────────────────────────


def open_regular(path: AnyPath, *, links: bool = False, folder: int | None = None) -> int:
    """Open a regular file for reading; NotRegular if it is anything else, IsADirectoryError if it is a folder.

    Raises BlockingIOError while another process holds a lease. `folder`: a held one that the path begins in, else it
    is a real path. `links`: a person named the file, so links are followed; what they lead to must be regular.
    """
    try:
        if links:
            descriptor = os.open(path, _FILE)
        elif folder is not None:
            descriptor = _opener()(folder, os.fspath(path), _FILE)
        else:
            descriptor = _open_found(path, _FILE)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise
        mode = 0
        with suppress(OSError):
            mode = os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode
        raise _not_regular(path, mode) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise _not_regular(path, mode)


def _not_regular(path: AnyPath, mode: int) -> NotRegular:
    words = "it is no regular file (a link, a pipe, a device or a folder)"
    error = NotRegular(errno.EINVAL, "a link lies on its path" if stat.S_ISREG(mode) else words, os.fspath(path))
    error.mode = mode
    return error


def _too_large(path: AnyPath, most: int) -> NotRegular:
    return NotRegular(errno.EFBIG, f"it is larger than {most // MEGABYTE} MB", os.fspath(path))


def read_regular(path: AnyPath, most: int, *, links: bool = False, folder: int | None = None) -> bytes:
    """Return what a regular file holds, opened as by `open_regular`; NotRegular if it is larger than `most`."""
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


def read_open(descriptor: int, most: int) -> bytes:
    """Return the content of an open file, from its beginning; raises NotRegular if it is larger than `most`."""
    chunks, size = [], 0
    while chunk := os.pread(descriptor, _CHUNK, size):
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise _too_large("", most)
    return b"".join(chunks)


@contextmanager
def reading(path: AnyPath, *, links: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file to be read in parts, however large it is."""
    with os.fdopen(open_regular(path, links=links), "rb") as file:
        yield file


def lines_of(path: AnyPath, most: int = MOST_LOG) -> Iterator[bytes]:
    """Yield the lines of a regular file, one that is too long in pieces; of one that never ends, so much."""
    with reading(path) as file:
        while (line := file.readline(MOST_LINE)) and (most := most - len(line)) > 0:
            yield line


def read_text(path: AnyPath, most: int = MOST_SOURCE) -> str:
    """Return the text of a regular file; what is no UTF-8 in it is replaced."""
    return read_regular(path, most).decode("utf-8", "replace")


def copy_regular(source: AnyPath, target: AnyPath, most: int | None = None) -> None:
    """Copy a regular file, with its times and rights, to where no other process writes; NotRegular if too large."""
    import shutil

    with reading(source) as file:
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise _too_large(source, most)
        with open(target, "wb") as copy:
            shutil.copyfileobj(file, copy)
    shutil.copystat(source, target, follow_symlinks=False)


# ── folders ───────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def hold_inside(name: str, parent: int, *, make: bool = False) -> Iterator[int]:
    """Hold a folder of this name in a held one, which is no link; made if need be. Raises OSError."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    try:
        fd = _opener()(parent, name, _FOLDER)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        words = f"it is {'a link' if error.errno == errno.ELOOP else 'a file'}, not a folder"
        raise NotADirectoryError(errno.ENOTDIR, words, name) from None
    with _closing(fd):
        yield fd


@contextmanager
def hold_named(path: AnyPath) -> Iterator[int]:
    """Hold a folder that a person named; a link to it is followed."""
    with _closing(os.open(path, _FOLDER)) as fd:
        yield fd


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def scan(folder: AnyPath) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder on whose path no link lies. Raises OSError; ask an entry before the next one."""
    if not _OPENS_FOLDERS:
        if os.path.islink(folder):
            raise NotRegular(errno.ELOOP, "it is a link", os.fspath(folder))
        with os.scandir(folder) as entries:
            yield from entries
        return
    with _closing(_open_found(folder, _FOLDER)) as fd, os.scandir(fd) as entries:
        yield from entries


def names_in(folder: AnyPath) -> list[str]:
    """Return the names in a folder on whose path no link lies."""
    return [entry.name for entry in scan(folder)]


def subfolders(folder: AnyPath) -> list[str]:
    """Return the paths of the folders in a folder, links and hidden ones left out; none if it cannot be read."""
    try:
        named = [one.name for one in scan(folder) if one.name[0] != "." and one.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [f"{os.fspath(folder)}/{name}" for name in named]


# ── paths that steps name ─────────────────────────────────────────────────────────────────────────────────


class Folder:
    """A folder that paths cannot leave. `may_read` is given the real path of what is opened, and raises to refuse."""

    def __init__(
        self, fd: int, name: str = "the working folder", may_read: Callable[[str], None] | None = None
    ) -> None:
        self.fd, self._name, self._may_read = fd, name, may_read

    def open_file(self, path: str) -> int:
        """Open a regular file for reading; Refused if it is anything else."""
        fd = self._open_allowed(path, _FILE)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Refused("input", f"{path} is not a file with content", "name a regular file")
        return fd

    def open_folder(self, path: str) -> int:
        return self._open_allowed(path, _FOLDER)

    def shows(self, fd: int, name: str) -> bool:
        """Whether what an open folder in it holds under a name may be read."""
        try:
            if self._may_read:
                self._may_read(os.path.join(real_path(fd), name))
        except Refused:
            return False
        return True

    def _open_allowed(self, path: str, flags: int) -> int:
        fd = self._open(path, flags)
        try:
            if self._may_read:
                self._may_read(real_path(fd))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_parent(self, path: str, may_write: Callable[[str], None]) -> tuple[int, str]:
        """Open the folder a file is to be written in, made if need be; return it with the file's name.

        `may_write` is given the real path of everything that would be made or changed, and raises to refuse.
        """
        for _ in range(_LINKS):
            folder, name = os.path.split(path.rstrip("/") if path.strip("/") else "")
            if name in ("", ".", ".."):
                raise Refused("input", f"{path or '.'} is a folder", "name a file")
            parent = self._make(folder or ".", may_write)
            try:
                may_write(os.path.join(real_path(parent), name))
                target = _target(parent, name)
            except BaseException:
                os.close(parent)
                raise
            if target is None:
                return parent, name
            os.close(parent)
            if target.startswith("/"):
                break
            path = os.path.join(folder, target)
        raise Refused("outside", f"{path} is a link that leads out of {self._name}", "name the file itself")

    def _make(self, folder: str, may_write: Callable[[str], None]) -> int:
        """Open a folder, making what is missing of it."""
        parts = folder.split("/")
        if len(parts) > DEEPEST:
            raise Refused("input", f"{folder[:60]}… is nested more than {DEEPEST} deep")
        for n in range(len(parts) + 1):
            try:
                os.close(self._open("/".join(parts[:n]), _FOLDER))
            except Refused as refused:
                if not isinstance(refused.__cause__, FileNotFoundError):
                    raise
                self._make_one("/".join(parts[: n - 1]), parts[n - 1], may_write)
        return self._open(folder, _FOLDER)

    def _make_one(self, above: str, name: str, may_write: Callable[[str], None]) -> None:
        parent = self._open(above, _FOLDER)
        try:
            may_write(os.path.join(real_path(parent), name))
            with self._words(name), suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
        finally:
            os.close(parent)

    def _open(self, path: str, flags: int) -> int:
        with self._words(path):
            if "\0" in path:
                raise ValueError("a NUL character")
            return _opener()(self.fd, path or ".", flags, links=True)

    @contextmanager
    def _words(self, path: str) -> Iterator[None]:
        """Turn errors of the kernel into a Refused that a person understands."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise _refusal(path, error, self._name) from error


def _refusal(path: str, error: OSError | ValueError, folder: str) -> Refused:
    shown = ascii(path)[1:-1] if isinstance(error, ValueError) else path
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, ValueError):  # NUL, or a character that no file name can hold
        return Refused("input", f"{shown[:200]} is not a file name", "leave out control characters")
    if number in (errno.EXDEV, errno.ELOOP):
        return Refused("outside", f"{shown} leads out of {folder}", "name a file inside it")
    if number in (errno.ENXIO, errno.ENODEV):
        return Refused("input", f"{shown} is not a file with content", "name a regular file")
    if number == errno.ENOENT:
        return Refused("input", f"there is no {shown} in {folder}")
    if number == errno.ENAMETOOLONG:
        return Refused("input", f"{shown[:60]}… is too long for a file name")
    if number in (errno.ENOTDIR, errno.EISDIR):
        return Refused("input", f"{shown} is {'not ' if number == errno.ENOTDIR else ''}a folder")
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused("outside", f"{shown}: {os.strerror(number).lower()}")
    return Refused("disk", f"{shown}: {error}")


def real_path(fd: int) -> str:
    """Return the real path of an open folder."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:  # longer than the kernel can tell
        raise Refused("input", "the folder's path is too long", "use fewer or shorter folders") from error


def _target(parent: int, name: str) -> str | None:
    """Return what a link points to; None if it is no link. Anything but a regular file is refused."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _refusal(name, error, "the working folder") from error
    if stat.S_ISLNK(mode):
        return os.readlink(name, dir_fd=parent)
    if stat.S_ISDIR(mode):
        raise Refused("input", f"{name} is a folder", "name a file")
    if not stat.S_ISREG(mode):
        raise Refused("input", f"{name} is not a file with content", "name a regular file")
    return None


@contextmanager
def hold_folder(
    path: str, name: str = "the working folder", may_read: Callable[[str], None] | None = None
) -> Iterator[Folder]:
    """Open a folder for as long as the block lasts. Its path is a real one: a link on it was put there since."""
    try:
        fd = open_without_links(path)
    except OSError as error:
        raise _not_held(path, name, error) from error
    with _closing(fd):
        yield Folder(fd, name, may_read)


def _not_held(path: str, name: str, error: OSError) -> Refused:
    if error.errno in (errno.ELOOP, errno.EXDEV):
        words = f"{name} {path} cannot be opened: a symbolic link has taken its place"
        return Refused("outside", words, "a step may have put it there: look at it, and put the folder back")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Refused("input", f"{name} {path} is not there", "make it, or choose another")
    return Refused("input", f"{name} {path} cannot be opened: {os.strerror(error.errno or 0)}")


def identity(path: str, root: int | None = None) -> tuple[int, int] | None:
    """Return which file or folder is at a path, seen from a root; None if there is none, or a link is on the way."""
    try:
        fd = open_without_links(path, LOOK, root)
    except OSError:
        return None
    with _closing(fd):
        found = os.fstat(fd)
    return None if stat.S_ISLNK(found.st_mode) else (found.st_dev, found.st_ino)


def resolve_links_of_others(path: str) -> str:
    """Return a path with its links resolved; from one on that this user, so a step, may have made, as it is spelt."""
    todo, done = _parts(path), "/"
    for _ in range(_MOST_LINKS):
        while todo and not os.path.islink(at := os.path.join(done, todo[-1])):
            part = todo.pop()
            done = os.path.dirname(done) if part == ".." else at
        if not todo or os.access(done, os.W_OK, effective_ids=True):
            break
        target = os.readlink(os.path.join(done, todo.pop()))
        done, todo = ("/" if target.startswith("/") else done), [*todo, *_parts(target)]
    return os.path.normpath(os.path.join(done, *reversed(todo)))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")][::-1]
