"""A temporary copy of a run, for finding out what a command would do. The run itself is only read.

Whatever a command writes, it writes as files; so what it would do to a run is what it does to a copy of it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from agentfs.core import paths
from agentfs.storage.safe_open import copy_regular, scan

_PARTS = ("", paths.STEPS, paths.PLANNING, paths.REVISIONS)


@contextmanager
def shadow_of(folder: Path) -> Iterator[Path]:
    """Yield a folder that reads as the run does; it is removed after the block."""
    with TemporaryDirectory(prefix="agentfs-") as root:
        shadow = Path(root) / "runs" / folder.parent.name / folder.name
        for part in _PARTS:
            (shadow / part).mkdir(parents=True, exist_ok=True)
            _copy_files(folder / part, shadow / part, share=bool(part))
        _copy_tools(folder.parents[2] / "tools", Path(root) / "tools")  # plans are checked against them
        yield shadow


def _copy_files(folder: Path, to: Path, *, share: bool) -> None:
    """Copy the files of a folder. `share`: what is written once, and not by people, is linked instead."""
    for entry in scan(folder):
        if entry.is_file(follow_symlinks=False):
            linked = share and not entry.name.endswith(".md") and _link(folder / entry.name, to / entry.name)
            if not linked:
                copy_regular(folder / entry.name, to / entry.name)


def _link(path: Path, other: Path) -> bool:
    """Give a file another name; False where that cannot be, as on another file system."""
    with suppress(OSError):
        os.link(path, other, follow_symlinks=False)
        return True
    return False


def _copy_tools(tools: Path, to: Path) -> None:
    if tools.is_dir():
        to.mkdir()
        for source in tools.glob("*.py"):
            copy_regular(source, to / source.name)
