"""Bring commits onto `main`: take a turn, let git store them, move the branch, bring the index in step with it.

Owns `.git/agentfs/`: `turn` (flocked by the one process that writes), `behind` (runs whose commits the index lacks)
and claims, files and folders named `PID.START.N` after their process. A claim becomes one of git's locks by a hard
link, so a lock that is the same file as a claim is agentfs's own; where its process is gone it may be removed. No
other lock is ever touched. That is why git does not move the branch: a killed git leaves a lock that nobody can tell
from a person's.

Git stores commits in a git folder of our own that reads the ledger's objects: its branch, locks and settings are ours
alone, and what a cut or a full disk leaves there goes with it. Git changes a copy of the index, which takes the
index's place if that did not change meanwhile; objects are given by name, so no filter runs.
"""

import contextlib
import itertools
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from agentfs.core import paths
from agentfs.core.commit_messages import AGENTFS
from agentfs.ledger.git import BRANCH, Git, LedgerBroken, LedgerBusy, LedgerError
from agentfs.storage.files import sync_folder, write_new
from agentfs.storage.safe_open import MOST_RECORD, copy_regular, read_text
from agentfs.storage.timing import TIMING

TURN, BEHIND = "turn", "behind"
LOCKS = (f"{BRANCH}.lock", "index.lock")
_SHA = re.compile(r"[0-9a-f]{40}")
_numbers = itertools.count(1)


