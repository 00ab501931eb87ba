"""JSON as small models write it: raw line ends in strings, Python's quotes and constants, JSON in a string. Pure.

Everything is bounded, and whatever comes out is a value that could have been written as JSON.
"""

import ast
import json
from contextlib import suppress
from typing import Any

from agentfs.tools.values import NotJson, json_value

LONGEST_LITERAL = 64_000  # characters that are read as Python
_CONSTANTS = {"true": True, "false": False, "null": None}
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}


def loose_value(text: str) -> Any:
    """Return the value a text means; raises NotJson, with what is wrong with it as JSON."""
    try:
        return json_value(text)
    except NotJson:
        for read in (_with_raw_line_ends, _as_python, _with_doubled_braces):
            with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError, NotJson):
                return json_value(json.dumps(read(text)))
        raise


def _with_raw_line_ends(text: str) -> Any:
    return json_value(text, raw_line_ends=True)


def _as_python(text: str) -> Any:
    """Return what a Python literal says; its names may be those of JSON's constants."""
    if len(text) > LONGEST_LITERAL:
        raise ValueError("too long")
    return ast.literal_eval(_Constants().visit(ast.parse(text.strip(), mode="eval")))


def _with_doubled_braces(text: str) -> Any:
    """Return what an object says that is written as in the template of a prompt."""
    text = text.strip()
    if not (text.startswith("{{") and text.endswith("}}")):
        raise ValueError("it is not")
    return _with_raw_line_ends(text[1:-1])


class _Constants(ast.NodeTransformer):
    """Puts JSON's constants in the place of names; no key may stand twice."""

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        keys = [ast.dump(key) for key in node.keys if key is not None]
        if len(keys) != len(set(keys)):
            raise ValueError("a key stands twice")
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else node


def loose_object(text: str) -> dict[str, Any]:
    """Return the object a text means, which may itself be written as a JSON string; raises NotJson."""
    value = loose_value(text) if text.strip() else {}
    if isinstance(value, str):
        value = loose_value(value) if value.strip() else {}
    if not isinstance(value, dict):
        raise NotJson("it is another value")
    return value


def truth_of(value: Any) -> Any:
    """Return the boolean that a value means; the value itself if it means none."""
    return _TRUTHS.get(value.strip().casefold(), value) if isinstance(value, str) else value
