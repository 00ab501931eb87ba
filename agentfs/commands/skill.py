"""`skill`: write the instructions by which other agents work with agentfs."""

from argparse import Namespace
from pathlib import Path

from agentfs.commands.common import say, short_path
from agentfs.errors import UserError
from agentfs.prompts import load_prompt
from agentfs.storage.files import replace
from agentfs.storage.safe_open import read_text

PLACE = Path(".agents/skills/agentfs/SKILL.md")  # where agents look for skills


def skill(arguments: Namespace) -> int:
    """`agentfs skill [DIR]`"""
    root = Path(arguments.folder) / arguments.dir
    if not root.is_dir():
        raise UserError(f"{root} is not a folder (make it first: mkdir -p {root})")
    path, text = root / PLACE, load_prompt("skill", None).text
    there = _read(path)
    if there == text:
        say(f"{short_path(path)} is up to date")
        return 0
    if there is not None and not arguments.force:
        raise UserError(f"{path} is another one, or was edited: look at it, then say --force to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text.encode("utf-8"))
    say(f"wrote {short_path(path)}")
    return 0


def _read(path: Path) -> str | None:
    """Return what is there; None if nothing is."""
    try:
        return read_text(path)
    except FileNotFoundError:
        return None
