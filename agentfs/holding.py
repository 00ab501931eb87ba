"""goals/ belongs to one daemon at a time, a run to one driver: take hold of goals/, and say who has a lock."""

import contextlib
import os
from pathlib import Path

from agentfs.errors import UserError
from agentfs.locks import Lock, lock_file
from agentfs.ui.text import inert

_LOCKS = Path("/proc/locks")


class HeldFolder:
    """goals/, held until it is let go of. Its lock lies in runs/, beside it; while that is gone there is none."""

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
            raise UserError(f"{self.path} is being watched already, by {who_holds(self.path, self.runs)}")

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
        inode = str(os.stat(lock_file(folder, runs)).st_ino)
        for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
            words = line.split()  # 1: FLOCK ADVISORY WRITE 14746 fe:00:2351210 0 EOF
            if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
                return _named(words[4])
    return "another agentfs"


def _named(pid: str) -> str:
    try:
        typed = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({inert(b' '.join(typed).decode('utf-8', 'replace'))})"


def is_driven(folder: Path, held: frozenset[int] | None = None, runs: Path | None = None) -> bool:
    """Whether a process holds the run's lock. The kernel's list says so: trying it might turn a driver away."""
    try:
        return os.stat(lock_file(folder, runs)).st_ino in (held_inodes() if held is None else held)
    except OSError:
        return False


def is_watched(root: Path, held: frozenset[int] | None = None) -> bool:
    """Whether `agentfs watch` runs in the workspace: it takes up every run that nobody else drives."""
    return is_driven(root / "goals", held, root / "runs")


def held_inodes() -> frozenset[int]:
    """Return the inodes whose lock a process holds alone, of every device: the kernel's name of one is not stat's."""
    try:
        with open(_LOCKS, encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file]  # 1: FLOCK ADVISORY WRITE 4711 fd:01:26083 0 EOF
    except OSError:
        return frozenset()
    held = [words[5].rpartition(":")[2] for words in lines if len(words) > 5 and words[1:4:2] == ["FLOCK", "WRITE"]]
    return frozenset(int(inode) for inode in held if inode.isdigit())
