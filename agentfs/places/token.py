"""The token that proves a working folder to be the same elsewhere: a file in it, while attempts are sent from there.

Several drivers may work in one folder. Each holds a shared lock on the file, and the last one to let go removes it;
the kernel lets go for a driver that dies.
"""

import contextlib
import os
import platform
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.errors import UserError
from agentfs.storage.files import publish
from agentfs.storage.safe_open import read_text, reading
from agentfs.storage.system import flags

NAME = ".agentfs-token"
_OPEN = flags("O_RDWR", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
_TRIES = 100  # each time another driver removed the file between writing and locking it


@dataclass(frozen=True, slots=True)
class Token:
    """A file in the working folder: who reads its text there sees the same folder."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that a process has in working folders."""

    _held: dict[Path, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, workdir: Path) -> Token:
        """Return the token of a working folder; it is written if it is not there, or a step removed it."""
        path = workdir / NAME
        with self._lock:
            if not (path in self._held and _is_at(path, self._held[path])):
                self._let_go(path)
                self._held[path] = _hold(path)
        return Token(str(path), read_text(path))

    def close(self) -> None:
        """Remove each token that no other driver holds."""
        with self._lock:
            for path in [*self._held]:
                self._let_go(path)

    def _let_go(self, path: Path) -> None:
        if (descriptor := self._held.pop(path, None)) is None:
            return
        with contextlib.suppress(OSError):  # another driver holds it, or it is gone
            _lock(descriptor, alone=True)
            if _is_at(path, descriptor):
                os.unlink(path)
        os.close(descriptor)


def _hold(path: Path) -> int:
    """Return a descriptor of the token, which holds it."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            publish(path, uuid.uuid4().hex.encode("ascii"), durable=False)
        try:
            descriptor = os.open(path, _OPEN)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # a step may lock what it sees, and some file systems have no locks
            _lock(descriptor, alone=False)
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)
    raise UserError(f"{path} is removed again and again by another program")


def _lock(descriptor: int, *, alone: bool) -> None:
    import fcntl

    fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)


def _is_at(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    return False


def check_token(token: Token) -> str | None:
    """Return why this is not the driver's working folder; None if it is."""
    path, host = Path(token.path), platform.node()
    try:
        with reading(path) as file:
            text = file.read(len(token.text) + 1)
    except OSError as error:
        return f"{path.parent} is not the driver's working folder on {host}: {error.strerror}"
    if text != token.text.encode("ascii"):
        return f"{path.parent} is another folder on {host}: {path.name} differs"
    return None
