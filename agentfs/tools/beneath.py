"""Opens files that cannot leave a folder, whatever links, `..` or races stand in the way.

The kernel's openat2 decides where there is one; elsewhere every component is opened in turn and no link is
followed. Names and words for what went wrong; it reads and writes no content.
"""

import ctypes
import errno
import functools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from agentfs.core.records import Failure
from agentfs.system import flags, libc_call

_OPENAT2 = 437  # the same number on every architecture that has the call, but alpha
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_FOLDER = flags("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC")
_FILE = flags("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")  # a FIFO must not make us wait
_TRIES = 16  # openat2 says EAGAIN when something was renamed meanwhile
_LINKS = 8
DEEPEST = 200  # folders in one path


class Refused(Exception):
    """A path that may not be opened, and why."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, hint=hint)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(folder: int, path: str, wanted: int) -> int:
    how = _How(wanted, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    syscall = libc_call("syscall")
    if syscall is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
    for _ in range(_TRIES):
        fd = syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(folder),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return fd
        if (number := ctypes.get_errno()) != errno.EAGAIN:
            raise OSError(number, os.strerror(number), path)
    raise OSError(errno.EXDEV, "it keeps changing", path)


def _step_by_step(folder: int, path: str, wanted: int) -> int:
    """Open without openat2: every component by itself, following no link at all."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise OSError(errno.EXDEV, "it leads out", path)
    current = os.open(".", _FOLDER, dir_fd=folder)
    for n, part in enumerate(parts):
        last = n == len(parts) - 1
        try:
            if stat.S_ISLNK(os.stat(part, dir_fd=current, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, "a link", path)
            below = os.open(part, (wanted if last else _FOLDER) | os.O_NOFOLLOW, dir_fd=current)
        finally:
            os.close(current)
        current = below
    return current


@functools.cache
def _opener() -> Callable[[int, str, int], int]:
    """Return the strongest way to open that this kernel offers."""
    root = os.open("/", _FOLDER)
    try:
        os.close(_openat2(root, ".", _FOLDER))
    except OSError:
        return _step_by_step
    finally:
        os.close(root)
    return _openat2


class Folder:
    """A folder that paths cannot leave."""

    def __init__(self, fd: int, name: str = "the working folder") -> None:
        self._fd, self._name = fd, name

    def open_file(self, path: str) -> int:
        """Open a regular file for reading; Refused if it is anything else."""
        fd = self._open(path, _FILE)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Refused("input", f"{path} is not a file with content", "name a regular file")
        return fd

    def open_folder(self, path: str) -> int:
        return self._open(path, _FOLDER)

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
            return _opener()(self._fd, path or ".", flags)

    @contextmanager
    def _words(self, path: str) -> Iterator[None]:
        """Turn what the kernel says into what a person needs to know."""
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
    """Return where an open folder is now, links resolved."""
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
def opened(path: str, name: str = "the working folder") -> Iterator[Folder]:
    """Open a folder by its real path, for as long as the block lasts."""
    try:
        fd = os.open(os.path.realpath(path), _FOLDER)
    except OSError as error:
        raise Refused("input", f"{name} {path} cannot be opened: {os.strerror(error.errno or 0)}") from error
    try:
        yield Folder(fd, name)
    finally:
        os.close(fd)
