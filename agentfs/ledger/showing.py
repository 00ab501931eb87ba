"""What makes a person's git show plan.json by meaning: a driver in the repository's settings, and who uses it.

Only a person's git reads this; agentfs's own calls of git compare nothing. Runs nothing, not even git.
"""

import contextlib
import os
import re
import shlex
import sys
from pathlib import Path

import agentfs
from agentfs.core import paths
from agentfs.ledger.files import read_escaped

DRIVER = "agentfs-plan"
BEGIN = "# agentfs writes what stands between these two lines, at every `agentfs init`"
END = "# agentfs ends here"
_STEP = r'^(step .+|[[:space:]]*"id":[[:space:]]*".*)$'  # what names a step, in the text by meaning and in the file
_RAW = 'git --no-pager diff --no-index --no-ext-diff --no-textconv -- "$2" "$5" || :'


def register(git: Path) -> None:
    """Have git compare plans by meaning in the repository of this `.git`; what a person wrote there is kept."""
    _put_block(git / "info" / "attributes", [f"/*/*/{paths.PLAN} diff={DRIVER}"], last=False)
    _put_block(git / "config", _settings(sys.executable, Path(agentfs.__file__).parent / "gitdiff.py"), last=True)


def _settings(python: str, script: Path) -> list[str]:
    """Return the driver: two programs by their full path, and the file as it is where they have gone."""
    run, given = shlex.join([python, "-I"]), shlex.quote(str(script))
    command = f'show() {{ {run} {given} diff "$@" 2>/dev/null || {_RAW}; }}; show'
    textconv = f'show() {{ {run} -S {given} text $PPID "$1" 2>/dev/null || cat "$1"; }}; show'
    values = {"command": command, "textconv": textconv, "xfuncname": _STEP}
    return [f'[diff "{DRIVER}"]', *(f"\t{name} = {_quoted(value)}" for name, value in values.items())]


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _put_block(path: Path, lines: list[str], *, last: bool) -> None:
    """Put our lines into a file of git's, in place of those we wrote before."""
    path = Path(os.path.realpath(path))
    old = read_escaped(path) if path.exists() else ""
    block = "\n".join((BEGIN, *lines, END)) + "\n"
    if block in old:
        return
    kept = re.sub(rf"^{re.escape(BEGIN)}\n.*?^{re.escape(END)}\n", "", old, flags=re.DOTALL | re.MULTILINE)
    kept += "" if not kept or kept.endswith("\n") else "\n"
    path.parent.mkdir(exist_ok=True)
    _replace(path, kept + block if last else block + kept)


def _replace(path: Path, text: str) -> None:
    """Replace a file as git does, under its lock; if somebody else holds that, it is done another time."""
    with contextlib.suppress(FileExistsError):
        lock = path.with_name(f"{path.name}.lock")
        with open(lock, "x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        if path.exists():
            os.chmod(lock, path.stat().st_mode & 0o777)
        os.replace(lock, path)
