"""A run's own worktree of a person's repository: made, undone, committed, compared, merged, removed.

The person's tree, index and HEAD are never touched but by `merge`, which they ask for. Nothing of the repository's
choice runs: what reads or writes files uses a git folder made for that moment, which shares the repository's objects
and has no settings, so that there are no hooks, filters or monitors to run. The branch is moved by `update-ref`, with
hooks switched off.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from agentfs.core import paths
from agentfs.core.commit_messages import AGENTFS
from agentfs.core.text import inert
from agentfs.ledger.branch import commit_text, signature
from agentfs.ledger.git import Git, LedgerError, person, read_settings
from agentfs.storage.files import replace
from agentfs.storage.safe_open import MEGABYTE, MOST_SOURCE, copy_regular, read_regular, read_text

DURABLE = "core.fsync=loose-object,reference"
MOST_LISTED = 1000
LONGEST_PATH = 4096  # characters, as for the kernel
MOST_INDEX = 1000 * MEGABYTE  # that of a million files has a tenth of it
NAMED = 5  # files in one line
Untracked = Literal["all", "normal", "no"]  # as git status takes it; normal: a new folder is one name
MADE = "agentfs"  # a file in git's folder of a worktree: all its files were checked out
AT_WORK = "agentfs-at-work"  # another: something that agentfs started may change the files, and what that is


class WorktreeError(LedgerError):
    """Git could not do what was asked of a worktree; the message says why."""


class TreeGit(Git):
    """Git over one working tree, with variables that say which git folder and index it uses."""

    def call(self, *words: str, given: bytes = b"") -> str:
        """Return what git prints; raises WorktreeError if it fails."""
        done = self.run(*words, given=given)
        if done.code != 0:
            raise WorktreeError(f"git {words[0]}: {done.why}")
        return os.fsdecode(done.out).removesuffix("\n")

    def untracked(self) -> list[str]:
        """Return files that git neither knows nor ignores; a repository among them ends with a slash."""
        return [*filter(None, self.call("ls-files", "--others", "--exclude-standard", "-z").split("\0"))]

    def write_all(self) -> str:
        """Return the tree of all files as they are; repositories that lie among them are left out."""
        self.call("add", "--update", "--", ".")
        new = "".join(f"{name}\0" for name in self.untracked() if not name.endswith("/"))
        self.call("update-index", "-z", "--add", "--stdin", given=os.fsencode(new))
        return self.call("write-tree")


@dataclass(frozen=True, slots=True)
class Repository:
    """A person's repository: where its files are, and where git keeps its own."""

    top: Path
    common: Path  # the git folder that all its worktrees share
    git_dir: Path  # the one of this worktree

    @staticmethod
    def around(folder: Path) -> "Repository | None":
        """Return the repository that a folder lies in; None if it lies in none."""
        for top in (folder, *folder.parents):
            if (top / ".git").exists():
                return Repository._at(top)
        return None

    @staticmethod
    def _at(top: Path) -> "Repository":
        dotgit = top / ".git"
        own = dotgit if dotgit.is_dir() else top / _read_pointer(dotgit)
        common = (top / TreeGit(top, GIT_DIR=str(own)).call("rev-parse", "--git-common-dir")).resolve()
        if leads := next(_ways_out(dotgit, own, common), None):
            raise WorktreeError(f"{leads}: a step may have made it, to reach another repository (take it away first)")
        return Repository(top.resolve(), common, own.resolve())

    @property
    def git(self) -> TreeGit:
        """Git on the repository itself: for what reads commits and references only."""
        return TreeGit(self.top, DURABLE, GIT_DIR=str(self.git_dir))

    def run(self, *words: str, given: bytes = b"") -> str:
        """Return what git prints that reads commits and references only."""
        return self.git.call(*words, given=given)

    def why_unfit(self) -> tuple[str, str] | None:
        """Return why a run cannot have a worktree of it, and what to do; None if it can."""
        try:
            self.head()
        except WorktreeError:
            return "it has no commit yet", "commit something first"
        if self.run("rev-parse", "--show-object-format") != "sha1":
            return "it keeps its objects as SHA-256, which agentfs does not handle", "leave 'isolate' out"
        if self.tip("agentfs"):
            rename = f"rename it: git -C {self.top} branch -m agentfs OTHER"
            return "it has a branch named agentfs, so that there can be none named agentfs/DAY/NAME", rename
        return None

    def head(self) -> str:
        """Return the person's HEAD; raises WorktreeError where there is no commit yet."""
        return self.run("rev-parse", "--verify", "HEAD^{commit}")

    def tip(self, branch: str) -> str | None:
        """Return where a branch is; None if there is none."""
        listed = self.run("for-each-ref", "--format=%(objectname) %(refname)", f"refs/heads/{branch}").splitlines()
        return next((one[:40] for one in listed if one[41:] == f"refs/heads/{branch}"), None)  # and none below it

    def is_ancestor(self, one: str, other: str) -> bool:
        """Whether a commit is another, or comes before it."""
        return self.run("merge-base", one, other) == self.run("rev-parse", one)

    def snapshot(self) -> str:
        """Return the tree of the person's files as they are, without what git ignores; their index is not touched."""
        with self.files_apart(self.top, self.git_dir / "index", copy=True) as git:
            return git.write_all()

    def write_commit(self, tree: str, parent: str, message: str, author: tuple[str, str], at: datetime) -> str:
        """Write a commit, and return it; nothing refers to it yet."""
        who = f"author {signature(*author, at)}\ncommitter {signature(*AGENTFS, at)}"
        given = f"tree {tree}\nparent {parent}\n{who}\n\n{commit_text(message)}".encode("utf-8", "replace")
        return self.run("hash-object", "-t", "commit", "-w", "--stdin", given=given)

    def uncommitted(self, untracked: Untracked) -> list[str]:
        """Return the files of the person's that are not committed; nothing is written."""
        with self.files_apart(self.top, self.git_dir / "index", copy=True) as git:
            listed = git.call("status", "--porcelain", "-z", "--no-renames", f"--untracked-files={untracked}")
        return [os.fsencode(part[3:]).decode("utf-8", "replace") for part in listed.split("\0") if part][:MOST_LISTED]

    def changed(self, one: str, other: str) -> list[str]:
        """Return the files that differ between two commits."""
        return self.run("diff-tree", "-r", "-z", "--no-renames", "--name-only", one, other).split("\0")[:-1]

    def in_the_way(self, branch: str) -> list[str]:
        """Return the files of the person's that git does not know, and that a branch has."""
        new = set(self.uncommitted("all")).difference(self.uncommitted("no"))
        if not new:
            return []
        return sorted(new.intersection(self.run("ls-tree", "-r", "-z", "--name-only", branch).split("\0")))

    def try_merge(self, branch: str) -> str | None:
        """Return the tree that merging a branch would make of HEAD's; None: they conflict. Nothing is touched."""
        tried = self.git.run("merge-tree", "--write-tree", "HEAD", branch)
        return tried.out.decode().strip() if tried.code == 0 else None

    def unhandled(self, commit: str) -> list[str]:
        """Return what a worktree of this commit will lack, in words."""
        found = []
        listed = self.run("ls-tree", "-r", "--format=%(objectmode) %(path)", commit).splitlines()
        if modules := [line.partition(" ")[2] for line in listed if line.startswith("160000")]:
            found.append(f"submodules are not checked out: {names_in_short(modules)}")
        attributes = [line.partition(" ")[2] for line in listed if line.endswith(".gitattributes")]
        if any("filter=lfs" in self.run("cat-file", "blob", f"{commit}:{path}") for path in attributes[:50]):
            found.append("files in Git LFS are pointers: filters do not run")
        return found

    @contextmanager
    def files_apart(self, tree: Path, index: Path, *, copy: bool = False) -> Iterator[TreeGit]:
        """Yield git over a working tree with no settings of the repository's. `copy`: the index is not written."""
        with tempfile.TemporaryDirectory(prefix="agentfs-git-") as folder:
            own = Path(folder)
            for name in ("refs", "objects", "info"):
                (own / name).mkdir()
            (own / "HEAD").write_text(f"{self.run('rev-parse', 'HEAD')}\n")
            (own / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
            with _in_words(), suppress(FileNotFoundError):
                theirs = self.common / "info" / "exclude"
                ignored = read_regular(theirs, MOST_SOURCE, links=True)  # as git reads it: people link theirs
                (own / "info" / "exclude").write_bytes(ignored)
            if copy:  # its time too: by it git knows which files may have changed since
                with _in_words(), suppress(FileNotFoundError):
                    copy_regular(index, own / "index", MOST_INDEX)
            shared, used = str(self.common / "objects"), str(own / "index" if copy else index)
            yield TreeGit(tree, DURABLE, GIT_DIR=folder, GIT_INDEX_FILE=used, GIT_OBJECT_DIRECTORY=shared)


def _ways_out(dotgit: Path, own: Path, common: Path) -> Iterator[str]:
    """Yield what makes git take another repository's commits for those of this one.

    Steps write into the repositories that lie in their working folder, and begin others. A link, or a file that names
    a folder, counts only where the other end says the same: that no step can write.
    """
    if dotgit.is_symlink():
        yield f"{dotgit} is a link"
    elif dotgit.is_file() and not _is_named_back(dotgit, own):
        yield f"{dotgit} names {own}, which does not name it"
    elif dotgit.is_dir() and common != dotgit.resolve():
        yield f"{own / 'commondir'} names {common}"
    if (alternates := common / "objects" / "info" / "alternates").exists():
        yield f"{alternates} names another repository"
    folders = tuple(common / name for name in ("refs", "objects", "logs", "worktrees"))
    parts = (common / "HEAD", own / "HEAD", common / "packed-refs", *folders, *(common / "objects").glob("*"))
    written = ((common / "refs"), (own / "refs"), (common / "logs"), (own / "logs"), (common / "worktrees"))
    inner = (*(common / "objects" / "pack").glob("*"), *(path for folder in written for path in folder.rglob("*")))
    yield from (f"{path} is a link" for path in (*parts, *inner) if path.is_symlink())


def _is_named_back(dotgit: Path, own: Path) -> bool:
    """Whether the folder that a `.git` file names is that of this worktree or submodule, by its own words."""
    try:
        if (back := own / "gitdir").is_file():  # a linked worktree
            return (own / _read_pointer(back)).resolve() == dotgit.resolve()
        named = read_settings(own / "config").get("core.worktree")  # a submodule
    except OSError:
        return False
    return named is not None and (own / named).resolve() == dotgit.parent.resolve()


def _read_pointer(path: Path) -> Path:
    """Return the folder that a file of git's names. Raises WorktreeError: a step may have put anything there."""
    with _in_words():
        text = os.fsdecode(read_regular(path, MEGABYTE))
    if "\0" in text or len(text) > LONGEST_PATH:
        raise WorktreeError(f"{path} names no folder")
    return Path(text.removeprefix("gitdir:").strip())


@contextmanager
def _in_words() -> Iterator[None]:
    """Raise what keeps a file from being read as a WorktreeError, but that there is none."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise WorktreeError(f"{inert(str(error.filename))}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Worktree:
    """The worktree of one run."""

    repository: Repository
    folder: Path  # the run's files/
    branch: str

    @property
    def _own(self) -> Path:
        """Where git keeps what belongs to this worktree."""
        return _read_pointer(self.folder / ".git")

    def exists(self) -> bool:
        """Whether it was made to its end: else files that are missing would look as if a person had removed them."""
        return self._is_added() and (self._own / MADE).exists()

    def _is_added(self) -> bool:
        return (self.folder / ".git").is_file()

    def make(self, base: str) -> None:
        """Make the worktree on its branch, as the base has it. What a dead process made of it is taken up."""
        repository = self.repository
        if repository.tip(self.branch) is None:
            repository.run("update-ref", f"refs/heads/{self.branch}", base, "")  # it does not exist
        if not self._is_added():
            self._unregister()
            repository.run("worktree", "add", "--force", "--no-checkout", str(self.folder), self.branch)
        self.restore(base)
        (self._own / MADE).touch()

    def begin_work(self, what: str) -> None:
        """Note that what changes from now on is not a person's doing."""
        replace(self._own / AT_WORK, what.encode())  # not through a link that another run's step has put there

    def end_work(self) -> None:
        (self._own / AT_WORK).unlink(missing_ok=True)

    def at_work(self) -> str | None:
        """Return what a process that has died was doing in the files; None: nothing."""
        try:
            with _in_words():
                return read_text(self._own / AT_WORK)
        except FileNotFoundError:
            return None

    def restore(self, commit: str) -> None:
        """Make the files those of a commit or tree; files that git ignores stay."""
        with self._files() as git:
            git.call("read-tree", commit)
            git.call("checkout-index", "--all", "--force")
            for name in git.untracked():
                if name.endswith("/"):  # a repository that a step made in it
                    shutil.rmtree(self.folder / name, ignore_errors=True)
                else:
                    (self.folder / name).unlink(missing_ok=True)
                self._remove_empty(self.folder / os.path.dirname(name.rstrip("/")))
            git.call("update-index", "-q", "--refresh")

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.folder and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    def snapshot(self) -> str:
        """Return the tree of the files as they are, without what git ignores; the index is not touched."""
        with self._files(copy=True) as git:
            return git.write_all()

    def tree_of(self, commit: str) -> str:
        return self.repository.run("rev-parse", "--verify", f"{commit}^{{tree}}")

    def move(self, commit: str) -> None:
        """Move the branch, and the worktree's index with it; the files are there already."""
        self.repository.run("update-ref", f"refs/heads/{self.branch}", commit)
        with self._files() as git:
            git.call("read-tree", commit)

    def person_changed(self, left: str, tip: str) -> str | None:
        """Return the tree that the tip becomes by what a person changed since an attempt left its own; None: nothing.

        Each file is either theirs, as it is now, or as the tip has it.
        """
        now = self.snapshot()
        if now == left:
            return None
        changed = self.repository.run("diff-tree", "-r", "-z", "--no-renames", left, now)
        with self._files(copy=True) as git:
            git.call("read-tree", tip)
            git.call("update-index", "-z", "--index-info", given=b"".join(_index_lines(changed)))
            tree = git.call("write-tree")
        return tree if tree != self.tree_of(tip) else None

    def _files(self, *, copy: bool = False) -> AbstractContextManager[TreeGit]:
        return self.repository.files_apart(self.folder, self._own / "index", copy=copy)

    # ── for people ────────────────────────────────────────────────────────────────────────────────────────

    def patch(self, base: str, tip: str) -> bytes:
        """Return what changed, as a patch that git applies."""
        plain = ("--binary", "--no-color", "--no-ext-diff", "--no-textconv")
        return self.repository.git.run("diff", *plain, base, tip).out

    def remove(self) -> bool:
        """Remove worktree and branch; False: neither was there."""
        added, tip = self._is_added(), self.repository.tip(self.branch)
        if added:
            shutil.rmtree(self.folder)
        self._unregister()
        if tip:
            self.repository.run("update-ref", "-d", f"refs/heads/{self.branch}")
        return added or tip is not None

    def commits_only_here(self) -> int:
        """Return how many commits would be lost with the branch; none where merging it would change nothing."""
        if self.repository.tip(self.branch) is None:
            return 0
        others = ("--single-worktree", f"--exclude=refs/heads/{self.branch}", "--all")
        only = self.repository.run("rev-list", "--count", self.branch, "--not", *others)
        return 0 if only == "0" or self.repository.try_merge(self.branch) == self.tree_of("HEAD") else int(only)

    def _unregister(self) -> None:
        """Remove what git keeps of this worktree, and of no other: one that is not mounted now is none of ours."""
        for own in (self.repository.common / "worktrees").glob("*"):
            gitdir = own / "gitdir"
            if gitdir.is_file() and _read_pointer(gitdir) == self.folder / ".git":
                shutil.rmtree(own)


def repository_at(top: str) -> Repository:
    """Return the repository that a run was begun in; raises WorktreeError where it has gone."""
    found = Repository.around(Path(top)) if os.path.isdir(top) else None
    if found is None or str(found.top) != top:
        raise WorktreeError(f"there is no git repository in {top} any more")
    return found


def worktree_of(run: Path, repository: str, branch: str) -> Worktree:
    """Return the worktree of the run in a folder; raises WorktreeError where its repository has gone."""
    return Worktree(repository_at(repository), run.resolve() / paths.FILES, branch)


def _index_lines(changed: str) -> Iterator[bytes]:
    """Yield what `update-index --index-info` takes, from what `diff-tree -z` gives."""
    parts = changed.split("\0")
    for head, path in zip(parts[::2], parts[1::2], strict=False):
        if head:
            _, mode, _, sha, _ = head.lstrip(":").split(" ")
            yield f"{mode} {sha}\t{path}\0".encode("utf-8", "surrogateescape")


def names_in_short(names: Sequence[str]) -> str:
    """Return the first of these names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(map(inert, names[:NAMED]))}{more}"


def merge(repository: Repository, branch: str, *, squash: bool) -> str:
    """Merge a branch into the person's, in their tree; return the commit. Raises WorktreeError with what to type."""
    top, merged = repository.top, repository.try_merge(branch)
    if merged == repository.run("rev-parse", "HEAD^{tree}"):
        raise WorktreeError("the branch you are on has all of it already")
    if dirty := repository.uncommitted("no"):
        fix = "commit or stash them first"
        raise WorktreeError(f"your tree has changes that are not committed: {names_in_short(dirty)} ({fix})")
    if ours := repository.in_the_way(branch):
        fix = "commit them, or move them away first"
        raise WorktreeError(f"it brings files that you have, and have not committed: {names_in_short(ours)} ({fix})")
    if merged is None:
        raise WorktreeError(f"it conflicts with what you have. To merge by hand: git -C {top} merge {branch}")
    name, address = person(top)
    who = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address, "GIT_COMMITTER_NAME": name}
    settings = (DURABLE, "commit.gpgSign=false", "merge.autoStash=false", *_no_filters(repository))
    git = TreeGit(top, *settings, GIT_DIR=str(repository.git_dir), GIT_COMMITTER_EMAIL=address, **who)
    unchecked = ("--no-edit", "--no-verify", "--no-stat", "--no-gpg-sign", "--no-verify-signatures")
    git.call("merge", *unchecked, *(["--squash"] if squash else []), branch)
    if squash:
        message = f"{branch.rpartition('/')[2]}: the work of an agentfs run\n\nAgentfs-Branch: {branch}\n"
        git.call("commit", "--no-verify", "--quiet", "-F", "-", given=message.encode())
    return repository.head()


def _no_filters(repository: Repository) -> Iterator[str]:
    """Yield settings that switch off every filter and merge driver that the repository's settings name."""
    named = r"^(filter|merge)\..*\.(clean|smudge|process|driver|required)$"
    done = repository.git.run("config", "--null", "--name-only", "--get-regexp", named)  # 1: there are none
    for name in filter(None, done.out.decode("utf-8", "replace").split("\0")):
        yield f"{name}=false" if name.endswith(".required") else f"{name}="
