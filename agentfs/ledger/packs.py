"""The packs git made of older objects, and new packs of ours; read with GitPython's object database.

Touches `objects/pack/` only. A pack counts when both its files are there. Ours gets its index first, so that it never
counts by half.
"""

import contextlib
import os
import secrets
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentfs.ledger.files import sync, write_once
from agentfs.ledger.packing import pack
from agentfs.ledger.trees import NewObject

if TYPE_CHECKING:
    from gitdb.pack import PackEntity


class Packs:
    """The packs of one repository, as they were when `refresh` looked last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, PackEntity] = {}

    def refresh(self) -> None:
        """Look again: `git gc` may have made, merged or dropped packs."""
        files = set(os.listdir(self.folder)) if self.folder.is_dir() else set()
        whole = {name[:-4] for name in files if name.startswith("pack-") and name.endswith(".idx")}
        whole = {stem for stem in whole if f"{stem}.pack" in files}
        kept = {stem: entity for stem, entity in self._open.items() if stem in whole}
        new = {stem: _opened(self.folder / f"{stem}.pack") for stem in whole - kept.keys()}
        self._open = {**new, **kept}

    def __len__(self) -> int:
        return len(self._open)

    def holds(self, sha: str) -> bool:
        return self._find(sha) is not None

    def refresh_age(self, sha: str) -> None:
        """Make the pack of an object young, as git does, so that no `git gc` drops it before the branch moves."""
        if found := self._find(sha):
            with contextlib.suppress(OSError):
                os.utime(found[0].pack().path())

    def read(self, sha: str) -> tuple[str, bytes] | None:
        """Return kind and content of an object; None if no pack holds it."""
        if not (found := self._find(sha)):
            return None
        from gitdb.exc import ODBError

        try:
            stream = found[0].stream_at_index(found[1])
            return stream.type.decode(), stream.read()
        except (ODBError, OSError, ValueError, zlib.error):
            return None  # a damaged pack: said by whoever needs the object

    def write(self, objects: Sequence[NewObject]) -> None:
        """Write one pack of these objects: three fsyncs, however many they are."""
        self.folder.mkdir(exist_ok=True)
        made = pack(objects)
        for suffix, content in ((".idx", made.index), (".pack", made.content)):
            temporary = self.folder / f"tmp_pack_{secrets.token_hex(6)}"
            write_once(temporary, content)
            os.rename(temporary, self.folder / f"pack-{made.name}{suffix}")
        sync(self.folder)
        self.refresh()

    def _find(self, sha: str) -> "tuple[PackEntity, int] | None":
        name = bytes.fromhex(sha)
        for stem, entity in list(self._open.items()):
            try:
                position = entity.index().sha_to_index(name)
            except (OSError, ValueError):
                del self._open[stem]  # it went between listing and opening
                continue
            if position is not None:
                return entity, position
        return None


def _opened(pack: Path) -> "PackEntity":
    from gitdb.pack import PackEntity  # takes 30 ms, and a young ledger has no packs

    return PackEntity(str(pack))
