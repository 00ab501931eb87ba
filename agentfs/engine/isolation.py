"""A run that works in a worktree of its own: what was there before an attempt, what it leaves, and what is committed.

Theory of operation. The branch is derived: its tip is the commit that the last result names, or one that a person
has put on top. An attempt finds the tip's files. If it is done, what it changed is written as a commit object, the
result that names it is published, then the branch moves. If it is not, what it left is remembered as a tree, in its
log; before the next attempt whatever differs from *that* is a person's, and committed under their name; the rest is
undone. An attempt that waits with a question is remembered in the same way, and goes on with what it left. While
anything that agentfs started may write, a note in git's folder of the worktree says so: what a process that died had
under way is never taken for a person's.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.core.commit_messages import AGENTFS
from agentfs.core.config import Settings
from agentfs.core.facts import Facts
from agentfs.core.outcome import commits_of
from agentfs.core.problems import Problem
from agentfs.core.records import Isolation, Order, Result, Run
from agentfs.core.run_state import Means, Use
from agentfs.core.text import one_line
from agentfs.core.underway import use_of
from agentfs.ledger.git import LedgerError, person
from agentfs.ledger.worktrees import Repository, Worktree, WorktreeError, names_in_short, worktree_of
from agentfs.storage.clock import Clock
from agentfs.storage.files import read_lines
from agentfs.storage.timing import TIMING
from agentfs.tools.process import StopSign

LEFT = "left"  # the event in a log: the tree that an attempt left which is not done
SUBJECT = 72
MOST_LEFT_BEHIND = 100  # files that run.json names


class _FolderLock:
    """Held by one that writes, or any number that read: `decide` starts no others, and this makes sure of it."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._writes, self._reads = False, 0

    def enter(self, use: Use, stop: StopSign, prepare: Callable[[], None]) -> bool:
        """Wait for the folder, and hold it; the first to come prepares it. False: it is no longer wanted."""
        with self._lock:
            while self._writes or (use == "writes" and self._reads):
                if stop.is_set():
                    return False
                self._lock.wait(TIMING.tick)
            if not self._reads:
                prepare()
            self._writes, self._reads = use == "writes", self._reads + (use == "reads")
            return True

    def leave(self, use: Use) -> None:
        with self._lock:
            self._writes, self._reads = False, self._reads - (use == "reads")
            self._lock.notify_all()


