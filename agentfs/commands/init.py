"""`init`, `trust` and `skill`: make a workspace, trust one, teach other agents to use it."""

from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from agentfs.commands.common import environment, say, short_path, start_folder
from agentfs.core import paths
from agentfs.core.text import inert
from agentfs.errors import UserError
from agentfs.prompts import load_prompt
from agentfs.storage.files import replace, write_new
from agentfs.storage.safe_open import read_text
from agentfs.storage.workspace import Workspace, is_trusted
from agentfs.storage.workspace import trust as trust_workspace

_TEMPLATE = """\
# Settings of this workspace. Every key has a default; this file may be empty. See docs/format.md.

# approve = "plan"               # when a person must approve plans: never, plan, always
# on_wait = 'notify-send "$AGENTFS_RUN waits" "$AGENTFS_WHY"'   # run once for each thing that waits for you

[goals]
workdirs = ["."]                 # folders, relative to the workspace, that a goal may work in

[limits]
# parallel = 4                   # attempts at once
# attempts = 2                   # tries at one step

[tools]
# network = "agents"             # let coding agents use the network; true: tools too
# read = ["/srv/templates"]      # more folders the tools may read
# env = ["LANG"]                 # variables the tools may see
"""


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


def trust_warning(root: Path) -> str:
    """Return a warning of what a folder already holds that could run once it is a trusted workspace."""
    if is_trusted(root, environment()):
        return ""
    from agentfs.tools.registry import sources

    tools = [source.shown for source in sources(root, installed=False)]
    others = (paths.SETTINGS, "prompts", "runs", "goals")
    names = [name for name in others if (root / name).is_file() or any((root / name).glob("*"))] + tools[:5]
    return f"trusted from now on, since it was here already: {inert(', '.join(names))} (look at it)" if names else ""


def init_workspace(root: Path, environment: Mapping[str, str]) -> tuple[Workspace, list[str]]:
    """Make a workspace, or complete one, and trust it; return it with the names of what was made."""
    from agentfs.core.json_schema import all_schemas
    from agentfs.ledger import Ledger, LedgerError

    made: list[str] = []
    try:
        for folder in (root, root / "goals", root / "schemas", root / "runs"):
            if not folder.is_dir():
                folder.mkdir(parents=True)
                made += [f"{folder.relative_to(root)}/"] if folder != root else []
        if not (root / paths.SETTINGS).exists():
            write_new(root / paths.SETTINGS, _TEMPLATE.encode(), durable=False)  # through no link to nowhere
            made.append(paths.SETTINGS)
        for name, content in all_schemas().items():
            replace(root / "schemas" / name, content)
        Ledger.create(root / "runs").show_plans_by_meaning()
    except LedgerError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot make a workspace in {root}: {error.strerror} ({error.filename})") from None
    trust_workspace(root, environment)
    return Workspace(root), made


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
