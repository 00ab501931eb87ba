"""The folder `steps/` of one run, to put files into. Paths are text here: every step needs a handful of them."""

import itertools
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agentfs.core import paths
from agentfs.storage.files import appear, give_name, open_unnamed, sync_folder


class SharedSync:
    """One folder made durable for everybody who waits for it: what was put there before a sync began is in it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._asked, self._done = itertools.count(1), 0
        self._latest = 0  # of those who ask: the last to have come
        self._one = threading.Lock()

    def wait(self) -> None:
        """Return once all that was put there before is durable."""
        mine = self._latest = next(self._asked)
        with self._one:
            if self._done < mine:
                upto = self._latest
                sync_folder(self._folder)
                self._done = upto


@dataclass(frozen=True, slots=True)
class Shelf:
    """Files are made where nobody watches and linked into place: a driver needs no news of its own doing."""

    folder: str
    unwatched: str
    syncs: SharedSync

    @classmethod
    def of(cls, run: Path) -> Self:
        steps = f"{run}/{paths.STEPS}"
        return cls(steps, f"{run}/{paths.REVISIONS}", SharedSync(steps))

    def path(self, step: str, attempt: int, kind: paths.StepFileKind) -> str:
        return f"{self.folder}/{paths.step_file(step, attempt, kind)}"

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Make a file appear whole, once."""
        appear(f"{self.folder}/{name}", content, durable=durable, made_in=self.unwatched)
        if durable:
            self.sync()

    def open_unnamed(self, flags: int) -> int | None:
        """Open a file that will get its name here; None where a file system has no such files."""
        return open_unnamed(self.unwatched, flags)

    def give_name(self, descriptor: int, name: str) -> None:
        """Let it appear. Raises FileExistsError if the name is taken."""
        give_name(descriptor, f"{self.folder}/{name}")

    def sync(self) -> None:
        """Make the names here durable."""
        self.syncs.wait()
