"""The tools that come with agentfs, by name, and the check of what they are given. Runs none of them."""

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentfs.core.catalogue import ToolSpec
from agentfs.tools.base import Tool
from agentfs.tools.files import FILE_TOOLS
from agentfs.tools.http import HttpGet
from agentfs.tools.note import Note
from agentfs.tools.programs import Python, Shell

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


def builtins() -> dict[str, Tool]:
    """Return the built-in tools, by name."""
    tools: tuple[Tool, ...] = (Shell(), Python(), *FILE_TOOLS, HttpGet(), Note())
    return {tool.spec.name: tool for tool in tools}


def specs() -> dict[str, ToolSpec]:
    """Return the built-in tools as a plan sees them."""
    return {name: tool.spec for name, tool in builtins().items()}


def input_problems(spec: ToolSpec, given: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong with a tool's input, in words; [] if it can be used."""
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
