"""The ledger of one `runs/` folder: commit, look up, bring the index in step, tell the history.

Every commit goes on top of whatever `main` is at, a person's commits included; nothing is ever rewritten.
"""

import contextlib
import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from agentfs.core.names import is_run_id
from agentfs.ledger import history, setup, trees
from agentfs.ledger.claims import Claims
from agentfs.ledger.errors import LedgerBroken, LedgerBusy
from agentfs.ledger.history import LedgerCommit
from agentfs.ledger.index import Index
from agentfs.ledger.objects import Objects
from agentfs.ledger.refs import Branch
from agentfs.ledger.trees import FILE, Leaf, NewObject

_TRIES = 20  # a person would have to commit that often while we do


@dataclass(frozen=True, slots=True)
class Entry:
    """What one commit holds of one run, and what it says.

    `files` and `known` together are all of agentfs's files the commit holds for the run, by path in its folder; each
    must be `committable`. What a person committed beside them stays.
    """

    run: str
    files: Mapping[str, bytes]
    message: str
    author_name: str
    author_email: str
    at: datetime
    known: Mapping[str, str] = field(default_factory=dict)  # path -> blob that is stored already


class Ledger:
    """The git history of one `runs/` folder. One thread at a time; any number of processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        git = root / ".git"
        self._claims = Claims(git)
        self._objects = Objects(git / "objects")
        self._branch = Branch(git, self._claims)
        self._index = Index(root, self._claims)

    @classmethod
    def create(cls, root: Path) -> "Ledger":
        """Make the repository, or complete the one that is there; LedgerBroken if it is one agentfs cannot use."""
        with _in_words(root):
            root.mkdir(parents=True, exist_ok=True)
            setup.create(root)
        return cls(root)

    def trouble(self) -> str | None:
        """Return why the ledger cannot be used and how to mend it; None if it can."""
        if words := setup.trouble(self.root):
            return words
        try:
            with _in_words(self.root):
                self._tree(self._branch.tip())
        except LedgerBroken as broken:
            return str(broken)
        return None

    def committed(self, run: str) -> dict[str, str]:
        """Return agentfs's files of a run as `main` holds them: path in the run's folder -> blob."""
        with _in_words(self.root):
            found = self._leaves(self._tree(self._branch.tip()), run)
        return {path: leaf.sha for path, leaf in found.items() if trees.is_own(path)}

    def committed_of(self, runs: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the same of many runs; the folders they share are read once."""
        with _in_words(self.root):
            tree = self._tree(self._branch.tip())
            days = {day: trees.folder(self._read_tree, tree, day) for day in {run.partition("/")[0] for run in runs}}
            return {run: self._own(days[run.partition("/")[0]].get(run.rpartition("/")[2].encode())) for run in runs}

    def _own(self, run: Leaf | None) -> dict[str, str]:
        found = trees.leaves(self._read_tree, trees.below(self._read_tree, run))
        return {path: leaf.sha for path, leaf in found.items() if trees.is_own(path)}

    def commit(self, entry: Entry, *, still: Callable[[], bool] = lambda: True) -> str | None:
        """Commit one run's files on top of `main`; None if `main` holds exactly them already.

        `still` is asked when nobody else can write any more: False, and nothing is committed. LedgerBusy: somebody
        holds the branch's lock, try again later. LedgerBroken: a person has to mend it.
        """
        _refuse(entry)
        return self._advance(lambda tip: self._built(entry, tip) if still() else None)

    def remove(self, runs: Collection[str], message: str, author: tuple[str, str], at: datetime) -> str | None:
        """Commit that the folders of these runs are gone; None if `main` has none of them. Their history stays."""
        return self._advance(lambda tip: self._pruned(runs, tip, message, author, at))

    def _advance(self, build: Callable[[str | None], list[NewObject] | None]) -> str | None:
        """Put the commit that `build` makes for the tip of `main` on top of it; None if it makes none."""
        if words := setup.trouble(self.root):
            raise LedgerBroken(words)
        with _in_words(self.root), self._claims.turn():
            self._objects.packs.refresh()
            for _ in range(_TRIES):
                tip = self._branch.tip()
                made = build(tip)
                if made is None:
                    return None
                self._objects.store(made)  # durable before the branch moves
                if self._branch.move(tip, made[-1].sha):
                    return made[-1].sha
        raise LedgerBusy("main keeps moving: the commit follows when it rests")

    def sync_index(self, run: str) -> bool:
        """Bring the index in step with `main` for one run; False: later (a lock, a rebase, another branch)."""
        if setup.trouble(self.root):
            return False
        try:
            with _in_words(self.root), self._claims.turn():
                if not (self._branch.checked_out() and self._index.free()):
                    return False
                return self._index.update(run, self.committed(run))
        except (LedgerBusy, LedgerBroken):
            return False

    def sync_removed(self, runs: Collection[str]) -> bool:
        """Take runs that `main` no longer has out of the index; False: later. Another branch's index is not ours."""
        if setup.trouble(self.root):
            return False
        try:
            with _in_words(self.root), self._claims.turn():
                if not self._branch.checked_out():
                    return True
                return self._index.free() and self._index.remove(frozenset(runs))
        except (LedgerBusy, LedgerBroken):
            return False

    def history(self, run: str | None = None, limit: int | None = None) -> list[LedgerCommit]:
        """Return the commits of `main`, newest first; of one run: those that name it in their trailers."""
        found: list[LedgerCommit] = []
        with _in_words(self.root):
            for commit in self._walk():
                if len(found) == limit:
                    break
                if run is None:
                    found.append(commit)
                elif run in commit.trailers.get("Agentfs-Run", []):
                    found.append(commit)
                    if not any(self._leaves(self._tree(parent), run) for parent in commit.parents):
                        break  # the run began here
        return found

    def versions(self, run: str, path: str) -> Iterator[bytes]:
        """Yield every content that a file of a run had in a commit, newest first, each once."""
        seen: set[str] = set()
        for commit in self.history(run):
            leaf = self._leaves(commit.tree, run).get(path)
            if leaf is not None and leaf.sha not in seen:
                seen.add(leaf.sha)
                yield self._objects.read(leaf.sha, "blob")

    def _walk(self) -> Iterator[LedgerCommit]:
        """Yield every commit once, later ones first, as `git log` does."""
        tip = self._branch.tip()
        seen = {tip}
        ahead = [(0.0, 0, self._read(tip))] if tip else []
        while ahead:
            commit = heapq.heappop(ahead)[2]
            yield commit
            for parent in commit.parents:
                if parent not in seen:
                    seen.add(parent)
                    read = self._read(parent)
                    heapq.heappush(ahead, (-read.at.timestamp(), len(seen), read))

    def _read(self, sha: str) -> LedgerCommit:
        return history.decode(sha, self._objects.read(sha, "commit"))

    def _tree(self, commit: str | None) -> str | None:
        return self._read(commit).tree if commit else None

    def _read_tree(self, sha: str) -> bytes:
        return self._objects.read(sha, "tree")

    def _leaves(self, root: str | None, run: str) -> dict[str, Leaf]:
        return trees.leaves(self._read_tree, trees.folder(self._read_tree, root, run))

    def _built(self, entry: Entry, tip: str | None) -> list[NewObject] | None:
        """Return the objects of a commit on top of `tip`, the commit last; None if it would change nothing."""
        root = self._tree(tip)
        before = self._leaves(root, entry.run)
        blobs = {path: NewObject("blob", content) for path, content in entry.files.items()}
        after = {path: leaf for path, leaf in before.items() if not trees.is_own(path)}
        after |= {path: Leaf(FILE, self._stored(sha, path)) for path, sha in entry.known.items()}
        after |= {path: Leaf(FILE, blob.sha) for path, blob in blobs.items()}
        if after == before:
            return None
        settled = {leaf.sha for leaf in before.values()}  # durable since the branch moved to them
        made = [blob for blob in blobs.values() if blob.sha not in settled or not self._objects.holds(blob.sha)]
        top = trees.graft(self._read_tree, root, entry.run, trees.build(after, made), made)
        author = (entry.author_name, entry.author_email)
        return [*made, history.encode(top, tip, author, entry.at, entry.message)]

    def _pruned(
        self, runs: Collection[str], tip: str | None, message: str, author: tuple[str, str], at: datetime
    ) -> list[NewObject] | None:
        """Return the objects of a commit without these runs; None if `tip` has none of them."""
        root = self._tree(tip)
        if root is None:
            return None
        made: list[NewObject] = []
        top = trees.prune(self._read_tree, root, runs, made)
        return None if top == root else [*made, history.encode(top, tip, author, at, message)]

    def _stored(self, sha: str, path: str) -> str:
        if not self._objects.holds(sha):
            raise LedgerBroken(f"the object of {path} ({sha}) is not in the ledger: commit the file's content again")
        return sha


def _refuse(entry: Entry) -> None:
    """Refuse an entry no commit can be made of: a mistake of the caller's."""
    if not is_run_id(entry.run):
        raise ValueError(f"{entry.run!r} is not a run id")
    if entry.at.tzinfo is None:
        raise ValueError("a commit's time needs a zone")
    for path in (*entry.files, *entry.known):
        if not trees.committable(path) or not trees.is_own(path):
            raise ValueError(f"{path!r} is not a file of a run that git can hold")


@contextlib.contextmanager
def _in_words(root: Path) -> Iterator[None]:
    """Tell what the operating system refused as the ledger's trouble."""
    try:
        yield
    except OSError as error:
        where = error.filename or f"{root}/.git"
        raise LedgerBroken(f"the ledger cannot be used: {where}: {error.strerror or error}") from error
