"""Commands that make or judge files: init, check, trust."""

import sys
from argparse import Namespace
from pathlib import Path

from agentfs.cli.common import environment, print_json, say, start_folder, trusted_now
from agentfs.core.catalogue import Catalogue
from agentfs.core.config import Settings
from agentfs.core.problems import Problem, Rejected
from agentfs.errors import BadFile, UserError
from agentfs.settings import load_settings
from agentfs.workspace import SETTINGS, brought_along, find_workspace
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


def check(arguments: Namespace) -> int:
    """`agentfs check FILE…`: every problem of every file; exit 2 if there is one."""
    if arguments.against:
        from agentfs.cli.previewing import check_against

        return check_against(arguments)
    start = start_folder(arguments)
    catalogue = _catalogue(start)
    found = {name: _problems(start / name, catalogue) for name in arguments.files}
    if arguments.json:
        print_json([as_json(name, problem) for name, problems in found.items() for problem in problems])
    else:
        for name, problems in found.items():
            for problem in problems:
                print(problem.shown(name))
            if not problems:
                print(f"{name}: ok", file=sys.stderr)
    return 2 if any(found.values()) else 0


def as_json(name: str, problem: Problem) -> dict[str, object]:
    return {
        "file": name,
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "message": problem.message,
        "mend": problem.mend,
    }


def _catalogue(start: Path) -> Catalogue:
    """Return the tools of the workspace around; outside any, those of the default settings."""
    from agentfs.means import catalogue_of
    from agentfs.tools.registry import known_tools

    workspace = find_workspace(start)
    try:
        settings = load_settings(workspace.settings, environment()) if workspace else Settings()
    except BadFile:
        settings = Settings()  # its own problems are told when it is the file to check
    return catalogue_of(settings, environment(), known_tools(workspace.root if workspace else None))


def _problems(path: Path, catalogue: Catalogue) -> tuple[Problem, ...]:
    try:
        source = path.read_bytes()
    except OSError as error:
        return (Problem(f"cannot be read: {error.strerror}", "check the path"),)
    try:
        _judge(path, source, catalogue)
    except Rejected as rejected:
        return rejected.problems
    return ()


def _judge(path: Path, source: bytes, catalogue: Catalogue) -> None:
    """Judge a file by what it is: settings, a plan, or a goal."""
    from agentfs.core.check import check_plan, check_settings
    from agentfs.core.documents import read_json
    from agentfs.core.goals import parse_goal
    from agentfs.core.toml_text import read_toml

    if path.suffix == ".toml":
        check_settings(read_toml(source))
    elif path.suffix == ".json" and (path.name.endswith("plan.json") or not _is_goal(source)):
        check_plan(read_json(source), catalogue)
    else:
        parse_goal(source, path.name, catalogue)


def _is_goal(source: bytes) -> bool:
    """Whether a JSON file is a goal: one with `steps` and `status`, or `$schema`, is a plan."""
    import json

    try:
        value = json.loads(source)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list) or (isinstance(value, dict) and "status" not in value and "$schema" not in value)
