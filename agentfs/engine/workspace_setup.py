"""Make a workspace: its folders, settings, schemas and ledger; tell what of a folder would be run in it."""

from collections.abc import Mapping
from pathlib import Path

from agentfs.core import paths
from agentfs.errors import UserError
from agentfs.storage.workspace import Workspace, is_trusted, trust

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


def brought_along(root: Path, environment: Mapping[str, str]) -> list[str]:
    """Return what a folder already holds that would be run once it is a workspace of this user's."""
    if is_trusted(root, environment):
        return []
    from agentfs.tools.user_tools import sources

    tools = [source.shown for source in sources(root, installed=False)]
    others = (paths.SETTINGS, "prompts", "runs", "goals")
    return [name for name in others if (root / name).is_file() or any((root / name).glob("*"))] + tools[:5]


def init(root: Path, environment: Mapping[str, str]) -> tuple[Workspace, list[str]]:
    """Make a workspace, or complete one; return it with the names of what was made. It is trusted from then on."""
    from agentfs.core.json_schema import all_schemas
    from agentfs.ledger import Ledger, LedgerError
    from agentfs.storage.files import replace, write_new

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
    trust(root, environment)
    return Workspace(root), made
