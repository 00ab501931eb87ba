"""The ledger of one `runs/` folder: commit, look up, bring the index in step, tell the history.

Every commit goes on top of whatever `main` is at, a person's commits included; nothing is ever rewritten.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from agentfs.core.commit_messages import trailers
from agentfs.core.paths import is_run_id
from agentfs.ledger import repository
from agentfs.ledger.branch import Branch, Claims, Draft, Index, head, is_own, store
from agentfs.ledger.git import BRANCH, Git, LedgerBroken, LedgerBusy

if TYPE_CHECKING:
    import git as gitpython

FILE = "100644"
_TRIES = 20  # a person would have to commit that often while we do
_AT_ONCE = 500  # paths of one command line; commits of one list
# Names that git refuses in a tree, or reads as its own files, on some file system: `.git…`, `GIT~1`, `gi7eba~1`.
_GITS_OWN = re.compile(r"(?:\.git|gi[^~]{0,6}~[0-9])", re.IGNORECASE)
_CHANGE = re.compile(rb":\d+ (\d+) ([0-9a-f]{40}) ([0-9a-f]{40}) ([A-Z])")
_LINK = b"120000"
_TIME = re.compile(r"> ([0-9]{1,10}) [+-][0-9]{4}\Z")
Leaf = tuple[str, str]  # mode, object
Files = dict[str, Leaf]  # by path in a run's folder
Still = Callable[[Mapping[str, str]], bool]  # given what is committed of the run: path -> blob


@dataclass(frozen=True, slots=True)
class Entry:
    """What one commit holds of one run, and what it says.

    `files` are all of agentfs's files the commit holds for the run, by path in its folder; each must be
    `committable`. What a person committed beside them stays.
    """

    run: str
    files: Mapping[str, bytes]
    message: str
    author_name: str
    author_email: str
    at: datetime

    def __post_init__(self) -> None:
        """Refuse an entry no commit can be made of: a mistake of the caller's."""
        if not is_run_id(self.run):
            raise ValueError(f"{self.run!r} is not a run id")
        if self.at.tzinfo is None:
            raise ValueError("a commit's time needs a zone")
        for path in self.files:
            if not committable(path) or not is_own(path):
                raise ValueError(f"{path!r} is not a file of a run that git can hold")


@dataclass(frozen=True, slots=True)
class Change:
    """One file in one commit: A added, M modified, D deleted, T of another kind."""

    how: str
    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class LedgerCommit:
    """One commit, and the files it changed against its only parent."""

    sha: str
    parents: list[str]
    author: str  # name, address and time, as git writes them
    committer: str
    message: str
    trailers: Mapping[str, list[str]]
    others: tuple[str, ...]  # its headers beside tree, parents, author and committer
    changes: list[Change]

    @property
    def by(self) -> str:
        return self.author.partition(" <")[0]

    @property
    def subject(self) -> str:
        return self.message.strip("\n").partition("\n")[0]

    @property
    def at(self) -> datetime:
        """When its author made it; the epoch where that line is damaged."""
        found = _TIME.search(self.author)
        return datetime.fromtimestamp(int(found[1]) if found else 0, UTC)


def committable(path: str) -> bool:
    """Return whether git can hold this path of a run on every machine: relative, plain, none of git's own names."""
    if not path.isprintable() or "\\" in path:
        return False
    parts = path.split("/")
    return all(part not in ("", ".", "..") and not _GITS_OWN.match(part) for part in parts)


