"""Opens files that cannot leave a folder, whatever links, `..` or races are in the way; and folders behind no link.

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
from typing import Protocol

from agentfs.core.records import Failure
from agentfs.system import flags, libc_call

_OPENAT2 = 437  # the same number on every architecture that has the call, but alpha
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_FOLDER = flags("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC")
_FILE = flags(
    "O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"
)  # neither a FIFO nor a lease is waited for
_NO_LINK = flags("O_NOFOLLOW")
LOOK = flags("O_PATH", "O_NOFOLLOW", "O_CLOEXEC")
_TRIES = 16  # openat2 says EAGAIN when something was renamed meanwhile
_LINKS = 8
_MOST_LINKS = 40  # on one path, as for the kernel
READABLE = "the readable folder"  # one of [tools] read
DEEPEST = 200  # folders in one path


class Refused(Exception):
    """A path that may not be opened, and why."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, hint=hint)


# ── one name, in a folder that is held ────────────────────────────────────────────────────────────────────


@contextmanager
def hold_inside(name: str, parent: int, *, make: bool = False) -> Iterator[int]:
    """Hold a folder that stands under a name in a held one, and is no link; made if need be. Raises OSError."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    try:
        fd = os.open(name, _FOLDER | _NO_LINK, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        is_link = stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        words = f"it is {'a link' if is_link else 'a file'}, not a folder"
        raise NotADirectoryError(errno.ENOTDIR, words, name) from None
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def hold_named(path: str | os.PathLike[str]) -> Iterator[int]:
    """Hold a folder that a person names: their own link to it is followed, once."""
    fd = os.open(path, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


# ── paths that may have several parts ─────────────────────────────────────────────────────────────────────


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(folder: int, path: str, wanted: int, *, links: bool = True) -> int:
    """Open a path that stays in a folder. `links`: those that stay in it are followed."""
    how = _How(wanted, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | (0 if links else _RESOLVE_NO_SYMLINKS))
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


def _step_by_step(folder: int, path: str, wanted: int, *, links: bool = True) -> int:  # noqa: ARG001 - as the other
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


class _Opener(Protocol):
    def __call__(self, folder: int, path: str, wanted: int, *, links: bool = True) -> int: ...


@functools.cache
def _opener() -> _Opener:
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
            return _opener()(self.fd, path or ".", flags)

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
def hold_folder(
    path: str, name: str = "the working folder", may_read: Callable[[str], None] | None = None
) -> Iterator[Folder]:
    """Open a folder for as long as the block lasts. Its path is a real one: a link on it was put there since."""
    try:
        fd = open_without_links(path)
    except OSError as error:
        raise _not_held(path, name, error) from error
    try:
        yield Folder(fd, name, may_read)
    finally:
        os.close(fd)


def _not_held(path: str, name: str, error: OSError) -> Refused:
    if error.errno in (errno.ELOOP, errno.EXDEV):
        words = f"{name} {path} cannot be opened: a symbolic link has taken its place"
        return Refused("outside", words, "a step may have put it there: look at it, and put the folder back")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Refused("input", f"{name} {path} is not there", "make it, or choose another")
    return Refused("input", f"{name} {path} cannot be opened: {os.strerror(error.errno or 0)}")


@functools.cache
def _root() -> int:
    return os.open("/", _FOLDER)


def open_without_links(path: str, wanted: int = _FOLDER, root: int | None = None) -> int:
    """Open an absolute path on which no link lies, seen from a root. Raises OSError, for a link with ELOOP."""
    return _opener()(_root() if root is None else root, path.strip("/") or ".", wanted, links=False)


def identity(path: str, root: int | None = None) -> tuple[int, int] | None:
    """Return which file or folder is at a path, seen from a root; None if there is none, or a link is on the way."""
    try:
        fd = open_without_links(path, LOOK, root)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
    finally:
        os.close(fd)
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
