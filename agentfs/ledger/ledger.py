"""The ledger of one `runs/` folder: commit, look up, bring the index in step, tell the history.

Every commit goes on top of whatever `main` is at, a person's commits included; nothing is ever rewritten.
"""

import contextlib
import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from agentfs.core.paths import is_run_id
from agentfs.ledger import history, setup, showing, trees
from agentfs.ledger.claims import Claims
from agentfs.ledger.errors import LedgerBroken, LedgerBusy
from agentfs.ledger.history import LedgerCommit
from agentfs.ledger.index import Index
from agentfs.ledger.objects import Objects
from agentfs.ledger.program import output
from agentfs.ledger.recent import Recent
from agentfs.ledger.refs import BRANCH, Branch
from agentfs.ledger.trees import FILE, Leaf, NewObject

_NEAR = 200  # commits: below the newest ones git finds those of a run sooner than we do
Still = Callable[[], bool]
Build = Callable[[str | None], list[NewObject] | None]  # on top of a commit: the objects of a new one, itself last
_TRIES = 20  # a person would have to commit that often while we do
_TREES = 16  # a day of 10,000 runs takes 2 MB
_COMMITS = 256
_DEPTH = 50  # trees that are each written as the difference from the one before; git's own default


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

    def __post_init__(self) -> None:
        """Refuse an entry no commit can be made of: a mistake of the caller's."""
        if not is_run_id(self.run):
            raise ValueError(f"{self.run!r} is not a run id")
        if self.at.tzinfo is None:
            raise ValueError("a commit's time needs a zone")
        for path in (*self.files, *self.known):
            if not trees.committable(path) or not trees.is_own(path):
                raise ValueError(f"{path!r} is not a file of a run that git can hold")


