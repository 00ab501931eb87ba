"""What stays read-only or hidden in a working folder: workspaces' own parts, what agentfs runs, what git executes.

Owns the rules, for mounts (`Fences`) and for the file tools alike. Some files no mount can keep away, since git or
agentfs would stumble over an empty one: when a program has ended, `undo_harm` removes them from repositories, and
`set_aside` renames the others. Nothing else is written.
"""

import contextlib
import functools
import itertools
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from agentfs.core import paths
from agentfs.core.paths import inside
from agentfs.storage import installation
from agentfs.storage.files import list_entries
from agentfs.storage.installation import find_program, searched_path, workspaces_above
from agentfs.storage.locks import OWN
from agentfs.storage.safe_open import Refused, reading
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement

FILES = (paths.SETTINGS, ".mcp.json", "mcp.lock.json")
RUNS = "runs"
FOLDERS = ("goals", RUNS, "runbooks", "schedules", "schemas", "tools", "prompts")
WORKSPACE_PARTS = (*FILES, *FOLDERS)
ENV_FILES = ".env"  # every name that begins so, in the folder of a workspace
GIT_PARTS = frozenset({"hooks", "config", "config.worktree", "commondir"})
_NAME_IT = "is hidden from tools (name it in read under [tools] in agentfs.toml to show it)"


# How a place is kept as it is. By a mount: writable (bound onto itself, so that it cannot be renamed away), shown
# (read-only), empty or nothing (where no folder or no file is). Without one: unwanted (where an empty file would harm
# others: what appears there is set aside).
Kind = Literal["writable", "shown", "empty", "nothing"]
Fence = Kind | Literal["unwanted"]
Fences = Mapping[str, Fence]  # by path
_STRICTNESS: tuple[Fence, ...] = ("unwanted", "writable", "shown", "empty", "nothing")


def join(parts: Iterable[Fences]) -> dict[str, Fence]:
    """Return the fences of all parts; where two keep one place, the stricter one."""
    joined: dict[str, Fence] = {}
    for path, fence in (one for part in parts for one in part.items()):
        joined[path] = max(fence, joined.get(path, fence), key=_STRICTNESS.index)
    return joined


class Unfenceable(Refused):
    """A part that must stay read-only cannot be made so."""

    def __init__(self, message: str) -> None:
        super().__init__("sandbox", message, "choose another workdir")


def set_aside(unwanted: Iterable[str]) -> Iterator[str]:
    """Rename what a program made of files that were not there before it ran; yield what that was."""
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
        if part := (sight := Visibility(confinement)).part_of(path):
            return sight.why_hidden(path) or f"{os.path.basename(part)} is read-only to tools"
    runs = what_agentfs_runs(str(confinement.workdir), confinement)
    if any(inside(path, place) for place, fence in runs.items() if fence != "writable"):
        return "agentfs runs what is there, and it is read-only to tools"
    return _why_git(PurePosixPath(path).parts)


class Visibility:
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
        return {}
    parts = {name: os.path.join(workspace, name) for name in WORKSPACE_PARTS}
    if any(inside(workdir, part) for part in parts.values()):
        return {workdir: "shown"}
    if not inside(workspace, workdir):
        return {}
    if links := [part for part in parts.values() if os.path.islink(part)]:
        raise _replaceable(links[0], workdir)
    made = pin_down_to(workdir, workspace)
    for name, part in parts.items():
        if os.path.lexists(part):
            made[part] = "shown"
        elif os.access(workspace, os.W_OK):
            made[part] = "empty" if name in FOLDERS else "nothing" if name == paths.SETTINGS else "unwanted"
    return made


def _replaceable(link: str, workdir: str) -> Unfenceable:
    return Unfenceable(f"{link} is a symbolic link: a program working in {workdir} could replace it")


def pin_down_to(root: str, folder: str) -> dict[str, Fence]:
    """Return what keeps the folders below `root` down to `folder`: renaming one of them would lift a fence in it."""
    steps = os.path.relpath(folder, root).split("/")
    return {os.path.join(root, *steps[: n + 1]): "writable" for n in range(len(steps)) if steps != ["."]}


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
    kept = dict[str, Fence]()
    others = ((place, os.path.realpath(place)) for place in (*programs, *map(str, confinement.protected)))
    for place in (*code, *others):
        if any(inside(path, workdir) for path in place) and not any(
            inside(place[0], lock) for lock, fence in kept.items() if fence == "shown"
        ):
            kept = join((kept, _keep(place, workdir)))
    return join((kept, *_fence_unplanted(workdir)))


def _fence_unplanted(workdir: str) -> Iterator[Fences]:
    """Yield what keeps Python from running what a program made whenever it starts."""
    for folder in installation.foreign_folders(workdir):
        for name in installation.planted_names():
            path = os.path.join(folder, name)
            there = os.path.lexists(path)
            yield _keep((path, os.path.realpath(path)), workdir) if there else {path: "unwanted"}


