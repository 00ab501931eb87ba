"""Verify one run, or all of them. Reads only, takes no lock, and tells what is on its way from what is missing."""

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentfs.core import paths
from agentfs.core.agreement import Disagreement
from agentfs.holding import held_inodes, is_driven, is_watched
from agentfs.ledger import Ledger, LedgerError
from agentfs.ledger.soundness import NoGit, pretended, unsound
from agentfs.verifying.chronicle import chronicle
from agentfs.verifying.holding import held
from agentfs.verifying.story import Story
from agentfs.workspace import Workspace

AT_ONCE = 64  # runs whose trees are read together
PATIENCE_SECONDS = 3.0  # a process that has just ended a run, and let go of it, has committed by then
_WHOLE = "take runs/.git from a copy; the runs' files are not touched by that"


@dataclass(slots=True)
class Verification:
    """What is looked at, and how much of it there was."""

    workspace: Workspace
    run: Path | None = None  # None: all of them
    runs: int = 0
    commits: int = 0
    revisions: int = 0
    tip: str | None = None
    patience: float = PATIENCE_SECONDS

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield everything in which files and ledger differ, as it is found."""
        ledger = Ledger(self.workspace.runs)
        if words := ledger.trouble():
            yield Disagreement("wrong", "runs/.git", words, "until then only the files are held against each other")
            yield from self._runs(None, None)
            return
        self.tip = ledger.tip()
        yield from self._sound(ledger)
        story = Story(self.workspace.runs, partial(_paths_at, ledger), whole=self.run is None)
        try:
            for told in chronicle(self.workspace.runs, self._id) if self.tip else ():
                yield from story.take(told)
        except NoGit as why:
            yield Disagreement("wrong", "runs/.git", f"the history cannot be read: {why}", "install git; " + _WHOLE)
        self.commits, self.revisions = story.commits, story.revisions
        yield from self._runs(ledger, story)

    @property
    def _id(self) -> str | None:
        return f"{self.run.parent.name}/{self.run.name}" if self.run else None

    def _sound(self, ledger: Ledger) -> Iterator[Disagreement]:
        """What git itself says of the repository; of one run, whether its objects hold what their names promise."""
        for path, does in pretended(self.workspace.runs):
            yield Disagreement(
                "wrong", str(path.relative_to(self.workspace.root)), does, "delete it, unless it is yours"
            )
        try:
            lines = unsound(self.workspace.runs) if self.run is None else ledger.damaged(str(self._id))
        except (NoGit, LedgerError) as why:
            lines = [str(why)]
        for line in lines:
            yield Disagreement("wrong", "runs/.git", line, _WHOLE)

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────

    def _runs(self, ledger: Ledger | None, story: Story | None) -> Iterator[Disagreement]:
        listed = iter(self._listed(ledger))
        while some := list(itertools.islice(listed, AT_ONCE)):
            committed = self._committed(ledger, some)
            for run in some:
                self.runs += 1
                yield from self._one(run, ledger, committed.get(run, {}))
                yield from story.left_out(run) if story and committed.get(run) else ()

    def _listed(self, ledger: Ledger | None) -> Iterable[str]:
        """Return the runs that are on disk, in the ledger, or both."""
        if self.run is not None:
            return [str(self._id)]
        there = {f"{folder.parent.name}/{folder.name}" for folder in self.workspace.run_folders() if _is_run(folder)}
        try:
            return sorted(there | (ledger.runs() if ledger else set()))
        except LedgerError:
            return sorted(there)

    @staticmethod
    def _committed(ledger: Ledger | None, runs: list[str]) -> dict[str, dict[str, str]]:
        try:
            return ledger.committed_of(runs) if ledger else {}
        except LedgerError:
            return {}  # git says which object is damaged

    def _one(self, run: str, ledger: Ledger | None, committed: dict[str, str]) -> list[Disagreement]:
        """Return in what one run disagrees; asked again where a process may just be about to commit it."""
        found = self._look(run, ledger, committed)
        while self.patience > 0 and ledger and any(one.grade == "wrong" for one in found):
            time.sleep(0.1)
            self.patience -= 0.1
            found = self._look(run, ledger, self._committed(ledger, [run]).get(run, {}))
        return found

    def _look(self, run: str, ledger: Ledger | None, committed: dict[str, str]) -> list[Disagreement]:
        folder = self.workspace.runs / run
        if not folder.is_dir():
            return _folder_gone(run, self.workspace.runs, committed)
        if ledger is None:
            quiet = held(folder, {}, lambda _: b"", driven=False)
            return [one for one in quiet if "no commit" not in one.what]
        inodes = held_inodes()
        driven = is_driven(folder, inodes) or is_watched(self.workspace.root, inodes)
        return list(held(folder, committed, partial(_content, ledger), driven=driven))


def _paths_at(ledger: Ledger, commit: str, run: str) -> frozenset[str]:
    try:
        return ledger.paths_at(commit, run)
    except LedgerError:
        return frozenset()  # git says which object is damaged


def _content(ledger: Ledger, blob: str) -> bytes:
    try:
        return ledger.content(blob)
    except LedgerError:
        return b""


def _is_run(folder: Path) -> bool:
    """Whether a run has begun here: a folder that is still being made has no goal."""
    goals = (f"{folder}/goal{suffix}" for suffix in paths.GOAL_SUFFIXES)
    return os.path.lexists(folder / paths.RUN) or any(map(os.path.lexists, goals))


def _folder_gone(run: str, runs: Path, committed: dict[str, str]) -> list[Disagreement]:
    if not committed:
        return []
    if (runs / paths.FORGOTTEN / run).is_dir():
        return [
            Disagreement(
                "later", run, "is being forgotten", "the next `agentfs run`, `watch` or `forget` finishes it"
            )
        ]
    what = "its folder is gone, and the ledger has it"
    go = f"git -C runs rm -rq --cached {run}, and commit"
    fix = f"bring it back: git -C runs checkout main -- {run}; or let it go: {go}"
    return [Disagreement("wrong", run, what, fix)]
