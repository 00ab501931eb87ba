"""What programs may touch: the mounts of a sandbox, the environment, and hints when something is refused.

A write outside the working folder fails; it never vanishes. The exceptions say so in their names: SCRATCH
(which TMPDIR names) and /dev/shm are empty at the start of every program and gone at its end.

bubblewrap mounts by name, and a name may lead elsewhere by then. So a layout says which file or folder must be found
at each place, and its caller looks into the sandbox (`find_replaced`) before anything runs there. Starts
nothing but the probe.
"""

import contextlib
import functools
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from agentfs.core.paths import inside
from agentfs.storage.installation import find_program, why_missing, workspaces_above
from agentfs.storage.safe_open import READABLE, hold_folder, identity, resolve_links_of_others
from agentfs.storage.system import Starter, is_shortage
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import trusted_roots
from agentfs.tools.base import Confinement
from agentfs.tools.process import raise_shortage
from agentfs.tools.protected import (
    Fences,
    Kind,
    Survey,
    Unfenceable,
    hidden_parts,
    join,
    own_folders,
    own_run,
    set_aside,
    survey,
    undo_harm,
    what_agentfs_runs,
    workspace_fences,
)

SCRATCH = "/dev/scratch"  # under /dev, which is always ours: a folder of [tools] read may cover any other place
HOME = "/dev/home"  # of an agent: in memory, so that what was copied into it is gone with it, whatever ends us
MEMORY = "/dev/shm"  # noqa: S108
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
KEYS = "/proc/keys"  # what keys there are, by name
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_HARM = 5  # that one message names
MOST_MOUNTS = 2900  # bubblewrap takes 9,000 arguments
_ISOLATION = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
NOBODY = ("--unshare-user", "--uid", "1000", "--gid", "1000")  # agents refuse to work as root
_EMPTIED = ("/tmp", "/run")  # noqa: S108 - they are there, and read-only

_READ_ONLY = re.compile(r"Read-only file system", re.IGNORECASE)
_ABSENT = re.compile(r"no such file|not found|does not exist|cannot access|unable to open", re.IGNORECASE)
_QUOTED = re.compile(r"['\"\u2018]((?:~?/|\.\./)[^'\"\u2019]+)['\"\u2019]")  # with blanks in it, perhaps
_BARE = re.compile(r"(?<![\w.~/:-])((?:~?/|\.\./)[^\s'\"\u2018\u2019:;,()<>|]+)")
_DENIED = re.compile(r"Permission denied", re.IGNORECASE)
_UNREACHED = re.compile(
    r"Could not resolve|name resolution|Name or service not known|Network (?:is )?unreachable|Connection refused",
    re.IGNORECASE,
)


def unavailable_because() -> str | None:
    """Return why programs cannot be confined here; None if they can."""
    bwrap = find_program("bwrap")
    return _probe(bwrap) if bwrap else why_missing("bwrap", "bubblewrap")


@functools.cache
def _probe(bwrap: str) -> str | None:
    system = (word for path, words in _system(frozenset()) for word in (*words, path))
    shown = ("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/")
    argv = [bwrap, *_ISOLATION, *system, *shown, "--", "/bin/true"]
    try:
        tried = Starter().start(lambda: _try(argv))
    except (OSError, subprocess.TimeoutExpired) as error:
        if is_shortage(error):
            raise  # it says nothing of what bubblewrap could do
        return f"bubblewrap does not work here: {error}"
    if tried.returncode == 0:
        return None
    return f"bubblewrap does not work here: {tried.stderr.decode('utf-8', 'replace').strip() or tried.returncode}"


@functools.cache
def binds_open_folders(bwrap: str) -> bool:
    """Whether this release mounts open folders too, and so makes no mount points in one that was swapped in."""
    try:
        done = Starter().start(lambda: _try([bwrap, "--help"]))
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--ro-bind-fd" in done.stdout + done.stderr


