"""What agentfs runs unconfined: its own code, its interpreter, and the programs it takes from PATH. Looks only.

Steps write in workspaces, and in working folders elsewhere. So a folder of PATH that lies in a workspace is passed
over, and what lies in another working folder is read-only there (`tools/protected`). Code is imported from the
installation only.
"""

import functools
import importlib.machinery
import os
import sys
from collections.abc import Mapping, Sequence

from agentfs.core.paths import SETTINGS, inside

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PLANTED = ("sitecustomize", "usercustomize")  # what Python runs when it starts, from wherever it may import
_found: dict[tuple[str, str], str] = {}  # program and PATH -> where it is: looked for once


# ── programs ──────────────────────────────────────────────────────────────────────────────────────────────


def find_program(name: str) -> str | None:
    """Return the full path of a program that agentfs itself starts; None if there is none that no step may write."""
    key = name, os.environ.get("PATH", os.defpath)
    if key not in _found:
        program = next((path for path in _candidates(*key) if not _is_passed_over(path)), None)
        if program is None:
            return None
        _found[key] = program
    return _found[key]


def why_missing(name: str, package: str | None = None) -> str:
    """Return why there is no such program: it is not installed, or lies where steps may write."""
    left_out = next(_candidates(name, os.environ.get("PATH", os.defpath)), None)
    if left_out is None:
        return f"{f'{package} ({name})' if package else name} is not installed"
    why = "it lies in a workspace, where steps may write" if os.path.isabs(left_out) else "its folder is relative"
    return f"{left_out} is passed over: {why}"


def _candidates(name: str, path: str) -> "filter[str]":
    places = (os.path.join(folder or ".", name) for folder in path.split(os.pathsep))
    return filter(lambda place: os.access(place, os.X_OK) and os.path.isfile(place), places)


def _is_passed_over(program: str) -> bool:
    return not _is_searched(os.path.dirname(program)) or not _is_searched(os.path.dirname(os.path.realpath(program)))


def _is_searched(folder: str) -> bool:
    if not os.path.isabs(folder):
        return False
    real = os.path.realpath(folder)
    return any(inside(real, _real(venv)) for venv in _venv()) or not lies_in_workspace(real)


def lies_in_workspace(path: str) -> bool:
    """Whether a real path is a workspace, or lies in one; what is everywhere (a container's /) counts as none."""
    return any(root != "/" for root in workspaces_above(path))


def workspaces_above(path: str) -> "filter[str]":
    """Return the workspaces that a real path is, or lies in, the nearest first."""
    parts = path.rstrip("/").split("/")
    folders = ("/".join(parts[:n]) or "/" for n in range(len(parts), 0, -1))
    return filter(lambda folder: os.path.isfile(os.path.join(folder, SETTINGS)), folders)


def searched_path(environment: Mapping[str, str]) -> str:
    """Return a PATH with no folder in it that steps may write: for what a person's settings have agentfs run."""
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if _is_searched(folder))


def named_files(command: str | Sequence[str], folder: str) -> tuple[str, ...]:
    """Return the files that the words of a command in a person's settings name."""
    import shlex

    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError:
        words = command.split() if isinstance(command, str) else command
    paths = (os.path.join(folder, word) for word in words if "\0" not in word)
    return tuple(os.path.normpath(path) for path in paths if os.path.isfile(path))


def path_folders(within: str) -> tuple[str, ...]:
    """Return the folders of PATH in a folder that programs are looked for in, whether they are there or not."""
    folders = dict.fromkeys(os.environ.get("PATH", os.defpath).split(os.pathsep))
    return tuple(folder for folder in folders if _lies_in(folder, within) and _is_searched(folder))


def _lies_in(folder: str, within: str) -> bool:
    return inside(folder, within) or inside(_real(folder), within)


# ── code ──────────────────────────────────────────────────────────────────────────────────────────────────


def _venv() -> tuple[str, ...]:
    """Return the environment that agentfs is installed in, if it is one of its own: it is all ours."""
    return (sys.prefix,) if sys.prefix != sys.base_prefix else ()


@functools.cache
def _real(path: str) -> str:
    return os.path.realpath(path)


@functools.cache
def code_folders() -> tuple[tuple[str, str], ...]:
    """Return where the code lies that agentfs runs: each folder as Python spells it, and its real path."""
    programs = (os.path.dirname(path) for path in (sys.executable, os.path.realpath(sys.executable)) if path)
    code = (folder for folder in sys.path if os.path.isabs(folder) and _is_installed(folder))
    return tuple(
        (folder, os.path.realpath(folder)) for folder in dict.fromkeys((*_venv(), PACKAGE, *programs, *code))
    )


def foreign_folders(within: str) -> tuple[str, ...]:
    """Return where else in a folder Python imports from: a project that is installed in the same environment."""
    folders = (os.path.realpath(folder) for folder in sys.path if _lies_in(folder, within))
    return tuple(folder for folder in folders if not _is_installed(folder))


def python_path(within: str) -> tuple[str, ...]:
    """Return the folders of PYTHONPATH in a folder: modules there come before all others."""
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return tuple(folder for folder in folders if _lies_in(folder, within) and not _is_installed(folder))


@functools.cache
def planted_names() -> tuple[str, ...]:
    """Return the names of what Python would run when it starts, in a folder that it imports from."""
    suffixes = ("", *importlib.machinery.all_suffixes())
    return tuple(f"{name}{suffix}" for name in _PLANTED for suffix in suffixes)


def import_from_installation() -> None:
    """Let this process import from the installation only: packages try others that a step may have put elsewhere."""
    sys.path[:] = [folder for folder in sys.path if _is_installed(folder)]


def _is_installed(folder: str) -> bool:
    """Whether a folder of sys.path belongs to the installation: Python, its packages, those that agentfs needs."""
    real = os.path.realpath(folder or ".")
    if any(inside(real, root) for root in _installation()):
        return True
    try:
        found = os.stat(real)
    except OSError:
        return False
    mine = found.st_uid == getattr(os, "geteuid", lambda: 0)()
    return not mine and not os.access(real, os.W_OK)  # no step can have put anything there


@functools.cache
def _installation() -> tuple[str, ...]:
    beside = os.path.dirname(PACKAGE)
    own = (beside,) if os.path.isdir(os.path.join(beside, "pydantic")) else ()  # else it is a checkout
    base = (f"{sys.base_prefix}{lib}" for lib in ("/lib", f"/{sys.platlibdir}", "/local/lib"))
    return tuple(dict.fromkeys(os.path.realpath(place) for place in (*_venv(), *base, *own)))
