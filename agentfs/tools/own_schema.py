"""Load a person's module and describe its tools by what Python says of them. For workers only: it runs their code."""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import types
import typing
from collections.abc import Callable
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from typing_extensions import TypedDict

from agentfs.tools.own import MARK, Described, Found, Function, Parameter, describe, problem_of

_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "/",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


class LoadFailed(Exception):
    """A module that cannot be loaded, in words."""


def load(shown: str, path: str | None, entry: str | None) -> Any:
    """Return the module of a source, or the one function that its entry point names."""
    try:
        if entry is not None:
            module, _, attribute = entry.partition(":")
            loaded = importlib.import_module(module)
            return getattr(loaded, attribute) if attribute else loaded
        return _load_file(path or "")
    except BaseException as error:  # noqa: BLE001 - also SystemExit: a module may do anything while it is loaded
        raise LoadFailed(f"{shown} could not be loaded: {_why(error, path)}") from None


def _load_file(path: str) -> types.ModuleType:
    """Load one file of tools/ as a module of the package `tools`, so that it can import its neighbours."""
    folder, stem = os.path.dirname(path), os.path.basename(path).removesuffix(".py")
    if "tools" not in sys.modules:
        package = types.ModuleType("tools")
        package.__path__ = [folder]
        sys.modules["tools"] = package
        sys.path.append(folder)  # behind everything: a file called json.py must not hide the real one
    name = f"tools.{stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _why(error: BaseException, path: str | None) -> str:
    """Return what went wrong, with the line of the person's own file where it did."""
    if isinstance(error, SyntaxError) and error.lineno:
        where = "" if error.filename == path else f"{os.path.basename(error.filename or '')}, "
        return f"{where}line {error.lineno}: {error.msg}"
    line = line_in(error, path)
    words = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"line {line}: {words}" if line else words


def line_in(error: BaseException, path: str | None) -> int | None:
    """Return the last line of a file that an error passed through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return frames[-1].lineno if frames else None


def functions(loaded: Any) -> dict[str, Callable[..., Any]]:
    """Return what stands under @tool in a module itself, or the one function that was named."""
    if not isinstance(loaded, types.ModuleType):
        return {loaded.__name__: loaded} if hasattr(loaded, MARK) else {}
    own = {name: value for name, value in vars(loaded).items() if inspect.isroutine(value) and hasattr(value, MARK)}
    return {name: value for name, value in own.items() if value.__module__ == loaded.__name__}


def describe_all(shown: str, loaded: Any) -> Found:
    """Return the tools of what was loaded, and what is wrong with those that cannot be."""
    tools, problems = [], []
    for name, made in functions(loaded).items():
        function = _function(made)
        problem = problem_of(function)
        if problem is None:
            try:
                properties, defs = _properties(made)
            except (PydanticUserError, PydanticSchemaGenerationError, NameError, TypeError) as error:
                problem = f"the type hints of {name} cannot be used: {str(error).splitlines()[0]}"
        if problem is not None:
            problems.append(f"{shown}:{function.line}: {problem}")
        else:
            tools.append(Described(describe(function, properties, shown, defs), shown, function.line, name))
    return Found(tuple(tools), tuple(problems))


def _function(made: Callable[..., Any]) -> Function:
    parameters = tuple(
        Parameter(
            one.name,
            _KINDS.get(one.kind, "plain"),
            hinted=one.annotation is not one.empty,
            required=one.default is one.empty,
        )
        for one in inspect.signature(made).parameters.values()
    )
    named = inspect.unwrap(made)
    line = getattr(getattr(named, "__code__", None), "co_firstlineno", 1)
    return Function(
        named.__name__, _def_line(named, line), inspect.getdoc(made), inspect.iscoroutinefunction(named), parameters,
        getattr(made, MARK),
    )  # fmt: skip


def _def_line(made: Callable[..., Any], first: int) -> int:
    """Return the line of `def`: Python counts a function from its first decorator."""
    try:
        lines, start = inspect.getsourcelines(made)
    except (OSError, TypeError):
        return first
    return start + next((n for n, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), 0)


def adapter_for(made: Callable[..., Any]) -> TypeAdapter[dict[str, Any]]:
    """Return what checks and converts the input of a function."""
    hints = typing.get_type_hints(made, include_extras=True)
    fields = {
        one.name: hints[one.name] if one.default is one.empty else typing.NotRequired[hints[one.name]]
        for one in inspect.signature(made).parameters.values()
    }
    make: Any = TypedDict  # called with what a person wrote, which no checker can follow
    shape = make("Input", fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    return TypeAdapter(shape)


def _properties(made: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    schema = _untitled(adapter_for(made).json_schema())
    return schema.get("properties", {}), schema.get("$defs", {})


def _untitled(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without the titles that pydantic makes up; `names`: its keys are names, not keywords."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _untitled(value, names=not names and key in ("properties", "$defs"))
        for key, value in schema.items()
        if names or key != "title" or not isinstance(value, str)
    }