def _try(argv: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Run bubblewrap; raise that there is no room for it."""
    seconds, own = TIMING.sandbox_probe, {"PATH": PATH}
    tried = subprocess.run(
        argv, capture_output=True, timeout=seconds, check=False, env=own, start_new_session=True
    )  # of its own: a Ctrl-C that ended it would say nothing of what bubblewrap can do
    if tried.returncode != 0:
        raise_shortage(tried.stderr.decode("utf-8", "replace"))
    return tried


def environment(confinement: Confinement) -> dict[str, str]:
    """Return the clean environment of a program: nothing of ours, and what [tools] env names.

    It is handed over as the environment of bubblewrap itself, not as its arguments, which `ps` would show.
    """
    return {
        "PATH": ":".join((*confinement.programs_at, f"{sys.prefix}/bin", PATH)),
        "HOME": _home_path() if confinement.home is None else HOME,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": SCRATCH if confinement.sandbox == "bubblewrap" else tempfile.gettempdir(),
        **confinement.env,
    }


# ── what is seen where ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class View:
    """What a program sees of a person's files, and what must not be different when it has ended."""

    mounts: tuple[tuple[str, Kind, tuple[int, int] | None], ...]  # outermost first; each with what is there now
    repositories: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()

    def undo_harm(self) -> str | None:
        """Return what a program did that must not stay, after undoing it."""
        found = [*undo_harm(self.repositories), *set_aside(self.unwanted)]
        more = f" (and {len(found) - MOST_HARM} more)" if len(found) > MOST_HARM else ""
        return "; ".join(found[:MOST_HARM]) + more if found else None


def view_for(confinement: Confinement) -> View:
    """Return what is mounted for a program. Raises Refused, also for a folder that is no longer there.

    A later bind of a folder covers what lies in it, so that outer ones come first.
    """
    workdir, readable = str(confinement.workdir), _readable(confinement)
    known = _known_workspaces(confinement, readable)
    writable = (workdir, *map(str, confinement.also_writable))
    kept = [_keep(known, confinement, folder) for folder in writable] if confinement.writable else []
    fences, surveys = join(fences for fences, _ in kept), [seen for _, seen in kept]
    roots = dict.fromkeys((*known, *(root for seen in surveys for root in seen.workspaces)))
    covered = _cover(roots, confinement)
    shown = (path for path in readable if not _is_shown(path, workdir, covered))
    mounts: dict[str, Kind] = dict.fromkeys(shown, "shown")
    mounts |= covered
    mounts |= dict.fromkeys(writable, "writable" if confinement.writable else "shown")
    mounts |= _mounts_in(fences)
    mounts |= _find_hidden(roots, mounts, readable, confinement)
    inner = _survey_run_files(confinement, mounts)
    if inner:
        mounts |= {str(confinement.run_files): "writable", **_mounts_in(inner.fences)}
        surveys.append(inner)
    if len(mounts) > MOST_MOUNTS:
        raise Unfenceable(f"there is more in {workdir} than can be kept from changing")
    unwanted = tuple(path for path, fence in fences.items() if fence == "unwanted")
    order = tuple((path, mounts[path], identity(path)) for path in sorted(mounts, key=_depth))
    return View(order, tuple(path for seen in surveys for path in seen.watched), unwanted)


def _keep(known: Sequence[str], confinement: Confinement, workdir: str) -> tuple[Fences, Survey]:
    """Return what must be kept in a folder, and what was found there."""
    run_files = str(confinement.run_files)
    workspaces = (workspace_fences(workdir, root, run_files) for root in known)
    own = join((*workspaces, what_agentfs_runs(workdir, confinement)))
    seen = survey(workdir, {path for path, fence in own.items() if fence == "shown"})
    others = (workspace_fences(workdir, root, run_files) for root in seen.workspaces if root not in known)
    return join((own, *others, seen.fences)), seen


def _survey_run_files(confinement: Confinement, mounts: Mapping[str, Kind]) -> Survey | None:
    """Look through the run's own files, where they lie in the working folder behind something that is read-only."""
    workdir, run_files = str(confinement.workdir), str(confinement.run_files)
    around = max((one for one in mounts if inside(run_files, one)), key=_depth, default=workdir)
    is_behind = inside(run_files, workdir) and run_files != workdir and mounts.get(around) != "writable"
    return survey(run_files, ()) if is_behind and confinement.writable and os.path.isdir(run_files) else None


def _depth(path: str) -> tuple[int, str]:
    return path.rstrip("/").count("/"), path


def _readable(confinement: Confinement) -> list[str]:
    """Return what is shown read-only, as far as it is there: the Python that runs agentfs, and [tools] read."""
    own = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)}
    named = [str(path) for path in confinement.readable]
    for path in named:
        if not is_system(path) and os.path.lexists(path) and identity(path) is None:
            with hold_folder(path, READABLE):  # a link: this raises Refused
                pass
    return [path for path in sorted({*own, *named}) if os.path.exists(path)]


