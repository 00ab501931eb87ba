"""What programs may touch: the arguments of bubblewrap, the environment, and words for what they refuse.

A write outside the working folder fails; it never vanishes. The exceptions say so in their names: SCRATCH
(which TMPDIR names) and /dev/shm are empty at the start of every program and gone at its end.
Starts nothing but the probe.
"""

import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentfs.core.records import Sandbox
from agentfs.tools.base import Confinement
from agentfs.tools.protected import Fences, inside, workspace_fences
from agentfs.tools.repositories import git_fences, survey
from agentfs.tools.starting import Starter, is_shortage, raise_shortage

SCRATCH = "/dev/scratch"  # under /dev, which is always ours: a folder of [tools] read may cover any other place
MEMORY = "/dev/shm"  # noqa: S108
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh/ssh_host_*_key")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ISOLATION = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")

_READ_ONLY = re.compile(r"Read-only file system", re.IGNORECASE)
_DENIED = re.compile(r"Permission denied", re.IGNORECASE)
_UNREACHED = re.compile(
    r"Could not resolve|name resolution|Name or service not known|Network (?:is )?unreachable", re.IGNORECASE
)


def available() -> Sandbox:
    """Return the confinement this machine offers."""
    return "none" if unavailable_because() else "bubblewrap"


def unavailable_because() -> str | None:
    """Return why programs cannot be confined here; None if they can."""
    bwrap = shutil.which("bwrap")
    return _probe(bwrap) if bwrap else "bubblewrap (bwrap) is not installed"


@functools.cache
def _probe(bwrap: str) -> str | None:
    argv = [
        bwrap,
        *_ISOLATION,
        *_system(),
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--remount-ro",
        "/",
        "--",
        "/bin/true",
    ]
    try:
        tried = Starter().start(lambda: _tried(argv))
    except (OSError, subprocess.TimeoutExpired) as error:
        if is_shortage(error):
            raise  # it says nothing of what bubblewrap could do
        return f"bubblewrap does not work here: {error}"
    if tried.returncode == 0:
        return None
    return f"bubblewrap does not work here: {tried.stderr.decode('utf-8', 'replace').strip() or tried.returncode}"


