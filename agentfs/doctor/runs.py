"""Runs that have not ended: attempts that claim to run with nobody driving them, folders that were left half made."""

import os
from collections.abc import Iterator
from pathlib import Path

from agentfs.core import paths
from agentfs.core.problems import Finding, fine, remark, wrong
from agentfs.core.records import Run
from agentfs.disk import read_whole
from agentfs.executor.log import marks_in
from agentfs.storage.locks import held_inodes, is_driven
from agentfs.storage.run_folders import open_runs
from agentfs.storage.safe_open import names_in, subfolders
from agentfs.tools.process import ProcessMark, find_survivors
from agentfs.views.words import counted, inert
from agentfs.workspace import Workspace

TOLD = 20  # runs that are told one by one


def examine(workspace: Workspace) -> Iterator[Finding]:
    """Yield what is found of the runs that are open, and of what is no run."""
    held = held_inodes()
    found = list(open_runs(workspace.runs))
    driven = sum(is_driven(folder, held) for folder in found)
    yield fine("runs", f"{counted(len(found), 'open run')}, {driven} of them driven now")
    told = [one for folder in found for one in _examine_one(folder, driven=is_driven(folder, held))]
    yield from told[:TOLD]
    if len(told) > TOLD:
        yield remark("runs", f"and {len(told) - TOLD} more of the same kind")
    yield from _half_made(workspace)


def _examine_one(folder: Path, *, driven: bool) -> Iterator[Finding]:
    run = f"{folder.parent.name}/{folder.name}"
    yield from _format(folder, run)
    if driven:
        return
    claimed = _unsettled(folder / paths.STEPS)
    if not claimed:
        return
    left = sorted({pid for log in claimed for mark in _marks(log) for pid in find_survivors(mark)})
    fix = f"agentfs resume {run} (or `agentfs watch`) ends what is left, and settles them as interrupted"
    words = f"{run}: {counted(len(claimed), 'attempt')} claim to run, and nobody drives it"
    if left:
        yield wrong("runs", f"{words}; still running: {', '.join(map(str, left))}", fix)
    else:
        yield remark("runs", words, fix)


def _format(folder: Path, run: str) -> Iterator[Finding]:
    """Say of a run.json that this version cannot read."""
    try:
        Run.model_validate_json(read_whole(folder / paths.RUN))
    except (OSError, ValueError) as error:
        first = inert(str(error).replace("\n", " "))[:200]
        fix = f"take it back: git -C runs checkout main -- {run}/run.json; or use the agentfs that wrote it"
        yield wrong("runs", f"{run}/run.json does not read: {first}", fix)


def _unsettled(steps: Path) -> list[Path]:
    """Return the logs of attempts without a result, but for those that wait for a person's answer."""
    try:
        attempts = paths.by_attempt(names_in(steps))
    except OSError:
        return []
    open_ones = []
    for (step, number), traces in attempts.items():
        kinds = [kind for kind, _ in traces]
        asks = kinds.count("question") > kinds.count("reply")
        if "log" in kinds and "result" not in kinds and not asks:
            open_ones.append(steps / paths.step_file(step, number, "log"))
    return open_ones


def _marks(log: Path) -> Iterator[ProcessMark]:
    try:
        yield from marks_in(log)
    except OSError:
        return


def _half_made(workspace: Workspace) -> Iterator[Finding]:
    """Say of folders in which no run has begun, and of runs that have yet to be deleted."""
    folders = [run for day in subfolders(str(workspace.runs)) for run in subfolders(day)]
    empty = [run for run in folders if not os.path.lexists(f"{run}/{paths.RUN}") and _is_run(run)]
    if empty:
        words = f"{counted(len(empty), 'folder')} without a run.json ({'/'.join(empty[0].rsplit('/', 2)[1:])})"
        fix = "a goal of that name takes such a folder; if none is on its way, delete it"
        yield remark("runs", words, fix)
    if any(subfolders(f"{workspace.runs}/{paths.FORGOTTEN}")):
        words = "runs that were forgotten are not deleted yet"
        yield remark("runs", words, "the next `agentfs run`, `watch` or `forget` finishes that")


def _is_run(folder: str) -> bool:
    return paths.is_run_id("/".join(folder.rsplit("/", 2)[1:]))
