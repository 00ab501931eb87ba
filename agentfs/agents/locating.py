"""Where an agent's program is, what of its installation it must see in the sandbox, and which version it is."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentfs.agents.presets import Agent
from agentfs.storage.installation import searched_path
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement
from agentfs.tools.sandbox import SYSTEM, environment, lay_out

SHARED = ("bin", ".bin", "sbin", "shims")  # folders in which many programs lie
_NUMBER = re.compile(r"\d+(?:\.\d+)+\S*")
_SHEBANG = re.compile(rb"#!\s*(\S+)(?:[ \t]+(?:-S[ \t]+)?(\S+))?")


@dataclass(frozen=True, slots=True)
class Found:
    """A program, and what it needs to start."""

    program: str  # its real path
    shown: tuple[Path, ...]  # what of it lies outside the system's folders
    path: tuple[str, ...]  # folders of PATH in which it finds what runs it


def locate(agent: Agent, given: Mapping[str, str]) -> Found | None:
    """Return where an agent's program is, by the person's PATH; None if it is not there."""
    path = f"{sys.prefix}/bin:{searched_path(given)}"  # as tools search: python is the one that runs agentfs
    if not agent.command or (found := shutil.which(agent.command[0], path=path)) is None:
        return None
    program = os.path.realpath(found)
    runner = _interpreter(program, path)
    named = (os.path.realpath(word) for word in agent.command[1:] if os.path.isabs(word) and os.path.isfile(word))
    shown = [*_find_installation(program), *(_find_interpreter(runner) if runner else ()), *named]
    return Found(program, tuple(map(Path, dict.fromkeys(shown))), (os.path.dirname(runner),) if runner else ())


def _interpreter(program: str, path: str) -> str | None:
    """Return what runs a script, if it is one, where that is not a program of the system's."""
    try:
        with open(program, "rb") as file:
            first = _SHEBANG.match(file.readline(4096))
    except OSError:
        return None
    if first is None:
        return None
    words = [word.decode("utf-8", "surrogateescape") for word in first.groups() if word]
    name = words[1] if os.path.basename(words[0]) == "env" and len(words) > 1 else words[0]
    found = shutil.which(name, path=path)
    return None if found is None or _is_system(os.path.realpath(found)) else os.path.realpath(found)


def _find_installation(program: str) -> list[str]:
    """Return the installation of a program: its packages, its folder, or itself where many share one."""
    if _is_system(program):
        return []
    parts = program.split("/")
    if "node_modules" in parts:
        return ["/".join(parts[: parts.index("node_modules") + 1])]
    folder = os.path.dirname(program)
    alone = os.path.basename(folder) not in SHARED and folder != os.path.realpath(os.path.expanduser("~"))
    return [folder if alone else program]


def _find_interpreter(runner: str) -> list[str]:
    folder = os.path.dirname(runner)
    return [os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder]


def _is_system(path: str) -> bool:
    return any(path.startswith(f"{folder}/") for folder in SYSTEM)


def version_of(found: Found, *, confined: bool) -> str | None:
    """Return what an agent says of its version, started as an attempt would start it; None if it does not say."""
    with tempfile.TemporaryDirectory(prefix="agentfs-") as folder:
        room = Path(os.path.realpath(folder))
        confinement = Confinement(
            workdir=room,
            workspace=room,
            run_files=room,
            readable=found.shown,
            sandbox="bubblewrap" if confined else "none",
            home={},
            programs_at=found.path,
        )
        layout = lay_out([found.program, "--version"], confinement)
        env = environment(confinement) | ({} if confined else {"HOME": folder})
        try:
            ran = subprocess.run(
                [*layout.outer, *layout.argv],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=TIMING.agent_version,
                check=False,
                env=env,
                cwd=folder,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    number = _NUMBER.search(ran.stdout.decode("utf-8", "replace"))
    return number[0] if ran.returncode == 0 and number else None
