"""Forget runs that have ended: their files go, their history stays in the ledger.

A run is forgotten the moment its folder is renamed into `runs/.forgotten/`, where nobody takes it for a run. By then
the ledger holds all it keeps of it. What lies there has yet to leave the ledger's tree and index, and to be deleted:
the next process finishes that, so that a kill at any moment leaves a run whole, or forgotten.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from agentfs.core import paths
from agentfs.core.commit_messages import as_it_stood_message, forgotten_message
from agentfs.core.paths import run_id
from agentfs.core.text import plural
from agentfs.errors import UserError
from agentfs.ledger.committer import current_files, pending_entries
from agentfs.ledger.git import LedgerBusy, LedgerError
from agentfs.ledger.ledger import Entry, Ledger, blob_sha
from agentfs.ledger.worktrees import Worktree, WorktreeError, worktree_of
from agentfs.storage.clock import Clock
from agentfs.storage.files import list_entries, read_whole
from agentfs.storage.locks import locked
from agentfs.storage.timing import TIMING

PER_COMMIT = 500  # a commit names every run it takes away
MANY = 200  # the files of so many take their time
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, UserError, OSError)


class Kept(Exception):
    """A run that is not forgotten, and why."""


@dataclass(slots=True)
class Forgotten:
    """What became of the runs that were to be forgotten."""

    gone: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)  # run -> why
    commits: list[str] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)  # those the ledger's tree no longer has
    later: str | None = None  # what is left to do, and who does it


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Everything it takes: the runs, their ledger, and the person in whose name it is done."""

    runs: Path
    ledger: Ledger
    person: tuple[str, str]
    clock: Clock = field(default_factory=Clock)
    logs: bool = False  # whether the ledger holds logs and working files too
    say: Callable[[str], None] = lambda _: None

    @property
    def aside(self) -> Path:
        """Where folders wait to be deleted."""
        return self.runs / paths.FORGOTTEN

    def forget(self, folders: Sequence[Path]) -> Forgotten:
        """Forget these runs, but for those that cannot be; raises UserError if nothing could be done at all."""
        done = Forgotten()
        with self._alone() as alone:
            if not alone:
                raise UserError("another agentfs is forgetting runs here: wait until it has ended")
            try:
                self._finish(done)
                committed = self.ledger.committed_of([run_id(folder) for folder in folders])
                for folder in folders:
                    self._put_aside(folder, committed[run_id(folder)], done)
                self._finish(done)
            except LedgerError as error:
                self._bring_back(done)
                some = f"{len(done.gone)} of the runs were forgotten, the others were not"
                raise UserError(f"{some if done.gone else 'nothing was forgotten'}: {error}") from None
        self._tidy_days({folder.parent for folder in folders})
        return done

    def finish(self) -> None:
        """Finish what a forgetting that was cut off has left, unless another process is at it."""
        if any(_set_aside(self.aside)):
            with self._alone() as alone, suppress(LedgerError):
                if alone:
                    self._finish(Forgotten())

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        self.aside.mkdir(exist_ok=True)
        with locked(self.aside, self.runs) as mine:
            yield mine

    # ── one run ───────────────────────────────────────────────────────────────────────────────────────────

    def _put_aside(self, folder: Path, committed: Mapping[str, str], done: Forgotten) -> None:
        run = run_id(folder)
        try:
            with locked(folder) as mine:
                if not mine:
                    raise Kept("another agentfs drives it")
                if not os.path.lexists(folder / paths.OUTCOME):
                    raise Kept("it has not ended")
                _refuse_unmerged(folder, run)
                self._keep_story(folder, run, committed)
                (self.aside / run).parent.mkdir(exist_ok=True)
                os.rename(folder, self.aside / run)  # the commit point
        except (Kept, LedgerError) as why:
            done.kept[run] = str(why)
        except FileNotFoundError:
            done.kept[run] = "its folder is gone"
        except OSError as error:
            done.kept[run] = f"{error.strerror} ({error.filename})"
        else:
            done.gone.append(run)

    def _keep_story(self, folder: Path, run: str, committed: Mapping[str, str]) -> None:
        """Make sure that the ledger holds every file it keeps of a run, as it is now."""
        files = current_files(folder, logs=self.logs)
        shas = {path: blob_sha(content) for path, content in files.items()}
        if shas.items() <= committed.items():
            return
        with suppress(*_UNREADABLE):  # what does not read is kept as it is
            self.ledger.commit_all(pending_entries(folder, committed, self.person, logs=self.logs))
        if not shas.items() <= self.ledger.committed(run).items():
            self.ledger.commit(Entry(run, files, as_it_stood_message(run), *self.person, self.clock.wall()))

    def _bring_back(self, done: Forgotten) -> None:
        """Put the folders back in their place: the ledger still has them."""
        for run in [one for one in done.gone if one not in done.removed]:
            with suppress(OSError):  # a run of that name has begun since: what is aside is finished another time
                os.rename(self.aside / run, self.runs / run)
                done.gone.remove(run)

    # ── what lies aside ───────────────────────────────────────────────────────────────────────────────────

    def _finish(self, done: Forgotten) -> None:
        """Take what lies aside out of the ledger's tree and index, then delete it."""
        runs = sorted(_set_aside(self.aside))
        for first in range(0, len(runs), PER_COMMIT):
            some = runs[first : first + PER_COMMIT]
            if sha := self._commit(some):
                done.commits.append(sha)
            done.removed.update(some)
        in_step = not runs or self._in_step(runs)
        if len(runs) > MANY:
            self.say(f"{len(runs)} runs are out of the way; their files are being deleted")
        for run in runs:
            self._remove_branch(run)
            _empty(self.aside / run)  # takes longest, and nothing depends on it
        if not in_step:
            done.later = "git's index still lists them: a lock, a merge or a rebase is open in runs/.git"
            return  # an empty folder says that this is yet to do
        for folder in (*(self.aside / run for run in runs), *_folders(self.aside)):
            with suppress(OSError):  # what could not be deleted is tried again
                os.rmdir(folder)

    def _remove_branch(self, run: str) -> None:
        """Remove the branch and the worktree of an isolated run, unless its name has another run by now."""
        with suppress(LedgerError, OSError):  # the repository has gone, and took them with it
            if not (self.runs / run).exists() and (own := _worktree(self.aside / run, self.runs / run)):
                own.remove()

    def _commit(self, runs: Sequence[str]) -> str | None:
        end = time.monotonic() + TIMING.person_in_git
        while True:
            try:
                return self.ledger.remove(runs, forgotten_message(runs), self.person, self.clock.wall())
            except LedgerBusy:
                if time.monotonic() > end:
                    raise
                time.sleep(TIMING.tick)  # git does not announce when a lock goes

    def _in_step(self, runs: Sequence[str]) -> bool:
        end = time.monotonic() + TIMING.person_in_git
        while not self.ledger.sync_removed(runs):
            if time.monotonic() > end:
                return False
            time.sleep(TIMING.tick)
        return True

    def _tidy_days(self, days: set[Path]) -> None:
        """Remove the folders of days that are empty now, but for those in which a run may be about to begin."""
        recent = str(date.fromisoformat(self.clock.day()) - timedelta(days=1))
        for day in days:
            if day.name < recent:
                with suppress(OSError):
                    os.rmdir(day)


