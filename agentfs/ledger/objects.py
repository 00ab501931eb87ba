"""Blobs, trees and commits in `objects/`: durable when `store` returns, and sound before they are relied on.

Writes only below `objects/`, under names git's own clean-up knows (`tmp_obj_…`), then renames. Few objects become one
file each; many go into one pack.
"""

import contextlib
import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agentfs.ledger.errors import LedgerBroken
from agentfs.ledger.files import sync, write_once
from agentfs.ledger.packs import Packs
from agentfs.ledger.trees import NewObject
from agentfs.storage.safe_open import MOST_RECORD, NotRegular, read_regular

PACK_FROM = 64  # a pack is faster from a dozen on, but every look-up of git's has to try every pack
MOST_PACKS = 200  # until `git gc` has made one of them; while there are more, objects become files


def _inflated(source: bytes) -> bytes:
    """Return what was compressed; of what was made to explode nothing."""
    inflater = zlib.decompressobj()
    whole = inflater.decompress(source, MOST_RECORD)
    if not inflater.eof:
        raise zlib.error("it is torn, or too large")
    return whole


class Objects:
    """The object database of one repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packs = Packs(folder / "pack")
        self.drafts: dict[str, NewObject] = {}  # about to be stored, and readable already

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
        if sha in self.drafts or self._loose(sha) is not None or self.packs.holds(sha):
            return True
        self.packs.refresh()  # it may have moved into a pack a moment ago
        return self.packs.holds(sha)

    def store(self, new: Iterable[NewObject]) -> None:
        """Make these objects durable. One that is there already is relied on only if it is whole."""
        unique = {one.sha: one for one in new}
        if len(unique) < PACK_FROM or len(self.packs) >= MOST_PACKS:
            self._store_each(unique)
            return
        self.packs.write(list(unique.values()))  # what is there already, too: to look for each takes longer
        for sha in self._files(unique):
            if self._loose(sha) is None:  # an empty or torn file beside the pack would only trouble `git fsck`
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path(sha))

    def _store_each(self, unique: Mapping[str, NewObject]) -> None:
        """Write a file of each; also of what a pack has: to look through them all takes longer, and git tidies up."""
        files = self._files(unique)
        there = {sha for sha in files if self._loose(sha) is not None and self._refresh(sha)}
        folders = {os.path.dirname(self._path(sha)) for sha in there}
        folders |= self._write_files([one for sha, one in unique.items() if sha not in there])
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):  # what it held has moved into a pack
                sync(folder)

    def _files(self, shas: Iterable[str]) -> set[str]:
        """Return which of these have a file of their own."""
        folders = set(os.listdir(self.folder))
        return {sha for sha in shas if sha[:2] in folders and os.path.exists(self._path(sha))}

    def _path(self, sha: str) -> str:
        return f"{self.folder}/{sha[:2]}/{sha[2:]}"  # hundreds a commit: a Path takes longer than the file

    def _read(self, sha: str) -> tuple[str, bytes] | None:
        if draft := self.drafts.get(sha):
            return draft.kind, draft.content
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
            whole = _inflated(read_regular(self._path(sha), MOST_RECORD))
        except (FileNotFoundError, NotADirectoryError, NotRegular, zlib.error):
            return None
        return whole if hashlib.sha1(whole, usedforsecurity=False).hexdigest() == sha else None

    def _refresh(self, sha: str) -> bool:
        """Make a file durable, and young, so that no `git prune` takes it before the branch moves; False: it went."""
        try:
            os.utime(self._path(sha))
            sync(self._path(sha))
        except FileNotFoundError:
            return False
        return True

    def _write_files(self, missing: Sequence[NewObject]) -> set[str]:
        """Write one file per object; return the folders whose names have yet to reach the disk."""
        folders = {os.path.dirname(self._path(one.sha)) for one in missing}
        if not all(map(os.path.isdir, folders)):
            folders.add(str(self.folder))
        moves = [(self._write_beside(one), self._path(one.sha)) for one in missing]
        for temporary, target in moves:
            os.rename(temporary, target)  # also over an empty or torn file
        return folders

    def _write_beside(self, one: NewObject) -> Path:
        """Write an object under another name, in its folder; git removes one that is empty at any moment."""
        folder = Path(os.path.dirname(self._path(one.sha)))
        temporary = folder / f"tmp_obj_{secrets.token_hex(6)}"
        while True:
            folder.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                write_once(temporary, zlib.compress(one.header + one.content, 1))
                return temporary
