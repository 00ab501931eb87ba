"""`tools` and `agents`: what steps may call, what each may touch, and the approval of what MCP servers offer."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from difflib import ndiff
from typing import Any

from agentfs.commands.common import (
    environment,
    here,
    must_be_trusted,
    print_json,
    print_lines,
    print_page,
    say,
    say_all,
)
from agentfs.core.config import Settings
from agentfs.core.mcp import LOCK, LockedServer, OfferedTool, differences, render_lock, spec_of, touches
from agentfs.core.text import first_line, inert, json_text, one_line, plural
from agentfs.core.tool_spec import tool_name
from agentfs.engine.means import catalogue_of, default_agent, named_agents
from agentfs.engine.world import sandbox_for
from agentfs.errors import UserError
from agentfs.storage.files import replace
from agentfs.storage.workspace import load_settings, trust_file
from agentfs.tools.mcp_client import Host, Offer, ask_servers, read_lock
from agentfs.tools.registry import known_tools
from agentfs.ui.reading import settings_of


def tools(arguments: Namespace) -> int:
    """`agentfs tools`"""
    if arguments.update:
        return update(arguments)
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
    print_page(arguments, listed, lambda: tools_lines(listed))
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
        "* required. A step names its tool in `tool`, and gives it `input`; in a runbook a fenced block is both.",
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


# ── tools --update: show what MCP servers offer and what changed, and approve it ───────────────────────────

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
        print_json([_offer_page(offer, before, host) for offer in offers])
    else:
        print_lines([line for offer in offers for line in _offer_lines(offer, before.get(offer.name), host)])
    sys.stdout.flush()  # the person reads what is approved before that is reported
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


def _offer_lines(offer: Offer, before: LockedServer | None, host: Host) -> Iterator[str]:
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
    """Yield what else a person approves: a new description in full, or every line that differs."""
    if old is None:
        long = len(one_line(new.description, WORDS + 1)) > WORDS
        yield "NEW, and says in full:" if long else "NEW"
        yield from (f"  {inert(line)}" for line in new.description.splitlines() if long and line.strip())
        return
    yield f"CHANGED: {'; '.join(differences(old, new))}"
    before, after = (json_text(one.as_json() | {"description": one.description.splitlines()}) for one in (old, new))
    changed = (line for line in ndiff(before.splitlines(), after.splitlines()) if line.startswith(("- ", "+ ")))
    yield from (f"  {line[0]} {inert(line[2:].strip())}" for line in changed)


def _offer_page(offer: Offer, before: Mapping[str, LockedServer], host: Host) -> dict[str, object]:
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


# ── agents ─────────────────────────────────────────────────────────────────────────────────────────────────

_CONFINED = (
    "Each works in the run's working folder and writes nowhere else, as a user who is not root, with a home of its",
    "own in memory and the network on.",
)
_UNCONFINED = (
    "NOT CONFINED: there is no sandbox. Each runs as you, with a home of its own, and may touch what you may.",
)


def agents(arguments: Namespace) -> int:
    """`agentfs agents`"""
    workspace = here(arguments)
    settings, trouble = settings_of(workspace)
    listed = [*list_agents(settings, environment())]
    print_page(arguments, listed, lambda: agents_lines(listed))
    return say_all([f"{trouble}\nthese are the defaults"] if trouble else [])


def list_agents(settings: Settings, environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield each agent as JSON; those that are found are asked for their version, in the sandbox."""
    from agentfs.agents.presets import configure_agents, fill, locate, version_of
    from agentfs.tools import sandbox

    confined = settings.tools.sandbox != "off" and sandbox.unavailable_because() is None
    refusal = why_refused(settings, confined=confined)
    named, default = named_agents(settings), default_agent(settings)
    known = {name: (agent, locate(agent, environment)) for name, agent in configure_agents(settings.agents).items()}
    with ThreadPoolExecutor() as pool:  # to start them takes seconds
        versions = pool.map(lambda one: version_of(one[1], confined=confined) if one[1] else None, known.values())
    for (name, (agent, found)), version in zip(known.items(), versions, strict=True):
        values = {"workdir": "WORKDIR", "schema": "SCHEMA.json", "schema_text": "SCHEMA", "model": agent.model}
        values |= {"max_turns": "TURNS", "max_cost_usd": "USD"}
        yield {
            "name": name,
            "found": found.program if found else None,
            "version": version,
            "tested": agent.tested,
            "install": agent.install,
            "command": fill(agent.command, values),
            "speaks": agent.speaks,
            "env": {one: bool(environment.get(one)) for one in agent.env},
            "read": {one: os.path.isfile(os.path.expanduser(one)) for one in agent.read},
            "idle_s": agent.idle_s,
            "fallback": [*agent.fallback],
            "shown": [str(path) for path in found.shown] if found else [],
            "for_planner": name in named,
            "default": name == default,
            "sandbox": "bubblewrap" if confined else "none",
            "allowed": refusal is None,
            "why": refusal,
        }


def why_refused(settings: Settings, *, confined: bool) -> str | None:
    """Return why no agent may run here, and how to change that; None if they may."""
    if settings.tools.network is False:
        return 'agents need the network (set network = "agents" under [tools] in agentfs.toml)'
    if not confined and settings.tools.sandbox != "off":
        return 'there is no sandbox (install bubblewrap, or set sandbox = "off" under [tools])'
    return None


def agents_lines(agents: list[dict[str, Any]]) -> list[str]:
    """Return a paragraph per agent."""
    lines = [line for agent in agents for line in (*_agent(agent), "")]
    why = next((agent["why"] for agent in agents if not agent["allowed"]), None)
    return [
        *lines,
        *(_CONFINED if agents[0]["sandbox"] == "bubblewrap" else _UNCONFINED),
        "A step names one in `agent`; in a runbook with a line, such as `agent: codex`.",
        *([f"NOT ALLOWED: {why}"] if why else []),
    ]


def _agent(agent: dict[str, Any]) -> Iterator[str]:
    version = agent["version"] or "which does not say its version, or does not start in the sandbox"
    tested = f" (tested with {agent['tested']})" if agent["tested"] not in (None, agent["version"]) else ""
    place = f"{agent['found']}, {version}{tested}" if agent["found"] else "not found"
    marks = [*(["default"] if agent["default"] else []), *(["planners may name it"] if agent["for_planner"] else [])]
    shown = f" [{', '.join(marks)}]" if marks else ""
    yield f"{agent['name']}: {place}{shown}"
    if not agent["found"]:
        yield f"  install   {agent['install'] or 'set command under [agents.' + agent['name'] + ']'}"
    yield f"  called    {shlex.join(agent['command'])}"
    if agent["env"]:
        yield f"  gets      {_names(agent['env'], 'not set')}"
    if agent["read"]:
        yield f"  copies    {_names(agent['read'], 'not there')}"
    if agent["shown"]:
        yield f"  sees      {', '.join(agent['shown'])}"
    if agent["fallback"]:
        yield f"  then      {', '.join(agent['fallback'])}, where it fails"


def _names(there: Mapping[str, bool], else_said: str) -> str:
    return ", ".join(name if is_there else f"{name} ({else_said})" for name, is_there in there.items())
