"""File systems that a test mounts and takes away again; where that is not possible the test is skipped, saying so."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(kind: str, options: str, folder: Path) -> Iterator[Path]:
    """Mount a file system of the kernel's own over a folder."""
    argv = ["mount", "-t", kind, "-o", options, kind, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no {kind} can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def mirrored(back: Path, front: Path) -> Iterator[Path]:
    """Show a folder at another place through FUSE: of what is written behind, the kernel tells nothing."""
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is not installed")
    done = subprocess.run(["bindfs", str(back), str(front)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"FUSE does not work here: {done.stderr.strip()}")
    try:
        yield front
    finally:
        subprocess.run(["fusermount", "-u", "-z", str(front)], check=True)