def readable_path(path: str) -> str:
    """Return a path of [tools] read with its links resolved, as far as no step can have made them."""
    return os.path.realpath(path) if is_system(path) else resolve_links_of_others(path)


def _known_workspaces(confinement: Confinement, readable: Sequence[str]) -> list[str]:
    """Return the workspaces that may be seen, without looking for any: this one, those above, and this user's."""
    seen = (str(confinement.workdir), *map(str, confinement.also_writable), *readable, *SYSTEM)
    trusted = _lying_in(seen, tuple(trusted_roots(os.environ)))
    writable = map(str, (confinement.workdir, *confinement.also_writable))
    above = (root for folder in writable for root in workspaces_above(folder))
    return list(dict.fromkeys((str(confinement.workspace), *above, *trusted)))


@functools.lru_cache(maxsize=64)
def _lying_in(folders: tuple[str, ...], roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workspaces that lie in one of these folders. Who works in many has some hundred of them."""
    return tuple(root for root in roots if any(inside(root, folder) for folder in folders))


def _cover(roots: Iterable[str], confinement: Confinement) -> dict[str, Kind]:
    """Return workspaces, and a home, that lie in system folders, which all see: an empty folder covers each."""
    named = [str(path) for path in (confinement.workdir, *confinement.also_writable, *confinement.readable)]
    places = [path for path in (*roots, *_home_in_system()) if is_system(path) and os.path.isdir(path)]
    return dict.fromkeys((path for path in places if not any(inside(path, one) for one in named)), "empty")


def _is_shown(path: str, workdir: str, covered: Iterable[str]) -> bool:
    """Whether a readable path is seen anyway."""
    return inside(path, workdir) or (is_system(path) and not any(inside(path, one) for one in covered))


def _find_hidden(
    roots: Collection[str], mounts: dict[str, Kind], readable: Sequence[str], confinement: Confinement
) -> dict[str, Kind]:
    """Return what must not be seen where these mounts show it; over it what [tools] read names, over all our own."""
    covers: dict[str, Kind] = {}
    for part in (part for root in roots if _is_seen(root, mounts) for part in hidden_parts(root)):
        if _is_seen(part, mounts):
            covers[part] = "empty" if os.path.isdir(part) else "nothing"
    named = (path for path in (own_run(confinement), *readable) if any(inside(path, part) for part in covers))
    covers |= dict.fromkeys((path for path in named if os.path.exists(path)), "shown")
    own = (path for root in roots for path in own_folders(root) if _is_seen(path, mounts | covers))
    return covers | dict.fromkeys(own, "empty")


def _is_seen(path: str, mounts: dict[str, Kind]) -> bool:
    """Whether these mounts show a path: the innermost one that it lies in decides."""
    around = max((one for one in mounts if inside(path, one)), key=_depth, default=None)
    return is_system(path) if around is None else mounts[around] in ("shown", "writable")


def _mounts_in(fences: Fences) -> dict[str, Kind]:
    return {path: fence for path, fence in fences.items() if fence != "unwanted"}


# ── system folders ────────────────────────────────────────────────────────────────────────────────────────


def is_system(path: str) -> bool:
    """Whether a path lies in a folder that every program sees."""
    return any(inside(path, folder) for folder in SYSTEM)


def _system(covered: frozenset[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the system folders that every program sees, each with bubblewrap's options for it."""
    for folder in () if "/" in covered else SYSTEM:
        if os.path.islink(folder):
            yield folder, ("--symlink", os.readlink(folder))
        elif os.path.isdir(folder):
            yield folder, ("--ro-bind", folder)
    names = os.path.realpath("/etc/resolv.conf")
    if not inside(names, "/etc") and os.path.exists(names):
        yield names, ("--ro-bind", names)


def _home_path() -> str:
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else "/"  # a user without an entry and without HOME has none


def _home_in_system() -> Iterator[str]:
    """Yield the user's home if it lies in a system folder and is not a folder of programs."""
    home = os.path.realpath(_home_path())
    if is_system(home) and not any(inside(folder, home) for folder in (*SYSTEM, *PATH.split(":"))):
        with contextlib.suppress(OSError):
            if os.stat(home).st_uid == os.geteuid():
                yield home


@functools.lru_cache(maxsize=1)
def _private(_period: int) -> dict[str, Kind]:
    """Return what of /etc not every user may read. It is a thousand files: looked at once in each period."""
    return dict(_find_private("/etc"))


@functools.lru_cache(maxsize=1)
def _still_private(period: int, _moment: int) -> dict[str, Kind]:
    """Return what of that is there now: what is gone cannot be covered, and bubblewrap would fail."""
    return {path: kind for path, kind in _private(period).items() if os.path.lexists(path)}


def _find_private(folder: str) -> Iterator[tuple[str, Kind]]:
    try:
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
    except OSError:
        return  # not ours to read either
    for path, mode in found:
        if stat.S_ISDIR(mode) and mode & 0o005 == 0o005:
            yield from _find_private(path)
        elif stat.S_ISDIR(mode) and os.access(path, os.X_OK):
            yield path, "empty"
        elif stat.S_ISREG(mode) and not mode & 0o004 and os.access(path, os.R_OK):
            yield path, "nothing"


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Layout:
    """A command, what holds it, and where."""

    argv: tuple[str, ...]
    workdir: str
    outer: tuple[str, ...] = ()  # bubblewrap, up to the command; none: nothing confines it
    view: View = field(default_factory=lambda: View(()))
    home: Mapping[str, bytes] = field(
        default_factory=dict, hash=False
    )  # path -> what a file there holds, to begin with

    def find_replaced(self, pid: int, held: int) -> str | None:
        """Return where a process in the sandbox sees something else than was meant. `held`: the working folder."""
        root, status = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC), os.fstat(held)
        try:
            if identity(self.workdir, root) != (status.st_dev, status.st_ino):
                return self.workdir
            known = ((path, kind, one) for path, kind, one in self.view.mounts if one is not None)
            return next(
                (path for path, kind, one in known if (identity(path, root) == one) != (kind in _THEMSELVES)), None
            )
        finally:
            os.close(root)