def _keep(place: tuple[str, str], workdir: str) -> Fences:
    """Return what keeps one place, as it is spelt and as it really is, also where it is not there yet."""
    path = next((one for one in place if one != workdir and inside(one, workdir)), None)
    for step in pin_down_to(workdir, path) if path else ():
        if os.path.islink(step):
            raise _replaceable(step, workdir)
        if not os.path.lexists(step):
            return {**pin_down_to(workdir, os.path.dirname(step)), step: "empty"}
    return {**pin_down_to(workdir, os.path.dirname(path)), path: "shown"} if path else {}


# ── git: where repositories are, and what git would execute of them ───────────────────────────────────


FOLDERS_WALKED = 20_000  # breadth first: what lies deepest is looked at last
MODULES_WALKED = 256
MOST_FENCES = 2000  # bubblewrap takes 9,000 arguments
LARGEST_SETTINGS = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Repository:
    """A folder that holds a repository, or the part of one that belongs to a linked worktree."""

    folder: str
    top: str | None = None  # where its files are checked out, as far as known
    linked: bool = False  # its settings and hooks are those of another


@dataclass(frozen=True, slots=True)
class Survey:
    """What lies under a folder: repositories, those of submodules and linked worktrees too, and workspaces."""

    fences: Fences  # what keeps the hooks and settings of the repositories as they are
    watched: tuple[str, ...]  # the repositories that `undo_harm` is to look at
    workspaces: tuple[str, ...]


def survey(root: str, skip: Collection[str]) -> Survey:
    """Look for repositories and workspaces under a folder, once."""
    workspaces: list[str] = []
    fences: list[Fences] = []
    found: dict[str, Repository] = {}
    for git in _find_entries(root, skip):
        top = os.path.dirname(git)
        if os.path.basename(git) == paths.SETTINGS:
            workspaces.append(top)
            continue
        if os.path.islink(git):
            raise Unfenceable(f"{git} is a symbolic link: a program could replace it")
        if os.path.isdir(git):
            found[git] = Repository(git, top)
            for folder in (*_submodules(git), *_find_linked(git)):
                found.setdefault(folder, Repository(folder, None, _is_linked(folder)))
            continue
        fences.append({git: "shown"})  # a file that says where the repository is
        if (named := _named_in(git)) and inside(named, root) and os.path.isdir(named):
            found[named] = Repository(named, top, _is_linked(named))
    fences += [one for repository in found.values() for one in _fences_of(repository, root)]
    if len(kept := join(fences)) > MOST_FENCES:
        raise Unfenceable(f"there are more git repositories in {root} than can be kept from changing")
    return Survey(kept, tuple(one.folder for one in found.values() if not one.linked), tuple(workspaces))


def undo_harm(folders: tuple[str, ...]) -> Iterator[str]:
    """Undo what a program did to repositories that must not stay; yield what that was."""
    for folder in folders:
        if os.path.lexists(planted := os.path.join(folder, "commondir")):
            with contextlib.suppress(OSError):
                shutil.rmtree(planted) if os.path.isdir(planted) else os.unlink(planted)
            yield f"it made {planted}, by which git would take hooks and settings from elsewhere; that was removed"
        if not os.path.lexists(os.path.join(folder, "HEAD")):
            yield f"it took HEAD out of {folder}, so that git would look for another repository there"


def _fences_of(repository: Repository, root: str) -> Iterator[Fences]:
    git = repository.folder
    yield pin_down_to(root, git)
    own, commondir = os.path.join(git, "config.worktree"), os.path.join(git, "commondir")
    if repository.linked:
        yield {path: "shown" for path in (commondir, own) if os.path.lexists(path)}
        return
    if os.path.lexists(commondir):
        raise Unfenceable(
            f"{commondir} makes git take hooks and settings from elsewhere (remove it, if a tool did it)"
        )
    hooks, config = os.path.join(git, "hooks"), os.path.join(git, "config")
    if os.path.islink(hooks) or os.path.islink(config):
        yield {git: "shown"}  # a link cannot be a mount point: the whole repository is read-only
        return
    made: dict[str, Fence] = {path: "shown" for path in (hooks, config, own) if os.path.lexists(path)}
    if hooks not in made and os.access(git, os.W_OK):
        made[hooks] = "empty"
    yield made
    yield _fence_elsewhere(repository, root)


# ── what settings name elsewhere ──────────────────────────────────────────────────────────────────────────


