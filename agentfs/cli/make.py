"""Commands that make a workspace and trust one: init, trust."""

from argparse import Namespace

from agentfs.cli.common import environment, say, start_folder, trusted_now
from agentfs.errors import UserError
from agentfs.workspace import SETTINGS, brought_along
from agentfs.workspace import init as init_workspace
from agentfs.workspace import trust as trust_workspace


def init(arguments: Namespace) -> int:
    """`agentfs init [DIR]`"""
    root = (start_folder(arguments) / arguments.dir).resolve()
    before = brought_along(root, environment())
    workspace, made = init_workspace(root, environment())
    if made:
        say(f"made a workspace in {workspace.root}: {', '.join(made)}")
    else:
        say(f"{workspace.root} is a workspace already; its schemas are up to date")
    if before:
        say(trusted_now(before))
    say("next: write a goal, then `agentfs run goal.md`")
    return 0


def trust(arguments: Namespace) -> int:
    """`agentfs trust DIR`"""
    root = (start_folder(arguments) / arguments.dir).resolve()
    if not (root / SETTINGS).is_file():
        raise UserError(f"{root} is no workspace: it has no {SETTINGS}")
    trust_workspace(root, environment())
    say(f"{root} is trusted: `run` and `watch` work there now")
    return 0
