"""Every tool by name, agentfs's and a person's own, where the latter are, and the check of inputs. Runs none of them.

What a person's own tools are is read from their source (`known_tools`), or learned by loading them in a worker
(`opened_tools`): only commands that run things do the latter.
"""

import ast
import functools
import json
import os
import sys
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
from agentfs.tools.user_tools import (
    FOLDER,
    LARGEST_SOURCE,
    Found,
    Source,
    read_content,
    read_sources,
    without_clashes,
)
from agentfs.tools.web import HttpGet, WebSearch

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from jsonschema import Draft202012Validator

GROUP = "agentfs.tools"  # of entry points
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


# ── where a person's own are ──────────────────────────────────────────────────────────────────────────────


def sources(root: Path | None, *, installed: bool = True) -> list[Source]:
    """Return every place with tools: the files of tools/ that do not begin with _, then entry points.

    Many projects keep scripts in a folder of that name: one that mentions neither agentfs nor @tool is not ours.
    """
    return [*_files(root), *(_entry_points() if installed else ())]


def _files(root: Path | None) -> Iterator[Source]:
    if root is None:
        return
    try:
        with os.scandir(root / FOLDER) as entries:
            names = sorted(one.name for one in entries if _is_tool_file(one) and _may_hold_tools(one.path))
    except OSError:
        return
    for name in names:
        yield Source(f"{FOLDER}/{name}", os.path.realpath(root / FOLDER / name))


def _is_tool_file(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".py") and not entry.name.startswith(("_", ".")) and entry.is_file()


def _may_hold_tools(path: str) -> bool:
    """Whether a file is ours to read; one that cannot be read or run is, so that its reader says why."""
    try:
        content = read_content(path)
        if len(content) > LARGEST_SOURCE or any(word in content for word in (b"agentfs", b"@tool")):
            return True
        ast.parse(content)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return False


def _entry_points() -> Iterator[Source]:
    for entry in _installed(tuple((path, _changed_at(path)) for path in sys.path)):
        folder = os.path.realpath(str(entry.dist.locate_file(""))) if entry.dist else None
        yield Source(f"the entry point {entry.name}", _module_file(entry, folder), entry.value, folder)


@functools.lru_cache(maxsize=1)
def _installed(_searched: tuple[tuple[str, int], ...]) -> "list[EntryPoint]":
    """Return the entry points of what is installed; looked for again once a folder of `sys.path` has changed."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda found: (found.name, found.value))


def _changed_at(path: str) -> int:
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0


def _module_file(entry: "EntryPoint", folder: str | None) -> str | None:
    """Return the file of an entry point's module, looked for by name: importing its package would run it."""
    base = os.path.join(folder or "/", *entry.module.split("."))
    return next((path for path in (f"{base}.py", f"{base}/__init__.py") if folder and os.path.isfile(path)), None)


# ── what there is, for plans and for runs ─────────────────────────────────────────────────────────────────


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
    found = _read_own(sources(root, installed=False))
    names = {*built_in, *(one.spec.name for one in found.tools)}
    if wanted is None or set(wanted) - names:
        found = _read_own(sources(root))
    own = {one.spec.name: one.spec for one in found.tools} | _approved_specs(root)
    return Known(built_in | own, tuple(own), found.problems)


def _read_own(found: Sequence[Source]) -> Found:
    return without_clashes(read_sources(found), RESERVED) if found else Found()


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
