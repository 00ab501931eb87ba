"""Prove that the files of runs and the ledger agree, or say in which file they do not, and what to do.

Reads only, takes no lock. A file that is written once is compared with every commit it is in, a commit with the
record it was made of, a revision with the plan it names (`core/agreement.py`), and git checks its own objects. Who
forges files and commits alike, and consistently, leaves nothing to compare with; for that, keep the name of `main`'s
last commit elsewhere.
"""

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.agreement import Disagreement, Fault, Grade, RunFiles, faults, is_acted_upon, record_kind
from agentfs.core.hashing import sha256_bytes
from agentfs.core.paths import run_id
from agentfs.core.records import Order, Revision
from agentfs.ledger.committer import PARTS, own_files
from agentfs.ledger.git import LedgerBusy, LedgerError
from agentfs.ledger.history import History
from agentfs.ledger.ledger import Ledger, blob_sha
from agentfs.ledger.repository import find_damage, find_substitutes
from agentfs.storage.files import read_whole
from agentfs.storage.locks import held_inodes, is_driven, is_watched
from agentfs.storage.safe_open import reading
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace, has_goal

AT_ONCE = 64  # runs whose trees are read together
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
    patience: float = TIMING.verify_patience

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield everything in which files and ledger differ, as it is found."""
        ledger = Ledger(self.workspace.runs)
        if words := ledger.trouble():
            yield Disagreement("wrong", "runs/.git", words, "until then only the files are held against each other")
            yield from self._check_runs(None, None)
            return
        self.tip, chosen = ledger.tip(), run_id(self.run) if self.run else None
        yield from self._check_objects(ledger, chosen)
        history = History(ledger, whole=chosen is None)
        try:
            for commit in ledger.commits(chosen) if self.tip else ():
                yield from history.check(commit)
        except LedgerError as why:
            yield Disagreement("wrong", "runs/.git", f"the history cannot be read: {why}", "install git; " + _WHOLE)
        self.commits, self.revisions = history.commits, history.revisions
        yield from self._check_runs(ledger, history)

    def _check_objects(self, ledger: Ledger, run: str | None) -> Iterator[Disagreement]:
        """What git itself says of the repository; of one run, whether its objects hold what their names promise."""
        for path, does in find_substitutes(self.workspace.runs):
            file = str(path.relative_to(self.workspace.root))
            yield Disagreement("wrong", file, does, "delete it, unless it is yours")
        try:
            lines = find_damage(self.workspace.runs) if run is None else ledger.damaged(run)
        except LedgerBusy as why:
            yield Disagreement("note", "runs/.git", f"git fsck: {why}", "type it again when nothing runs")
            return
        except LedgerError as why:
            lines = [str(why)]
        for line in lines:
            yield Disagreement("wrong", "runs/.git", line, _WHOLE)

    def _check_runs(self, ledger: Ledger | None, history: History | None) -> Iterator[Disagreement]:
        listed = iter(self._list(ledger))
        while some := list(itertools.islice(listed, AT_ONCE)):
            committed = _read_committed(ledger, some)
            for run in some:
                self.runs += 1
                yield from self._check_run(run, ledger, committed.get(run, {}))
                yield from history.left_out(run) if history and committed.get(run) else ()

    def _list(self, ledger: Ledger | None) -> Iterable[str]:
        """Return the runs that are on disk, in the ledger, or both."""
        if self.run is not None:
            return [run_id(self.run)]
        folders = self.workspace.run_folders()  # one that is still being made has neither
        there = {run_id(one) for one in folders if os.path.lexists(one / paths.RUN) or has_goal(one)}
        try:
            return sorted(there | (ledger.runs() if ledger else set()))
        except LedgerError:
            return sorted(there)

    def _check_run(self, run: str, ledger: Ledger | None, committed: dict[str, str]) -> list[Disagreement]:
        """Return in what one run disagrees; asked again where a process may just be about to commit it."""
        found = self._look(run, ledger, committed)
        while self.patience > 0 and ledger and any(one.grade == "wrong" for one in found):
            time.sleep(TIMING.tick)
            self.patience -= TIMING.tick
            found = self._look(run, ledger, _read_committed(ledger, [run]).get(run, {}))
        return found

    def _look(self, run: str, ledger: Ledger | None, committed: dict[str, str]) -> list[Disagreement]:
        folder = self.workspace.runs / run
        if not folder.is_dir():
            return _folder_gone(run, self.workspace.runs, committed)
        inodes = held_inodes()
        driven = is_driven(folder, inodes) or is_watched(self.workspace.root, inodes)
        return list(check_folder(folder, committed, ledger, driven=driven))


def _read_committed(ledger: Ledger | None, runs: list[str]) -> dict[str, dict[str, str]]:
    try:
        return ledger.committed_of(runs) if ledger else {}
    except LedgerError:
        return {}  # git says which object is damaged


def _folder_gone(run: str, runs: Path, committed: dict[str, str]) -> list[Disagreement]:
    if not committed:
        return []
    if (runs / paths.FORGOTTEN / run).is_dir():
        finishes = "the next `agentfs run`, `watch` or `forget` finishes it"
        return [Disagreement("later", run, "is being forgotten", finishes)]
    go = f"git -C runs rm -rq --cached {run}, and commit"
    fix = f"bring it back: git -C runs checkout main -- {run}; or let it go: {go}"
    return [Disagreement("wrong", run, "its folder is gone, and the ledger has it", fix)]


# ── a run's folder against what `main` holds of it now ────────────────────────────────────────────────────


def check_folder(
    folder: Path, committed: Mapping[str, str], ledger: Ledger | None, *, driven: bool
) -> Iterator[Disagreement]:
    """Yield in what a run's folder and the ledger differ. `driven`: a process is about to commit what is missing.

    Without a ledger only the files are compared with each other.
    """
    files, run = read_folder(folder), run_id(folder)
    for fault in faults(files):
        fix = _back(run, fault.file) if fault.file in committed else _NO_COPY
        yield Disagreement("wrong", f"{run}/{fault.file}", fault.what, fix)
    if ledger:
        yield from _check_committed(folder, files, committed, ledger)
        yield from _check_pending(run, files, committed, "later" if driven else "wrong")
    yield from _check_edited(run, files, committed)


_NO_COPY = "no copy is in the ledger: take it from one of your own"


def _back(run: str, path: str) -> str:
    return f"take it back: git -C runs checkout main -- {run}/{path}"


def _check_committed(
    folder: Path, files: RunFiles, committed: Mapping[str, str], ledger: Ledger
) -> Iterator[Disagreement]:
    """What was committed is still what it was."""
    run = run_id(folder)
    for path, blob in committed.items():
        writing, now = paths.writing_of(path), files.paths.get(path)
        if writing is None or now == blob or (writing == "by people" and not is_acted_upon(path, files.paths)):
            continue
        if writing == "appended" and now is not None and _begins_with(folder / path, blob, ledger):
            continue
        what = "is gone, and the ledger has it" if now is None else "is not what was committed"
        yield Disagreement("wrong", f"{run}/{path}", what, _back(run, path))


def _begins_with(path: Path, blob: str, ledger: Ledger) -> bool:
    try:
        (content,) = ledger.contents([blob])
        with reading(path) as file:
            return file.read(len(content)) == content
    except (OSError, LedgerError):
        return False


def _check_pending(run: str, files: RunFiles, committed: Mapping[str, str], grade: Grade) -> Iterator[Disagreement]:
    """Every revision has a commit, and so has the outcome; after that nothing is added any more."""
    words, commits = "is not committed yet", "the process that drives it commits it"
    if grade == "wrong":
        words, commits = (
            "has no commit, and nobody drives the run",
            f"agentfs resume {run}, or `agentfs watch`, commits it",
        )
    for number in sorted(files.numbered(Revision)):
        path = f"{paths.REVISIONS}/{paths.revision_file(number)}"
        if path not in committed:
            yield Disagreement(grade, f"{run}/{path}", words, commits)
    if paths.OUTCOME not in files.paths:
        return
    if committed.get(paths.OUTCOME) != files.paths[paths.OUTCOME]:
        if paths.OUTCOME in committed and grade == "wrong":
            words = "is not the outcome that was committed"
            commits = f"{_back(run, paths.OUTCOME)}; if it ended again: {commits}"
        yield Disagreement(grade, f"{run}/{paths.OUTCOME}", words, commits)
        return
    for path in sorted(files.paths.keys() - committed.keys()):
        if _asks_about_result(path, committed):
            what = "asks about an attempt that has a result: git had taken the result away when it was written"
            yield Disagreement("note", f"{run}/{path}", what, "delete it")
        elif paths.writing_of(path) == "once":
            what = "came after the run had ended: agentfs wrote no such file"
            yield Disagreement("wrong", f"{run}/{path}", what, "look at it; if you do not know it, delete it")


def _asks_about_result(path: str, committed: Mapping[str, str]) -> bool:
    """Return whether it is a question about an attempt whose result is committed: it is not read any more."""
    file = paths.parse_step_file(path.removeprefix(f"{paths.STEPS}/"))
    return bool(file and file.kind == "question" and paths.step_path(file.step, file.attempt, "result") in committed)


def _check_edited(run: str, files: RunFiles, committed: Mapping[str, str]) -> Iterator[Disagreement]:
    """A plan or goal that a person has edited since is as it may be."""
    ended = paths.OUTCOME in files.paths
    fix = f"agentfs resume {run} takes it up" if ended else "the process that drives the run takes it up"
    last = max(files.numbered(Revision), default=0)
    plan = files.paths.get(f"{paths.REVISIONS}/{paths.revision_plan_file(last)}")
    if last and files.paths.get(paths.PLAN) != plan:
        what = f"is not the plan of revision {last}: an edit that is no revision yet"
        yield Disagreement("note", f"{run}/{paths.PLAN}", what, fix)
    for path in files.paths:
        if path.startswith("goal.") and committed.get(path, files.paths[path]) != files.paths[path]:
            yield Disagreement("note", f"{run}/{path}", "was edited since the last commit", fix)


# ── a run's folder as records and hashes ──────────────────────────────────────────────────────────────────


def read_folder(folder: Path) -> RunFiles:
    """Read a run, each file once; what does not read is a fault, the rest is still there."""
    files = RunFiles()
    for path in _list_files(folder):
        if paths.writing_of(path) == "appended":  # it may be large, and is compared piece by piece
            files.paths[path] = ""
            continue
        try:
            source = read_whole(f"{folder}/{path}")
        except FileNotFoundError:  # it was there a moment ago: `paths` says that it is not
            continue
        except OSError as error:
            files.unreadable.append(Fault(path, f"cannot be read: {error.strerror}"))
            continue
        files.paths[path] = blob_sha(source)
        _take(path, source, files)
    return files


def _list_files(folder: Path) -> Iterator[str]:
    for part in PARTS:
        with suppress(OSError):
            yield from own_files(f"{folder}", part)


def _take(path: str, source: bytes, files: RunFiles) -> None:
    """Take in one file by its name."""
    kind = record_kind(path)
    if kind is None:
        files.hashes[path] = sha256_bytes(source)
        return
    try:
        files.records[path] = kind.model_validate_json(source)
    except ValidationError as error:
        if kind is Order:
            files.torn.add(path)
            return
        first = error.errors()[0]
        where = "/".join(str(part) for part in first["loc"]) or "the file"
        files.unreadable.append(Fault(path, f"does not read ({where}: {first['msg']})"))
