"""Put files on disk whole and once, replace views, append to logs. Touches files only."""

import errno
import itertools
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentfs.core import paths
from agentfs.core.mask import Mask
from agentfs.storage.clock import Clock
from agentfs.storage.safe_open import MOST_RECORD, lines_of, names_in, read_regular, read_text
from agentfs.storage.system import flags, libc_call

Signature = tuple[int, int, int, int]
_RENAME_NOREPLACE, _RENAME_EXCHANGE, _AT_FDCWD = 1, 2, -100
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
_WRITE_NEW = flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_CLOEXEC", "O_BINARY")
_counter = itertools.count()


def temp_name(purpose: str) -> str:
    """Return a hidden file name that is unique over processes and threads."""
    return f".{purpose}.{os.getpid()}.{threading.get_ident()}.{next(_counter)}.tmp"


def sync_folder(folder: Path | str | int) -> None:
    """Make the names in a folder durable; one that is held is given by its descriptor."""
    if isinstance(folder, int):
        os.fsync(folder)
        return
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folder
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_whole(path: Path | str) -> bytes:
    """Return what a file of a run holds. Another user may have made the run: see `safe_open`."""
    return read_regular(path, MOST_RECORD)


def listing(folder: Path | str) -> list[str]:
    """Return the names in a folder; none where there is no such folder. Raises OSError for a link to one."""
    try:
        return names_in(folder)
    except FileNotFoundError:
        return []


def list_entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """Return what a folder holds; nothing if it is gone, or not ours to read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def signature(path: Path | str, *, regular: bool = True) -> Signature | None:
    """Return what changes when a file changes, or another takes its name; None if there is no such file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if regular and not stat.S_ISREG(found.st_mode):
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def write_new(path: Path | str, content: bytes, *, durable: bool, inside: int | None = None) -> None:
    """Write a file that must not exist yet, in one go. `inside`: the held folder that its path is relative to."""
    descriptor = os.open(path, _WRITE_NEW, 0o644, dir_fd=inside)
    try:
        _fill(descriptor, content, durable=durable)
    finally:
        os.close(descriptor)