_THEMSELVES = ("shown", "writable")
SHOW, WRITE = "--ro-bind-try", "--bind-try"  # of what a step may have replaced, and of nothing else


def make_layout(argv: Sequence[str], confinement: Confinement) -> Layout:
    """Return the command that runs `argv` confined; as it is when the confinement is "none".

    Raises Refused, also for a folder that is no longer there.
    """
    workdir = str(confinement.workdir)
    if confinement.sandbox == "none":
        return Layout(tuple(argv), workdir)
    if (bwrap := find_program("bwrap")) is None:
        raise Unfenceable(why_missing("bwrap", "bubblewrap"))
    view = view_for(confinement)
    mounts: dict[str, Kind] = dict.fromkeys(filter(os.path.exists, (KEYS,)), "nothing")
    now = time.monotonic()
    mounts |= _still_private(int(now / TIMING.private_known), int(now / TIMING.private_there))
    mounts |= {path: kind for path, kind, known in view.mounts if known is not None or kind not in _THEMSELVES}
    words = {**dict(_system(frozenset(mounts))), **_fixed_words(), **_python_links(mounts)}
    words |= {path: _mount(path, kind) for path, kind in mounts.items()}
    words |= {"/proc": ("--proc",), "/dev": ("--dev",)}
    read_only = ("/proc", *(path for path, kind in mounts.items() if kind == "empty"), "/dev", "/")
    home = confinement.home
    words |= {} if home is None else {HOME: ("--tmpfs",)}
    user = NOBODY if home is not None and os.geteuid() == 0 else ()
    outer = (
        bwrap,
        *(*_ISOLATION, *user),
        *(["--share-net"] if confinement.network else []),
        *(word for path in sorted(words, key=_depth) for word in (*words[path], path)),
        *(word for path in read_only for word in ("--remount-ro", path)),  # /proc: else root could set /proc/sys
        *("--chdir", workdir, "--"),
    )
    files = {f"{HOME}/{name}": content for name, content in (home or {}).items()}
    return Layout(tuple(argv), workdir, outer, view, files)


