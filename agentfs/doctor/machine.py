"""The machine: programs agentfs starts, what the kernel allows, what its file systems can do.

File systems are tried in a folder `.agentfs-doctor-PID.tmp`, which is removed again; a hidden folder is no run and no
goal.
"""

import contextlib
import errno
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import agentfs
from agentfs.core.config import Settings
from agentfs.core.problems import Finding, fine, remark, wrong
from agentfs.core.text import size
from agentfs.storage import system
from agentfs.storage.completeness import is_being_written, shared_filesystem
from agentfs.storage.files import exchange, open_unnamed, sync_folder, write_new
from agentfs.storage.installation import find_program, why_missing
from agentfs.storage.timing import TIMING
from agentfs.storage.watcher import FolderWatch
from agentfs.storage.workspace import Workspace
from agentfs.tools import sandbox

OLDEST_GIT = (2, 27)  # knows a commit-graph of changed paths
INOTIFY = Path("/proc/sys/fs/inotify")
FEW_FILES, FEW_WATCHES = 1024, 64
DISTRIBUTION = "agentfs-plan"  # the name in pyproject.toml: another project is called agentfs
_INSTALL = "sudo apt install {0} (Debian, Ubuntu), sudo dnf install {0} (Fedora) or sudo pacman -S {0} (Arch)"


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield what is found on this machine."""
    yield fine("agentfs", f"{agentfs.__version__}, Python {platform.python_version()} ({sys.executable})")
    yield from other_program()
    yield from other_distributions()
    yield git()
    if lacks := system.missing():
        words = f"{system.name()} lacks {', '.join(lacks)}: runs cannot be driven here, only read and edited"
        yield wrong("system", words, f"drive them on Linux, or in {system.CONTAINER}")
        return
    yield bubblewrap(settings.tools.sandbox)
    yield watches()
    yield open_files()


def other_program() -> Iterator[Finding]:
    """Yield the program that `agentfs` starts if it is not the one of this installation."""
    import sysconfig

    first = shutil.which("agentfs")
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    own = [sys.argv[0], *(os.path.join(sysconfig.get_path("scripts", scheme), "agentfs") for scheme in schemes)]
    if first is not None and os.path.realpath(first) not in map(os.path.realpath, own):
        yield remark(
            "agentfs",
            f"another program comes first on PATH: `agentfs` starts {first}",
            f"type `{DISTRIBUTION}` instead of `agentfs`, or put the folder of this one first on PATH",
        )


def other_distributions() -> Iterator[Finding]:
    """Yield what else is installed beside this Python that has a package `agentfs`."""
    from importlib.metadata import packages_distributions

    names = {name for name in packages_distributions().get("agentfs", ()) if name}
    for name in sorted(names - {DISTRIBUTION}):
        yield wrong(
            "agentfs",
            f"the distribution `{name}` installs a module `agentfs` too: one takes the place of the other",
            f"pip uninstall {name}, then pip install --force-reinstall {DISTRIBUTION}",
        )


def git() -> Finding:
    program = find_program("git")
    if program is None:
        return remark(
            "git",
            f"{why_missing('git').removeprefix('git ')}: "
            "commits are made all the same, but the index does not follow and nothing is packed",
            _INSTALL.format("git"),
        )
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=TIMING.sandbox_probe, check=False
        )
        printed = done.stdout.strip() or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        printed = str(error)
    found = re.search(r"(\d+)\.(\d+)", printed)
    if found is None:
        return wrong("git", f"{program} does not say its version: {printed}", _INSTALL.format("git"))
    if (int(found[1]), int(found[2])) < OLDEST_GIT:
        words = f"{printed} is old: a large ledger stays slow"
        return remark("git", words, f"install {'.'.join(map(str, OLDEST_GIT))} or newer")
    return fine("git", f"{printed.removeprefix('git version ')} ({program})")


def bubblewrap(wanted: str) -> Finding:
    if wanted == "off":
        return remark(
            "sandbox",
            'is off (sandbox = "off"): tools can touch everything you can',
            'set sandbox = "auto" under [tools] in agentfs.toml, or drop the line',
        )
    because = sandbox.unavailable_because()
    if because is None:
        return fine("sandbox", f"bubblewrap works ({find_program('bwrap')})")
    if find_program("bwrap") is None:
        fix = _INSTALL.format("bubblewrap")
    else:
        fix = (
            "let this user make namespaces (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for "
            "bwrap that allows userns; in a container: see docs/containers.md for the options it needs)"
        )
    return wrong("sandbox", f"{because}: models' programs are refused, yours run unconfined", fix)


def watches() -> Finding:
    """Whether the kernel lets a daemon, and some commands beside it, watch their folders."""
    most, instances = _number(INOTIFY / "max_user_watches"), _number(INOTIFY / "max_user_instances")
    if most is None or instances is None:
        return remark(
            "watching", "this kernel has no inotify: `watch` looks every second", "use Linux 2.6.13 or newer"
        )
    if most < FEW_WATCHES:
        return remark(
            "watching",
            f"{most} watches are allowed: where other programs leave none, `watch` looks every second",
            "sudo sysctl fs.inotify.max_user_watches=524288",
        )
    if instances < 16:
        return remark(
            "watching",
            f"{instances} inotify instances are allowed: other programs may leave none",
            "sudo sysctl fs.inotify.max_user_instances=512",
        )
    return fine("watching", f"{most} watches and {instances} inotify instances are allowed")


def open_files() -> Finding:
    """Whether enough files may be open: every run that is driven keeps some."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "any number" if soft == resource.RLIM_INFINITY else str(soft)
    if soft != resource.RLIM_INFINITY and soft < FEW_FILES:
        allowed = "more" if hard == resource.RLIM_INFINITY else str(hard)
        return remark("open files", f"{shown} at most: few runs can be driven at once", f"ulimit -n {allowed}")
    return fine("open files", f"{shown} at most")


