"""A run's folder held against what `main` holds of it now."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from agentfs.core import paths
from agentfs.core.agreement import Disagreement, Grade, faults, is_settled
from agentfs.regular import reading
from agentfs.verifying.reading import Folder, read_folder

Contents = Callable[[str], bytes]  # what a blob holds


def held(folder: Path, committed: Mapping[str, str], contents: Contents, *, driven: bool) -> Iterator[Disagreement]:
    """Yield in what a run's folder and the ledger differ. `driven`: somebody is about to commit what is missing."""
    found, run = read_folder(folder), f"{folder.parent.name}/{folder.name}"
    for fault in (*found.faults, *faults(found.files)):
        back = f"take it back: git -C runs checkout main -- {run}/{fault.file}"
        fix = back if fault.file in committed else "no copy is in the ledger: take it from one of your own"
        yield Disagreement("wrong", f"{run}/{fault.file}", fault.what, fix)
    yield from _against(run, found, committed, contents)
    yield from _owed(run, found, committed, "later" if driven else "wrong")
    yield from _edited(run, found, committed)


def _against(run: str, found: Folder, committed: Mapping[str, str], contents: Contents) -> Iterator[Disagreement]:
    """What was committed is still what it was."""
    for path, blob in committed.items():
        writing, now = paths.writing_of(path), found.blobs.get(path)
        if writing is None or now == blob or (writing == "by people" and not is_settled(path, found.blobs)):
            continue
        if writing == "appended" and now is not None and _begins_with(f"{found.root}/{path}", contents(blob)):
            continue
        what = "is gone, and the ledger has it" if now is None else "is not what was committed"
        fix = f"take it back: git -C runs checkout main -- {run}/{path}"
        yield Disagreement("wrong", f"{run}/{path}", what, fix)


def _begins_with(path: str, content: bytes) -> bool:
    try:
        with reading(path) as file:
            return file.read(len(content)) == content
    except OSError:
        return False


def _owed(run: str, found: Folder, committed: Mapping[str, str], grade: Grade) -> Iterator[Disagreement]:
    """Every revision has a commit, and so has the outcome; after that nothing is added any more."""
    words = "is not committed yet" if grade == "later" else "has no commit, and nobody drives the run"
    commits = (
        "the process that drives it commits it"
        if grade == "later"
        else f"agentfs resume {run}, or `agentfs watch`, commits it"
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
            commits = f"take it back: git -C runs checkout main -- {run}/{paths.OUTCOME}; if it ended anew: {commits}"
        yield Disagreement(grade, f"{run}/{paths.OUTCOME}", words, commits)
        return
    for path in sorted(found.blobs.keys() - committed.keys()):
        if paths.writing_of(path) == "once":
            what = "came after the run had ended: agentfs wrote no such file"
            yield Disagreement("wrong", f"{run}/{path}", what, "look at it; if you do not know it, delete it")


def _edited(run: str, found: Folder, committed: Mapping[str, str]) -> Iterator[Disagreement]:
    """A plan or goal that a person has edited since is as it may be."""
    ended = paths.OUTCOME in found.blobs
    fix = f"agentfs resume {run} takes it up" if ended else "whoever drives the run takes it up"
    last = max(found.files.revisions, default=0)
    plan = found.blobs.get(f"{paths.REVISIONS}/{paths.revision_plan_file(last)}")
    if last and found.blobs.get(paths.PLAN) != plan:
        what = f"is not the plan of revision {last}: an edit that is no revision yet"
        yield Disagreement("note", f"{run}/{paths.PLAN}", what, fix)
    for path in found.blobs:
        if path.startswith("goal.") and committed.get(path, found.blobs[path]) != found.blobs[path]:
            yield Disagreement("note", f"{run}/{path}", "was edited since the last commit", fix)
