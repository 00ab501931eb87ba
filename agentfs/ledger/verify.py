"""Prove that the files of runs and the ledger agree, or say in which file they do not, and what to do.

Reads only, takes no lock. A file that is written once is compared with every commit it is in, a commit with the
record it was made of, a revision with the plan it names (`core/agreement.py`), and git checks its own objects. Who
forges files and commits alike, and consistently, leaves nothing to compare with; for that, keep the name of `main`'s
last commit elsewhere.
"""

import itertools
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.agreement import Disagreement, Fault, Grade, RunFiles, faults, is_acted_upon
from agentfs.core.hashing import sha256_bytes
from agentfs.core.paths import run_id
from agentfs.core.records import Answer, Call, Order, Outcome, Record, Result, Revision, Run
from agentfs.ledger.git import LedgerBusy, LedgerError
from agentfs.ledger.ledger import Ledger, blob_sha
from agentfs.ledger.repository import find_damage, find_substitutes
from agentfs.ledger.walk import History, read_commits
from agentfs.storage.files import read_whole
from agentfs.storage.locks import held_inodes, is_driven, is_watched
from agentfs.storage.safe_open import reading, scan
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace

R = TypeVar("R", bound=Record)
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
        history = History(self.workspace.runs, partial(_paths_at, ledger), whole=chosen is None)
        try:
            for commit in read_commits(self.workspace.runs, chosen) if self.tip else ():
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
        there = {run_id(folder) for folder in self.workspace.run_folders() if _has_begun(folder)}
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


def _paths_at(ledger: Ledger, commit: str, runs: Collection[str]) -> dict[str, frozenset[str]]:
    try:
        return ledger.paths_at(commit, runs)
    except LedgerError:
        return dict.fromkeys(runs, frozenset())


def _has_begun(folder: Path) -> bool:
    """Whether a run has begun here: a folder that is still being made has no goal."""
    goals = (f"{folder}/goal{suffix}" for suffix in paths.GOAL_SUFFIXES)
    return os.path.lexists(folder / paths.RUN) or any(map(os.path.lexists, goals))


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
    found, run = read_folder(folder), run_id(folder)
    for fault in (*found.faults, *faults(found.files)):
        fix = _back(run, fault.file) if fault.file in committed else _NO_COPY
        yield Disagreement("wrong", f"{run}/{fault.file}", fault.what, fix)
    if ledger:
        yield from _check_committed(run, found, committed, ledger)
        yield from _check_pending(run, found, committed, "later" if driven else "wrong")
    yield from _check_edited(run, found, committed)


_NO_COPY = "no copy is in the ledger: take it from one of your own"


def _back(run: str, path: str) -> str:
    return f"take it back: git -C runs checkout main -- {run}/{path}"


def _check_committed(
    run: str, found: "Folder", committed: Mapping[str, str], ledger: Ledger
) -> Iterator[Disagreement]:
    """What was committed is still what it was."""
    for path, blob in committed.items():
        writing, now = paths.writing_of(path), found.blobs.get(path)
        if writing is None or now == blob or (writing == "by people" and not is_acted_upon(path, found.blobs)):
            continue
        if writing == "appended" and now is not None and _begins_with(f"{found.root}/{path}", blob, ledger):
            continue
        what = "is gone, and the ledger has it" if now is None else "is not what was committed"
        yield Disagreement("wrong", f"{run}/{path}", what, _back(run, path))


def _begins_with(path: str, blob: str, ledger: Ledger) -> bool:
    try:
        (content,) = ledger.contents([blob])
        with reading(path) as file:
            return file.read(len(content)) == content
    except (OSError, LedgerError):
        return False


def _check_pending(run: str, found: "Folder", committed: Mapping[str, str], grade: Grade) -> Iterator[Disagreement]:
    """Every revision has a commit, and so has the outcome; after that nothing is added any more."""
    words, commits = "is not committed yet", "the process that drives it commits it"
    if grade == "wrong":
        words, commits = (
            "has no commit, and nobody drives the run",
            f"agentfs resume {run}, or `agentfs watch`, commits it",
        )
    for number in sorted(found.files.revisions):
        path = f"{paths.REVISIONS}/{paths.revision_file(number)}"
        if path not in committed:
            yield Disagreement(grade, f"{run}/{path}", words, commits)
    if paths.OUTCOME not in found.blobs:
        return
    if committed.get(paths.OUTCOME) != found.blobs[paths.OUTCOME]:
        if paths.OUTCOME in committed and grade == "wrong":
            words = "is not the outcome that was committed"
            commits = f"{_back(run, paths.OUTCOME)}; if it ended again: {commits}"
        yield Disagreement(grade, f"{run}/{paths.OUTCOME}", words, commits)
        return
    for path in sorted(found.blobs.keys() - committed.keys()):
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


