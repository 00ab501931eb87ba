"""Find a person's own tools, and read them by their source alone. Runs and imports none of them."""

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.storage.safe_open import reading
from agentfs.tools.own import Declared, Described, Found, Function, Parameter, describe, problem_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FOLDER = "tools"
GROUP = "agentfs.tools"
LARGEST_SOURCE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """One place with tools in it."""

    shown: str  # how people know it: tools/shop.py, or `the entry point shop`
    path: str | None  # its Python file; None: it was not found without importing something
    entry: str | None = None  # package.module or package.module:function
    folder: str | None = None  # where the package of an entry point is installed


def sources(root: Path | None, *, installed: bool = True) -> list[Source]:
    """Return every place with tools: the files of tools/ that do not begin with _, then entry points.

    Many projects keep scripts in a folder of that name: one that says neither agentfs nor @tool is not ours.
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
    try:
        with reading(path) as file:
            content = file.read(LARGEST_SOURCE + 1)
    except OSError:
        return True  # it is told why it cannot be read
    if len(content) > LARGEST_SOURCE or any(word in content for word in (b"agentfs", b"@tool")):
        return True
    try:
        ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # it cannot be run either, and it is told why
    return False


def _entry_points() -> Iterator[Source]:
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=GROUP), key=lambda found: (found.name, found.value)):
        folder = os.path.realpath(str(entry.dist.locate_file(""))) if entry.dist else None
        yield Source(f"the entry point {entry.name}", _module_file(entry, folder), entry.value, folder)


def _module_file(entry: "EntryPoint", folder: str | None) -> str | None:
    """Return the file of an entry point's module, looked for by name: importing its package would run it."""
    base = os.path.join(folder or "/", *entry.module.split("."))
    return next((path for path in (f"{base}.py", f"{base}/__init__.py") if folder and os.path.isfile(path)), None)


def read_sources(found: list[Source]) -> Found:
    """Return the tools that these sources declare."""
    tools: list[Described] = []
    problems: list[str] = []
    for source in found:
        read = read_source(source)
        tools += read.tools
        problems += read.problems
    return Found(tuple(tools), tuple(problems))


def read_source(source: Source) -> Found:
    """Return the tools of one source, or why there are none."""
    if source.path is None:
        return Found()  # an installed package whose source is not at hand: a run will load it
    try:
        with reading(source.path) as file:
            content = file.read(LARGEST_SOURCE + 1)
        if len(content) > LARGEST_SOURCE:
            return _broken(source, "it is larger than 1 MiB")
        tree = ast.parse(content)
    except OSError as error:
        return _broken(source, error.strerror or str(error))
    except SyntaxError as error:
        return _broken(source, f"line {error.lineno}: {error.msg}" if error.lineno else error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return _broken(source, str(error) or "it is nested too deeply")
    wanted = source.entry.partition(":")[2] if source.entry else ""
    return _read(tree, source, wanted)


def _broken(source: Source, why: str) -> Found:
    return Found((), (f"{source.shown} could not be loaded: {why}",))


def _read(tree: ast.Module, source: Source, wanted: str) -> Found:
    tools: list[Described] = []
    problems: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (wanted and node.name != wanted):
            continue
        declared = next((found for mark in node.decorator_list if (found := _declared(mark))), None)
        if declared is None:
            continue
        function = _function(node, declared)
        if problem := problem_of(function):
            problems.append(f"{source.shown}:{node.lineno}: {problem}")
        else:
            spec = describe(function, _properties(node), source.shown, {})
            tools.append(Described(spec, source.shown, node.lineno, node.name))
    return Found(tuple(tools), tuple(problems))


def _declared(mark: ast.expr) -> Declared | None:
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
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    optional = {one.arg for one in plain[len(plain) - len(arguments.defaults) :]} if arguments.defaults else set()
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    optional |= {one.arg for one, default in named if default is not None}
    only = {one.arg for one in arguments.posonlyargs}
    parameters = [
        Parameter(one.arg, "/" if one.arg in only else "plain", one.annotation is not None, one.arg not in optional)
        for one in [*plain, *arguments.kwonlyargs]
    ]
    for kind, rest in (("*", arguments.vararg), ("**", arguments.kwarg)):
        parameters += [Parameter(rest.arg, kind, rest.annotation is not None, required=False)] if rest else []
    is_async = isinstance(node, ast.AsyncFunctionDef)
    return Function(node.name, node.lineno, ast.get_docstring(node), is_async, tuple(parameters), declared)


def _properties(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Any]:
    return {one.arg: hint_schema(one.annotation) for one in [*node.args.args, *node.args.kwonlyargs]}


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
            return _quoted(text)
        case ast.BinOp(op=ast.BitOr()):
            return _any_of(list(_alternatives(node)))
        case ast.Subscript():
            return _subscript(_last_name(node.value), node.slice)
        case ast.Name() | ast.Attribute():
            return dict(_PLAIN.get(_last_name(node) or "", {}))
        case _:
            return {}


def _quoted(text: str) -> dict[str, Any]:
    try:
        return hint_schema(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return {}


def _alternatives(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _alternatives(node.left)
        yield from _alternatives(node.right)
    else:
        yield node


def _any_of(nodes: list[ast.expr]) -> dict[str, Any]:
    schemas = [hint_schema(node) for node in nodes]
    return {"anyOf": schemas} if all(schemas) else {}


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
