"""What of a working folder stays read-only or hidden: workspaces' own parts, what agentfs runs, what git executes.

Owns the rule, for mounts and for the file tools alike; `repositories` knows where git's parts are. Writes nothing: it
only sets aside what a program made and nobody may obey.
"""

import functools
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import PurePosixPath

from agentfs.core import paths
from agentfs.core.paths import inside
from agentfs.storage import installation
from agentfs.storage.installation import workspaces_above
from agentfs.storage.locks import OWN
from agentfs.tools.base import Confinement

FILES = (paths.SETTINGS, ".mcp.json", "mcp.lock.json")
RUNS = "runs"
FOLDERS = ("goals", RUNS, "runbooks", "schedules", "schemas", "tools", "prompts")
WORKSPACE_PARTS = (*FILES, *FOLDERS)
ENV_FILES = ".env"  # every name that begins so, in the folder of a workspace
GIT_PARTS = frozenset({"hooks", "config", "config.worktree", "commondir"})
_NAME_IT = "is hidden from tools (name it in read under [tools] in agentfs.toml to show it)"


@dataclass(frozen=True, slots=True)
class Fences:
    """What the mounts must keep: places that may not move, not change, not appear, not be seen."""

    pins: tuple[str, ...] = ()  # bound onto themselves: a mount point cannot be renamed away
    locks: tuple[str, ...] = ()  # there, and read-only
    absent: tuple[str, ...] = ()  # not there: an empty read-only folder takes the place
    blank: tuple[str, ...] = ()  # not there: an empty read-only file takes the place
    unwanted: tuple[str, ...] = ()  # not there: set aside if it appears, since others would stumble over an empty one

    @staticmethod
    def joined(all_of_them: Iterable["Fences"]) -> "Fences":
        many = tuple(one for one in all_of_them if one != Fences())
        if len(many) < 2:
            return many[0] if many else Fences()
        parts = (dict.fromkeys(path for one in many for path in getattr(one, field.name)) for field in fields(Fences))
        return Fences(*map(tuple, parts))


class Unfenceable(Exception):
    """A part that must stay read-only cannot be made so."""


def set_aside(unwanted: Iterable[str]) -> Iterator[str]:
    """Look for files that were not there before a program ran; yield what it made, after giving it another name."""
    for path in unwanted:
        if not os.path.lexists(path):
            continue
        names = (f"{path}.set-aside{f'-{number}' if number > 1 else ''}" for number in itertools.count(1))
        beside = next(name for name in names if not os.path.lexists(name))
        try:
            os.rename(path, beside)
            yield f"{path} has appeared, which agentfs would obey; it is now {os.path.basename(beside)}"
        except OSError as error:
            yield f"{path} has appeared, which agentfs would obey, and cannot be renamed: {error.strerror}"


# ── the file tools ────────────────────────────────────────────────────────────────────────────────────────


def why_read_only(path: str, confinement: Confinement) -> str | None:
    """Return why the file tools may not write to this real path; None if they may."""
    if not inside(path, str(confinement.run_files)):
        if name := next((name for name in parts_above(path, confinement) if name in WORKSPACE_PARTS), None):
            return f"{name} belongs to the workspace and is read-only to tools"
        if part := (sight := Sight(confinement)).part_of(path):
            return sight.why_hidden(path) or f"{os.path.basename(part)} is read-only to tools"
    runs = what_agentfs_runs(str(confinement.workdir), confinement)
    if any(inside(path, place) for place in (*runs.locks, *runs.absent, *runs.unwanted)):
        return "agentfs runs what is there, and it is read-only to tools"
    return _why_git(PurePosixPath(path).parts)


class Sight:
    """Says what of workspaces the file tools may not see. It looks at each folder once: make one for each call."""

    def __init__(self, confinement: Confinement) -> None:
        self._workspace, self._own = str(confinement.workspace), own_run(confinement)
        self._named = [str(path) for path in (confinement.workdir, *confinement.readable)]
        self._above = functools.cache(lambda folder: tuple(workspaces_above(folder)))
        self._hidden = functools.cache(hidden_parts)
        self._kept = functools.cache(own_folders)

    def part_of(self, path: str) -> str | None:
        """Return the part of a workspace that this real path lies in, if it is one that is hidden."""
        return next((part for root in self._roots(path) for part in self._hidden(root) if inside(path, part)), None)

    def _roots(self, path: str) -> Iterable[str]:
        return dict.fromkeys((self._workspace, *self._above(os.path.dirname(path))))

    def why_hidden(self, path: str) -> str | None:
        """Return why this real path may not be seen; None if it may."""
        if own := next((one for root in self._roots(path) for one in self._kept(root) if inside(path, one)), None):
            return f"{os.path.basename(own)} belongs to agentfs and is hidden from tools"
        part = self.part_of(path)
        if part is None or inside(path, self._own) or inside(self._own, path):  # its own run, and what leads there
            return None
        if any(inside(named, part) and inside(path, named) for named in self._named):
            return None
        whose = "belongs to another run and " if os.path.basename(part) == RUNS else ""
        return f"{os.path.relpath(path, os.path.dirname(part))} {whose}{_NAME_IT}"