def _worktree(folder: Path, named: Path) -> Worktree | None:
    """Return the worktree of a run, by its run.json in a folder; None: it has none. `named`: where the run lay."""
    with suppress(*_UNREADABLE):
        isolation = json.loads(read_whole(folder / paths.RUN)).get("isolation")
        return worktree_of(named, isolation["repository"], isolation["branch"]) if isolation else None
    return None


def _refuse_unmerged(folder: Path, run: str) -> None:
    """Raise Kept if the branch of an isolated run holds what nothing else does."""
    with suppress(WorktreeError):  # the repository has gone
        own = _worktree(folder, folder)
        if own and (count := own.commits_only_here()):
            has = f"its branch {own.branch} has {plural(count, 'commit')} that nothing else has"
            raise Kept(f"{has}: `agentfs apply {run}` or `agentfs discard {run}` first")


def measure(folder: Path) -> int:
    """Return how many bytes of the disk a run takes; raises Kept where it reaches into another file system."""
    total, device, waiting = 0, os.lstat(folder).st_dev, [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                total += found.st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    if found.st_dev != device:
                        raise Kept(f"{entry.path} is another file system: unmount it first")
                    waiting.append(entry.path)
    return total


def _empty(folder: Path) -> None:
    """Delete what is in a folder set aside, following no link."""
    if _empty_folder(folder):
        return
    for path, _, _ in os.walk(folder):  # a step may have closed folders; no link is followed
        with suppress(OSError):
            os.chmod(path, 0o700)
    _empty_folder(folder)


def _empty_folder(folder: Path) -> bool:
    """Delete what can be deleted; return whether that was all."""
    for entry in list_entries(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(entry.path)
    return not list_entries(folder)


def _set_aside(aside: Path) -> Iterator[str]:
    """Yield the runs that have yet to be deleted."""
    for day in _folders(aside):
        yield from (run for folder in _folders(day) if paths.is_run_id(run := f"{day.name}/{folder.name}"))


def _folders(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in list_entries(folder) if entry.is_dir(follow_symlinks=False)]