def _number(path: Path) -> int | None:
    try:
        return int(os.fsdecode(path.read_bytes()))
    except (OSError, ValueError):
        return None


# ── file systems: what agentfs relies on is tried in a folder of its own ──────────────────────────────────


PROBE = ".agentfs-doctor-{}.tmp"
LITTLE_ROOM = 200_000_000  # bytes
TOO_QUICK = 15e-6  # seconds: no disk answers an fsync that fast
_MINE = re.compile(r"\.agentfs-doctor-(\d+)\.tmp\Z")
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a folder is mounted: the kind of file system, and its options."""

    kind: str
    options: frozenset[str]


def examine_disks(workspace: Workspace) -> Iterator[Finding]:
    """Yield what is found of the file systems that runs/ and goals/ are on; of one they share, once."""
    seen: set[int] = set()
    for folder in (workspace.runs, workspace.root / "goals"):
        about = f"{folder.name}/"
        try:
            device = os.stat(folder).st_dev
        except OSError as error:
            yield wrong(about, f"{folder}: {error.strerror}", "run `agentfs init` in the workspace")
            continue
        if device not in seen:
            seen.add(device)
            yield from _examine_one(about, folder)


def _examine_one(about: str, folder: Path) -> Iterator[Finding]:
    mount = mount_of(folder)
    yield from _kind(about, mount, shared_filesystem(folder))
    try:
        with probe_folder(folder) as probe:
            yield from _try_folder(about, probe, mount)
    except OSError as error:
        words = f"nothing can be written in {folder}: {error.strerror}"
        yield wrong(about, words, "give yourself the right to write there, or mount it read-write")
    yield _room(about, folder)


def _kind(about: str, mount: Mount, behind: str | None) -> Iterator[Finding]:
    if behind:
        yield remark(
            about,
            f"on a {behind} file system, others write without an event; locks and fsync are as good as its server's",
            "drive a workspace from one machine only; better, keep it on a disk of this machine",
        )
    if mount.kind in ("tmpfs", "ramfs"):
        yield remark(about, f"is in memory ({mount.kind}): gone when the machine restarts", "keep it on a disk")
    if risky := sorted(mount.options & {"nobarrier", "barrier=0"}):
        yield remark(about, f"is mounted with {risky[0]}: a power cut may take what was written", f"drop {risky[0]}")


@contextmanager
def probe_folder(folder: Path) -> Iterator[Path]:
    """Make a folder to try things in; remove it at the end, and those of doctors that were killed."""
    for name in os.listdir(folder):
        if (match := _MINE.match(name)) and not os.path.exists(f"/proc/{match[1]}"):
            shutil.rmtree(folder / name, ignore_errors=True)
    probe = folder / PROBE.format(os.getpid())
    probe.mkdir()
    try:
        yield probe
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def _try_folder(about: str, probe: Path, mount: Mount) -> Iterator[Finding]:
    """Yield what could not be done, each with what it means; one line if everything can."""
    missing = [finding for trial in _TRIALS if (finding := trial(about, probe))]
    yield from missing
    yield _check_sync(about, probe, mount)
    yield _check_events(about, probe)
    if not missing:
        yield fine(about, f"{mount.kind}: links, exchange, unnamed files, locks and leases work")


def _links(about: str, probe: Path) -> Finding | None:
    write_new(probe / "one", b"", durable=False)
    try:
        os.link(probe / "one", probe / "two")
    except OSError as error:
        words = f"no hard links ({error.strerror}): a file cannot be made to appear once"
        return wrong(about, words, "move the workspace to a file system of Linux's own: ext4, xfs, btrfs")
    return None


def _exchange(about: str, probe: Path) -> Finding | None:
    for name in ("old", "new"):
        write_new(probe / name, name.encode(), durable=False)
    try:
        exchange(probe / "new", probe / "old")
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
        words = "files cannot be exchanged: a save of plan.json at the very moment a planner's plan comes may be lost"
        return remark(about, words, "move the workspace to ext4, xfs, btrfs or tmpfs")
    return None


def _check_unnamed(about: str, probe: Path) -> Finding | None:
    descriptor = open_unnamed(probe, os.O_WRONLY)
    if descriptor is None:
        return remark(about, "files cannot begin without a name: a little slower, and a kill may leave a .tmp file")
    os.close(descriptor)
    return None


def _locks(about: str, probe: Path) -> Finding | None:
    import fcntl

    first, second = (os.open(probe, os.O_RDONLY | os.O_DIRECTORY) for _ in range(2))
    fix = "move the workspace to a disk of this machine; on NFS: mount with locking (no nolock)"
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return wrong(about, "a lock does not keep others out: two processes could drive one run", fix)
    except OSError as error:
        return wrong(about, f"folders cannot be locked ({error.strerror}): nothing can be driven", fix)
    finally:
        os.close(first)
        os.close(second)
    return None


def _leases(about: str, probe: Path) -> Finding | None:
    write_new(probe / "leased", b"", durable=False)
    if is_being_written(probe / "leased") is None:
        return remark(about, "whether a file is being written cannot be asked: a goal is taken after 2 s of quiet")
    return None


_TRIALS: tuple[Callable[[str, Path], Finding | None], ...] = (_links, _exchange, _check_unnamed, _locks, _leases)


def _check_sync(about: str, probe: Path, mount: Mount) -> Finding:
    """Whether fsync does something, as far as can be seen from here: only a power cut would prove it."""
    if "eatmydata" in os.environ.get("LD_PRELOAD", ""):
        return wrong(
            about, "eatmydata has switched fsync off: a power cut takes what was written", "unset LD_PRELOAD"
        )
    seconds = min(_fsync_seconds(probe / f"sync-{number}") for number in range(4))
    shown = f"fsync takes {seconds * 1000:.2f} ms"
    if seconds < TOO_QUICK and mount.kind not in ("tmpfs", "ramfs"):
        return remark(about, f"{shown}: no disk is that fast", "see whether the disk's cache is set to `unsafe`")
    return fine(about, shown)


def _fsync_seconds(path: Path) -> float:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, b"x" * 4096)
        began = time.perf_counter()
        os.fsync(descriptor)
        took = time.perf_counter() - began
    finally:
        os.close(descriptor)
    sync_folder(path.parent)
    return took


def _check_events(about: str, probe: Path) -> Finding:
    """Whether events come: drop a file there and wait for its event."""
    with FolderWatch([probe], lambda: None) as watch:
        if watch.no_events:
            return remark(about, f"`watch` looks every second: {watch.no_events}")
        write_new(probe / "event", b"", durable=False)
        deadline = time.monotonic() + TIMING.doctor_event
        while not watch.seen():
            if time.monotonic() > deadline:
                return remark(about, "`watch` looks every second: no events come from this file system")
            time.sleep(TIMING.poll)
    return fine(about, "events arrive")


def _room(about: str, folder: Path) -> Finding:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if found.f_files and not found.f_favail:
        return wrong(about, "no file can be made: the file system has no inodes left", "delete files you do not need")
    if free < LITTLE_ROOM:
        fix = "make room: `agentfs forget --older-than 30d` removes the files of old runs"
        return remark(about, f"{size(free)} are free: runs pause when the disk is full", fix)
    return fine(about, f"{size(free)} are free")


def mount_of(folder: Path) -> Mount:
    """Return what the kernel says of the file system a folder is on; unknown where it says nothing."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            words, kind = before.split(), after.split()
            if len(words) > 5 and len(kind) > 2 and words[2] == wanted:
                return Mount(kind[0], frozenset([*words[5].split(","), *kind[2].split(",")]))
    return Mount("unknown file system", frozenset())
