"""The folder `steps/` of one run, to put files into. Paths are text here: every step needs a handful of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agentfs.core import names
from agentfs.disk import give_name, open_unnamed, publish, sync_folder


@dataclass(frozen=True, slots=True)
class Shelf:
    """Files are made where nobody watches and linked into place: a driver needs no news of its own doing."""

    folder: str
    unwatched: str

    @classmethod
    def of(cls, run: Path) -> Self:
        return cls(f"{run}/{names.STEPS}", f"{run}/{names.REVISIONS}")

    def path(self, step: str, attempt: int, kind: names.StepFileKind) -> str:
        return f"{self.folder}/{names.step_file(step, attempt, kind)}"

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Make a file appear whole, once."""
        publish(f"{self.folder}/{name}", content, durable=durable, made_in=self.unwatched)

    def open_unnamed(self, flags: int) -> int | None:
        """Open a file that will get its name here; None where a file system has no such files."""
        return open_unnamed(self.unwatched, flags)

    def give_name(self, descriptor: int, name: str) -> None:
        """Let it appear. Raises FileExistsError if the name is taken."""
        give_name(descriptor, f"{self.folder}/{name}")

    def sync(self) -> None:
        sync_folder(self.folder)