def _check_edited(run: str, found: "Folder", committed: Mapping[str, str]) -> Iterator[Disagreement]:
    """A plan or goal that a person has edited since is as it may be."""
    ended = paths.OUTCOME in found.blobs
    fix = f"agentfs resume {run} takes it up" if ended else "the process that drives the run takes it up"
    last = max(found.files.revisions, default=0)
    plan = found.blobs.get(f"{paths.REVISIONS}/{paths.revision_plan_file(last)}")
    if last and found.blobs.get(paths.PLAN) != plan:
        what = f"is not the plan of revision {last}: an edit that is no revision yet"
        yield Disagreement("note", f"{run}/{paths.PLAN}", what, fix)
    for path in found.blobs:
        if path.startswith("goal.") and committed.get(path, found.blobs[path]) != found.blobs[path]:
            yield Disagreement("note", f"{run}/{path}", "was edited since the last commit", fix)


# ── a run's folder as records and hashes ──────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Folder:
    """What lies in a run's folder: the name git gives to every file's content, and the records in them."""

    root: str
    blobs: dict[str, str] = field(default_factory=dict)
    files: RunFiles = field(default_factory=lambda: RunFiles(""))
    faults: list[Fault] = field(default_factory=list)


def read_folder(folder: Path) -> Folder:
    """Read a run, each file once; what does not read is a fault, the rest is still there."""
    found = Folder(str(folder), files=RunFiles(run_id(folder)))
    torn: list[tuple[str, int]] = []
    for path in _paths(str(folder)):
        if paths.writing_of(path) == "appended":  # it may be large, and is compared piece by piece
            found.blobs[path] = ""
            continue
        try:
            source = read_whole(f"{folder}/{path}")
        except FileNotFoundError:  # it was there a moment ago: `blobs` says that it is not
            continue
        except OSError as error:
            found.faults.append(Fault(path, f"cannot be read: {error.strerror}"))
            continue
        found.blobs[path] = blob_sha(source)
        _take(path, source, found, torn)
    found.files.paths = frozenset(found.blobs)
    for step, attempt in torn:  # an order is not fsynced: after a power cut it may be empty
        result = found.files.results.get((step, attempt))
        if result is not None and result.status != "interrupted":
            order = paths.step_path(step, attempt, "order")
            found.faults.append(Fault(order, "does not read, and it was carried out"))
    return found


def _paths(folder: str) -> Iterator[str]:
    """Yield the paths of agentfs's own files, but for what the steps made and views."""
    for part in ("", paths.PLANNING, paths.REVISIONS, paths.STEPS):
        try:
            found = scan(f"{folder}/{part}")
            listed = [one.name for one in found if one.name[0] != "." and one.is_file(follow_symlinks=False)]
        except OSError:
            continue
        for name in sorted(listed):
            if part or name in (paths.RUN, paths.REQUEST, paths.PLAN, paths.OUTCOME) or _is_goal(name):
                yield f"{part}/{name}" if part else name


def _is_goal(name: str) -> bool:
    return any(name == f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES)


def _take(path: str, source: bytes, found: Folder, torn: list[tuple[str, int]]) -> None:
    """Take in one file by its name."""
    files, (part, _, name) = found.files, path.rpartition("/")
    if path == paths.RUN:
        files.run = _record(path, source, Run, found)
    elif path == paths.OUTCOME:
        files.outcome = _record(path, source, Outcome, found)
    elif part == paths.REVISIONS and (revision := paths.parse_revision_file(name)):
        if revision[1] == "plan":
            files.plans[revision[0]] = sha256_bytes(source)
        elif record := _record(path, source, Revision, found):
            files.revisions[revision[0]] = record
    elif part == paths.PLANNING:
        _take_call(path, source, name, found)
    elif part == paths.STEPS and (step := paths.parse_step_file(name)):
        if step.kind == "result" and (result := _record(path, source, Result, found)):
            files.results[step.step, step.attempt] = result
        elif step.kind == "order":
            try:
                files.orders[step.step, step.attempt] = Order.model_validate_json(source)
            except ValidationError:
                torn.append((step.step, step.attempt))


def _take_call(path: str, source: bytes, name: str, found: Folder) -> None:
    files, file = found.files, paths.parse_call_file(name)
    if file is None:
        number, _, rest = name.partition(".")
        if number.isdigit() and _is_goal(rest):
            files.goals[int(number)] = sha256_bytes(source)
    elif file.kind == "call" and (call := _record(path, source, Call, found)):
        files.calls[file.call] = call
    elif file.kind == "answer" and (answer := _record(path, source, Answer, found)):
        files.answers[file.call] = answer
    elif file.kind == "plan":
        files.tries.setdefault(file.call, set()).add(sha256_bytes(source))


def _record(path: str, source: bytes, kind: type[R], found: Folder) -> R | None:
    try:
        return kind.model_validate_json(source)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(str(part) for part in first["loc"]) or "the file"
        found.faults.append(Fault(path, f"does not read ({where}: {first['msg']})"))
        return None
