"""HTML and SVG as values: every text is escaped, and markup comes from code alone. Pure.

A plain string is text, whatever it holds. Only `Html`, which nothing but `el`, `join` and `raw` makes, is markup;
adding to one gives a plain string again, and so text. Links lead to this page or this server, never away.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from agentfs.core.text import inert


class Html(str):
    """Markup that code has made."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Iterable[Child] | None"
Attribute = str | int | float | bool | None

DOCTYPE = Html("<!doctype html>\n")
_VOID = frozenset(("meta", "link", "input", "br", "hr", "img"))
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_LEADS = frozenset(("href", "src", "action", "formaction"))  # attributes that make a browser load something


def escape(text: str) -> Html:
    """Return a text as markup: line by line inert, so that no mark in it reorders or hides what is beside it."""
    shown = text if text.isprintable() else "\n".join(map(inert, text.replace("\r\n", "\n").split("\n")))
    return Html(shown.translate(_ESCAPES))


def el(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """Return an element. `class_` is class, `data_x` is data-x; None and False leave an attribute out."""
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(start) if name in _VOID else Html(f"{start}{join(*children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    if name in _LEADS and (not str(value).startswith(("#", "/")) or str(value).startswith("//")):
        raise ValueError(f"{name} leads elsewhere: {value!r}")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def join(*children: Child) -> Html:
    """Return children one after the other."""
    return Html("".join(_markup(child) for child in children))


def _markup(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape(child)
    return str(child) if isinstance(child, int | float) else "".join(map(_markup, child))


def between(children: Iterable[Child], separator: str = " ") -> Iterator[Child]:
    """Yield children with words between them: a reader that sees no layout needs at least a space."""
    found = [child for child in children if child is not None and child != ""]
    for place, child in enumerate(found):
        if place:
            yield separator
        yield child


def raw(markup: str) -> Html:
    """Return what is markup already: for files of agentfs's own, never for anything that was read from a run."""
    return Html(markup)
