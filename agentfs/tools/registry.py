"""Every tool by name, agentfs's and a person's own, and the check of what they are given. Runs none of them.

What a person's own tools are is read from their source (`known_tools`), or learned by loading them in a worker
(`opened_tools`): only commands that run things do the latter.
"""

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.core.config import DEFAULT_TOOLS, Settings
from agentfs.core.mcp import LOCK
from agentfs.core.paths import SETTINGS
from agentfs.core.records import Sandbox
from agentfs.core.tool_spec import ToolSpec
from agentfs.errors import AgentfsError
from agentfs.storage.workspace import load_settings
from agentfs.tools import text_tools
from agentfs.tools.base import Tool
from agentfs.tools.files import FILE_TOOLS
from agentfs.tools.programs import Python, Shell
from agentfs.tools.user_tools import Source, read_sources, sources, without_clashes
from agentfs.tools.web import HttpGet, WebSearch

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

RESERVED = (*DEFAULT_TOOLS, text_tools.run.spec.name)  # names that no tool of a person's can have


def builtins(search_url: str = "") -> dict[str, Tool]:
    """Return the built-in tools, by name."""
    web = (HttpGet(), WebSearch(search_url))
    texts = (text_tools.summarize, text_tools.ask, text_tools.run, text_tools.note)
    tools: tuple[Tool, ...] = (Shell(), Python(), *FILE_TOOLS, *web, *texts)
    return {tool.spec.name: tool for tool in tools}


def specs() -> dict[str, ToolSpec]:
    """Return the built-in tools as a plan sees them."""
    return {name: tool.spec for name, tool in builtins().items()}


@dataclass(frozen=True, slots=True)
class Known:
    """The tools there are, as plans see them; which are a person's own; and what of theirs cannot be used."""

    specs: Mapping[str, ToolSpec]
    own: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def known_tools(root: Path | None, wanted: Iterable[str] | None = None) -> Known:
    """Return the tools of a workspace, a person's own by their source alone: nothing of theirs is run.

    Installed packages are looked through only for tools that are `wanted` and still unknown (None: all are).
    """
    built_in = specs()
    found = without_clashes(read_sources(sources(root, installed=False)), RESERVED)
    names = {*built_in, *(one.spec.name for one in found.tools)}
    if wanted is None or set(wanted) - names:
        found = without_clashes(read_sources(sources(root)), RESERVED)
    own = {one.spec.name: one.spec for one in found.tools} | _approved_specs(root)
    return Known(built_in | own, tuple(own), found.problems)


def _approved_specs(root: Path | None) -> dict[str, ToolSpec]:
    """Return the tools of MCP servers, as a person approved them: without starting any."""
    if root is None or not os.path.lexists(root / LOCK):
        return {}
    from agentfs.tools.mcp_client import approved_specs

    try:
        return approved_specs(root, load_settings(root / SETTINGS, os.environ))
    except AgentfsError:
        return {}  # it is reported where settings are read for their own sake


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools there are, ready to be called; and what of a person's own cannot be used."""

    tools: dict[str, Tool]
    own: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    run_ended: Callable[[Path], None] = lambda _folder: None  # ends what tools keep for a run


@contextmanager
def opened_tools(
    root: Path, sandbox: Sandbox, settings: Settings | None = None, *, protected: tuple[Path, ...] = ()
) -> Iterator[Toolbox]:
    """Yield every tool; a person's own are loaded in a worker now. Workers, and MCP servers, end with this."""
    settings = settings or Settings()
    box = Toolbox(builtins(settings.tools.web_search.url))
    with ExitStack() as stack:
        if found := sources(root):
            box = _with_own(box, found, root, sandbox, stack)
        if settings.mcp.servers:
            box = _with_servers(box, root, sandbox, settings, protected, stack)
        yield box


def _with_own(box: Toolbox, found: Sequence[Source], root: Path, sandbox: Sandbox, stack: ExitStack) -> Toolbox:
    from agentfs.tools.user_tool_calls import UserTool, load
    from agentfs.tools.workers import Workers

    loaded = load(found, root, sandbox, RESERVED)
    by_name = {source.shown: source for source in found}
    workers = Workers()
    stack.callback(workers.close)
    own: dict[str, Tool] = {one.spec.name: UserTool(one, by_name[one.source], workers) for one in loaded.tools}
    return Toolbox(box.tools | own, tuple(own), loaded.problems)


def _with_servers(
    box: Toolbox, root: Path, sandbox: Sandbox, settings: Settings, protected: tuple[Path, ...], stack: ExitStack
) -> Toolbox:
    """Return the tools with those of MCP servers: none is started before a step calls it."""
    from agentfs.tools.mcp_client import Host, McpServers

    servers = McpServers(Host(root, settings, dict(os.environ), sandbox, protected))
    stack.callback(servers.close)
    tools = {name: tool for name, tool in servers.tools().items() if name not in box.tools}
    return Toolbox(box.tools | tools, (*box.own, *tools), box.broken, servers.end)


def input_problems(spec: ToolSpec, given: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong with a tool's input; [] if it can be used."""
    if spec.surely_takes(given):
        return []
    errors = _validator(json.dumps(spec.input_schema, sort_keys=True)).iter_errors(dict(given))
    return sorted(": ".join(filter(None, ["/".join(map(str, e.absolute_path)), _shorten(e.message)])) for e in errors)


def _shorten(message: str) -> str:
    return message if len(message) <= 300 else f"{message[:150]} … {message[-150:]}"


@functools.lru_cache(maxsize=256)
def _validator(schema: str) -> "Draft202012Validator":
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))
