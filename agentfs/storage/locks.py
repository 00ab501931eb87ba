"""Locks of runs and of goals/: at most one process drives a run, and one watches goals/. Says who holds a lock.

Owns `locks/` in `own_folder`. A step could lock any folder that it sees, so locks are on files that no step can open:
`flock` on a file named after the inode of its folder, so that the lock follows a folder that is renamed. The file
names its process, and is removed when the lock is released. A file left by a dead process locks nothing: the kernel
ends a lock with its process. Deleting `runs/.git` deletes locks that are held: their process takes them again
(`keep`), or stops if another was faster.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from agentfs.core.paths import run_id
from agentfs.errors import UserError, Watched
from agentfs.storage.system import flags

OWN = "agentfs-own"  # in runs/.git: neither steps nor `git clean` in any repository come there
_LOOKS = 3  # at the kernel's list of locks, where it is long
_PAGE = 1 << 16  # bytes: more than the kernel gives at a time
_TRIES = 100  # each time another process removed the file between opening and locking it
_OPEN = flags("O_RDWR", "O_CREAT", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
_OPEN_OF_OTHERS = flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")


def own_folder(runs: Path) -> Path:
    """Return where agentfs keeps what is its own in a workspace; hidden from steps, whatever [tools] read names."""
    git = runs / ".git"
    is_elsewhere = git.is_file() or (not git.exists() and (runs / "HEAD").is_file())  # a work tree, or a bare one
    return runs / f".{OWN}" if is_elsewhere else git / OWN


def lock_file(folder: Path, runs: Path | None = None) -> Path:
    """Return the file that is locked for a folder. `runs`: of its workspace, unless the folder is that of a run."""
    found = os.stat(folder)
    return own_folder(runs or folder.parent.parent) / "locks" / f"{found.st_dev}-{found.st_ino}"


class Lock:
    """The lock of a folder, until it is released or the process ends."""

    def __init__(self, folder: Path, runs: Path | None = None) -> None:
        self.folder, self._runs = folder, runs
        self._path: Path | None = None
        self._descriptor: int | None = None
        self._is_lost = False  # another process has it now

    def keep(self) -> bool:
        """Whether the lock is still ours; if its file is gone, make and lock it again."""
        self._is_lost = self._is_lost or not (self.is_held() or self.take())
        return not self._is_lost

    def take(self) -> bool:
        """Return whether the lock is ours now; False if another process has it."""
        self.release()
        path = lock_file(self.folder, self._runs)
        for _ in range(_TRIES):
            descriptor = _open(path)
            try:
                mine = _try_lock(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            if mine and _is_at(path, descriptor):
                self._path, self._descriptor = path, descriptor  # `release` closes it from now on
                _sign(descriptor, self.folder)
                return True
            os.close(descriptor)
            if not mine:
                return False
        return False

    def is_held(self) -> bool:
        """Whether the lock is ours and its file, by which others see that, is still in its place."""
        return self._path is not None and self._descriptor is not None and _is_at(self._path, self._descriptor)

    def release(self) -> None:
        path, descriptor = self._path, self._descriptor
        self._path = self._descriptor = None
        if path is None or descriptor is None:
            return
        try:
            if _is_at(path, descriptor):
                with contextlib.suppress(OSError):  # a file that stays does no harm
                    os.unlink(path)
        finally:
            os.close(descriptor)


_ours: dict[Path, Lock] = {}  # the locks that this process holds: to the kernel, too, they are the process's


@contextlib.contextmanager
def locked(folder: Path, runs: Path | None = None) -> Iterator[bool]:
    """Hold a folder's lock for as long as the block runs; yields False if another process holds it."""
    lock = Lock(folder, runs)
    try:
        if is_mine := lock.take():
            _ours[folder] = lock
        yield is_mine
    finally:
        if _ours.get(folder) is lock:
            del _ours[folder]
        lock.release()


def keep(folder: Path) -> bool:
    """Whether the lock that this process took of a folder is still its own; take it again if its file was deleted."""
    try:
        return folder not in _ours or _ours[folder].keep()
    except OSError:
        return True  # the folder itself is gone, or the disk is full: its reader says so


