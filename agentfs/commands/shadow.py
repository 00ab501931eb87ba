"""A shadow of a run: its files under another roof, for finding out what a command would do. The run is only read.

Whatever a command writes, it writes as files; so what it would do to a run is what it does to a shadow of it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agentfs.core import paths

_WRITTEN_ONCE = (paths.STEPS, paths.PLANNING, paths.REVISIONS)


@contextmanager
def shadow_of(folder: Path) -> Iterator[Path]:
    """Yield a folder that reads as the run does; it is gone after the block."""
    with TemporaryDirectory(prefix="agentfs-") as root:
        _copy_sources(folder.parents[2] / "tools", Path(root) / "tools")  # plans are judged by them
        shadow = Path(root) / "runs" / folder.parent.name / folder.name
        shadow.mkdir(parents=True)
        _cast(folder, shadow)
        for part in _WRITTEN_ONCE:
            (shadow / part).mkdir()
            _cast(folder / part, shadow / part)
        yield shadow


def _cast(folder: Path, shadow: Path) -> None:
    """Give every file of a folder a counterpart: a copy of what people write, the same file where they do not."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                continue
            if folder.name in _WRITTEN_ONCE and not entry.name.endswith(".md"):
                _share(entry.path, shadow / entry.name)
            else:
                shutil.copyfile(entry.path, shadow / entry.name)


def _share(path: str, other: Path) -> None:
    """Let a file that nobody changes appear under another name; on another file system, a copy of it."""
    try:
        os.link(path, other, follow_symlinks=False)
    except OSError:
        shutil.copyfile(path, other, follow_symlinks=False)


def _copy_sources(tools: Path, to: Path) -> None:
    if tools.is_dir():
        to.mkdir()
        for source in tools.glob("*.py"):
            shutil.copyfile(source, to / source.name, follow_symlinks=False)