def blob_sha(content: bytes) -> str:
    """Return the name git gives to this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class Ledger:
    """The git history of one `runs/` folder. One thread at a time; any number of processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._git = Git(root)
        self._claims = Claims(self._git.folder)
        self._branch = Branch(self._git.folder, self._claims)
        self._index = Index(self._git, self._claims)
        self._listed: tuple[object, dict[str, Files]] = (None, {})  # what was asked for last, and the answer

    @classmethod
    def create(cls, root: Path) -> "Ledger":
        """Make the repository, or complete the one that is there; LedgerBroken if it is one agentfs cannot use."""
        with _in_words(root):
            root.mkdir(parents=True, exist_ok=True)
            repository.create(root)
        return cls(root)

    def show_plans_by_meaning(self) -> None:
        """Have a person's git compare plans by meaning, with the agentfs that is installed now."""
        with _in_words(self.root):
            repository.show_plans_by_meaning(self._git.folder)

    def trouble(self) -> str | None:
        """Return why the ledger cannot be used and how to fix it; None if it can. Starts nothing."""
        if words := repository.find_trouble(self.root):
            return words
        try:
            self.tip()
        except LedgerBroken as broken:
            return str(broken)
        return None

    # ── what is committed ─────────────────────────────────────────────────────────────────────────────────

    def tip(self) -> str | None:
        """Return the commit that `main` is at; None where it has none yet."""
        with _in_words(self.root):
            return self._branch.tip()

    def runs(self) -> set[str]:
        """Return the runs that `main` holds files of."""
        tip = self.tip()
        if tip is None:
            return set()
        list_folders = partial(self._git.output, "ls-tree", "-z", "-d", "--name-only", "--full-tree", tip, "--")
        days = (f"{day}/" for day in _names(list_folders()))
        return {name for some in _batches(days) for name in _names(list_folders(*some)) if is_run_id(name)}

    def contents(self, blobs: Sequence[str]) -> Iterator[bytes]:
        """Yield what files were when they were committed; LedgerBroken where one is missing or damaged."""
        out = self._git.output("cat-file", "--batch", "--buffer", given="".join(f"{one}\n" for one in blobs).encode())
        begin = 0
        for blob in blobs:
            end = out.find(b"\n", begin)
            about = out[begin:end].split()
            content = out[end + 1 : end + 1 + int(about[2])] if len(about) == 3 else b""
            if len(about) != 3 or blob_sha(content) != blob:
                raise LedgerBroken(f"object {blob} of the ledger is missing or damaged: `git -C runs fsck` says more")
            yield content
            begin = end + 1 + len(content) + 1

    def damaged(self, run: str) -> list[str]:
        """Return which files of a run, as `main` has it, have an object that is missing or damaged."""
        found = []
        for path, sha in self.committed(run).items():
            try:
                list(self.contents([sha]))
            except LedgerBroken:
                found.append(f"the object of {run}/{path} ({sha}) is missing or damaged")
        return found

    def committed(self, run: str) -> dict[str, str]:
        """Return agentfs's files of a run as `main` holds them: path in the run's folder -> blob."""
        return self.committed_of([run])[run]

    def committed_of(self, runs: Collection[str], commit: str | None = None) -> dict[str, dict[str, str]]:
        """Return the same of many runs, as `main` or another commit holds them."""
        return {run: _own(files) for run, files in self._files(commit or self.tip(), runs).items()}

    def held(self, runs: Collection[str], name: str) -> dict[str, str | None]:
        """Return the blob of one file at the top of many runs' folders; None: `main` has none."""
        found = self._files(self.tip(), runs, f"/{name}")
        return {run: files[name][1] if name in files else None for run, files in found.items()}

    def _files(self, commit: str | None, runs: Collection[str], below: str = "/") -> dict[str, Files]:
        """Return what a commit holds of these runs, a person's files too; the last answer is kept."""
        asked = (commit, frozenset(runs), below)
        if self._listed[0] == asked:
            return dict(self._listed[1])
        found: dict[str, Files] = {run: {} for run in runs}
        for some in _batches(f"{run}{below}" for run in found) if commit else ():
            listed = self._git.output("ls-tree", "-r", "-z", "--full-tree", str(commit), "--", *some)
            for line in _names(listed):
                about, _, path = line.partition("\t")
                mode, _, sha = about.split(" ")
                day, name, rest = path.split("/", 2)
                found[f"{day}/{name}"][rest] = (mode, sha)
        self._listed = (asked, found)
        return dict(found)

    # ── commit ────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, entry: Entry, *, still: Still = lambda _: True) -> str | None:
        """Commit one run's files on top of `main`; None if `main` holds exactly them already.

        `still` is asked when no other process can write any more: False, and nothing is committed. LedgerBusy:
        another program holds the branch's lock, try again later. LedgerBroken: a person has to fix it.
        """
        return self.commit_all([(entry, still)])[0]

    def commit_all(self, entries: Sequence[tuple[Entry, Still]]) -> list[str | None]:
        """Make one commit of each, in this order. They are stored together and the branch moves once: all or none."""

        def draft(tip: str | None) -> list[Draft | None]:
            held = self._files(tip, {entry.run for entry, _ in entries})
            return [_draft(entry, held) if still(_own(held[entry.run])) else None for entry, still in entries]

        return self._advance(draft, [entry.run for entry, _ in entries])

    def remove(self, runs: Collection[str], message: str, author: tuple[str, str], at: datetime) -> str | None:
        """Commit that the folders of these runs are gone; None if `main` has none of them. Their history stays."""

        def draft(tip: str | None) -> list[Draft | None]:
            there = [run for run, files in self._files(tip, runs).items() if files]
            changes = b"".join(b"D %s\n" % run.encode() for run in there)
            return [Draft(head(author, at, message), changes) if there else None]

        return self._advance(draft)[0]

    def _advance(
        self, draft: Callable[[str | None], list[Draft | None]], runs: Collection[str] = ()
    ) -> list[str | None]:
        """Put drafted commits on `main`, each on top of the one before; None where there is none to make.

        `runs`: those that the index has to be brought in step with, by the next process if this one is cut off.
        """
        if words := repository.find_trouble(self.root):
            raise LedgerBroken(words)
        with _in_words(self.root), self._claims.turn():
            for _ in range(_TRIES):
                tip = self._branch.tip()
                drafts = draft(tip)
                made = store(self._git, self._claims, tip, [one for one in drafts if one])
                stored = iter(made)  # durable, before the branch moves
                shas = [next(stored) if one else None for one in drafts]
                new = next((sha for sha in reversed(shas) if sha), None)
                if new is None:
                    return shas
                self._index.note_behind(runs)
                if self._branch.move(tip, new):
                    return shas
        raise LedgerBusy("main keeps moving: the commit follows when it rests")

    # ── the index ─────────────────────────────────────────────────────────────────────────────────────────

    def sync_index(self, *runs: str) -> bool:
        """Bring the index in step with `main` for some runs; False: later (a lock, a rebase, another branch).

        LedgerBroken: the machine refuses something.
        """
        if repository.find_trouble(self.root):
            return False
        try:
            with _in_words(self.root), self._claims.turn():
                if not (self._branch.is_checked_out() and self._index.is_free()):
                    return False
                if self._branch.tip() is None:
                    return True
                return self._index.catch_up(runs)
        except LedgerBusy:
            return False

    def is_checked_out(self) -> bool:
        """Whether the index is that of `main`: a person may have another branch, or a commit, checked out."""
        return self._branch.is_checked_out()

    def behind(self) -> frozenset[str]:
        """Return the runs with commits that the index may not be in step with yet."""
        with _in_words(self.root):
            return self._index.behind()

    def sync_removed(self, runs: Collection[str]) -> bool:
        """Take runs that `main` no longer has out of the index; False: later. Another branch's index is not ours."""
        if repository.find_trouble(self.root):
            return False
        try:
            with _in_words(self.root), self._claims.turn():
                if not self._branch.is_checked_out():
                    return True
                return self._index.is_free() and self._index.update(runs, own=False)
        except (LedgerBusy, LedgerBroken):
            return False

    # ── history ───────────────────────────────────────────────────────────────────────────────────────────

    def commits(self, run: str | None = None) -> Iterator[LedgerCommit]:
        """Yield the commits of `main`, oldest first; of one run those that touch it.

        By plumbing, which no setting of a repository makes run anything.
        """
        git = Git(self.root, f"core.commitGraph={'true' if run else 'false'}")  # of all runs: what the objects say
        place = f":(literal){run}/" if run else ""
        diff = ("diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--root", "--always", "--no-abbrev")
        with git.repository() as repo:
            found = repo.iter_commits(BRANCH, place, reverse=True, topo_order=True, full_history=True)
            while some := list(islice(found, _AT_ONCE)):
                given = "".join(f"{one.hexsha}\n" for one in some).encode()
                done = git.run(*diff, *(["--", place] if run else []), given=given, seconds=None)
                changes = _parse_changes(done.out)  # of a damaged tree there are none: `git fsck` names it
                yield from (_read_commit(one, changes.get(one.hexsha, [])) for one in some)

    def history(self, run: str | None = None) -> list[LedgerCommit]:
        """Return the commits of `main`, newest first; of one run: those that name it in their trailers."""
        if self.tip() is None:
            return []
        with _in_words(self.root):
            commits = [*self.commits(run)][::-1]
            return commits if run is None else [*self._of_run(run, commits)]

    def _of_run(self, run: str, commits: Sequence[LedgerCommit]) -> Iterator[LedgerCommit]:
        """Yield those of these commits that name a run, down to the one it began with: its name may be used again."""
        found = False
        for commit in commits:
            ours = commit.trailers.keys() & {"Agentfs-Revision", "Agentfs-Outcome"}
            if found and not ours and not self._files(commit.sha, [run])[run]:
                return
            if run in commit.trailers.get("Agentfs-Run", []):
                found = True
                yield commit

    def versions(self, run: str, path: str) -> Iterator[bytes]:
        """Yield every content that a file of a run had in a commit, newest first, each once."""
        held = (self._files(commit.sha, [run])[run].get(path) for commit in self.history(run))
        return self.contents(list(dict.fromkeys(leaf[1] for leaf in held if leaf)))


