"""Where a recording comes from: a run in its workspace, or a copy of one; and how to make such a copy."""

import shutil
from dataclasses import replace
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.hashing import sha256_bytes
from agentfs.disk import read_whole
from agentfs.errors import UserError
from agentfs.replaying.recording import Recording, read_recording
from agentfs.settings import load_settings
from agentfs.workspace import SETTINGS

_LEFT_OUT = (paths.FILES, paths.STATUS, paths.PLAN_ERROR, paths.GOAL_ERROR, paths.ON_WAIT_LOG)


def workspace_of(folder: Path) -> Path | None:
    """Return the workspace that a run's folder lies in; None for a copy of one."""
    root = folder.parents[2] if len(folder.parents) > 2 else None
    return root if root is not None and root / "runs" == folder.parents[1] and (root / SETTINGS).is_file() else None


def settings_in(workspace: Path | None) -> Settings:
    """Return the settings of a workspace, as its file has them."""
    return load_settings(workspace / SETTINGS, {}) if workspace else Settings()


def whole_recording(folder: Path) -> Recording:
    """Return the recording in a folder, with the earlier texts of a goal that was edited, if its ledger has them."""
    recording = read_recording(folder)
    wanted = {one.call.goal_sha256 for one in recording.calls.values() if one.call} - set(recording.goals)
    if not wanted or workspace_of(folder) is None:
        return recording
    from agentfs.ledger import Ledger, LedgerError

    try:
        versions = list(Ledger(folder.parents[1]).versions(recording.run.run, recording.goal_name))
    except LedgerError as error:
        raise UserError(str(error)) from None
    return replace(recording, goals={**recording.goals, **{sha256_bytes(content): content for content in versions}})


def save_recording(folder: Path, to: Path) -> None:
    """Copy what a replay needs of a run: all of it but what the steps made."""
    recording = whole_recording(folder.resolve())
    if to.exists():
        raise UserError(f"{to} exists: a recording is saved to a new folder")
    shutil.copytree(folder, to, ignore=lambda at, _listed: _LEFT_OUT if Path(at) == folder else ())
    shutil.copystat(folder, to)
    last = sha256_bytes(read_whole(folder / recording.goal_name))
    for number, one in recording.calls.items():
        content = recording.goals.get(one.call.goal_sha256) if one.call else None
        if one.call and content is not None and one.call.goal_sha256 != last:
            (to / paths.PLANNING / paths.goal_before_file(number, recording.goal_name)).write_bytes(content)
