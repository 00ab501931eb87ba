"""The branch `main`: read it, move it by compare-and-swap, with git's own lock.

Writes `refs/heads/main` and nothing else. `main` may be checked out or not: agentfs always commits to it.
"""

import os
import re
from pathlib import Path

from agentfs.ledger.claims import Claims
from agentfs.ledger.errors import LedgerBroken
from agentfs.ledger.files import sync, write_once
from agentfs.storage.safe_open import MOST_RECORD, read_text

BRANCH = "refs/heads/main"
_SHA = re.compile(r"[0-9a-f]{40}")


class Branch:
    """The branch agentfs commits to."""

    def __init__(self, git: Path, claims: Claims) -> None:
        self.git = git
        self.path = git / BRANCH
        self.lock = git / f"{BRANCH}.lock"
        self.claims = claims

    def tip(self) -> str | None:
        """Return the commit the branch is at; None where it has none yet."""
        try:
            text = read_text(self.path).strip()
        except (FileNotFoundError, IsADirectoryError):
            return self._packed()  # after `git gc` the branch may live there only
        if not _SHA.fullmatch(text):
            raise LedgerBroken(
                f"{self.path} does not name a commit: put the sha of the last good one in it "
                "(`git -C runs log --all`, `git -C runs fsck --lost-found`)"
            )
        return text

    def checked_out(self) -> bool:
        try:
            return read_text(self.git / "HEAD").strip() == f"ref: {BRANCH}"
        except (FileNotFoundError, UnicodeDecodeError):
            return False

    def move(self, old: str | None, new: str) -> bool:
        """Move the branch from `old` to `new`; False if it is not at `old`. Only in a turn."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        claim = self.claims.path()
        try:
            write_once(claim, f"{new}\n".encode(), 0o644)
            with self.claims.locked(claim, self.lock):
                if self.tip() != old:
                    return False
                os.rename(self.lock, self.path)  # the commit point
            sync(self.path.parent)
        finally:
            claim.unlink(missing_ok=True)
        return True

    def _packed(self) -> str | None:
        try:
            lines = read_text(self.git / "packed-refs", MOST_RECORD).splitlines()
        except FileNotFoundError:
            return None
        return next((line[:40] for line in lines if line[41:] == BRANCH and _SHA.fullmatch(line[:40])), None)
