"""Which parts of a working folder stay read-only: the workspace's own files, and what git would execute.

Owns the rule, for mounts and for the file tools alike; `repositories` knows where git's parts are. Writes nothing.
"""

import os
from dataclasses import dataclass
from pathlib import PurePosixPath

from agentfs.tools.base import Confinement

WORKSPACE_PARTS = ("agentfs.toml", "goals", "runs", "schemas", "tools", "prompts")
GIT_PARTS = frozenset({"hooks", "config", "config.worktree", "commondir"})


@dataclass(frozen=True, slots=True)
class Fences:
    """What the mounts must keep: places that may not move, not change, or not appear."""

    pins: tuple[str, ...] = ()  # bound onto themselves: a mount point cannot be renamed away
    locks: tuple[str, ...] = ()  # there, and read-only
    absent: tuple[str, ...] = ()  # not there: an empty read-only folder takes the place
    blank: tuple[str, ...] = ()  # not there: an empty read-only file takes the place


class Unfenceable(Exception):
    """A part that must stay read-only cannot be made so."""


def inside(path: str, folder: str) -> bool:
    """Return whether a real path is a folder, or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def why_read_only(path: str, confinement: Confinement) -> str | None:
    """Return why the file tools may not write to this real path; None if they may."""
    workspace, run_files = os.path.realpath(confinement.workspace), os.path.realpath(confinement.run_files)
    if not inside(path, run_files):
        for name in WORKSPACE_PARTS:
            if inside(path, os.path.join(workspace, name)):
                return f"{name} belongs to the workspace and is read-only to tools"
    return _why_git(PurePosixPath(path).parts)


def _why_git(parts: tuple[str, ...]) -> str | None:
    folded = [part.casefold() for part in parts]
    if ".git" not in folded:
        return None
    after = folded[folded.index(".git") + 1 :]
    if not after:
        return ".git itself is read-only to tools"
    if after[0] in GIT_PARTS or (after[0] in ("modules", "worktrees") and GIT_PARTS & set(after)):
        return "the hooks and settings of a git repository are read-only to tools"
    return None


def workspace_fences(workdir: str, workspace: str, run_files: str) -> Fences:
    """Return what keeps the workspace's own parts as they are where they meet the working folder. Paths are real."""
    if inside(workdir, run_files):
        return Fences()
    parts = [os.path.join(workspace, name) for name in WORKSPACE_PARTS]
    if any(inside(workdir, part) for part in parts):
        return Fences(locks=(workdir,))
    if not inside(workspace, workdir):
        return Fences()
    if links := [part for part in parts if os.path.islink(part)]:
        raise Unfenceable(f"{links[0]} is a symbolic link: a program working in {workdir} could replace it")
    there = tuple(part for part in parts if os.path.lexists(part))
    absent = tuple(part for part in parts if part not in there and os.access(workspace, os.W_OK))
    blank = tuple(part for part in absent if part == parts[0])  # the settings: the one that is a file
    return Fences(chain(workdir, workspace), there, absent[len(blank) :], blank)


def chain(root: str, folder: str) -> tuple[str, ...]:
    """Return the folders from below `root` down to `folder`: renaming one of them would lift the fence."""
    steps = os.path.relpath(folder, root).split("/")
    return tuple(os.path.join(root, *steps[: n + 1]) for n in range(len(steps)) if steps != ["."])
