"""A person's own tools: `@tool`, and what they are by their source alone. Runs none of them, and looks for none.

A function is described twice: by its source, for commands that must not run it (`read_sources`), and by Python itself
in a worker (`user_tool_worker`). For the former a function is made that does nothing: `describe_all` is given both.
Workers load this module: what they do not need is imported where it is used.
"""

import ast
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from agentfs.core.tool_spec import Effects, ToolSpec

F = TypeVar("F", bound=Callable[..., Any])

FOLDER = "tools"
MARK = "__agentfs_tool__"
RESERVED = frozenset(
    {"sh", "bash", "http", "json", "none", "finish", "hand_over"}
)  # they mean something else already
LARGEST_SOURCE = 1024 * 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")


@dataclass(frozen=True, slots=True)
class Declared:
    """What the decorator declares."""

    name: str | None = None  # None: the function's
    effects: str = "execute"
    repeatable: bool | None = None  # None: if it only reads, or has no effect


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *, effects: "Effects" = "execute", repeatable: bool | None = None, name: str | None = None
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    effects: "Effects" = "execute",
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


# ── what a function is as a tool ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Source:
    """One place with tools in it."""

    shown: str  # how people know it: tools/shop.py, or `the entry point shop`
    path: str | None  # its Python file; None: it was not found without importing something
    entry: str | None = None  # package.module or package.module:function
    folder: str | None = None  # where the package of an entry point is installed


@dataclass(frozen=True, slots=True)
class Described:
    """One of a person's tools, and where its function is."""

    spec: "ToolSpec"
    source: str  # tools/shop.py, or the entry point
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Found:
    """The tools of some sources, and what is wrong with the others."""

    tools: tuple[Described, ...] = ()
    problems: tuple[str, ...] = ()


class Unfit(Exception):
    """A function cannot be a tool: why."""


def describe_all(source: str, functions: Iterable[tuple[str, Callable[..., Any], int]]) -> Found:
    """Return the tools that functions under @tool are, each given with its name and line in a source."""
    tools: list[Described] = []
    problems: list[str] = []
    for name, made, line in functions:
        try:
            tools.append(Described(_describe(made, source), source, line, name))
        except Unfit as unfit:
            problems.append(f"{source}:{line}: {unfit}")
    return Found(tuple(tools), tuple(problems))


def _describe(made: Callable[..., Any], source: str) -> "ToolSpec":
    from agentfs.core.tool_spec import ToolSpec

    declared: Declared = getattr(made, MARK)
    name = inspect.unwrap(made).__name__
    _refuse_unfit(made, name, declared)
    try:
        schema = _without_titles(adapter_for(made).json_schema())
    except Exception as error:  # noqa: BLE001 - a person's hints may make any part of pydantic stumble
        raise Unfit(f"the type hints of {name} cannot be used: {str(error).partition(chr(10))[0]}") from None
    parameters, properties = inspect.signature(made).parameters.values(), schema.get("properties", {})
    required = [one.name for one in parameters if one.default is one.empty]
    is_text = len(required) == 1 and properties[required[0]].get("type") == "string"
    lines = (inspect.getdoc(made) or "").strip().splitlines()
    closed = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpec(
        name=declared.name or name,
        summary=lines[0].strip() if lines else f"{name} in {source}",
        input_schema=closed | ({"$defs": schema["$defs"]} if "$defs" in schema else {}),
        effects=declared.effects,  # type: ignore[arg-type]  # _refuse_unfit has looked
        repeatable=declared.effects in ("read", "none") if declared.repeatable is None else declared.repeatable,
        text_field=required[0] if is_text else None,
    )