class Claims:
    """The claims of one repository."""

    def __init__(self, git: Path) -> None:
        self.git, self.folder = git, git / "agentfs"

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Write alone among agentfs processes, after clearing away what dead ones left. The kernel ends a turn."""
        self.folder.mkdir(exist_ok=True)
        descriptor = os.open(self.folder / TURN, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _wait_for_lock(descriptor)
            self._clear()
            yield
        finally:
            os.close(descriptor)

    def path(self) -> Path:
        """Return a new name for a claim of this process."""
        return self.folder / f"{os.getpid()}.{start_time(os.getpid())}.{next(_numbers)}"

    @contextlib.contextmanager
    def locked(self, claim: Path, lock: Path) -> Iterator[None]:
        """Hold one of git's locks with a claim; LedgerBusy if another program does. Renaming the lock ends it too."""
        try:
            os.link(claim, lock)
        except FileExistsError:
            raise LedgerBusy(
                f"{lock} is held by another program: the ledger follows when it ends. "
                "If no git command is running, delete that file"
            ) from None
        try:
            yield
        finally:
            if _is_same(claim, lock):
                os.unlink(lock)

    def dead(self) -> list[Path]:
        """Return the claims of processes that are gone."""
        return [claim for claim in self._all() if not _is_running(claim.name)]

    def holds(self, lock: Path) -> bool:
        """Return whether one of git's locks is a running agentfs's own."""
        return any(_is_same(claim, lock) for claim in self._all() if _is_running(claim.name))

    def _all(self) -> list[Path]:
        try:
            return [path for path in self.folder.iterdir() if path.name not in (TURN, BEHIND)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _clear(self) -> None:
        """Remove the locks and claims of processes that are gone, and of what was cut off in this one."""
        for claim in self._all():
            if _is_running(claim.name) and not claim.name.startswith(f"{os.getpid()}."):
                continue
            for lock in LOCKS:
                if _is_same(claim, self.git / lock):
                    os.unlink(self.git / lock)
            if claim.is_dir() and not claim.is_symlink():
                shutil.rmtree(claim, ignore_errors=True)
            else:
                claim.unlink(missing_ok=True)


def start_time(pid: int) -> str | None:
    """Return when a process began, in the kernel's ticks; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()[19]


def _is_running(claim: str) -> bool:
    pid, start, *_ = [*claim.split("."), "", ""]
    return pid.isdigit() and start_time(int(pid)) == start


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except FileNotFoundError:
        return False


def _wait_for_lock(descriptor: int) -> None:
    import fcntl

    deadline = time.monotonic() + TIMING.ledger_lock
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerBusy("another agentfs has been writing to the ledger for a while") from None
            time.sleep(TIMING.poll_lock)  # flock has no deadline of its own


# ── the branch ────────────────────────────────────────────────────────────────────────────────────────────


class Branch:
    """The branch agentfs commits to, checked out or not."""

    def __init__(self, git: Path, claims: Claims) -> None:
        self.git, self.claims = git, claims
        self.path, self.lock = git / BRANCH, git / f"{BRANCH}.lock"

    def tip(self) -> str | None:
        """Return the commit the branch is at; None where it has none yet."""
        try:
            text = read_text(self.path).strip()
        except (FileNotFoundError, IsADirectoryError):
            return self._find_packed()  # after `git gc` the branch may live there only
        if not _SHA.fullmatch(text):
            raise LedgerBroken(
                f"{self.path} does not name a commit: put the sha of the last good one in it "
                "(`git -C runs log --all`, `git -C runs fsck --lost-found`)"
            )
        return text

    def _find_packed(self) -> str | None:
        try:
            lines = read_text(self.git / "packed-refs", MOST_RECORD).splitlines()
        except FileNotFoundError:
            return None
        return next((line[:40] for line in lines if line[41:] == BRANCH and _SHA.fullmatch(line[:40])), None)

    def is_checked_out(self) -> bool:
        try:
            return read_text(self.git / "HEAD").strip() == f"ref: {BRANCH}"
        except (FileNotFoundError, UnicodeDecodeError):
            return False

    def move(self, old: str | None, new: str) -> bool:
        """Move the branch from `old` to `new`; False if it is not at `old`. Only in a turn."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        claim = self.claims.path()
        try:
            write_new(claim, f"{new}\n".encode(), durable=True)
            with self.claims.locked(claim, self.lock):
                if self.tip() != old:
                    return False
                os.rename(self.lock, self.path)  # the commit point
            sync_folder(self.path.parent)
        finally:
            claim.unlink(missing_ok=True)
        return True


# ── commits, stored by git: one stream of `git fast-import` for many ──────────────────────────────────────


STORING = ("core.fsync=all", "fastimport.unpackLimit=64")  # below that, a file for each object; else one pack


@dataclass(frozen=True, slots=True)
class Draft:
    """A commit for `git fast-import`: who and why, and what it changes."""

    head: bytes
    changes: bytes


def store(git: Git, claims: Claims, tip: str | None, drafts: Sequence[Draft]) -> list[str]:
    """Let git store commits on top of a commit; return their names. They are durable before anything names them."""
    if not drafts:
        return []
    stream = []
    for number, draft in enumerate(drafts, 1):
        parent = b"from %s\n" % tip.encode() if tip and number == 1 else b""
        stream += [b"commit %s\nmark :%d\n" % (BRANCH.encode(), number), draft.head, parent, draft.changes, b"\n"]
    marks = (b"get-mark :%d\n" % number for number in range(1, len(drafts) + 1))
    folder = claims.path()
    made, objects = folder / "objects", git.folder / "objects"
    try:
        for each in (made, folder / "refs"):
            each.mkdir(parents=True)
        write_new(folder / "HEAD", f"ref: {BRANCH}\n".encode(), durable=False)
        own = {"GIT_DIR": str(folder.absolute()), "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quote(objects.absolute())}
        given = b"".join((*stream, *marks, b"done\n"))
        done = Git(git.root, *STORING, **own).run("fast-import", "--quiet", "--done", given=given)
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
    who = f"author {signature(*author, at)}\ncommitter {signature(*AGENTFS, at)}\n"
    return who.encode("utf-8", "replace") + b"data %d\n%s" % (len(text), text)


def commit_text(message: str) -> str:
    """Return a message as a commit holds it."""
    return (message.replace("\0", "").strip("\n") + "\n").encode("utf-8", "replace").decode()


def signature(name: str, email: str, at: datetime) -> str:
    """Return who and when, as git writes it; what git itself trims from a name, or would end a field, is left out."""
    name, email = (
        "".join(c for c in text if c.isprintable() and c not in "<>").strip(" .,:;<>\"\\'") for text in (name, email)
    )
    minutes = int((at.utcoffset() or timedelta()).total_seconds() // 60)
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"
    return f"{name or 'unknown'} <{email}> {max(0, int(at.timestamp()))} {zone}"


# ── the index, in step with the branch; what a person staged is not touched ───────────────────────────────


UNDERWAY = (
    *("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"),
    "index.lock",
)
_FEW = 8
_OWN_FOLDERS = (paths.STEPS, paths.PLANNING, paths.REVISIONS, paths.FILES)
_OWN_FILES = (
    *(paths.RUN, paths.REQUEST, paths.PLAN, paths.PLAN_ERROR, paths.GOAL_ERROR),
    *(paths.OUTCOME, paths.STATUS, paths.REPLAN),
)
Stamp = tuple[int, int, int, int] | None


def is_own(path: str) -> bool:
    """Return whether a path in a run's folder is agentfs's; the rest is a person's and stays as they committed it."""
    first, _, below = path.partition("/")
    if below:
        return first in _OWN_FOLDERS
    return path in _OWN_FILES or path.startswith("goal.")


class Index:
    """The index of one repository."""

    def __init__(self, git: Git, claims: Claims) -> None:
        self._git, self._claims = git, claims
        self.path, self.lock = git.folder / "index", git.folder / "index.lock"
        self._behind = claims.folder / BEHIND

    def is_free(self) -> bool:
        """Return whether nothing of a person's is under way that the index belongs to."""
        return not any(os.path.lexists(self._git.folder / name) for name in UNDERWAY)

    def behind(self) -> frozenset[str]:
        """Return the runs with commits that the index may not be in step with yet."""
        try:
            lines = read_text(self._behind).splitlines()
        except FileNotFoundError:
            return frozenset()
        return frozenset(filter(paths.is_run_id, lines))  # the last line may be torn

    def note_behind(self, runs: Collection[str]) -> None:
        """Note runs before the branch moves. Never synced: after a power cut the index may stay behind, no more."""
        if runs:
            with self._behind.open("a", encoding="utf-8") as file:
                file.write("".join(f"{run}\n" for run in {*runs}))

    def catch_up(self, runs: Collection[str]) -> bool:
        """Bring the entries of some runs, and of those that are behind, in step with `main`; False: later."""
        if not self.update({*runs, *self.behind()}):
            return False
        self._behind.unlink(missing_ok=True)
        return True

    def update(self, runs: Collection[str], *, own: bool = True) -> bool:
        """Bring the entries of some runs in step with `main`; False: later. Only in a turn.

        `own`: only agentfs's files; else a person's too, for the folders are gone.
        """
        # Each entry is compared with each path given, so that of many runs everything is compared.
        places = [f":(top,literal){run}/" for run in runs] if len(runs) <= _FEW else [":(top)"]
        copy = self._claims.path()
        try:
            stamp = _stamp(self.path)
            if stamp is not None:  # else git makes a new one
                copy_regular(self.path, copy)
            compared = self._run(copy, "diff-index", "--cached", "--raw", "-z", "--no-abbrev", BRANCH, "--", *places)
            if compared is None:
                return False
            lines, whole = _changes(compared, frozenset(runs), own=own)
            if not lines:
                return whole
            if self._run(copy, "update-index", "-z", "--index-info", given=os.fsencode("".join(lines))) is None:
                return False
            with self._claims.locked(copy, self.lock):
                if _stamp(self.path) != stamp:
                    return False  # a person changed it since it was read
                os.rename(self.lock, self.path)
            return whole
        except FileNotFoundError:
            return False  # the index went while it was copied
        finally:
            copy.unlink(missing_ok=True)

    def _run(self, index: Path, *words: str, given: bytes = b"") -> bytes | None:
        """Run git on an index of ours; None if it fails."""
        try:
            git = Git(self._git.root, "core.fsync=index", GIT_INDEX_FILE=str(index.absolute()))
            done = git.run(*words, given=given)
        except LedgerError:
            return None
        return done.out if done.code == 0 else None


def _changes(compared: bytes, runs: frozenset[str], *, own: bool) -> tuple[list[str], bool]:
    """Return what `update-index --index-info` has to be given, and whether no run has a conflict: those wait.

    `compared`: what `diff-index --cached --raw -z` prints: `:MODE MODE OBJECT OBJECT LETTER`, main's first; a path.
    """
    lines: dict[str, list[str]] = {}
    conflicts: set[str] = set()
    words = iter(os.fsdecode(compared).split("\0"))
    for about, path in zip(words, words, strict=False):
        mode, _, sha, _, letter = about.removeprefix(":").split(" ")
        day, name, below = [*path.split("/", 2), "", ""][:3]
        run = f"{day}/{name}"
        if run in runs and letter == "U":
            conflicts.add(run)
        if run in runs and (is_own(below) or not own):
            lines.setdefault(run, []).append(f"{mode} {sha}\t{path}\0")  # mode 000000: it goes
    return [line for run, some in lines.items() if run not in conflicts for line in some], not conflicts


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