def _fence_elsewhere(repository: Repository, root: str) -> Fences:
    """Return what keeps the hooks and settings that a repository's settings name in the working folder."""
    git = repository.folder
    config, own = os.path.join(git, "config"), os.path.join(git, "config.worktree")
    if not any(map(_may_name_files, (config, *_personal_settings()))):
        return {}
    settings = _settings(git)
    hooks = [
        _hooks(value, repository.top) for key, value, _ in settings if key == "core.hookspath" and repository.top
    ]
    files = [_join(value, os.path.dirname(origin)) for key, value, origin in settings if _includes(key)]
    named = dict.fromkeys((*hooks, *files, *(origin for _, _, origin in settings)))
    places = [path for path in named if inside(path, root) and path != config]
    for path in places:
        if inside(git, path) or os.path.realpath(path) != path:
            raise Unfenceable(f"{config} names {path}, which cannot be kept from changing")
    if missing := [path for path in files if path in places and not os.path.lexists(path)]:
        raise Unfenceable(f"{config} includes {missing[0]}, which is not there: a program could make it")
    made: dict[str, Fence] = {path: "shown" for path in places if os.path.lexists(path)}
    made |= {path: "empty" for path in hooks if path in places and path not in made}
    made = join((made, *(pin_down_to(root, os.path.dirname(path)) for path in made)))
    has_own = any(key == "extensions.worktreeconfig" for key, _, _ in settings)  # each worktree may have settings
    if has_own and not os.path.lexists(own) and os.access(git, os.W_OK):
        made[own] = "nothing"
    return made


def _may_name_files(config: str) -> bool:
    """Whether settings may name other files: most do not, and git need not be asked."""
    try:
        with reading(config, links=True) as file:
            text = file.read(LARGEST_SETTINGS).lower()
    except OSError:
        return False
    return any(word in text for word in (b"hookspath", b"[include", b"worktreeconfig"))


def _personal_settings() -> tuple[str, ...]:
    home = os.path.expanduser("~")
    xdg = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(home, ".gitconfig"), os.path.join(xdg, "git", "config")


def _settings(git: str) -> tuple[tuple[str, str, str], ...]:
    """Return each setting of a repository with the file it is in, includes followed, as git has them."""
    program = find_program("git")
    if program is None:
        return ()
    env = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    env["PATH"] = searched_path(os.environ)
    argv = [program, f"--git-dir={git}", "config", "--null", "--show-origin", "--includes", "--list"]

    def ask() -> bytes:
        done = subprocess.run(
            argv, capture_output=True, env=env, cwd=git, timeout=TIMING.repository, check=True, start_new_session=True
        )  # else a Ctrl-C, which lets a step finish, would end it
        return done.stdout

    try:
        listed = Starter().start(ask)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unfenceable(f"git cannot say what {git}/config names: {error}") from None
    parts = listed.decode("utf-8", "surrogateescape").split("\0")
    return tuple(
        (key, value, _join(origin.removeprefix("file:"), git))
        for origin, (key, _, value) in zip(parts[::2], (part.partition("\n") for part in parts[1::2]), strict=False)
    )


def _includes(key: str) -> bool:
    return key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))


def _hooks(value: str, top: str) -> str:
    path = _join(value, top)
    return os.path.dirname(path) if os.path.basename(path) == "_" else path  # husky's run the files beside theirs


def _join(value: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))


# ── where they are ────────────────────────────────────────────────────────────────────────────────────────


def _find_entries(root: str, skip: Collection[str]) -> Iterator[str]:
    """Yield every `.git` and every `agentfs.toml` under a folder, nearest first, up to a bound."""
    folders, walked = deque([root]), 0
    while folders and walked < FOLDERS_WALKED:
        walked += 1
        found = list_entries(folders.popleft())
        own: tuple[str, ...] = ()
        for entry in found:
            if entry.name == paths.SETTINGS and not entry.is_dir(follow_symlinks=False):
                own = FOLDERS  # a workspace: they are read-only or hidden, with all that is in them
                yield entry.path
        for entry in found:
            if entry.name == ".git":
                if entry.is_file(follow_symlinks=False) or os.path.exists(os.path.join(entry.path, "HEAD")):
                    yield entry.path
            elif entry.is_dir(follow_symlinks=False) and entry.path not in skip and entry.name not in own:
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
            folders.extend(entry.path for entry in list_entries(folder) if entry.is_dir(follow_symlinks=False))


def _find_linked(git: str) -> Iterator[str]:
    """Yield the folders of linked worktrees: each says in a file where the settings are."""
    for entry in list_entries(os.path.join(git, "worktrees")):
        if entry.is_dir(follow_symlinks=False) and _is_linked(entry.path):
            yield entry.path


def _is_linked(folder: str) -> bool:
    """Whether a folder belongs to a linked worktree: it is not the repository, and it says where that is."""
    return os.path.lexists(os.path.join(folder, "commondir")) and os.path.lexists(os.path.join(folder, "gitdir"))


def _named_in(file: str) -> str | None:
    """Return the folder that a `.git` file names."""
    try:
        with reading(file, links=True) as opened:
            text = opened.read(4096).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    return os.path.realpath(os.path.join(os.path.dirname(file), text.removeprefix("gitdir:").strip()))