def _refuse_unfit(made: Callable[..., Any], function: str, declared: Declared) -> None:
    """Raise Unfit if a function cannot be a tool, whatever its type hints mean."""
    from agentfs.core.tool_spec import Effects

    name: object = declared.name or function
    if not isinstance(name, str) or not _NAME.match(name):  # a decorator may hold anything
        raise Unfit(f"{name!r} cannot be a tool's name: letters, digits, - and _ only, a letter first")
    if name in RESERVED:
        raise Unfit(f"{name!r} means something else already; give the tool another name")
    if inspect.iscoroutinefunction(inspect.unwrap(made)):
        raise Unfit(f"{function} is async; a tool is a plain function (call asyncio.run in it)")
    if declared.effects not in get_args(Effects):
        raise Unfit(f"effects of {function} are {declared.effects!r}; they may be {', '.join(get_args(Effects))}")
    for one in inspect.signature(made).parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            stars = "*" if one.kind == one.VAR_POSITIONAL else "**"
            raise Unfit(f"{function} takes {stars}{one.name}; name every parameter")
        if one.kind == one.POSITIONAL_ONLY:
            raise Unfit(f"{function} takes {one.name} by position only; take out the /")
        if one.annotation is one.empty:
            raise Unfit(
                f"the parameter {one.name!r} of {function} has no type hint; write {one.name}: str, or what it is"
            )


