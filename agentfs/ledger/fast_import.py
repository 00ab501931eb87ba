"""Let git store commits: one stream of `git fast-import` for many, durable before anything refers to them.

Git works in a git folder of our own that reads the ledger's objects: its branch, its locks and its settings are ours
alone, and what a cut or a full disk leaves there goes with it. Then the new objects move to the ledger's.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from agentfs.core.commit_messages import AGENTFS
from agentfs.ledger.claims import Claims
from agentfs.ledger.git import BRANCH, Git, LedgerBroken
from agentfs.storage.files import sync_folder, write_new

COMMITTER = AGENTFS
STORING = ("core.fsync=all", "fastimport.unpackLimit=64")  # below that, a file for each object; else one pack
_EDGES = " .,:;<>\"\\'"  # what git itself trims from a name


@dataclass(frozen=True, slots=True)
class Draft:
    """A commit for `git fast-import`: who and why, and what it changes."""

    head: bytes
    changes: bytes


def store(git: Git, claims: Claims, tip: str | None, drafts: Sequence[Draft]) -> list[str]:
    """Let git store commits on top of a commit, durably; return their names."""
    if not drafts:
        return []
    stream = [
        b"".join((
            b"commit %s\nmark :%d\n" % (BRANCH.encode(), number),
            draft.head,
            b"from %s\n" % tip.encode() if tip and number == 1 else b"",
            draft.changes,
            b"\n",
        ))
        for number, draft in enumerate(drafts, 1)
    ]  # fmt: skip
    marks = b"".join(b"get-mark :%d\n" % number for number in range(1, len(drafts) + 1))
    folder = claims.path()
    made, objects = folder / "objects", git.folder / "objects"
    try:
        for each in (made, folder / "refs"):
            each.mkdir(parents=True)
        write_new(folder / "HEAD", f"ref: {BRANCH}\n".encode(), durable=False)
        own = {"GIT_DIR": str(folder.absolute()), "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quote(objects.absolute())}
        given = b"".join((*stream, marks, b"done\n"))
        done = git.run("fast-import", "--quiet", "--done", given=given, settings=STORING, variables=own)
        if done.code != 0:
            raise LedgerBroken(f"git cannot store commits: {done.why}. `git -C runs fsck` says more")
        _move_objects(made, objects)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return done.out.decode().split()


def _move_objects(made: Path, objects: Path) -> None:
    """Move what git has made, and flushed, into the ledger's objects, durably; the index of a pack comes after it."""
    files = [path for path in made.rglob("*") if path.is_file()]
    targets = {path: objects / path.relative_to(made) for path in sorted(files, key=lambda one: one.suffix == ".idx")}
    for path, target in targets.items():
        while path.exists():
            target.parent.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # git removes a folder that is empty at any moment
                os.rename(path, target)
    for folder in {objects, *(target.parent for target in targets.values())}:
        with contextlib.suppress(FileNotFoundError):  # what it held has moved into a pack
            sync_folder(folder)


def _quote(path: Path) -> str:
    """Return a path as git reads it in a list of paths: it may hold the sign that ends one."""
    return '"' + re.sub(r'(["\\])', r"\\\1", str(path)).replace("\n", "\\n") + '"'


def head(author: tuple[str, str], at: datetime, message: str) -> bytes:
    """Return who and why, in a form that `git fsck --strict` accepts whatever the names and words hold."""
    text = commit_text(message).encode()
    who = f"author {signature(*author, at)}\ncommitter {signature(*COMMITTER, at)}\n"
    return who.encode("utf-8", "replace") + b"data %d\n%s" % (len(text), text)


def commit_text(message: str) -> str:
    """Return a message as a commit holds it."""
    return (message.replace("\0", "").strip("\n") + "\n").encode("utf-8", "replace").decode()


def signature(name: str, email: str, at: datetime) -> str:
    """Return who and when, as git writes it."""
    minutes = int((at.utcoffset() or timedelta()).total_seconds() // 60)
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"
    return f"{_plain(name) or 'unknown'} <{_plain(email)}> {max(0, int(at.timestamp()))} {zone}"


def _plain(text: str) -> str:
    """Return a name or address that cannot end its field early."""
    return "".join(c for c in text if c.isprintable() and c not in "<>").strip(_EDGES)
