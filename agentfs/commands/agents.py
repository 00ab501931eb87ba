"""`agentfs agents`: the coding agents there are, how each would be called, and what it may touch."""

import os
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentfs.commands.common import environment, here, print_lines, say_all
from agentfs.core.config import Settings
from agentfs.core.text import json_text
from agentfs.engine.means import default_agent, named_agents
from agentfs.ui.reading import settings_of

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
    print_lines([json_text(listed)] if arguments.json else agents_lines(listed))
    return say_all([f"{trouble}\nthese are the defaults"] if trouble else [])


def list_agents(settings: Settings, environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield what there is to say of each agent; one that is found is asked for its version, in the sandbox."""
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
        "A step names one with `agent`; in a runbook a line: agent: codex.",
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