def _fill(descriptor: int, content: bytes, *, durable: bool) -> None:
    write_all(descriptor, content)
    if durable:
        os.fsync(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it: one call may take less than it was given."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def publish(path: Path | str, content: bytes, *, durable: bool) -> None:
    """Make a file appear whole, once. Raises FileExistsError if it is there: a fact is never rewritten."""
    appear(path, content, durable=durable)
    if durable:
        sync_folder(os.path.dirname(path))


def publish_inside(folder: int, name: str, content: bytes) -> None:
    """Make a file appear whole and durable, once, in a held folder."""
    appear(name, content, durable=True, inside=folder)
    sync_folder(folder)


def appear(path: Path | str, content: bytes, *, durable: bool, inside: int | None = None) -> None:
    """Make a file appear whole, once; its name is not durable yet. `inside`: the held folder it is relative to."""
    descriptor = open_unnamed(os.path.dirname(path) or ".", os.O_WRONLY, inside)
    if descriptor is None:
        _appear_by_name(path, content, durable=durable, inside=inside)
        return
    try:
        _fill(descriptor, content, durable=durable)
        give_name(descriptor, path, inside)
    finally:
        os.close(descriptor)


def open_unnamed(folder: Path | str, flags: int, inside: int | None = None) -> int | None:
    """Open a file that has no name until it is given one; None where a file system has no such files."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_CLOEXEC | flags, 0o644, dir_fd=inside)
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
        return None


def give_name(descriptor: int, path: Path | str, inside: int | None = None) -> None:
    """Let a file without a name appear. The commit point: fails if the name is taken."""
    # Only with a dir_fd is the link in /proc followed; an absolute path does not use it.
    source = f"/proc/self/fd/{descriptor}"
    os.link(source, path, src_dir_fd=descriptor, dst_dir_fd=inside, follow_symlinks=True)


def _appear_by_name(path: Path | str, content: bytes, *, durable: bool, inside: int | None = None) -> None:
    """The same where a file cannot begin its life without a name."""
    temp = os.path.join(os.path.dirname(path), temp_name("new"))
    try:
        write_new(temp, content, durable=durable, inside=inside)
        os.link(temp, path, src_dir_fd=inside, dst_dir_fd=inside)
    finally:
        _remove_quietly(temp, inside)


def replace(path: Path, content: bytes) -> None:
    """Replace a file that is only a view (STATUS.md, plan.error.md): whole, but never read back."""
    temp = path.parent / temp_name("view")
    try:
        write_new(temp, content, durable=False)
        os.replace(temp, path)
    finally:
        _remove_quietly(temp)


def _remove_quietly(path: Path | str, inside: int | None = None) -> None:
    try:
        os.unlink(path, dir_fd=inside)
    except FileNotFoundError:
        return


def _renameat2(old: Path | str, new: Path | str, how: int, old_in: int = _AT_FDCWD, new_in: int = _AT_FDCWD) -> None:
    import ctypes

    call, code = libc_call("renameat2"), errno.ENOSYS
    if call is not None:
        if call(old_in, os.fsencode(old), new_in, os.fsencode(new), how) == 0:
            return
        code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), str(new))


def move_to_new_name(old: str, old_in: int, new: str, new_in: int) -> None:
    """Rename a file from one held folder to another; raises FileExistsError rather than take another one's place."""
    try:
        _renameat2(old, new, _RENAME_NOREPLACE, old_in, new_in)
        return
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
    if new in os.listdir(new_in):  # the window is small, not none
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
    os.rename(old, new, src_dir_fd=old_in, dst_dir_fd=new_in)


def exchange(one: Path, other: Path) -> None:
    """Let two files change places; OSError where a file system cannot."""
    _renameat2(one, other, _RENAME_EXCHANGE)


# ── the folder steps/ of a run: paths are plain text, since every step needs a handful of them ────────────────


class SharedSync:
    """Syncs one folder for all threads that wait for it: one sync serves everything put there before it began."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._numbers, self._latest, self._done = itertools.count(1), 0, 0  # of those that wait
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return once all that was put there before is durable."""
        mine = self._latest = next(self._numbers)
        with self._lock:
            if self._done < mine:
                latest = self._latest
                sync_folder(self._folder)
                self._done = latest


@dataclass(frozen=True, slots=True)
class StepsFolder:
    """steps/ of a run: files appear in it whole, and share what makes their names durable."""

    folder: str
    syncs: SharedSync

    @classmethod
    def of(cls, run: Path) -> Self:
        steps = f"{run}/{paths.STEPS}"
        return cls(steps, SharedSync(steps))

    def path(self, step: str, attempt: int, kind: paths.StepFileKind) -> str:
        return f"{self.folder}/{paths.step_file(step, attempt, kind)}"

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Make a file appear whole, once."""
        appear(f"{self.folder}/{name}", content, durable=durable)
        if durable:
            self.sync()

    def open_unnamed(self, flags: int) -> int | None:
        """Open a file that will get its name here; None where a file system has no such files."""
        return open_unnamed(self.folder, flags)

    def give_name(self, descriptor: int, name: str) -> None:
        """Let it appear. Raises FileExistsError if the name is taken."""
        give_name(descriptor, f"{self.folder}/{name}")

    def append(self, descriptor: int, name: str, line: bytes) -> None:  # noqa: ARG002 - a folder that sends on needs it
        """Append a line to a log that has that name here."""
        write_all(descriptor, line)

    def sync(self) -> None:
        """Make the names here durable."""
        self.syncs.wait()

    def sync_file(self, descriptor: int) -> None:
        """Make durable what a file holds."""
        os.fsync(descriptor)


# ── logs of JSON lines: appended to as they grow, never edited, with secrets hidden ───────────────────────


_APPEND = flags("O_WRONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_APPEND", "O_CREAT", "O_CLOEXEC", "O_BINARY")
_TEXT = json.JSONEncoder(ensure_ascii=False)
# Fields of a line that hold agentfs's own names, hashes and keywords: never masked.
OURS = frozenset(
    ("at", "host", "boot_id", "key", "thing", "what", "file", "kind", "role", "type", "stream", "status")
)


def one_line(event: str, fields: Mapping[str, Any], mask: Mask, clock: Clock) -> bytes:
    """Return one line of a log."""
    line = _TEXT.encode({"event": event, "at": clock.stamp(), **mask.value(dict(fields), ours=OURS)})
    return line.encode("utf-8", "replace") + b"\n"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log that can be read; the last may be torn, and there may be no log yet."""
    try:
        for line in lines_of(path):
            if (entry := _entry(line)) is not None:
                yield entry
    except FileNotFoundError:
        return


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


class JsonLines:
    """Appends to a file that is made with its first line."""

    def __init__(self, path: Path, mask: Mask, clock: Clock) -> None:
        self.path, self._mask, self._clock = path, mask, clock
        self._descriptor: int | None = None

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, _APPEND, 0o644)
        write_all(self._descriptor, one_line(event, fields, self._mask, self._clock))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


LARGEST_OUTPUT = 64 * 1024 * 1024


def read_output(path: Path) -> Any:
    """Return an output that did not fit into its result: the value if it is a JSON object or array, else the text."""
    text = read_text(path, LARGEST_OUTPUT)
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError):
            return json.loads(text)
    return text.removesuffix("\n")