def parts_above(path: str, confinement: Confinement) -> Iterator[str]:
    """Yield for every workspace that a path lies in the name of the part that it lies in."""
    for root in dict.fromkeys((str(confinement.workspace), *workspaces_above(path))):
        if path != root and inside(path, root):
            yield path.removeprefix(root.rstrip("/") + "/").split("/")[0]


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


# ── workspaces ────────────────────────────────────────────────────────────────────────────────────────────


def own_run(confinement: Confinement) -> str:
    """Return the folder of the run whose tools these are."""
    return os.path.dirname(str(confinement.run_files))


def hidden_parts(root: str) -> tuple[str, ...]:
    """Return what of a workspace tools do not see: runs, and files with keys in them. Real paths, not links."""
    try:
        names = [name for name in os.listdir(root) if name == RUNS or name.startswith(ENV_FILES)]
    except OSError:
        return ()
    found = dict.fromkeys(os.path.realpath(os.path.join(root, name)) for name in sorted(names))
    python = os.path.realpath(sys.prefix)  # the environment of agentfs itself may be called .env
    return tuple(path for path in found if not inside(python, path) and os.path.exists(path))


def own_folders(root: str) -> tuple[str, ...]:
    """Return what agentfs keeps for itself in a workspace: never shown, whatever [tools] read names. Real paths."""
    runs = os.path.join(root, RUNS)
    places = (*(os.path.join(runs, ".git", name) for name in ("agentfs", OWN)), os.path.join(runs, f".{OWN}"))
    return tuple(os.path.realpath(place) for place in places if os.path.isdir(place))


def workspace_fences(workdir: str, workspace: str, run_files: str) -> Fences:
    """Return what keeps the workspace's own parts as they are where they meet the working folder. Paths are real."""
    if inside(workdir, run_files):
        return Fences()
    parts = {name: os.path.join(workspace, name) for name in WORKSPACE_PARTS}
    if any(inside(workdir, part) for part in parts.values()):
        return Fences(locks=(workdir,))
    if not inside(workspace, workdir):
        return Fences()
    if links := [part for part in parts.values() if os.path.islink(part)]:
        raise _replaceable(links[0], workdir)
    there = {name: part for name, part in parts.items() if os.path.lexists(part)}
    missing = {name: part for name, part in parts.items() if name not in there and os.access(workspace, os.W_OK)}
    return Fences(
        chain(workdir, workspace),
        tuple(there.values()),
        tuple(part for name, part in missing.items() if name in FOLDERS),
        tuple(part for name, part in missing.items() if name == paths.SETTINGS),
        tuple(part for name, part in missing.items() if name in FILES and name != paths.SETTINGS),
    )


def _replaceable(link: str, workdir: str) -> Unfenceable:
    return Unfenceable(f"{link} is a symbolic link: a program working in {workdir} could replace it")


def chain(root: str, folder: str) -> tuple[str, ...]:
    """Return the folders from below `root` down to `folder`: renaming one of them would lift the fence."""
    steps = os.path.relpath(folder, root).split("/")
    return tuple(os.path.join(root, *steps[: n + 1]) for n in range(len(steps)) if steps != ["."])


# ── what agentfs runs ─────────────────────────────────────────────────────────────────────────────────────


def what_agentfs_runs(workdir: str, confinement: Confinement) -> Fences:
    """Return what keeps a program from changing what agentfs runs unconfined, where it lies in the working folder."""
    if folders := installation.python_path(workdir):
        raise Unfenceable(f"{folders[0]} is on PYTHONPATH: agentfs would import what a step puts there")
    code, programs = installation.code_folders(), installation.path_folders(workdir)
    if around := [real for _, real in code if inside(workdir, real)]:
        raise Unfenceable(f"the working folder lies in {around[0]}, which agentfs runs")
    if any(workdir == os.path.realpath(folder) for folder in programs):
        raise Unfenceable(f"{workdir} is a folder of PATH: agentfs would run what a step puts there")
    kept = Fences()
    others = ((place, os.path.realpath(place)) for place in (*programs, *map(str, confinement.protected)))
    for place in (*code, *others):
        if any(inside(path, workdir) for path in place) and not any(inside(place[0], lock) for lock in kept.locks):
            kept = Fences.joined((kept, _keep(place, workdir)))
    return Fences.joined((kept, *_fence_unplanted(workdir)))


def _fence_unplanted(workdir: str) -> Iterator[Fences]:
    """Yield what keeps Python from running what a program made whenever it starts."""
    for folder in installation.foreign_folders(workdir):
        for name in installation.planted_names():
            path = os.path.join(folder, name)
            there = os.path.lexists(path)
            yield _keep((path, os.path.realpath(path)), workdir) if there else Fences(unwanted=(path,))


def _keep(place: tuple[str, str], workdir: str) -> Fences:
    """Return what keeps one place, as it is spelt and as it really is, also where it is not there yet."""
    path = next((one for one in place if one != workdir and inside(one, workdir)), None)
    for step in chain(workdir, path) if path else ():
        if os.path.islink(step):
            raise _replaceable(step, workdir)
        if not os.path.lexists(step):
            return Fences(chain(workdir, os.path.dirname(step)), absent=(step,))
    return Fences(chain(workdir, os.path.dirname(path)), (path,)) if path else Fences()
