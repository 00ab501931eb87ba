"""`init`, `trust` and `skill`: make a workspace, trust one, teach other agents to use it."""

from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from agentfs.commands.common import environment, init_workspace, say, short_path, start_folder, trust_warning
from agentfs.core import paths
from agentfs.errors import UserError
from agentfs.prompts import load_prompt
from agentfs.storage.files import replace
from agentfs.storage.safe_open import read_text
from agentfs.storage.workspace import trust as trust_workspace


def init(arguments: Namespace) -> int:
    """`agentfs init [DIR]`"""
    root = (start_folder(arguments) / arguments.dir).resolve()
    warning = trust_warning(root)
    workspace, made = init_workspace(root, environment())
    if made:
        say(f"made a workspace in {workspace.root}: {', '.join(made)}")
    else:
        say(f"{workspace.root} is a workspace already; its schemas are up to date")
    if warning:
        say(warning)
    say("next: write a goal, then `agentfs run goal.md`")
    return 0


def trust(arguments: Namespace) -> int:
    """`agentfs trust DIR`"""
    root = (start_folder(arguments) / arguments.dir).resolve()
    if not (root / paths.SETTINGS).is_file():
        raise UserError(f"{root} is not a workspace (no {paths.SETTINGS})")
    trust_workspace(root, environment())
    say(f"{root} is trusted: `run` and `watch` work there now")
    return 0


# ── skill ─────────────────────────────────────────────────────────────────────────────────────────────────


_SKILL = Path(".agents/skills/agentfs/SKILL.md")  # where agents look for skills


def skill(arguments: Namespace) -> int:
    """`agentfs skill [DIR]`"""
    root = Path(arguments.folder) / arguments.dir
    if not root.is_dir():
        raise UserError(f"{root} is not a folder (make it first: mkdir -p {root})")
    path, text = root / _SKILL, load_prompt("skill", None).text
    there = None
    with suppress(FileNotFoundError):
        there = read_text(path)
    if there == text:
        say(f"{short_path(path)} is up to date")
        return 0
    if there is not None and not arguments.force:
        raise UserError(f"{path} is another one, or was edited: look at it, then say --force to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text.encode("utf-8"))
    say(f"wrote {short_path(path)}")
    return 0