class Ledger:
    """The git history of one `runs/` folder. One thread at a time; any number of processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        git = root / ".git"
        self._claims = Claims(git)
        self._objects = Objects(git / "objects")
        self._branch = Branch(git, self._claims)
        self._index = Index(root, self._claims)
        self._trees: Recent[trees.Entries] = Recent(_TREES)
        self._tops: Recent[str] = Recent(_COMMITS)  # commit -> tree

    @classmethod
    def create(cls, root: Path) -> "Ledger":
        """Make the repository, or complete the one that is there; LedgerBroken if it is one agentfs cannot use."""
        with _in_words(root):
            root.mkdir(parents=True, exist_ok=True)
            setup.create(root)
        return cls(root)

    def show_plans_by_meaning(self) -> None:
        """Have a person's git compare plans by meaning, with the agentfs that is installed now."""
        with _in_words(self.root):
            showing.register(self.root / ".git")

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

    def tip(self) -> str | None:
        """Return the commit that `main` is at; None where it has none yet."""
        return self._branch.tip()

    def runs(self) -> set[str]:
        """Return the runs that `main` holds files of."""
        with _in_words(self.root):
            tree = self._tree(self._branch.tip())
            days = self._read_tree(tree) if tree else {}
            found = {
                f"{day.decode('utf-8', 'replace')}/{name.decode('utf-8', 'replace')}"
                for day, leaf in days.items()
                for name in trees.below(self._read_tree, leaf)
            }
        return {run for run in found if is_run_id(run)}

    def paths_at(self, commit: str, run: str) -> frozenset[str]:
        """Return the paths of agentfs's files that a commit holds of a run."""
        with _in_words(self.root):
            return frozenset(path for path in self._leaves(self._tree(commit), run) if trees.is_own(path))

    def content(self, blob: str) -> bytes:
        """Return what a file was when it was committed."""
        with _in_words(self.root):
            return self._objects.read(blob, "blob")

    def damaged(self, run: str) -> list[str]:
        """Return which objects of a run, as `main` has it, are missing or do not hold what their names promise."""
        found = []
        for path, sha in self.committed(run).items():
            try:
                whole = NewObject("blob", self.content(sha)).sha == sha
            except LedgerBroken:
                whole = False
            if not whole:
                found.append(f"the object of {run}/{path} ({sha}) is missing or damaged")
        return found

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

    def held(self, runs: Collection[str], name: str) -> dict[str, str | None]:
        """Return the blob of one file at the top of many runs' folders; None: `main` has none. Cheap, for many."""
        with _in_words(self.root):
            tree = self._tree(self._branch.tip())
            days = {day: trees.folder(self._read_tree, tree, day) for day in {run.partition("/")[0] for run in runs}}
            found = {run: self._folder(days, run).get(name.encode()) for run in runs}
        return {run: leaf.sha if leaf else None for run, leaf in found.items()}

    def _folder(self, days: Mapping[str, trees.Entries], run: str) -> trees.Entries:
        day, _, own = run.partition("/")
        return trees.below(self._read_tree, days[day].get(own.encode()))

    def _own(self, run: Leaf | None) -> dict[str, str]:
        found = trees.leaves(self._read_tree, trees.below(self._read_tree, run))
        return {path: leaf.sha for path, leaf in found.items() if trees.is_own(path)}

    def commit(self, entry: Entry, *, still: Still = lambda: True) -> str | None:
        """Commit one run's files on top of `main`; None if `main` holds exactly them already.

        `still` is asked when nobody else can write any more: False, and nothing is committed. LedgerBusy: somebody
        holds the branch's lock, try again later. LedgerBroken: a person has to mend it.
        """
        return self.commit_all([(entry, still)])[0]

    def commit_all(self, entries: Sequence[tuple[Entry, Still]]) -> list[str | None]:
        """Make one commit of each, in this order. They are stored together and the branch moves once: all or none."""
        runs = [entry.run for entry, _ in entries]
        return self._advance([partial(self._built_if, entry, still) for entry, still in entries], runs)

    def remove(self, runs: Collection[str], message: str, author: tuple[str, str], at: datetime) -> str | None:
        """Commit that the folders of these runs are gone; None if `main` has none of them. Their history stays."""
        return self._advance([lambda tip: self._pruned(runs, tip, message, author, at)])[0]

    def _advance(self, builds: Sequence[Build], runs: Collection[str] = ()) -> list[str | None]:
        """Put the commits that these make on `main`, each on top of the one before; None where one makes none.

        `runs`: those that the index has to be brought in step with, by whoever comes after us if we are cut off.
        """
        if words := setup.trouble(self.root):
            raise LedgerBroken(words)
        with _in_words(self.root), self._claims.turn():
            self._objects.packs.refresh()
            try:
                for _ in range(_TRIES):
                    tip = self._branch.tip()
                    shas = self._drafted(builds, tip)
                    new = next((sha for sha in reversed(shas) if sha), None)
                    if new is None:
                        return shas
                    self._objects.store(self._objects.drafts.values())  # durable before the branch moves
                    self._index.behind.add(runs)
                    if self._branch.move(tip, new):
                        return shas
            finally:
                self._objects.drafts.clear()
        raise LedgerBusy("main keeps moving: the commit follows when it rests")

    def _drafted(self, builds: Sequence[Build], tip: str | None) -> list[str | None]:
        """Draft the commits; return their names."""
        self._objects.drafts.clear()
        shas: list[str | None] = []
        for build in builds:
            made = build(tip) or []
            self._objects.drafts |= {one.sha: one for one in made}
            shas.append(made[-1].sha if made else None)
            tip = shas[-1] or tip
        return shas

    def sync_index(self, *runs: str) -> bool:
        """Bring the index in step with `main` for some runs; False: later (a lock, a rebase, another branch).

        LedgerBroken: the machine refuses something.
        """
        if setup.trouble(self.root):
            return False
        try:
            with _in_words(self.root), self._claims.turn():
                if not (self._branch.checked_out() and self._index.free()):
                    return False
                behind = self._index.behind.runs()
                if not self._index.update(self.committed_of({*runs, *behind})):
                    return False
                self._index.behind.clear()
                return True
        except LedgerBusy:
            return False

    def behind(self) -> frozenset[str]:
        """Return the runs with commits that the index may not be in step with yet."""
        with _in_words(self.root):
            return self._index.behind.runs()

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
        with _in_words(self.root):
            if run is None:
                return list(itertools.islice(self._walk(), limit))
            found, whole = self._naming(run, itertools.islice(self._walk(), _NEAR))
            if not whole and len(found) != limit:
                found, _ = self._naming(run, self._touching(run))
        return found[:limit]

    def _naming(self, run: str, commits: Iterator[LedgerCommit]) -> tuple[list[LedgerCommit], bool]:
        """Return those of these commits that name a run, and whether the one it began with is among them."""
        found: list[LedgerCommit] = []
        for commit in commits:
            if run in commit.trailers.get("Agentfs-Run", []):
                found.append(commit)
                if not any(self._leaves(self._tree(parent), run) for parent in commit.parents):
                    return found, True
        return found, False

    def _touching(self, run: str) -> Iterator[LedgerCommit]:
        """Yield the commits that may name a run: git finds them without reading all, if there is a commit-graph."""
        words = ("rev-list", "--full-history", BRANCH, "--", f":(literal){run}/")  # by any other magic, no graph
        told = output(self.root, *words)
        return self._walk() if told is None else map(self._read, told.decode("ascii", "replace").split())

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
        """Return the tree of a commit; of those that were asked for last it is remembered."""
        if commit is None:
            return None
        return self._tops.get(commit) or self._tops.keep(commit, self._read(commit).tree)

    def _read_tree(self, sha: str) -> trees.Entries:
        """Return a tree; the few that every commit goes through are remembered."""
        found = self._trees.get(sha)
        return self._trees.keep(sha, trees.parse(self._objects.read(sha, "tree")) if found is None else found)

    def _write_tree(self, made: list[NewObject], entries: trees.Entries, before: str | None) -> str:
        """Add a tree to what a commit is made of; the next commit goes through it."""
        base = self._objects.drafts.get(before or "")
        made.append(trees.encode(entries, base if base and base.depth < _DEPTH else None))
        self._trees.keep(made[-1].sha, entries)
        return made[-1].sha

    def _leaves(self, root: str | None, run: str) -> dict[str, Leaf]:
        return trees.leaves(self._read_tree, trees.folder(self._read_tree, root, run))

    def _built_if(self, entry: Entry, still: Still, tip: str | None) -> list[NewObject] | None:
        return self._built(entry, tip) if still() else None

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
        write = partial(self._write_tree, made)
        top = trees.graft(self._read_tree, write, root, entry.run, trees.build(after, made))
        author = (entry.author_name, entry.author_email)
        commit = history.encode(top, tip, author, entry.at, entry.message)
        self._tops.keep(commit.sha, top)
        return [*made, commit]

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


@contextlib.contextmanager
def _in_words(root: Path) -> Iterator[None]:
    """Tell what the operating system refused as the ledger's trouble."""
    try:
        yield
    except OSError as error:
        where = error.filename or f"{root}/.git"
        raise LedgerBroken(f"the ledger cannot be used: {where}: {error.strerror or error}") from error
