"""Durable files: written once, flushed to the disk. Knows nothing of git."""

import os
from pathlib import Path

from agentfs.storage.safe_open import MOST_SOURCE, read_regular


def write_once(path: Path, content: bytes, mode: int = 0o444) -> None:
    """Create a file that must not exist, durable but for its name."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path | str) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_escaped(path: Path) -> str:
    """Return the text of a file of a repository, to be written back as it was: any bytes may be in it."""
    return read_regular(path, MOST_SOURCE, links=True).decode("utf-8", "surrogateescape")
