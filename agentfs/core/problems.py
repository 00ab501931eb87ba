"""What is wrong with a file or a machine, where, and how to fix it. Pure."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: what, where, and what to do about it."""

    message: str
    fix: str = ""
    pointer: str = ""
    line: int = 1
    column: int = 1
    quote: str = field(default="", compare=False, repr=False)  # the part that is wrong of the text at the pointer
    before: int = field(default=0, compare=False, repr=False)  # how often that part is in the text before
    in_name: bool = field(default=False, compare=False, repr=False)  # it is in the name of the field, not its value

    def at(self, line: int, column: int) -> "Problem":
        return replace(self, line=line, column=column)

    def below(self, prefix: str) -> "Problem":
        """Return it with a pointer that begins further up in the document."""
        return replace(self, pointer=prefix + self.pointer)

    def at_quote(self, lines: Sequence[str]) -> "Problem":
        """Return it at the place of its quote, looked for from its place on in the lines of the file."""
        left, column = self.before, self.column - 1
        for number in range(self.line - 1, len(lines)) if self.quote else ():
            while (found := lines[number].find(self.quote, column)) >= 0:
                if not left:
                    return self.at(number + 1, found + 1)
                left, column = left - 1, found + len(self.quote)
            column = 0
        return self

    def shown(self, file: str) -> str:
        """Return `file:line:column: message (how to fix it) [pointer]`, the form editors jump to."""
        fix = f" ({self.fix})" if self.fix else ""
        pointer = f" [{_printable(self.pointer)}]" if self.pointer else ""
        return f"{file}:{self.line}:{self.column}: {self.message}{fix}{pointer}"


def _printable(pointer: str) -> str:
    """Return a pointer that no terminal obeys: it may hold the name of any field that another user wrote."""
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in pointer)


class Rejected(Exception):
    """A document that cannot be taken, with every problem found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(p.message for p in problems))
        self.problems = tuple(problems)


class Hints:
    """Suggestions for the first misspelt words of a document: among thousands of names each takes a while."""

    def __init__(self, most: int = 20) -> None:
        self._left = most

    def __call__(self, word: str, known: Iterable[str], otherwise: str = "") -> str:
        self._left -= 1
        return did_you_mean(word, known, otherwise) if self._left >= 0 else otherwise


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, prefix: str = "") -> str:
    """Return a suggestion for a misspelt word, or `otherwise`. `prefix`: what comes before the word, spelt right."""
    from difflib import get_close_matches

    close = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {prefix + close[0]!r}?" if close else otherwise


def refuse(message: str, fix: str, line: int = 1, column: int = 1, pointer: str = "") -> NoReturn:
    """Refuse a document for one problem that leaves nothing else to say."""
    raise Rejected([Problem(message, fix, pointer, line, column)])


# ── JSON pointers, and where they lead in a file ─────────────────────────────────────────────────────────


def pointer_tokens(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def pointer_to(*parts: str | int) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


Place = tuple[int, int]  # line, column, both from 1
Locate = Callable[[str, bool], Place]  # a pointer, and whether the name of its field is meant


@dataclass(slots=True)
class Places:
    """JSON pointers of one value and where each is; a part that has no place of its own has its parent's."""

    start: Place = (1, 1)
    marks: dict[str, Place] = field(default_factory=dict)
    names: dict[str, Place] = field(default_factory=dict)  # of fields, where they are elsewhere than the values
    inside: dict[str, Locate] = field(default_factory=dict)  # documents within the document

    def locate(self, pointer: str, key: bool) -> Place:
        """Return the place of a pointer, or of the nearest thing around it."""
        at = pointer
        while at not in self.inside and at not in self.marks:
            if not at:
                return self.start
            at = at.rpartition("/")[0]
        if at in self.inside:
            return self.inside[at](pointer[len(at) :], key)
        return self.names.get(at, self.marks[at]) if key else self.marks[at]


def locate_below(prefix: str, locate: Locate) -> Locate:
    """Return the locator of the value at a prefix, which knows nothing of what is around it."""
    return lambda pointer, key: locate(prefix + pointer, key)


def shift_places(locate: Locate, lines: int, columns: int) -> Locate:
    """Return the locator of a document that begins further down and to the right in a file."""

    def place(pointer: str, key: bool) -> Place:
        line, column = locate(pointer, key)
        return line + lines, column + columns

    return place


class Lines:
    """Offsets of a text as line and column, both from 1."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._first = first_line
        self._last = max(len(text.rstrip()) - 1, 0)

    def at(self, offset: int) -> tuple[int, int]:
        """Return where an offset is; a line break, or the end, counts as the last character before it."""
        offset = min(offset, self._last)
        line = bisect_right(self._starts, offset) - 1
        if line + 1 < len(self._starts):
            offset = min(offset, self._starts[line + 1] - 2)
        return line + self._first, max(offset - self._starts[line], 0) + 1


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────


def in_words(problem: Problem, plan: Mapping[str, Any] | None) -> str:
    """Return a problem as a planner can follow it: by the step's id, not by its place in a list it never saw."""
    where = "" if (problem.line, problem.column) == (1, 1) else f"line {problem.line}, column {problem.column}"
    where = _where(pointer_tokens(problem.pointer), plan) if problem.pointer else where
    fix = f" -> {problem.fix}" if problem.fix else ""
    return f"{where}{': ' if where else ''}{problem.message}{fix}"


def _where(tokens: list[str], plan: Mapping[str, Any] | None) -> str:
    steps: Any = (plan or {}).get("steps", [])
    if len(tokens) > 1 and tokens[0] == "steps" and tokens[1].isdigit() and int(tokens[1]) < len(steps):
        step = steps[int(tokens[1])]
        name = step.get("id") if isinstance(step, dict) else None
        named = f"step {name!r}" if isinstance(name, str) else f"the step {show_value(step)}"
        return ", ".join(filter(None, [named, ".".join(tokens[2:])]))
    return ".".join(tokens)


def show_value(value: Any) -> str:
    """Return a value in one short line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


# ── what an examination of a machine or a workspace found ────────────────────────────────────────────────


Grade = Literal["fine", "remark", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    about: str  # which part of the machine or the workspace
    grade: Grade
    what: str
    fix: str | None = None  # what to do; always there where something is wrong

    def as_json(self) -> dict[str, str | None]:
        return {"about": self.about, "grade": self.grade, "what": self.what, "fix": self.fix}


def fine(about: str, what: str) -> Finding:
    return Finding(about, "fine", what)


def remark(about: str, what: str, fix: str | None = None) -> Finding:
    """Something to know: agentfs works all the same."""
    return Finding(about, "remark", what, fix)


def wrong(about: str, what: str, fix: str) -> Finding:
    """Something that keeps agentfs, or a part of it, from working as it promises."""
    return Finding(about, "wrong", what, fix)


def is_well(findings: Iterable[Finding]) -> bool:
    return all(one.grade != "wrong" for one in findings)
