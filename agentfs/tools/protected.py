"""Which parts of a working folder stay read-only: the workspace's own files, and what git would execute.

Owns the rule, for mounts and for the file tools alike. Looks at folders; writes nothing.
"""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from agentfs.tools.base import Confinement

WORKSPACE_PARTS = ("agentfs.toml", "goals", "runs", "schemas", "tools", "prompts")
GIT_PARTS = frozenset({"hooks", "config", "config.worktree", "commondir"})
FOLDERS_WALKED = 20_000  # breadth first: what lies deepest is looked at last
MODULES_WALKED = 256
MOST_FENCES = 2000  # bubblewrap takes 9,000 arguments


@dataclass(frozen=True, slots=True)
class Fences:
    """What the mounts must keep: places that may not move, not change, or not appear."""

    pins: tuple[str, ...] = ()  # bound onto themselves: a mount point cannot be renamed away
    locks: tuple[str, ...] = ()  # there, and read-only
    absent: tuple[str, ...] = ()  # not there: an empty read-only folder takes the place


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
    return Fences(_chain(workdir, workspace), there, absent)


def git_fences(root: str, skip: tuple[str, ...]) -> Fences:
    """Return what keeps the hooks and settings of every repository under a folder as they are."""
    pins: dict[str, None] = {}
    locks: dict[str, None] = {}
    absent: dict[str, None] = {}
    for git in _git_entries(root, skip):
        if not os.path.isdir(git):  # a worktree or submodule: the file says where the repository is
            locks[git] = None
            continue
        for folder in (git, *_submodules(git)):
            fence = _repository(folder)
            pins |= dict.fromkeys(_chain(root, folder))
            locks |= dict.fromkeys(fence.locks)
            absent |= dict.fromkeys(fence.absent)
    if len(pins) + len(locks) + len(absent) > MOST_FENCES:
        raise Unfenceable(f"there are more git repositories in {root} than can be kept from changing")
    return Fences(tuple(pins), tuple(locks), tuple(absent))


def _repository(git: str) -> Fences:
    hooks, config = os.path.join(git, "hooks"), os.path.join(git, "config")
    if os.path.islink(hooks) or os.path.islink(config):
        return Fences(locks=(git,))  # a link cannot be a mount point: the whole repository is locked
    locks = tuple(path for path in (hooks, config) if os.path.lexists(path))
    can_appear = not os.path.lexists(hooks) and os.access(git, os.W_OK)
    return Fences(locks=locks, absent=(hooks,) if can_appear else ())


def _git_entries(root: str, skip: tuple[str, ...]) -> Iterator[str]:
    """Yield every `.git` under a folder, nearest first, up to a bound."""
    folders, walked = deque([root]), 0
    while folders and walked < FOLDERS_WALKED:
        walked += 1
        for entry in _entries(folders.popleft()):
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git":
                if os.path.exists(os.path.join(entry.path, "HEAD")) or entry.is_file(follow_symlinks=False):
                    yield entry.path
            elif is_folder and entry.path not in skip:
                folders.append(entry.path)


def _submodules(git: str) -> Iterator[str]:
    folders, walked = deque([os.path.join(git, "modules")]), 0
    while folders and walked < MODULES_WALKED:
        walked += 1
        folder = folders.popleft()
        if os.path.exists(os.path.join(folder, "HEAD")):
            yield folder
            folders.append(os.path.join(folder, "modules"))
        else:
            folders.extend(e.path for e in _entries(folder) if e.is_dir(follow_symlinks=False))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # gone, or not ours to read: then the program cannot write there either
        return []


def _chain(root: str, folder: str) -> tuple[str, ...]:
    """Return the folders from below `root` down to `folder`: renaming one of them would lift the fence."""
    steps = os.path.relpath(folder, root).split("/")
    return tuple(os.path.join(root, *steps[: n + 1]) for n in range(len(steps)) if steps != ["."])
