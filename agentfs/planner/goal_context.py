"""Which files a goal's `context` may name: they are sent to a model. Looks at paths; opens and writes nothing.

A dropped goal is held to the folders of [goals] workdirs, and to what of them is not the workspace's own. A person's
own goal may name any file of the workspace. Neither may name `.env` files: those are where keys are kept.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentfs.core.paths import inside
from agentfs.storage.installation import workspaces_above
from agentfs.storage.safe_open import Refused, resolve_links_of_others
from agentfs.tools.protected import ENV_FILES, WORKSPACE_PARTS

_PATH = re.compile(r"[^\s<>|*?\"']{1,300}\Z")


def is_path(item: str) -> bool:
    """Whether a piece of context may be the name of a file; anything else is text."""
    return _PATH.match(item) is not None


def allowed_folders(root: Path, workdirs: tuple[str, ...]) -> dict[str, Path]:
    """Return the folders of [goals] workdirs by name; a link in one that a step may have made is not resolved."""
    return {name: Path(resolve_links_of_others(os.path.join(root.resolve(), name))) for name in workdirs}


def folders_without_links(folders: Mapping[str, Path]) -> tuple[Path, ...]:
    return tuple(folder for folder in folders.values() if folder == folder.resolve())


@dataclass(frozen=True, slots=True)
class ContextRule:
    """Tells what the context of one goal may not name. `folders`: None for a person's own goal."""

    root: Path  # of the workspace
    workdir: Path | None  # None: the run has none yet, and it will be empty
    folders: tuple[Path, ...] | None

    @classmethod
    def of(cls, root: Path, workdir: Path | None, workdirs: tuple[str, ...] | None) -> "ContextRule":
        real = root.resolve()
        if workdirs is None:
            return cls(real, workdir, None)
        return cls(real, workdir, folders_without_links(allowed_folders(root, workdirs)))

    @property
    def places(self) -> Iterator[Path]:
        """Yield where a path is looked for, the nearest first."""
        if self.workdir is not None:
            yield self.workdir
        yield self.root

    def why_not(self, item: str) -> str | None:
        """Return why a piece of context may not be read; None if it may, or is text. What is there now decides."""
        if not is_path(item):
            return None
        spelt = [os.path.normpath(os.path.join(place, item)) for place in self.places]
        there = next((path for path in spelt if os.path.lexists(path)), None)
        if there is not None:
            return self.why_hidden(there) or self.why_hidden(os.path.realpath(there))
        if self.folders is None or (
            inside(spelt[-1], str(self.root)) and not self._why_kept(spelt[-1], str(self.root))
        ):
            return None  # there is no such file: these are words
        return self.why_hidden(spelt[-1])

    def why_hidden(self, path: str) -> str | None:
        """Return why this path, without links in it, may not be read; None if it may."""
        folder = next((one for one in self._readable() if inside(path, one)), None)
        if folder is None:
            return "it lies outside the folders a goal may work in"
        return self._why_kept(path, folder)

    def _why_kept(self, path: str, folder: str) -> str | None:
        """Return why this path in a folder that may be read is kept from models; None if it is not."""
        parts = path[len(folder) :].strip("/").split("/")
        if any(part.startswith(ENV_FILES) for part in parts):
            return f"{ENV_FILES} files hold keys, and are sent to no model"
        if self.folders is not None and (part := _workspace_part(path, folder)):
            return f"{part} belongs to the workspace"
        return None

    def may_read(self, real: str) -> None:
        """Raise Refused if what is open at this real path may not be read."""
        if why := self.why_hidden(real):
            raise Refused("outside", why)

    def _readable(self) -> list[str]:
        """Return the folders that may be read, the innermost first: the rule of the nearest counts."""
        folders = {str(self.root)} if self.folders is None else set(map(str, self.folders))
        return sorted(folders | ({str(self.workdir)} if self.workdir else set()), key=len, reverse=True)


def _workspace_part(path: str, folder: str) -> str | None:
    """Return the part of a workspace that a path lies in, unless the folder that may be read lies in it itself."""
    for root in workspaces_above(path):
        part = path[len(root) :].strip("/").split("/")[0]
        if part in WORKSPACE_PARTS and not inside(folder, os.path.join(root, part)):
            return part
    return None
