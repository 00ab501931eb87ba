"""Commits, written and read back. Pure: objects come in as bytes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from agentfs.core.commit_messages import trailers
from agentfs.ledger.errors import LedgerBroken
from agentfs.ledger.trees import NewObject

COMMITTER = ("agentfs", "agentfs@localhost")

_SIGNATURE = re.compile(r"(.*?) ?<([^>]*)> (-?\d+) ([+-])(\d\d)(\d\d)")
_EDGES = " .,:;<>\"\\'"  # what git itself trims from a name


@dataclass(frozen=True, slots=True)
class LedgerCommit:
    """One commit, taken apart."""

    sha: str
    subject: str
    body: str
    author_name: str
    at: datetime
    trailers: Mapping[str, list[str]]
    tree: str
    parents: tuple[str, ...]


def encode(tree: str, parent: str | None, author: tuple[str, str], at: datetime, message: str) -> NewObject:
    """Return a commit by agentfs, in a form that `git fsck --strict` accepts whatever the names and words hold."""
    lines = [f"tree {tree}"]
    if parent:
        lines.append(f"parent {parent}")
    lines += [f"author {_signature(*author, at)}", f"committer {_signature(*COMMITTER, at)}"]
    text = message.replace("\0", "").strip("\n")
    return NewObject("commit", ("\n".join(lines) + f"\n\n{text}\n").encode("utf-8", "replace"))


def decode(sha: str, content: bytes) -> LedgerCommit:
    """Return a commit taken apart; a person's own commits too."""
    head, _, message = content.decode("utf-8", "replace").partition("\n\n")
    fields = [line.partition(" ") for line in head.split("\n") if not line.startswith(" ")]
    tree = next((value for key, _, value in fields if key == "tree"), None)
    signature = next((m for key, _, value in fields if key == "author" and (m := _SIGNATURE.match(value))), None)
    if tree is None or signature is None:
        raise LedgerBroken(f"commit {sha} of the ledger is damaged: `git -C runs fsck` says more")
    subject, _, body = message.strip("\n").partition("\n")
    return LedgerCommit(
        sha,
        subject,
        body.strip("\n"),
        signature[1],
        _time(signature),
        trailers(message),
        tree,
        tuple(value for key, _, value in fields if key == "parent"),
    )


def _signature(name: str, email: str, at: datetime) -> str:
    minutes = int((at.utcoffset() or timedelta()).total_seconds() // 60)
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"
    return f"{_plain(name) or 'unknown'} <{_plain(email)}> {max(0, int(at.timestamp()))} {zone}"


def _plain(text: str) -> str:
    """Return a name or address that cannot end its field early."""
    return "".join(c for c in text if c.isprintable() and c not in "<>").strip(_EDGES)


def _time(signature: re.Match[str]) -> datetime:
    offset = timedelta(hours=int(signature[5]), minutes=int(signature[6]))
    try:
        return datetime.fromtimestamp(int(signature[3]), timezone(-offset if signature[4] == "-" else offset))
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)
