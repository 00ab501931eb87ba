"""The little of Markdown that a goal needs: headings, fences, comments and lines of prose. Pure.

One pass over the lines, by CommonMark's rules for fences (length, tildes, indentation), `#` headings and
comments that begin a line. It knows nothing of steps, and takes any text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentfs.core.problems import Place, Problem

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*(.*)")
_COMMENT = re.compile(r" {0,3}<!--")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*)|\Z)")


@dataclass(frozen=True)
class _Placed:
    """What every block can say of its place."""

    line: int
    column: int

    @property
    def place(self) -> Place:
        return self.line, self.column

    def problem(self, message: str, fix: str, pointer: str = "") -> Problem:
        """Return something that is wrong with it."""
        return Problem(message, fix, pointer, self.line, self.column)


@dataclass(frozen=True)
class Heading(_Placed):
    """`## Steps`: level 2, and where its text begins."""

    level: int
    text: str


@dataclass(frozen=True)
class Fence(_Placed):
    """A fenced block; its place is that of its words. Its body begins on the line below, `indent` columns in."""

    words: str  # the info string: what follows the opening fence
    body: str
    indent: int
    closed: bool
    reopened: int | None = None  # the first line of the body that begins a fence itself: its end was left out above


@dataclass(frozen=True)
class Prose(_Placed):
    """A line that is neither, without the spaces at its ends; never empty."""

    text: str
    indented: bool  # by four or more: quoted text, never a line with a meaning


@dataclass(frozen=True)
class OpenComment(_Placed):
    """A comment that nothing ends."""


Block = Heading | Fence | Prose | OpenComment


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, whichever way they end; only line feeds and carriage returns end one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def blocks(lines: Sequence[str], first_line: int = 1) -> Iterator[Block]:
    """Return what the lines hold, in order; blank lines and comments are left out."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if match := _fence_start(line):
            end, fence = _fence(lines, at, match, first_line)
            yield fence
            at = end
        elif _COMMENT.match(line):
            column = line.index("<") + 1
            end = _comment_end(lines, at)
            if end > len(lines):
                yield OpenComment(first_line + at, column)
            at = end
        else:
            if block := _heading(line, first_line + at) or _prose(line, first_line + at):
                yield block
            at += 1


def _fence_start(line: str) -> re.Match[str] | None:
    match = _FENCE.match(line)
    if match and match[2][0] == "`" and "`" in match[3]:
        return None  # a code span that happens to begin a line
    return match


def _fence(lines: Sequence[str], at: int, match: re.Match[str], first_line: int) -> tuple[int, Fence]:
    indent, mark = len(match[1]), match[2]
    body: list[str] = []
    end = at + 1
    while end < len(lines) and not _closes(lines[end], mark):
        body.append(_outdent(lines[end], indent))
        end += 1
    inner = next((n for n in range(at + 1, end) if _begins_another(lines[n], mark)), None)
    fence = Fence(
        first_line + at,
        match.start(3) + 1,
        match[3].strip(),
        "\n".join(body),
        indent,
        closed=end < len(lines),
        reopened=None if inner is None else first_line + inner,
    )
    return end + 1, fence


def _closes(line: str, mark: str) -> bool:
    inner = line.lstrip(" ")
    rest = inner.rstrip(" \t")
    return len(line) - len(inner) <= 3 and len(rest) >= len(mark) and not rest.strip(mark[0])


def _begins_another(line: str, mark: str) -> bool:
    """Return whether a line inside a fence begins one that could not be there: its end would end the outer one."""
    match = _fence_start(line)
    return bool(match and match[2][0] == mark[0] and len(match[2]) >= len(mark) and match[3].strip())


def _outdent(line: str, indent: int) -> str:
    spaces = len(line) - len(line.lstrip(" "))
    return line[min(indent, spaces) :]


def _comment_end(lines: Sequence[str], at: int) -> int:
    """Return the line after the comment; past the end of the lines if nothing ends it."""
    for end in range(at, len(lines)):
        start = lines[end].index("<!--") + 4 if end == at else 0
        if "-->" in lines[end][start:]:
            return end + 1
    return len(lines) + 1


def _heading(line: str, number: int) -> Heading | None:
    if not (match := _HEADING.match(line)):
        return None
    text = (match[2] or "").rstrip()
    open_end = text.rstrip("#")
    if not open_end or open_end[-1] in " \t":  # `## Steps ##` is `## Steps`
        text = open_end.rstrip()
    return Heading(number, (match.start(2) if match[2] is not None else match.end(1)) + 1, len(match[1]), text)


def _prose(line: str, number: int) -> Prose | None:
    text = line.strip()
    if not text:
        return None
    indent = len(line) - len(line.lstrip())
    return Prose(number, indent + 1, text, indented=line.startswith(("    ", "\t")))