def _open(path: Path) -> int:
    try:
        return os.open(path, _OPEN, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, _OPEN, 0o644)
    except PermissionError:
        return os.open(path, _OPEN_OF_OTHERS)  # another user's: enough to see that it is locked


def _try_lock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the file under this name is the one that is open: another one is another lock."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except OSError:
        return False


def _sign(descriptor: int, folder: Path) -> None:
    with contextlib.suppress(OSError):  # a full disk; it is for people only
        os.ftruncate(descriptor, 0)
        os.write(descriptor, os.fsencode(f"{os.getpid()} {run_id(folder)}\n"))


class HeldFolder:
    """goals/, held until it is released. Its lock lies in runs/, beside it; while that is gone there is none."""

    def __init__(self, path: Path) -> None:
        self.path, self.runs = path, path.parent / "runs"
        self._lock = Lock(path, self.runs)
        self._descriptor: int | None = None

    def take(self) -> None:
        """Make the folder if there is none, and lock it; raises UserError naming who holds it."""
        self.release()
        try:
            self.path.mkdir(exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"{self.path} cannot be watched: {error.strerror}") from None
        self._descriptor = descriptor
        if self.runs.is_dir():
            self._lock_it()

    def _lock_it(self) -> None:
        try:
            mine = self._lock.take()
        except OSError as error:
            self.release()
            raise UserError(f"{self.path} cannot be watched: {error.strerror} ({error.filename})") from None
        if not mine:
            self.release()
            raise Watched(f"{self.path} is being watched already, by {who_holds(self.path, self.runs)}")

    def is_there(self) -> bool:
        """Whether the folder under this path is still the one that is held."""
        if self._descriptor is None:
            return False
        try:
            is_same = os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False
        if is_same and not self._lock.is_held() and self.runs.is_dir():
            self._lock_it()  # runs/ was moved or deleted, and is there again
        return is_same

    def release(self) -> None:
        self._lock.release()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def who_holds(folder: Path, runs: Path | None = None) -> str:
    """Return the process that holds a folder's lock, by its pid and what was typed, as far as can be known."""
    with contextlib.suppress(OSError):
        if pid := _holders().get(os.stat(lock_file(folder, runs)).st_ino):
            return _describe_pid(pid)
    return "another agentfs"


def _describe_pid(pid: str) -> str:
    try:
        typed = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({' '.join(typed.split())})"


def is_driven(folder: Path, held: frozenset[int] | None = None, runs: Path | None = None) -> bool:
    """Whether a process holds the run's lock. The kernel's list says so: trying it might turn a driver away."""
    try:
        return os.stat(lock_file(folder, runs)).st_ino in (held_inodes() if held is None else held)
    except OSError:
        return False


def is_watched(root: Path, held: frozenset[int] | None = None) -> bool:
    """Whether `agentfs watch` runs in the workspace: it takes up every run that no other process drives."""
    return is_driven(root / "goals", held, root / "runs")


def held_inodes() -> frozenset[int]:
    """Return the inodes whose lock a process holds alone, of every device: the kernel's name of one is not stat's."""
    return frozenset(_holders())


def _holders() -> dict[int, str]:
    """Return by inode the pid of the process that holds its lock alone."""
    try:
        lines = [line.split() for line in _read_locks()]  # 1: FLOCK ADVISORY WRITE 4711 fd:01:26083 0 EOF
    except OSError:
        return {}
    held = ((words[5].rpartition(":")[2], words[4]) for words in lines if words[1:4:2] == ["FLOCK", "WRITE"])
    return {int(inode): pid for inode, pid in held if inode.isdigit()}


def _read_locks() -> list[str]:
    """Return the kernel's list of locks.

    It comes a page at a time, and a lock that ends between two pages has the kernel pass over another one: a list of
    more than a page is read several times, and a lock is held that was in it once.
    """
    found = list[str]()
    for _ in range(_LOOKS):
        with open("/proc/locks", "rb", buffering=0) as file:
            pages = [*iter(lambda: file.read(_PAGE), b"")]
        found += b"".join(pages).decode("ascii", "replace").splitlines()
        if len(pages) < 2:
            break
    return found
