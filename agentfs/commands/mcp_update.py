"""`tools --update`: start the MCP servers of the settings, show what they offer and what changed, write the lock."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from difflib import ndiff

from agentfs.commands.common import environment, here, must_be_trusted, print_lines, say
from agentfs.core.excerpts import one_line
from agentfs.core.mcp import LOCK, LockedServer, OfferedTool, differences, render_lock, spec_of, touches
from agentfs.core.text import inert, json_text, plural
from agentfs.core.tool_spec import tool_name
from agentfs.engine.world import sandbox_for
from agentfs.errors import UserError
from agentfs.storage.files import replace
from agentfs.storage.settings import load_settings
from agentfs.storage.workspace import trust_file
from agentfs.tools.mcp_calls import Offer, ask_servers
from agentfs.tools.mcp_connections import Host, read_lock

WORDS = 100  # characters of a description


def update(arguments: Namespace) -> int:
    """`agentfs tools --update`"""
    workspace = here(arguments)
    must_be_trusted(workspace)
    settings = load_settings(workspace.settings, environment())
    if not settings.mcp.servers:
        raise UserError('agentfs.toml names no server: write servers = ["NAME"] under [mcp], and NAME into .mcp.json')
    protected = (trust_file(environment()).parent,)
    host = Host(workspace.root, settings, environment(), sandbox_for(settings, say), protected)
    before = read_lock(workspace.root)
    offers = [*ask_servers(host, say)]
    after = {offer.name: offer.locked or before.get(offer.name) for offer in offers}
    kept = {name: locked for name, locked in after.items() if locked is not None}
    if arguments.json:
        print_lines([json_text([_page(offer, before, host) for offer in offers])])
    else:
        print_lines([line for offer in offers for line in _lines(offer, before.get(offer.name), host)])
    sys.stdout.flush()  # what is approved is read before it is said to be
    if kept != before:
        replace(workspace.root / LOCK, render_lock(kept))
        say(f"wrote {LOCK}: these tools are approved as they are listed; a tool that differs when it is called fails")
    failed = [offer.name for offer in offers if offer.locked is None]
    if kept == before and not failed:
        say(f"{LOCK} is up to date")
    for name in sorted(settings.mcp.sections() - {*settings.mcp.servers}):
        say(f"[mcp.{name}] is not used: servers under [mcp] does not name {name!r}")
    for name in failed:
        then = "what was approved of it before stays" if name in before else "none of its tools is approved"
        say(f"{name} could not be asked; {then}")
    return 2 if failed else 0


def _changes(offer: Offer, before: LockedServer | None) -> dict[str, list[str]]:
    """Return what differs from what was approved, by tool."""
    old, new = before.tools if before else {}, offer.locked.tools if offer.locked else {}
    found = {name: differences(old.get(name), new.get(name)) for name in sorted({*old, *new})}
    return {name: words for name, words in found.items() if words}


def _lines(offer: Offer, before: LockedServer | None, host: Host) -> Iterator[str]:
    settings = host.settings.mcp.server(offer.name)
    if offer.locked is None:
        first, *more = (line for problem in offer.problems for line in problem.splitlines() if line.strip())
        yield f"{offer.name}: {inert(first)}"
        yield from (f"  {inert(line)}" for line in more)
        yield ""
        return
    changes, tools = _changes(offer, before), offer.locked.tools
    about = f" ({inert(offer.locked.about)})" if offer.locked.about else ""
    yield f"{offer.name}{about}: {plural(len(tools), 'tool')}"
    yield f"  {inert(touches(offer.name, settings))}"
    if before and before.launch_sha256 != offer.locked.launch_sha256:
        yield "  CHANGED: how it is started"
    for name, tool in sorted(tools.items()):
        spec = spec_of(offer.name, tool, settings)
        gate = "a gate each time" if spec.gated else "no gate, repeatable"
        yield f"  {tool_name(offer.name, name)}: {inert(one_line(tool.description, WORDS))}"
        hints = ", ".join(hint for hint, value in tool.hints.items() if value) or "no hints"
        yield f"    {gate}; it says: {hints}"
        if name in changes:
            yield from (f"    {line}" for line in _change_lines(before.tools.get(name) if before else None, tool))
    for name in sorted(changes.keys() - tools.keys()):
        yield f"  GONE: {tool_name(offer.name, name)}"
    for problem in offer.problems:
        yield f"  {inert(problem)}"
    yield ""


def _change_lines(old: OfferedTool | None, new: OfferedTool) -> Iterator[str]:
    """Yield what a person approves beyond the line above: all of a new description, and every line that differs."""
    if old is None:
        long = len(one_line(new.description, WORDS + 1)) > WORDS
        yield "NEW, and says in full:" if long else "NEW"
        yield from (f"  {inert(line)}" for line in new.description.splitlines() if long and line.strip())
        return
    yield f"CHANGED: {'; '.join(differences(old, new))}"
    before, after = (json_text(one.as_json() | {"description": one.description.splitlines()}) for one in (old, new))
    changed = (line for line in ndiff(before.splitlines(), after.splitlines()) if line.startswith(("- ", "+ ")))
    yield from (f"  {line[0]} {inert(line[2:].strip())}" for line in changed)


def _page(offer: Offer, before: Mapping[str, LockedServer], host: Host) -> dict[str, object]:
    tools = offer.locked.tools if offer.locked else {}
    return {
        "server": offer.name,
        "about": offer.locked.about if offer.locked else None,
        "asked": offer.locked is not None,
        "touches": touches(offer.name, host.settings.mcp.server(offer.name)),
        "tools": [{"tool": tool_name(offer.name, name), **tool.as_json()} for name, tool in sorted(tools.items())],
        "changes": _changes(offer, before.get(offer.name)) if offer.locked else {},
        "problems": [*offer.problems],
    }
