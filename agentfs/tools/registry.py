"""Every tool by name, agentfs's and a person's own, and the check of what they are given. Runs none of them.

What a person's own tools are is read from their source (`known_tools`), or learned by loading them in a worker
(`opened_tools`): only commands that run things do the latter.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.core.config import DEFAULT_TOOLS
from agentfs.core.records import Sandbox
from agentfs.core.tool_spec import ToolSpec
from agentfs.tools.ask import Ask
from agentfs.tools.base import Tool
from agentfs.tools.files import FILE_TOOLS
from agentfs.tools.http import HttpGet
from agentfs.tools.note import Note
from agentfs.tools.own import without_clashes
from agentfs.tools.programs import Python, Shell
from agentfs.tools.search import WebSearch
from agentfs.tools.summarize import Summarize

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


def builtins(search_url: str = "") -> dict[str, Tool]:
    """Return the built-in tools, by name."""
    asking: tuple[Tool, ...] = (HttpGet(), WebSearch(search_url), Summarize(), Ask())
    tools: tuple[Tool, ...] = (Shell(), Python(), *FILE_TOOLS, *asking, Note())
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
    from agentfs.tools.own_source import read_sources, sources

    built_in = specs()
    found = without_clashes(read_sources(sources(root, installed=False)), DEFAULT_TOOLS)
    names = {*built_in, *DEFAULT_TOOLS, *(one.spec.name for one in found.tools)}
    if wanted is None or set(wanted) - names:
        found = without_clashes(read_sources(sources(root)), DEFAULT_TOOLS)
    own = {one.spec.name: one.spec for one in found.tools}
    return Known(built_in | own, tuple(own), found.problems)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools there are, ready to be called; and what of a person's own cannot be used."""

    tools: dict[str, Tool]
    own: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


@contextmanager
def opened_tools(root: Path, sandbox: Sandbox, search_url: str = "") -> Iterator[Toolbox]:
    """Yield every tool; a person's own are loaded in a worker now, and their workers end with this."""
    from agentfs.tools.own_source import sources

    found = sources(root)
    if not found:
        yield Toolbox(builtins(search_url))
        return
    from agentfs.tools.own_crew import Crew
    from agentfs.tools.own_tools import OwnTool, load

    loaded = load(found, root, sandbox, DEFAULT_TOOLS)
    by_name = {source.shown: source for source in found}
    crew = Crew()
    own: dict[str, Tool] = {one.spec.name: OwnTool(one, by_name[one.source], crew) for one in loaded.tools}
    try:
        yield Toolbox(builtins(search_url) | own, tuple(own), loaded.problems)
    finally:
        crew.close()


def input_problems(spec: ToolSpec, given: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong with a tool's input, in words; [] if it can be used."""
    if spec.surely_takes(given):
        return []
    errors = _validator(json.dumps(spec.input_schema, sort_keys=True)).iter_errors(dict(given))
    return sorted(
        ": ".join(filter(None, ["/".join(map(str, e.absolute_path)), _shortened(e.message)])) for e in errors
    )


def _shortened(message: str) -> str:
    return message if len(message) <= 300 else f"{message[:150]} … {message[-150:]}"


@functools.lru_cache(maxsize=256)
def _validator(schema: str) -> "Draft202012Validator":
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))
