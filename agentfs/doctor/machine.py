"""The machine: programs agentfs starts, and what the kernel allows."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import agentfs
from agentfs import system
from agentfs.core.config import Settings
from agentfs.core.problems import Finding, fine, remark, wrong
from agentfs.installation import find_program, why_missing
from agentfs.tools import sandbox
from agentfs.watching import MOST_FOLDERS

OLDEST_GIT = (2, 27)  # knows a commit-graph of changed paths
INOTIFY = Path("/proc/sys/fs/inotify")
FEW_FILES = 1024
_INSTALL = "sudo apt install {0} (Debian, Ubuntu), sudo dnf install {0} (Fedora) or sudo pacman -S {0} (Arch)"


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield what is found on this machine."""
    yield fine("agentfs", f"{agentfs.__version__}, Python {platform.python_version()} ({sys.executable})")
    yield git()
    if lacks := system.missing():
        words = f"{system.name()} lacks {', '.join(lacks)}: runs cannot be driven here, only read and edited"
        yield wrong("system", words, f"drive them on Linux, or in {system.CONTAINER}")
        return
    yield bubblewrap(settings.tools.sandbox)
    yield watches()
    yield open_files()


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
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
        said = done.stdout.strip() or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None:
        return wrong("git", f"{program} does not say its version: {said}", _INSTALL.format("git"))
    if (int(found[1]), int(found[2])) < OLDEST_GIT:
        words = f"{said} is old: a large ledger stays slow"
        return remark("git", words, f"install {'.'.join(map(str, OLDEST_GIT))} or newer")
    return fine("git", f"{said.removeprefix('git version ')} ({program})")


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
    """Whether the kernel lets a daemon listen to as many folders as it would."""
    most, instances = _number(INOTIFY / "max_user_watches"), _number(INOTIFY / "max_user_instances")
    if most is None or instances is None:
        return remark(
            "watching", "this kernel has no inotify: `watch` looks every second", "use Linux 2.6.13 or newer"
        )
    if most < 2 * MOST_FOLDERS:
        return remark(
            "watching",
            f"{most} watches are allowed, `watch` may use {MOST_FOLDERS}: the runs beyond are looked at every second",
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
