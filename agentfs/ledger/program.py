"""Git as a program, with everything switched off that a repository's settings could make it run.

The folders are named, so that nothing is searched for; of a person's settings only the repository's own are read.
"""

import os
import subprocess
from pathlib import Path

from agentfs.installation import find_program, searched_path

TIMEOUT_SECONDS = 60
QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.splitIndex=false", "protocol.allow=never")


def command(program: str, *words: str, settings: tuple[str, ...] = ()) -> list[str]:
    """Return a command line of git's, with these settings beside the quiet ones."""
    return [program, "--no-pager", *(part for one in (*QUIET, *settings) for part in ("-c", one)), *words]


def environment(root: Path, **more: str) -> dict[str, str]:
    """Return the environment for git in the repository of a folder."""
    return {
        "PATH": searched_path(os.environ),
        "GIT_DIR": str((root / ".git").absolute()),
        "GIT_WORK_TREE": str(root.absolute()),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
        **more,
    }


def output(root: Path, *words: str, given: bytes = b"", **variables: str) -> bytes | None:
    """Return what git prints about the repository of a folder; None if it fails, or there is no git."""
    program = find_program("git")
    if program is None:
        return None
    try:
        done = subprocess.run(
            command(program, *words),
            input=given,
            capture_output=True,
            env=environment(root, **variables),
            cwd=root,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
