"""Git's tree format, and one run's place in it. Pure: objects come and go through two functions.

A tree is rewritten only along the path `day/name`; every other entry is carried over byte for byte.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from agentfs.core import paths
from agentfs.ledger.errors import LedgerBroken

Kind = Literal["blob", "tree", "commit"]
FILE, FOLDER = b"100644", b"40000"

_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0/]+)\0(.{20})", re.DOTALL)
_OWN_FOLDERS = (paths.STEPS, paths.PLANNING, paths.REVISIONS, paths.FILES)
_OWN_FILES = (paths.RUN, paths.PLAN, paths.PLAN_ERROR, paths.GOAL_ERROR, paths.OUTCOME, paths.STATUS, paths.REPLAN)
# Names that git refuses in a tree, or reads as its own files, on some file system: `.git…`, `GIT~1`, `gi7eba~1`.
_GITS_OWN = re.compile(r"(?:\.git|gi[^~]{0,6}~[0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One entry of a tree: its mode as git writes it, and its object."""

    mode: bytes
    sha: str


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to be stored, with the name its content gives it."""

    kind: Kind
    content: bytes
    base: "NewObject | None" = field(default=None, compare=False, repr=False)  # one that it differs little from
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.header + self.content, usedforsecurity=False)
        object.__setattr__(self, "sha", digest.hexdigest())

    @property
    def depth(self) -> int:
        """How many others have to be read before it, if it is written as a difference."""
        return 1 + self.base.depth if self.base else 0

    @property
    def header(self) -> bytes:
        return b"%s %d\0" % (self.kind.encode(), len(self.content))


EMPTY = NewObject("tree", b"").sha
Entries = Mapping[bytes, Leaf]
Read = Callable[[str], Entries]  # the entries of a tree by its sha
Write = Callable[[Entries, str | None], str]  # the sha of a tree by its entries, and by that of what it was made from


def committable(path: str) -> bool:
    """Return whether git can hold this path of a run on every machine: relative, plain, none of git's own names."""
    if not path.isprintable() or "\\" in path:
        return False
    parts = path.split("/")
    return all(part not in ("", ".", "..") and not _GITS_OWN.match(part) for part in parts)


def is_own(path: str) -> bool:
    """Return whether a path in a run's folder is agentfs's; the rest is a person's and stays as they committed it."""
    first, _, below = path.partition("/")
    if below:
        return first in _OWN_FOLDERS
    return path in _OWN_FILES or path.startswith("goal.")


def parse(content: bytes) -> Entries:
    """Return the entries of a tree by name."""
    entries: dict[bytes, Leaf] = {}
    end = 0
    for match in _ENTRY.finditer(content):
        if match.start() != end:
            break
        entries[match[2]] = Leaf(match[1], match[3].hex())
        end = match.end()
    if end != len(content):
        raise LedgerBroken("a tree in the ledger is damaged: `git -C runs fsck` names it")
    return entries


def encode(entries: Entries, base: NewObject | None = None) -> NewObject:
    """Return the tree of these entries, in git's order: a folder sorts as if its name ended in a slash."""
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1].mode == FOLDER else item[0])
    content = b"".join([b"%s %s\0%s" % (leaf.mode, name, bytes.fromhex(leaf.sha)) for name, leaf in ordered])
    return NewObject("tree", content, base)


def folder(read: Read, root: str | None, path: str) -> Entries:
    """Return the entries of one folder of a root tree; none where it has no such folder."""
    entries = read(root) if root else {}
    for part in path.split("/"):
        entries = below(read, entries.get(part.encode()))
    return entries


def below(read: Read, leaf: Leaf | None) -> Entries:
    """Return the entries of a folder by its leaf; none where there is no such folder."""
    return read(leaf.sha) if leaf and leaf.mode == FOLDER else {}


def leaves(read: Read, entries: Entries, prefix: str = "") -> dict[str, Leaf]:
    """Return everything below these entries by path, folders opened."""
    found: dict[str, Leaf] = {}
    for name, leaf in entries.items():
        path = prefix + name.decode("utf-8", "surrogateescape")
        if leaf.mode == FOLDER:
            found |= leaves(read, read(leaf.sha), f"{path}/")
        else:
            found[path] = leaf
    return found


def build(paths: Mapping[str, Leaf], made: list[NewObject]) -> str:
    """Return the sha of the tree of these paths; the trees it takes are added to `made`."""
    entries: dict[bytes, Leaf] = {}
    folders: dict[str, dict[str, Leaf]] = {}
    for path, leaf in paths.items():
        first, _, rest = path.partition("/")
        if rest:
            folders.setdefault(first, {})[rest] = leaf
        else:
            entries[_name(first)] = leaf
    for name, inner in folders.items():
        if _name(name) in entries:
            raise ValueError(f"{name} is both a file and a folder")
        entries[_name(name)] = Leaf(FOLDER, build(inner, made))
    made.append(encode(entries))
    return made[-1].sha


def graft(read: Read, write: Write, root: str | None, path: str, new: str) -> str:
    """Return the sha of the root tree with the folder `path` replaced by the tree `new`."""
    first, _, rest = path.partition("/")
    entries = read(root) if root else {}
    if rest:
        old = entries.get(_name(first))
        new = graft(read, write, old.sha if old and old.mode == FOLDER else None, rest, new)
    return write({**entries, _name(first): Leaf(FOLDER, new)}, root)


def prune(read: Read, root: str, paths: Collection[str], made: list[NewObject]) -> str:
    """Return the sha of the root tree without the folders `paths`, and without those that held nothing else."""
    entries = dict(read(root))
    inside: dict[str, list[str]] = {}
    for path in paths:
        first, _, rest = path.partition("/")
        inside.setdefault(first, []).append(rest)
    for first, rests in inside.items():
        leaf = entries.pop(_name(first), None)
        if leaf is None or "" in rests:
            continue
        inner = Leaf(FOLDER, prune(read, leaf.sha, rests, made)) if leaf.mode == FOLDER else leaf
        if inner.sha != EMPTY:
            entries[_name(first)] = inner
    made.append(encode(entries))
    return made[-1].sha


def _name(part: str) -> bytes:
    return part.encode("utf-8", "surrogateescape")