def _fixed_words() -> dict[str, tuple[str, ...]]:
    """Return the folders that are there and empty, for every program."""
    home = os.path.realpath(_home_path())
    words: dict[str, tuple[str, ...]] = dict.fromkeys(_EMPTIED, ("--dir",))
    words |= dict.fromkeys((MEMORY, SCRATCH), ("--tmpfs",))
    return words if is_system(home) or home == "/" else {home: ("--dir",), **words}


def _python_links(mounts: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the Python that runs agentfs by the name it was started under, where that leads through a link."""
    named = (path for path in (sys.prefix, sys.base_prefix) if os.path.realpath(path) != path)
    unseen = (path for path in named if not is_system(path) and not any(inside(path, one) for one in mounts))
    return {path: ("--symlink", os.path.realpath(path)) for path in unseen}


def _mount(path: str, kind: Kind) -> tuple[str, ...]:
    match kind:
        case "shown":
            return SHOW, path
        case "writable":
            return WRITE, path
        case "empty":
            return ("--tmpfs",)
        case "nothing":
            return "--ro-bind", "/dev/null"  # a device on a bind mount cannot be opened
        case _:
            assert_never(kind)


def hint_for(exit_code: int | None, stderr: str, confinement: Confinement) -> str | None:
    """Return which setting to change, if the sandbox may explain a failure."""
    if confinement.sandbox == "none" or exit_code == 0:
        return None
    if _UNREACHED.search(stderr) and not confinement.network:
        return f"tools have no network: {confinement.change('set network = true')}"
    if _READ_ONLY.search(stderr):
        return f"tools write only in the working folder (workdir in the goal) and, for scratch, in $TMPDIR, {SCRATCH}"
    if path := _find_unseen(stderr, confinement):
        return f"tools do not see {path[:200]}: if it is there, {confinement.change('add its folder to read')}"
    if _DENIED.search(stderr):
        write = "tools write only in the working folder (workdir in the goal)"
        return f"{write}; to let them read more, {confinement.change('add the folder to read')}"
    if exit_code == 127:
        return f"programs are looked for in {PATH}; for others, {confinement.change('add their folder to read')}"
    return None


def _find_unseen(stderr: str, confinement: Confinement) -> str | None:
    """Return the first path that a program did not find and that lies outside what it is shown.

    Whether it is there is not looked up, or a program could ask that of any file of this machine; only that it could
    be, for not everything that begins with / is a path.
    """
    shown = (confinement.workdir, *confinement.readable, sys.prefix, sys.base_prefix, *SYSTEM, "/dev", "/proc")
    roots = [root for one in map(str, shown) for root in (one, os.path.realpath(one))]
    for line in filter(_ABSENT.search, stderr.splitlines()):
        for path in (*_QUOTED.findall(line), *_BARE.findall(_QUOTED.sub("", line))):
            whole = os.path.normpath(os.path.join(confinement.workdir, _from_home(path)))
            if os.path.isdir(f"/{whole.split('/')[1]}") and not any(inside(whole, root) for root in roots):
                return str(path)
    return None


def _from_home(path: str) -> str:
    return f"{_home_path()}{path[1:]}" if path.startswith("~/") else path