def _draft(entry: Entry, held: dict[str, Files]) -> Draft | None:
    """Return the commit of an entry, given what the commits before it hold; None if it would change nothing."""
    before, blobs = held[entry.run], {path: blob_sha(content) for path, content in entry.files.items()}
    gone = [path for path in before if is_own(path) and path not in blobs]
    new = [path for path, sha in blobs.items() if before.get(path) != (FILE, sha)]
    if not gone and not new:
        return None
    lines = [b"D %s\n" % _path(entry.run, path) for path in gone]
    for path in new:
        content = entry.files[path]
        lines += (b"M 100644 inline %s\ndata %d\n" % (_path(entry.run, path), len(content)), content, b"\n")
    others = {path: leaf for path, leaf in before.items() if not is_own(path)}
    held[entry.run] = {**others, **{path: (FILE, sha) for path, sha in blobs.items()}}
    return Draft(head((entry.author_name, entry.author_email), entry.at, entry.message), b"".join(lines))


def _path(run: str, path: str) -> bytes:
    return f"{run}/{path}".encode("utf-8", "surrogateescape")  # it begins with a digit: never quoted


def _own(files: Files) -> dict[str, str]:
    return {path: sha for path, (_, sha) in files.items() if is_own(path)}


def _names(listed: bytes) -> list[str]:
    return [os.fsdecode(one) for one in listed.split(b"\0") if one]


