"""The packs git made of older objects, and new packs of ours; read with GitPython's object database.

Touches `objects/pack/` only. A pack counts when both its files are there. Ours gets its index first, so that it never
counts by half.
"""

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


MOST_MAPPED = 8  # packs; a commit looks into the one or two before it


class Packs:
    """The packs of one repository, as they were when `refresh` looked last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, PackEntity] = {}
        self._mapped: dict[str, None] = {}  # those that take memory; the one used last comes last

    def refresh(self) -> None:
        """Look again: `git gc` may have made, merged or dropped packs."""
        files = set(os.listdir(self.folder)) if self.folder.is_dir() else set()
        whole = {name[:-4] for name in files if name.startswith("pack-") and name.endswith(".idx")}
        whole = {stem for stem in whole if f"{stem}.pack" in files}
        for stem in self._mapped.keys() - whole:
            self._unmap(stem)
        kept = {stem: entity for stem, entity in self._open.items() if stem in whole}
        new = {stem: _opened(self.folder / f"{stem}.pack") for stem in whole - kept.keys()}
        self._open = {**new, **kept}

    def __len__(self) -> int:
        return len(self._open)

    def holds(self, sha: str) -> bool:
        return self._find(sha) is not None

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
        for stem in list(self._open):
            self._use(stem)
            entity = self._open[stem]
            try:
                position = entity.index().sha_to_index(name)
            except (OSError, ValueError):
                self._unmap(stem)
                del self._open[stem]  # it went between listing and opening
                continue
            if position is not None:
                return entity, position
        return None

    def _use(self, stem: str) -> None:
        """Note that a pack is about to be mapped; of those that were not used for long, the memory is given back."""
        self._mapped.pop(stem, None)
        self._mapped[stem] = None
        if len(self._mapped) > MOST_MAPPED:
            self._unmap(next(iter(self._mapped)))

    def _unmap(self, stem: str) -> None:
        from gitdb.util import mman

        self._mapped.pop(stem, None)
        self._open[stem].close()
        self._open[stem] = _opened(self.folder / f"{stem}.pack")
        mman.collect()


def _opened(pack: Path) -> "PackEntity":
    from gitdb.pack import PackEntity  # takes 30 ms, and a young ledger has no packs

    return PackEntity(str(pack))
