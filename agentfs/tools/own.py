"""`@tool`: how a person makes a tool of a function, and the rules for it. Imports next to nothing and runs nothing.

A function is described twice: by its source, for commands that must not run it (`own_source`), and by Python itself
in a worker (`own_schema`). Both hand over what they read to `describe` here, so that they cannot drift apart.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, overload

from agentfs.core.tool_spec import Effects, ToolSpec

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__agentfs_tool__"
EFFECTS: tuple[str, ...] = get_args(Effects)
RESERVED = frozenset(
    {"sh", "bash", "http", "json", "none", "finish", "hand_over"}
)  # they mean something else already
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")


@dataclass(frozen=True, slots=True)
class Declared:
    """What stands in the decorator."""

    name: str | None = None  # None: the function's
    effects: str = "execute"
    repeatable: bool | None = None  # None: if it only reads, or has no effect


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *, effects: Effects = "execute", repeatable: bool | None = None, name: str | None = None
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    effects: Effects = "execute",
    repeatable: bool | None = None,
    name: str | None = None,
) -> F | Callable[[F], F]:
    """Make a tool of a function with type hints; it stays a function that can be called and tested as it is.

    `effects`: what it touches: "read", "write", "execute", "network" or "none". `repeatable`: whether it may run
    twice without a person's permission; by default if it only reads or touches nothing. `name`: default, its own.
    """
    declared = Declared(name, effects, repeatable)

    def mark(made: F) -> F:
        setattr(made, MARK, declared)
        return made

    return mark if function is None else mark(function)


# ── what a function says of itself ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, however it was read."""

    name: str
    kind: str  # "plain", "*", "**" or "/"
    hinted: bool
    required: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A function under @tool, however it was read."""

    name: str
    line: int
    doc: str | None
    is_async: bool
    parameters: tuple[Parameter, ...]
    declared: Declared


def problem_of(function: Function) -> str | None:
    """Return why a function cannot be a tool, in words; None if it can."""
    name: object = function.declared.name or function.name
    if not isinstance(name, str) or not _NAME.match(name):  # a decorator may hold anything
        return f"{name!r} cannot be a tool's name: letters, digits, - and _ only, a letter first"
    if name in RESERVED:
        return f"{name!r} means something else already; give the tool another name"
    if function.is_async:
        return f"{function.name} is async; a tool is a plain function (call asyncio.run in it)"
    if function.declared.effects not in EFFECTS:
        return f"effects of {function.name} are {function.declared.effects!r}; they may be {', '.join(EFFECTS)}"
    for parameter in function.parameters:
        if parameter.kind in ("*", "**"):
            return f"{function.name} takes {parameter.kind}{parameter.name}; name every parameter"
        if parameter.kind == "/":
            return f"{function.name} takes {parameter.name} by position only; take out the /"
        if not parameter.hinted:
            name = parameter.name
            return f"the parameter {name!r} of {function.name} has no type hint; write {name}: str, or what it is"
    return None


def describe(function: Function, properties: Mapping[str, Any], where: str, defs: Mapping[str, Any]) -> ToolSpec:
    """Return the tool a function is, given the schema of each parameter."""
    required = [parameter.name for parameter in function.parameters if parameter.required]
    is_text = len(required) == 1 and properties[required[0]].get("type") == "string"
    declared = function.declared
    lines = (function.doc or "").strip().splitlines()
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": False,
    }
    return ToolSpec(
        name=declared.name or function.name,
        summary=lines[0].strip() if lines else f"{function.name} in {where}",
        input_schema=schema | ({"$defs": dict(defs)} if defs else {}),
        effects=declared.effects,  # type: ignore[arg-type]  # problem_of has looked
        repeatable=declared.effects in ("read", "none") if declared.repeatable is None else declared.repeatable,
        text_field=required[0] if is_text else None,
    )


@dataclass(frozen=True, slots=True)
class Described:
    """A tool of a person's, and where its function is."""

    spec: ToolSpec
    source: str  # tools/shop.py, or the entry point
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Found:
    """The tools of some sources, and in words what is wrong with the rest."""

    tools: tuple[Described, ...] = ()
    problems: tuple[str, ...] = ()


def without_clashes(found: Found, taken: Sequence[str]) -> Found:
    """Return the tools whose name is theirs alone; of two with one name, neither, since nobody could tell which."""
    tools: list[Described] = []
    problems = list(found.problems)
    by_name: dict[str, list[Described]] = {}
    for tool_found in found.tools:
        by_name.setdefault(tool_found.spec.name, []).append(tool_found)
    for name, same in by_name.items():
        if name in taken:
            problems += [f"{_at(one)}: {name!r} is a tool of agentfs; give yours another name" for one in same]
        elif len(same) > 1:
            places = " and ".join(_at(one) for one in same)
            problems.append(f"{places}: two tools are called {name!r}; give one of them another name")
        else:
            tools += same
    return Found(tuple(tools), tuple(problems))


def _at(described: Described) -> str:
    return f"{described.source}:{described.line}"