def _batches(paths: Iterator[str]) -> Iterator[list[str]]:
    while some := list(islice(paths, _AT_ONCE)):
        yield some


def _parse_changes(printed: bytes) -> dict[str, list[Change]]:
    """Return by commit what `diff-tree --stdin -z` prints: a commit, then how and where each file changed."""
    found: dict[str, list[Change]] = {}
    changes: list[Change] = []
    words = iter(printed.split(b"\0"))
    for word in words:
        if match := _CHANGE.match(word):
            how = "T" if match[1] == _LINK else match[4].decode()
            changes.append(Change(how, os.fsdecode(next(words, b"")), match[2].decode(), match[3].decode()))
        else:
            changes = found[word.decode().strip()] = []
    return found


def _read_commit(commit: "gitpython.Commit", changes: list[Change]) -> LedgerCommit:
    sha = commit.hexsha
    try:
        raw = commit.data_stream.read().decode("utf-8", "replace")
        head, _, message = raw.partition("\n\n")
        headers = [line.partition(" ")[::2] for line in head.split("\n") if not line.startswith(" ")]
        parents = [value for name, value in headers if name == "parent"]
        author, committer = (dict(headers)[name] for name in ("author", "committer"))
    except (ValueError, KeyError, OSError) as error:
        raise LedgerBroken(f"commit {sha} is missing or damaged ({error})") from None
    others = tuple(name for name, _ in headers if name not in ("tree", "parent", "author", "committer"))
    return LedgerCommit(sha, parents, author, committer, message, trailers(message), others, changes)


@contextlib.contextmanager
def _in_words(root: Path) -> Iterator[None]:
    """Report what the operating system refuses as the ledger's trouble."""
    try:
        yield
    except OSError as error:
        where = error.filename or f"{root}/.git"
        raise LedgerBroken(f"the ledger cannot be used: {where}: {error.strerror or error}") from error
