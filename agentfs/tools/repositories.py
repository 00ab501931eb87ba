"""What lies in a working folder: workspaces, and git repositories with what git would execute of them.

`git_fences` says what the mounts must keep. What no mount can keep, since the file is not there and git would stumble
over an empty one, `undo_harm` looks at when a program has ended. Git is asked only where settings name other places.
"""

import contextlib
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from agentfs.core import paths
from agentfs.core.paths import inside
from agentfs.storage.installation import find_program, searched_path
from agentfs.storage.safe_open import reading
from agentfs.storage.starting import Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.protected import FOLDERS, Fences, Unfenceable, chain

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
    """Every repository under a folder, those of submodules and linked worktrees too; and every workspace."""

    root: str
    files: tuple[str, ...]  # `.git` where it is a file that says where the repository is
    repositories: tuple[Repository, ...]
    workspaces: tuple[str, ...] = ()

    @property
    def watched(self) -> tuple[str, ...]:
        """Return what `undo_harm` is to look at."""
        return tuple(one.folder for one in self.repositories if not one.linked)


def survey(root: str, skip: tuple[str, ...]) -> Survey:
    """Look for repositories and workspaces under a folder, once."""
    files: list[str] = []
    workspaces: list[str] = []
    found: dict[str, Repository] = {}
    for git in _found_entries(root, skip):
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
        files.append(git)
        if (named := _named_in(git)) and inside(named, root) and os.path.isdir(named):
            found[named] = Repository(named, top, _is_linked(named))
    return Survey(root, tuple(files), tuple(found.values()), tuple(workspaces))


def git_fences(seen: Survey) -> Fences:
    """Return what keeps the hooks and settings of all these repositories as they are."""
    if not seen.files and not seen.repositories:
        return Fences()
    fences = [_fence(one, seen.root) for one in seen.repositories]
    pins = [pin for one in seen.repositories for pin in chain(seen.root, one.folder)]
    made = Fences(
        tuple(dict.fromkeys((*pins, *(pin for fence in fences for pin in fence.pins)))),
        tuple(dict.fromkeys((*seen.files, *(lock for fence in fences for lock in fence.locks)))),
        tuple(dict.fromkeys(path for fence in fences for path in fence.absent)),
        tuple(dict.fromkeys(path for fence in fences for path in fence.blank)),
    )
    if sum(map(len, (made.pins, made.locks, made.absent, made.blank))) > MOST_FENCES:
        raise Unfenceable(f"there are more git repositories in {seen.root} than can be kept from changing")
    return made


def undo_harm(folders: tuple[str, ...]) -> Iterator[str]:
    """Look at repositories that a program could write to; yield what it did that must not stay, after undoing it."""
    for folder in folders:
        if os.path.lexists(planted := os.path.join(folder, "commondir")):
            with contextlib.suppress(OSError):
                shutil.rmtree(planted) if os.path.isdir(planted) else os.unlink(planted)
            yield f"it made {planted}, by which git would take hooks and settings from elsewhere; that was removed"
        if not os.path.lexists(os.path.join(folder, "HEAD")):
            yield f"it took HEAD out of {folder}, so that git would look for another repository there"


def _fence(repository: Repository, root: str) -> Fences:
    git = repository.folder
    own, commondir = os.path.join(git, "config.worktree"), os.path.join(git, "commondir")
    if repository.linked:
        return Fences(locks=tuple(path for path in (commondir, own) if os.path.lexists(path)))
    if os.path.lexists(commondir):
        raise Unfenceable(
            f"{commondir} makes git take hooks and settings from elsewhere (remove it, if a tool did it)"
        )
    hooks, config = os.path.join(git, "hooks"), os.path.join(git, "config")
    if os.path.islink(hooks) or os.path.islink(config):
        return Fences(locks=(git,))  # a link cannot be a mount point: the whole repository is locked
    writable = os.access(git, os.W_OK)
    locks = tuple(path for path in (hooks, config, own) if os.path.lexists(path))
    absent = (hooks,) if writable and hooks not in locks else ()
    named = _named_elsewhere(repository, root)
    blank = (own,) if writable and own not in locks and named.own_settings else ()
    pins = tuple(pin for path in (*named.there, *named.absent) for pin in chain(root, os.path.dirname(path)))
    return Fences(pins, (*locks, *named.there), (*absent, *named.absent), blank)


# ── what settings name elsewhere ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Named:
    there: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    own_settings: bool = False  # each worktree may have settings of its own


def _named_elsewhere(repository: Repository, root: str) -> _Named:
    """Return the hooks and settings in the working folder that a repository's settings name."""
    config = os.path.join(repository.folder, "config")
    if not any(map(_says_more, (config, *_of_the_person()))):
        return _Named()
    settings = _settings(repository.folder)
    hooks = [
        _hooks(value, repository.top) for key, value, _ in settings if key == "core.hookspath" and repository.top
    ]
    files = [_join(value, os.path.dirname(origin)) for key, value, origin in settings if _includes(key)]
    named = dict.fromkeys((*hooks, *files, *(origin for _, _, origin in settings)))
    places = [path for path in named if inside(path, root) and path != config]
    for path in places:
        if inside(repository.folder, path) or os.path.realpath(path) != path:
            raise Unfenceable(f"{config} names {path}, which cannot be kept from changing")
    if missing := [path for path in files if path in places and not os.path.lexists(path)]:
        raise Unfenceable(f"{config} includes {missing[0]}, which is not there: a program could make it")
    there = tuple(path for path in places if os.path.lexists(path))
    absent = tuple(path for path in dict.fromkeys(hooks) if path in places and path not in there)
    return _Named(there, absent, any(key == "extensions.worktreeconfig" for key, _, _ in settings))


def _says_more(config: str) -> bool:
    """Whether settings may name other places at all: most do not, and git need not be asked."""
    try:
        with reading(config, links=True) as file:
            text = file.read(LARGEST_SETTINGS).lower()
    except OSError:
        return False
    return any(word in text for word in (b"hookspath", b"[include", b"worktreeconfig"))


def _of_the_person() -> tuple[str, ...]:
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


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what a folder holds; nothing if it is gone, or not ours to read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _found_entries(root: str, skip: tuple[str, ...]) -> Iterator[str]:
    """Yield every `.git` and every `agentfs.toml` under a folder, nearest first, up to a bound."""
    folders, walked = deque([root]), 0
    while folders and walked < FOLDERS_WALKED:
        walked += 1
        found = _entries(folders.popleft())
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
            folders.extend(entry.path for entry in _entries(folder) if entry.is_dir(follow_symlinks=False))


def _find_linked(git: str) -> Iterator[str]:
    """Yield the folders of linked worktrees: each says in a file where the settings are."""
    for entry in _entries(os.path.join(git, "worktrees")):
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