@dataclass(slots=True)
class IsolatedFolder:
    """The worktree of a run that is driven."""

    worktree: Worktree
    start: str  # the commit that the branch begins at
    run: str
    folder: Path
    clock: Clock
    author: tuple[str, str]  # the person whose repository it is
    tip: str = ""
    left: str | None = None  # the tree that the last attempt left, if that is not the tip's
    _lock: _FolderLock = field(default_factory=_FolderLock)

    def begin(self, facts: Facts, means: Means) -> None:
        """Bring branch and files to what the results say; what a dead process left is what its attempt left."""
        named = commits_of(facts)
        derived, repository = (named[-1] if named else self.start), self.worktree.repository
        now = repository.tip(self.worktree.branch)
        if now is not None and not named and now != self.start and not self.worktree.exists():
            branch = self.worktree.branch
            rename = f"git -C {repository.top} branch -m {branch} OTHER, then: agentfs resume {self.run}"
            raise WorktreeError(f"there is a branch {branch} already, of another run (rename it: {rename})")
        if now is None or not self.worktree.exists():
            self.worktree.make(derived)
            now = repository.tip(self.worktree.branch)
        if now and now != derived and repository.is_ancestor(derived, now):
            derived = now  # a person has committed on top
        if now != derived:
            self.worktree.move(derived)
        self.tip = derived
        if (cut_off := self.worktree.at_work()) is not None:
            self.left = self._find_remembered(cut_off) or self.worktree.snapshot()
            self.worktree.begin_work(f"{LEFT} {self.left}")  # what changes from now on is a person's
        else:
            self.left = self._find_left_by_last(facts, means)

    def _find_left_by_last(self, facts: Facts, means: Means) -> str | None:
        """Return what the last attempt that used the folder left, unless it is done, or never began."""
        all_of = [one for attempts in facts.attempts.values() for one in attempts]
        asking = [one.order for one in all_of if one.asks and one.order and one.order.tool is None]
        if asking:
            return self._find_remembered(_log_name(asking[0]))
        began = [one for one in all_of if one.result and one.result.started_at is not None]
        used = [one.result for one in began if one.order is None or use_of(one.order, means) != "apart"]
        last = max((one for one in used if one), key=lambda one: one.ended_at, default=None)
        if last is None or last.status == "done":
            return None
        return self._find_remembered(_log_name(last)) or self.worktree.snapshot()

    def _find_remembered(self, what: str) -> str | None:
        """Return the tree that an attempt left, as its log has it, or the note that was made of it."""
        if what.startswith(f"{LEFT} "):
            return what.partition(" ")[2]
        lines = read_lines(self.folder / paths.STEPS / what) if what else ()
        known = [one.get("tree") for one in lines if one.get("event") == LEFT]
        return str(known[-1]) if known else None

    @contextmanager
    def turn(
        self, use: Use, stop: StopSign, order: Order | None = None, *, goes_on: bool = False
    ) -> Iterator["IsolatedFolder | None"]:
        """Use the folder, as the tip has it; yield what keeps the changes of one that may write, alone in it.

        `goes_on`: an attempt that waited with a question finds what it left.
        """

        def prepare() -> None:
            self._commit_what_a_person_changed()
            if not goes_on:
                self.undo()
            self.left = None

        if use == "apart" or not self._lock.enter(use, stop, prepare):
            yield None
            return
        try:
            if use == "reads":
                yield None
                return
            self.worktree.begin_work(_log_name(order) if order else "")
            yield self
            self.worktree.end_work()
        finally:
            self._lock.leave(use)

    @contextmanager
    def look(self, use: Use, stop: StopSign) -> Iterator[None]:
        """Use the folder for checks: what they drop in it goes."""
        with self.turn(use, stop) as own:
            yield
            if own:
                own.undo()

    def _commit_what_a_person_changed(self) -> None:
        """Commit what a person changed since the last attempt, under their name."""
        if tree := self.worktree.person_changed(self.left or self.worktree.tree_of(self.tip), self.tip):
            message = f"{self.run.rpartition('/')[2]}: changed by hand\n\nAgentfs-Run: {self.run}\n"
            self.tip = self._commit(tree, message, self.author)
            self.worktree.move(self.tip)

    def undo(self) -> None:
        """Make the files those of the tip."""
        if self.worktree.snapshot() != self.worktree.tree_of(self.tip):
            self.worktree.restore(self.tip)

    def _commit(self, tree: str, message: str, author: tuple[str, str]) -> str:
        return self.worktree.repository.write_commit(tree, self.tip, message, author, self.clock.local())

    # ── what the executor asks ────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> str:
        """Return the tree of what there is now."""
        return self.worktree.snapshot()

    def commit(self, order: Order, tree: str) -> str | None:
        """Write the commit of a step that is done, which nothing refers to yet; None if it changed nothing."""
        if tree == self.worktree.tree_of(self.tip):
            return None
        subject = one_line(f"{order.step}: {order.description or order.tool or 'done'}", SUBJECT)
        trailers = f"Agentfs-Run: {order.run}\nAgentfs-Step: {order.step}\nAgentfs-Attempt: {order.attempt}"
        by = f"\nAgentfs-Agent: {order.agent}" if order.agent else ""
        return self._commit(tree, f"{subject}\n\n{trailers}{by}\n", AGENTFS)

    def remember_left(self, log: Callable[[str, dict[str, str]], None]) -> None:
        """Remember what an attempt left that is not done, or not yet: from here on, what changes is a person's."""
        self.left = self.worktree.snapshot()
        log(LEFT, {"tree": self.left})

    def settle(self, result: Result, tree: str) -> None:
        """Move the branch to what a published result names."""
        if result.status != "done":
            return
        if result.commit:
            self.worktree.move(result.commit)
            self.tip = result.commit
        if self.worktree.snapshot() != tree:
            self.worktree.restore(tree)  # what its checks dropped