def adapter_for(made: Callable[..., Any]) -> "TypeAdapter[dict[str, Any]]":
    """Return what checks and converts the input of a function."""
    from pydantic import ConfigDict, TypeAdapter
    from typing_extensions import TypedDict

    hints = typing.get_type_hints(made, include_extras=True)
    fields = {
        one.name: hints[one.name] if one.default is one.empty else typing.NotRequired[hints[one.name]]
        for one in inspect.signature(made).parameters.values()
    }
    make: Any = TypedDict  # called with what a person wrote, which no checker can follow
    shape = make("Input", fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    return TypeAdapter(shape)


def _without_titles(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without the titles that pydantic makes up; `names`: its keys are names, not keywords."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value, names=not names and key in ("properties", "$defs"))
        for key, value in schema.items()
        if names or key != "title" or not isinstance(value, str)
    }


def without_clashes(found: Found, taken: Sequence[str]) -> Found:
    """Return the tools whose name no other tool has; of two with one name, neither."""
    tools: list[Described] = []
    problems = list(found.problems)
    by_name: dict[str, list[Described]] = {}
    for one in found.tools:
        by_name.setdefault(one.spec.name, []).append(one)
    for name, same in by_name.items():
        places = [f"{one.source}:{one.line}" for one in same]
        if name in taken:
            problems += [f"{place}: {name!r} is a tool of agentfs; give yours another name" for place in places]
        elif len(same) > 1:
            problems.append(f"{' and '.join(places)}: two tools are called {name!r}; give one of them another name")
        else:
            tools += same
    return Found(tuple(tools), tuple(problems))


# ── read by their source ──────────────────────────────────────────────────────────────────────────────────


def read_content(path: str) -> bytes:
    """Return the beginning of a source, one byte more than the largest may have."""
    from agentfs.storage.safe_open import reading

    with reading(path) as file:
        return file.read(LARGEST_SOURCE + 1)


def read_sources(found: Sequence[Source]) -> Found:
    """Return the tools that these sources declare."""
    read = [_read_source(source) for source in found]
    return Found(
        tuple(one for part in read for one in part.tools), tuple(one for part in read for one in part.problems)
    )


def _read_source(source: Source) -> Found:
    """Return the tools of one source, or why there are none."""
    if source.path is None:
        return Found()  # an installed package whose source is not at hand: a run will load it
    try:
        content = read_content(source.path)
        if len(content) > LARGEST_SOURCE:
            return _broken(source, "it is larger than 1 MiB")
        tree = ast.parse(content)
    except OSError as error:
        return _broken(source, error.strerror or str(error))
    except SyntaxError as error:
        return _broken(source, f"line {error.lineno}: {error.msg}" if error.lineno else error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return _broken(source, str(error) or "it is nested too deeply")
    return _read_tree(tree, source, source.entry.partition(":")[2] if source.entry else "")


def _broken(source: Source, why: str) -> Found:
    return Found((), (f"{source.shown} could not be loaded: {why}",))


def _read_tree(tree: ast.Module, source: Source, wanted: str) -> Found:
    functions: list[tuple[str, Callable[..., Any], int]] = []
    problems: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (wanted and node.name != wanted):
            continue
        declared = next((found for mark in node.decorator_list if (found := _read_declared(mark))), None)
        if declared is None:
            continue
        try:
            functions.append((node.name, _stub(node, declared), node.lineno))
        except SyntaxError as error:  # two parameters of one name: the parser lets them pass
            problems.append(f"{source.shown}:{node.lineno}: {error.msg}")
        except RecursionError:
            problems.append(f"{source.shown}:{node.lineno}: its type hints are nested too deeply")
    described = describe_all(source.shown, functions)
    return Found(described.tools, (*problems, *described.problems))


def _read_declared(mark: ast.expr) -> Declared | None:
    """Return what a decorator declares; None if it is not @tool."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    if _last_name(called) != "tool":
        return None
    options: dict[str, Any] = {}
    for keyword in mark.keywords if isinstance(mark, ast.Call) else ():
        if keyword.arg in ("name", "effects", "repeatable") and isinstance(keyword.value, ast.Constant):
            options[keyword.arg] = keyword.value.value
    return Declared(**options)


def _last_name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _stub(node: ast.FunctionDef | ast.AsyncFunctionDef, declared: Declared) -> Callable[..., Any]:
    """Return a function that is described as this one is, and does nothing."""
    given, words = node.args, ast.get_docstring(node)
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    hints = {one.arg: hint_type(one.annotation) for one in named if one.annotation is not None}
    for one in named:
        one.annotation = None
    given.defaults = [ast.Constant(None) for _ in given.defaults]
    given.kw_defaults = [one and ast.Constant(None) for one in given.kw_defaults]
    bare = ast.parse(f"{'async ' * isinstance(node, ast.AsyncFunctionDef)}def {node.name}(): pass")
    bare.body[0].args = given  # type: ignore[attr-defined]
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(bare), "stub", "exec"), names)  # noqa: S102 - nothing of theirs is left in it
    made = names[node.name]
    made.__annotations__, made.__doc__ = hints, words
    setattr(made, MARK, declared)
    return typing.cast("Callable[..., Any]", made)


# ── type hints, as text ───────────────────────────────────────────────────────────────────────────────────

_PLAIN = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "List": list,
    "dict": dict,
    "Dict": dict,
}


def hint_type(node: ast.expr) -> Any:
    """Return the type that a simple hint means; for another Any, which allows everything: a run knows better."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str() as text):
            return _parse_quoted(text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([left, right])
        case ast.Subscript():
            return _subscript(_last_name(node.value), node.slice)
        case ast.Name() | ast.Attribute():
            return _PLAIN.get(_last_name(node) or "", Any)
        case _:
            return Any


def _parse_quoted(text: str) -> Any:
    try:
        return hint_type(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return Any


def _union(nodes: list[ast.expr]) -> Any:
    types = tuple(map(hint_type, nodes))
    return Any if Any in types else typing.Union[types]  # noqa: UP007 - of as many as there are


def _subscript(name: str | None, inner: ast.expr) -> Any:
    items = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    match name, items:
        case (("list" | "List" | "Sequence"), [item]):
            return list[hint_type(item)]  # type: ignore[misc]
        case (("dict" | "Dict" | "Mapping"), [key, value]) if _last_name(key) == "str":
            return dict[str, hint_type(value)]  # type: ignore[misc]
        case "Optional", [item]:
            return _union([item, ast.Constant(None)])
        case "Union", _:
            return _union(items)
        case "Annotated", [item, *_]:
            return hint_type(item)
        case "Literal", _:
            values = [item.value for item in items if isinstance(item, ast.Constant)]
            is_known = len(values) == len(items) > 0 and all(isinstance(value, str | int) for value in values)
            return typing.Literal[tuple(values)] if is_known else Any
        case _:
            return Any
