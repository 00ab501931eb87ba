"""A shadow of a run: its files under another roof, for finding out what a command would do. The run is only read.

Whatever a command writes, it writes as files; so what it would do to a run is what it does to a shadow of it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agentfs.core import names

_WRITTEN_ONCE = (names.STEPS, names.PLANNING, names.REVISIONS)


@contextmanager
def shadow_of(folder: Path) -> Iterator[Path]:
    """Yield a folder that reads as the run does; it is gone after the block."""
    with TemporaryDirectory(prefix="agentfs-") as root:
        _link(folder.parents[2] / "tools", Path(root) / "tools")  # plans are judged by them
        shadow = Path(root) / "runs" / folder.parent.name / folder.name
        shadow.mkdir(parents=True)
        _cast(folder, shadow)
        for part in _WRITTEN_ONCE:
            (shadow / part).mkdir()
            _cast(folder / part, shadow / part)
        yield shadow


def _cast(folder: Path, shadow: Path) -> None:
    """Give every file of a folder a counterpart: what people write as a copy, what is written once as a link."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                continue
            if folder.name in _WRITTEN_ONCE and not entry.name.endswith(".md"):
                os.symlink(entry.path, shadow / entry.name)
            else:
                shutil.copyfile(entry.path, shadow / entry.name)


def _link(target: Path, path: Path) -> None:
    if target.exists():
        os.symlink(target, path)