def _log_name(of: Order | Result) -> str:
    return paths.step_file(of.step, of.attempt, "log")


def open_isolation(folder: Path, isolation: Isolation, facts: Facts, means: Means, clock: Clock) -> IsolatedFolder:
    """Return the worktree of an isolated run, ready for its next attempt."""
    start = isolation.first or isolation.base
    worktree = worktree_of(folder, isolation.repository, isolation.branch)
    author = person(worktree.repository.top)
    isolated = IsolatedFolder(worktree, start, facts.run.run, folder, clock, author)
    isolated.begin(facts, means)
    return isolated


def isolation_words(run: Run, take_along: str = "--with-uncommitted takes it along") -> Iterator[str]:
    """Yield what a person has to know of the worktree that a run works in, before it begins."""
    if (isolation := run.isolation) is None:
        return
    yield f"isolated: branch {isolation.branch}, from your HEAD {isolation.base[:12]} in {isolation.repository}"
    if names := isolation.left_behind:
        yield f"not committed, and left behind: {names_in_short(names)} ({take_along})"
    repository = Repository.around(Path(isolation.repository))
    if repository and isolation.first:
        taken = repository.changed(isolation.base, isolation.first)
        yield f"not committed, and taken along as the branch's first commit: {names_in_short(taken)}"
    yield from repository.unhandled(isolation.base) if repository else ()


# ── a run that is to have a worktree ──────────────────────────────────────────────────────────────────────


def find_repository(root: Path, settings: Settings, workdir: str, found: list[Problem]) -> Repository | None:
    """Return the repository that an isolated run is to have a worktree of; add why there can be none."""
    if settings.executor.place is not None:
        message = f"isolate: the run has a worktree of its own, which is here, and not at {settings.executor.place!r}"
        found.append(Problem(message, "take 'place' out of [executor], or leave 'isolate' out", "/isolate"))
    where = None if workdir == paths.FILES else (root / "runs" / "day" / "run" / workdir).resolve()
    fix = "name a workdir in a git repository, or leave 'isolate' out"
    try:
        repository = Repository.around(where) if where else None
        unfit = repository.why_unfit() if repository else None
    except LedgerError as error:
        found.append(Problem(f"isolate: the repository of {where} cannot be used: {error}", fix, "/isolate"))
        return None
    if repository is None:
        message = f"isolate: {where} lies in no git repository" if where else "isolate: there is no workdir"
        found.append(Problem(message, fix, "/isolate"))
    elif unfit:
        found.append(Problem(f"isolate: {repository.top}: {unfit[0]}", unfit[1], "/isolate"))
    return repository


def isolated_workdir(repository: Repository, workdir: str) -> str:
    """Return where in its worktree a run works: there where its goal's folder lies in the repository."""
    inner = os.path.relpath(os.path.realpath(workdir), str(repository.top))
    return paths.FILES if inner == "." else f"{paths.FILES}/{inner}"


def isolation_record(repository: Repository, run: str, clock: Clock, *, with_uncommitted: bool) -> Isolation:
    """Return what a run's record says of its worktree; what was not committed is committed first if it is wanted."""
    base, uncommitted = repository.head(), repository.uncommitted("normal")
    first = None
    if with_uncommitted and uncommitted:
        message = f"What was not committed when {run} began\n\nAgentfs-Run: {run}\n"
        at, author = clock.local(), person(repository.top)
        first = repository.write_commit(repository.snapshot(), base, message, author, at)
    return Isolation(
        repository=str(repository.top),
        git_dir=str(repository.common),
        base=base,
        first=first,
        branch=paths.branch_of(run),
        left_behind=() if first else tuple(uncommitted[:MOST_LEFT_BEHIND]),
    )
