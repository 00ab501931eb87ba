"""`init`, `trust` and `tools`: make a workspace, allow runs in one, list what steps may call."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentfs.commands.common import environment, here, print_lines, say, say_all, start_folder, trust_warning
from agentfs.core import paths
from agentfs.core.text import first_line, inert, json_text
from agentfs.errors import UserError
from agentfs.storage.workspace import Workspace, is_trusted
from agentfs.storage.workspace import trust as trust_workspace
from agentfs.ui.reading import settings_of

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
    before = brought_along(root, environment())
    workspace, made = init_workspace(root, environment())
    if made:
        say(f"made a workspace in {workspace.root}: {', '.join(made)}")
    else:
        say(f"{workspace.root} is a workspace already; its schemas are up to date")
    if before:
        say(trust_warning(before))
    say("next: write a goal, then `agentfs run goal.md`")
    return 0


def brought_along(root: Path, environment: Mapping[str, str]) -> list[str]:
    """Return what a folder already holds that would be run once it is a workspace of this user's."""
    if is_trusted(root, environment):
        return []
    from agentfs.tools.user_tools import sources

    tools = [source.shown for source in sources(root, installed=False)]
    others = (paths.SETTINGS, "prompts", "runs", "goals")
    return [name for name in others if (root / name).is_file() or any((root / name).glob("*"))] + tools[:5]


def init_workspace(root: Path, environment: Mapping[str, str]) -> tuple[Workspace, list[str]]:
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


# ── tools: what it prints ─────────────────────────────────────────────────────────────────────────────────


def tools(arguments: Namespace) -> int:
    """`agentfs tools`"""
    if arguments.update:
        from agentfs.commands.mcp_update import update

        return update(arguments)
    from agentfs.engine.means import catalogue_of
    from agentfs.tools.registry import known_tools

    workspace = here(arguments)
    settings, trouble = settings_of(workspace)
    known = known_tools(workspace.root)
    catalogue = catalogue_of(settings, environment(), known)
    listed = []
    for name, spec in catalogue.tools.items():
        refusal = catalogue.refusal(name)
        listed.append(
            {
                "name": name,
                "summary": spec.summary,
                "effects": spec.effects,
                "repeatable": spec.repeatable,
                "allowed": refusal is None,
                "why": f"{refusal[0]} ({refusal[1]})" if refusal else None,
                "own": name in known.own and not spec.touches,
                "gated": spec.gated,
                "touches": spec.touches or None,
                "input_schema": dict(spec.input_schema),
            }
        )
    print_lines([json_text(listed)] if arguments.json else tools_lines(listed))
    return say_all([*([f"{trouble}\nthese are the defaults"] if trouble else []), *known.broken])


EFFECTS = {
    "read": "reads files",
    "write": "writes files",
    "execute": "runs programs",
    "network": "uses the network",
    "none": "touches nothing",
}
OWN = "Your own tools are listed from their source: nothing in tools/ was run. A run knows their inputs exactly."


def tools_lines(tools: list[dict[str, Any]]) -> list[str]:
    """Return a paragraph per tool."""
    lines = [line for tool in tools for line in (*_tool(tool), "")]
    return [
        *lines,
        *([OWN, ""] if any(tool.get("own") for tool in tools) else []),
        "* must be given. A step names its tool in `tool`, and gives it `input`; in a runbook a fence does.",
    ]


def _tool(tool: dict[str, Any]) -> Iterator[str]:
    yield f"{tool['name']}: {first_line(tool['summary'])}"
    required = tool["input_schema"].get("required", [])
    fields = tool["input_schema"].get("properties", {})
    widest = max((len(name) for name in fields), default=0) + 1
    for place, (name, schema) in enumerate(fields.items()):
        shown = f"{name}*" if name in required else name
        yield f"  {'input' if not place else '':<9} {shown:<{widest}}  {_kind(schema)}".rstrip()
    again = "repeatable" if tool["repeatable"] else "not repeatable"
    gate = "; a person approves every call" if tool["gated"] else ""
    yield f"  effects   {EFFECTS[tool['effects']]}; {again}{gate}"
    if tool["touches"]:
        yield f"  touches   {inert(tool['touches'])}"
    if not tool["allowed"]:
        yield f"  NOT ALLOWED: {tool['why']}"


def _kind(schema: dict[str, Any]) -> str:
    kind = " or ".join(map(str, schema["enum"])) if "enum" in schema else str(schema.get("type", "anything"))
    return f"{kind}. {schema['description']}" if schema.get("description") else kind
