"""A person's own tools: `@tool`, and what they are by their source alone. Runs none of them, and looks for none.

A function is described twice: by its source, for commands that must not run it (`read_sources`), and by Python itself
in a worker (`user_tool_worker`). Both hand what they read to `describe`, so that they cannot drift apart.
Workers load this module: what they do not need is imported where it is used.
"""

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

if TYPE_CHECKING:
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
class Function:
    """A function under @tool, read from its source or by Python."""

    name: str
    line: int
    doc: str | None
    is_async: bool
    signature: inspect.Signature
    declared: Declared


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


def problem_of(function: Function) -> str | None:
    """Return why a function cannot be a tool; None if it can."""
    from agentfs.core.tool_spec import Effects

    name: object = function.declared.name or function.name
    if not isinstance(name, str) or not _NAME.match(name):  # a decorator may hold anything
        return f"{name!r} cannot be a tool's name: letters, digits, - and _ only, a letter first"
    if name in RESERVED:
        return f"{name!r} means something else already; give the tool another name"
    if function.is_async:
        return f"{function.name} is async; a tool is a plain function (call asyncio.run in it)"
    if function.declared.effects not in get_args(Effects):
        effects = ", ".join(get_args(Effects))
        return f"effects of {function.name} are {function.declared.effects!r}; they may be {effects}"
    problems = (_parameter_problem(one, function.name) for one in function.signature.parameters.values())
    return next(filter(None, problems), None)


def _parameter_problem(parameter: inspect.Parameter, function: str) -> str | None:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind == parameter.VAR_POSITIONAL else "**"
        return f"{function} takes {stars}{name}; name every parameter"
    if parameter.kind == parameter.POSITIONAL_ONLY:
        return f"{function} takes {name} by position only; take out the /"
    if parameter.annotation is parameter.empty:
        return f"the parameter {name!r} of {function} has no type hint; write {name}: str, or what it is"
    return None


def describe(function: Function, properties: Mapping[str, Any], where: str, defs: Mapping[str, Any]) -> "ToolSpec":
    """Return the tool a function is, given the schema of each parameter."""
    from agentfs.core.tool_spec import ToolSpec

    parameters = function.signature.parameters.values()
    required = [one.name for one in parameters if one.default is one.empty]
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
    tools: list[Described] = []
    problems: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (wanted and node.name != wanted):
            continue
        declared = next((found for mark in node.decorator_list if (found := _read_declared(mark))), None)
        if declared is None:
            continue
        try:
            function = _function(node, declared)
            problem = problem_of(function)
        except ValueError as error:  # two parameters of one name: the parser lets them pass
            problem = str(error)
        if problem:
            problems.append(f"{source.shown}:{node.lineno}: {problem}")
            continue
        properties = {one.name: hint_schema(one.annotation) for one in function.signature.parameters.values()}
        spec = describe(function, properties, source.shown, {})
        tools.append(Described(spec, source.shown, node.lineno, node.name))
    return Found(tuple(tools), tuple(problems))


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


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, declared: Declared) -> Function:
    is_async = isinstance(node, ast.AsyncFunctionDef)
    return Function(node.name, node.lineno, ast.get_docstring(node), is_async, _signature(node.args), declared)


def _signature(given: ast.arguments) -> inspect.Signature:
    """Return the parameters as Python would have them, annotations and defaults still as source."""
    kind = inspect.Parameter
    plain: list[tuple[ast.arg, Any]] = [(one, kind.POSITIONAL_ONLY) for one in given.posonlyargs]
    plain += [(one, kind.POSITIONAL_OR_KEYWORD) for one in given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    read: list[tuple[ast.arg | None, Any, ast.expr | None]] = [
        *((one, how, default) for (one, how), default in zip(plain, defaults, strict=True)),
        (given.vararg, kind.VAR_POSITIONAL, None),
        *((one, kind.KEYWORD_ONLY, value) for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)),
        (given.kwarg, kind.VAR_KEYWORD, None),
    ]
    return inspect.Signature(
        [
            kind(one.arg, how, default=default or kind.empty, annotation=one.annotation or kind.empty)
            for one, how, default in read
            if one is not None
        ]
    )


# ── type hints, as text ───────────────────────────────────────────────────────────────────────────────────

_PLAIN: Mapping[str, Mapping[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array", "items": {}},
    "List": {"type": "array", "items": {}},
    "dict": {"type": "object", "additionalProperties": True},
    "Dict": {"type": "object", "additionalProperties": True},
}


def hint_schema(node: ast.expr | None) -> dict[str, Any]:
    """Return the JSON Schema of a simple type hint; of any other {}, which allows everything: a run knows better."""
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str() as text):
            return _quote(text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _any_of([left, right])
        case ast.Subscript():
            return _subscript(_last_name(node.value), node.slice)
        case ast.Name() | ast.Attribute():
            return dict(_PLAIN.get(_last_name(node) or "", {}))
        case _:
            return {}


def _quote(text: str) -> dict[str, Any]:
    try:
        return hint_schema(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return {}


def _any_of(nodes: list[ast.expr]) -> dict[str, Any]:
    schemas = [hint_schema(node) for node in nodes]
    if not all(schemas):
        return {}
    return {"anyOf": [inner for schema in schemas for inner in schema.get("anyOf", [schema])]}


def _subscript(name: str | None, inner: ast.expr) -> dict[str, Any]:
    items = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    match name, items:
        case (("list" | "List" | "Sequence"), [item]):
            return {"type": "array", "items": hint_schema(item)}
        case (("dict" | "Dict" | "Mapping"), [key, value]) if _last_name(key) == "str":
            return {"type": "object", "additionalProperties": hint_schema(value) or True}
        case "Optional", [item]:
            return _any_of([item, ast.Constant(None)])
        case "Union", _:
            return _any_of(items)
        case "Annotated", [item, *_]:
            return hint_schema(item)
        case "Literal", _:
            return _literal(items)
        case _:
            return {}


def _literal(items: list[ast.expr]) -> dict[str, Any]:
    if not all(isinstance(item, ast.Constant) and isinstance(item.value, str | int) for item in items):
        return {}
    values = [item.value for item in items if isinstance(item, ast.Constant)]
    kinds = {type(value) for value in values}
    schema: dict[str, Any] = {"const": values[0]} if len(values) == 1 else {"enum": values}
    names = {str: "string", int: "integer", bool: "boolean"}
    return schema | ({"type": names[kinds.pop()]} if len(kinds) == 1 else {})