def _tried(argv: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Run bubblewrap; raise that there is no room for it."""
    tried = subprocess.run(argv, capture_output=True, timeout=20, check=False, env={"PATH": PATH})
    if tried.returncode != 0:
        raise_shortage(tried.stderr.decode("utf-8", "replace"))
    return tried


def environment(confinement: Confinement) -> dict[str, str]:
    """Return the clean environment of a program: nothing of ours, and what [tools] env names.

    It is handed over as the environment of bubblewrap itself, not as its arguments, which `ps` would show.
    """
    return {
        "PATH": f"{sys.prefix}/bin:{PATH}",
        "HOME": _home_path(),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": SCRATCH if confinement.sandbox == "bubblewrap" else tempfile.gettempdir(),
        **confinement.env,
    }


@dataclass(frozen=True, slots=True)
class Layout:
    """A confined command, and the repositories it could write to: they are looked at when it has ended."""

    argv: tuple[str, ...]
    repositories: tuple[str, ...] = ()


def wrap(argv: Sequence[str], confinement: Confinement) -> list[str]:
    """Return the command that runs `argv` confined; as it is when the confinement is "none"."""
    return list(lay_out(argv, confinement).argv)


def lay_out(argv: Sequence[str], confinement: Confinement) -> Layout:
    """Return the command that runs `argv` confined; as it is when the confinement is "none"."""
    if confinement.sandbox == "none":
        return Layout(tuple(argv))
    workdir = os.path.realpath(confinement.workdir)
    fenced = _fenced(confinement, workdir)
    command = (
        shutil.which("bwrap") or "bwrap",
        *_ISOLATION,
        *(["--share-net"] if confinement.network else []),
        *_system(),
        *_home(),
        *(word for path in _readable(confinement, workdir) for word in ("--ro-bind", path, path)),
        *_secret_files(),
        *("--proc", "/proc", "--remount-ro", "/proc"),  # else root could set the kernel's /proc/sys from inside
        *("--dev", "/dev", "--tmpfs", MEMORY, "--tmpfs", SCRATCH, "--remount-ro", "/dev"),
        *(word for path in _readable(confinement, workdir, in_memory=True) for word in ("--ro-bind", path, path)),
        *("--dir", "/tmp", "--dir", "/run"),  # noqa: S108 - they are there, and read-only
        *("--bind", workdir, workdir),
        *fenced.argv,
        *("--remount-ro", "/", "--chdir", workdir, "--", *argv),
    )
    return Layout(command, fenced.repositories)


def _system() -> Iterator[str]:
    for folder in SYSTEM:
        if os.path.islink(folder):
            yield from ("--symlink", os.readlink(folder), folder)
        elif os.path.isdir(folder):
            yield from ("--ro-bind", folder, folder)
    names = os.path.realpath("/etc/resolv.conf")
    if not inside(names, "/etc") and os.path.exists(names):
        yield from ("--ro-bind", names, names)


def _secret_files() -> Iterator[str]:
    """Hide what only root may read: a device on a bind mount cannot be opened."""
    for pattern in SECRET_FILES:
        for path in sorted(glob.glob(pattern)):
            yield from ("--ro-bind", "/dev/null", path)


def _home() -> Iterator[str]:
    """Make an empty, read-only home, so that a write there is refused in these words."""
    home = os.path.realpath(_home_path())
    if not any(inside(home, os.path.realpath(folder)) for folder in SYSTEM):
        yield from ("--dir", home)


def _home_path() -> str:
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else "/"  # a user without an entry and without HOME has none


def _readable(confinement: Confinement, workdir: str, *, in_memory: bool = False) -> Iterator[str]:
    """Yield what is shown read-only. `in_memory`: what lies in /dev/shm, where a new one is laid over it first."""
    wanted = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *map(str, confinement.readable))}
    for path in sorted(wanted, key=_depth):
        there = os.path.exists(path) and not inside(path, workdir) and not _shown(path)
        if there and inside(path, MEMORY) == in_memory:
            yield path


def _shown(path: str) -> bool:
    return any(inside(path, folder) for folder in SYSTEM)


def _fenced(confinement: Confinement, workdir: str) -> Layout:
    """Lay the fences over the working folder; then the run's own files, and the repositories in them."""
    workspace, run_files = os.path.realpath(confinement.workspace), os.path.realpath(confinement.run_files)
    own = workspace_fences(workdir, workspace, run_files)
    seen = survey(workdir, own.locks)
    mounts, repositories = [*_mounts(_both(own, git_fences(seen)))], seen.watched
    if _are_fenced(run_files, own, workdir):
        inner = survey(run_files, ())
        mounts += ["--bind", run_files, run_files, *_mounts(git_fences(inner))]
        repositories += inner.watched
    return Layout(tuple(mounts), repositories)


def _both(one: Fences, other: Fences) -> Fences:
    return Fences(
        (*one.pins, *other.pins),
        (*one.locks, *other.locks),
        (*one.absent, *other.absent),
        (*one.blank, *other.blank),
    )


def _are_fenced(run_files: str, own: Fences, workdir: str) -> bool:
    """Whether the run's own files lie behind a fence, and must be laid over it to be writable."""
    return (
        any(inside(run_files, lock) for lock in own.locks) and inside(run_files, workdir) and os.path.isdir(run_files)
    )


def _mounts(fences: Fences) -> Iterator[str]:
    """Yield pins before locks, outermost first: a later bind of a folder would cover what lies in it."""
    for path in _outermost_first(fences.pins):
        yield from ("--bind-try", path, path)
    for path in _outermost_first(fences.locks):
        yield from ("--ro-bind-try", path, path)
    for path in _outermost_first(fences.absent):
        yield from ("--tmpfs", path, "--remount-ro", path)
    for path in _outermost_first(fences.blank):
        yield from ("--ro-bind", "/dev/null", path)


def _outermost_first(paths: Iterable[str]) -> list[str]:
    return sorted(dict.fromkeys(paths), key=_depth)


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


def hint_for(exit_code: int | None, stderr: str, confinement: Confinement) -> str | None:
    """Return the setting that a failure may be about, if the sandbox may explain it."""
    if confinement.sandbox == "none" or exit_code == 0:
        return None
    if _UNREACHED.search(stderr) and not confinement.network:
        return "tools have no network; set network = true under [tools] in agentfs.toml to allow it"
    if _READ_ONLY.search(stderr):
        return f"tools write only in the working folder (workdir in the goal) and, for scratch, in $TMPDIR, {SCRATCH}"
    home = re.escape(_home_path().rstrip("/") or "/home")
    if re.search(rf"(?:{home}|~)/.*(?:No such file|not found)|No such file.*{home}/", stderr):
        return "tools do not see the home folder; add the folder to read under [tools] in agentfs.toml"
    if _DENIED.search(stderr):
        return "tools write only in the working folder (workdir in the goal) and read only what [tools] read adds"
    if exit_code == 127:
        return f"programs are looked for in {PATH}; others need their folder in read under [tools] in agentfs.toml"
    return None
