"""Make a new run of another's files. The other run is only read; the goal's appearance is the commit point."""

import os
import shutil
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.continuation import Carried, Choices, first_call, forked_run
from agentfs.core.hashing import sha256_bytes
from agentfs.core.records import JsonObject, Order, Result, Run
from agentfs.engine.intake import new_folder
from agentfs.executor.attempt import render
from agentfs.storage.clock import Clock
from agentfs.storage.files import publish, read_whole, sync_folder
from agentfs.storage.safe_open import copy_regular, names_in
from agentfs.storage.workspace import Workspace, goal_path


@dataclass(frozen=True, slots=True)
class Fork:
    """A run to be made."""

    origin: Path
    run: Run  # that it comes from
    source: str
    choices: Choices
    name: str
    plan: JsonObject | None  # None: it begins anew, with the goal alone
    carried: Carried


def make(fork: Fork, workspace: Workspace) -> Path:
    """Make the new run and return its folder; cut anywhere before the end, there is no run."""
    clock = Clock()
    goal = goal_path(fork.origin)
    content = read_whole(goal)
    with new_folder(workspace, clock.day(), fork.name) as new:
        folder, name = new.path, new.run
        if fork.plan is not None:
            _copy_steps(fork, folder, name)
            if fork.run.workdir == paths.FILES:
                copy_files(fork.origin / paths.FILES, folder / paths.FILES)
            _write_call(fork, fork.plan, sha256_bytes(content), folder / paths.PLANNING)
        run = forked_run(fork.run, name, fork.source, fork.choices, clock.stamp())
        run = run.model_copy(update={"goal_sha256": sha256_bytes(content)})
        publish(folder / paths.RUN, render(run), durable=True)
        publish(folder / goal.name, content, durable=True)  # the commit point
    return folder


def _write_call(fork: Fork, plan: JsonObject, goal_sha256: str, planning: Path) -> None:
    call, answer = first_call(goal_sha256, fork.source, plan, fork.carried.evidence)
    publish(planning / paths.call_file(call.call, "call"), render(call), durable=True)
    publish(planning / paths.call_file(call.call, "answer"), render(answer), durable=True)


def _copy_steps(fork: Fork, folder: Path, name: str) -> None:
    """Copy the attempts that go along; they are told as the new run's, of its first revision."""
    for path in sorted(fork.origin / paths.STEPS / name for name in names_in(fork.origin / paths.STEPS)):
        file = paths.parse_step_file(path.name)
        if file is None or file.attempt > fork.carried.attempts.get(file.step, 0):
            continue
        content = _as_own(path, file.kind, name)
        if content is not None:
            publish(folder / paths.STEPS / path.name, content, durable=file.kind == "result")
    sync_folder(folder / paths.STEPS)


def _as_own(path: Path, kind: paths.StepFileKind, name: str) -> bytes | None:
    """Return a file for the new run; None of an order that was cut short."""
    content = read_whole(path)
    if kind not in ("order", "result"):
        return content
    try:
        record = (Order if kind == "order" else Result).model_validate_json(content)
    except ValidationError:
        return None
    return render(record.model_copy(update={"run": name, "revision": 1}))


def copy_files(source: Path, target: Path) -> None:
    """Copy a working folder as it is now: links as links; what is neither file nor folder is left out."""

    def special(folder: str, entries: Collection[str]) -> set[str]:
        return {name for name in entries if not _is_plain(os.path.join(folder, name))}

    shutil.copytree(source, target, symlinks=True, ignore=special, copy_function=copy_regular, dirs_exist_ok=True)


def _is_plain(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # it has gone since it was listed
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
