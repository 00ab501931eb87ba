"""Blobs, trees and commits in `objects/`: durable when `store` returns, and sound before they are relied on.

Writes only below `objects/`, under names git's own clean-up knows (`tmp_obj_…`), then renames. Few objects become one
file each; many go into one pack.
"""

import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from agentfs.ledger.errors import LedgerBroken
from agentfs.ledger.files import sync, write_once
from agentfs.ledger.packs import Packs
from agentfs.ledger.trees import NewObject

PACK_FROM = 64  # a pack is faster from a dozen on, but every look-up of git's has to try every pack


class Objects:
    """The object database of one repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packs = Packs(folder / "pack")

    def read(self, sha: str, kind: str) -> bytes:
        """Return the content of an object; LedgerBroken where it is missing, damaged or of another kind."""
        found = self._read(sha)
        if found is None:
            raise LedgerBroken(
                f"object {sha} of the ledger is missing or damaged: `git -C runs fsck` says more. "
                "Fetch it from a copy of runs/.git, or move runs/.git away and run `agentfs init`"
            )
        if found[0] != kind:
            raise LedgerBroken(f"{sha} in the ledger is a {found[0]}, not a {kind}: `git -C runs fsck` says more")
        return found[1]

    def holds(self, sha: str) -> bool:
        """Return whether an object is there and sound."""
        return self._loose(sha) is not None or self.packs.holds(sha)

    def store(self, new: Iterable[NewObject]) -> None:
        """Make these objects durable. One that is there already is relied on only if it is whole."""
        unique = {one.sha: one for one in new}
        there = {sha for sha in unique if self._loose(sha) is not None}
        for sha in there:
            self._refresh(sha)
        missing = [one for one in unique.values() if one.sha not in there and not self._packed_only(one.sha)]
        folders = {self._path(sha).parent for sha in there}
        if len(missing) < PACK_FROM:
            folders |= self._write_files(missing)
        else:
            self.packs.write(missing)
            for one in missing:  # an empty or torn file beside the pack would only trouble `git fsck`
                self._path(one.sha).unlink(missing_ok=True)
        for folder in folders:
            sync(folder)

    def _path(self, sha: str) -> Path:
        return self.folder / sha[:2] / sha[2:]

    def _read(self, sha: str) -> tuple[str, bytes] | None:
        if whole := self._loose(sha):
            header, _, content = whole.partition(b"\0")
            return header.partition(b" ")[0].decode(), content
        if found := self.packs.read(sha):
            return found
        self.packs.refresh()
        return self.packs.read(sha)

    def _loose(self, sha: str) -> bytes | None:
        """Return an object of its own file with its header, if the bytes are those its name promises."""
        try:
            whole = zlib.decompress(self._path(sha).read_bytes())
        except (FileNotFoundError, NotADirectoryError, zlib.error):
            return None
        return whole if hashlib.sha1(whole, usedforsecurity=False).hexdigest() == sha else None

    def _packed_only(self, sha: str) -> bool:
        return not self._path(sha).exists() and self.packs.holds(sha)

    def _refresh(self, sha: str) -> None:
        """Make a file that is there durable, and young, so that no `git prune` takes it before the branch moves."""
        os.utime(self._path(sha))
        sync(self._path(sha))

    def _write_files(self, missing: Sequence[NewObject]) -> set[Path]:
        """Write one file per object; return the folders whose names have yet to reach the disk."""
        folders: set[Path] = set()
        moves: list[tuple[Path, Path]] = []
        for one in missing:
            target = self._path(one.sha)
            if not target.parent.is_dir():
                target.parent.mkdir(exist_ok=True)
                folders.add(self.folder)
            temporary = target.parent / f"tmp_obj_{secrets.token_hex(6)}"
            write_once(temporary, zlib.compress(one.header + one.content, 1))
            moves.append((temporary, target))
        for temporary, target in moves:
            os.rename(temporary, target)  # also over an empty or torn file
        return folders | {target.parent for _, target in moves}
