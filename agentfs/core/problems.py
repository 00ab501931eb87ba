"""What is wrong with a file, where, and how to mend it. Pure."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: what, where, and what to do about it."""

    message: str
    fix: str = ""
    pointer: str = ""
    line: int = 1
    column: int = 1
    quote: str = field(default="", compare=False, repr=False)  # the part that is wrong of the text at the pointer
    before: int = field(default=0, compare=False, repr=False)  # how often that part stands in the text before

    def at(self, line: int, column: int) -> "Problem":
        return replace(self, line=line, column=column)

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
        """Return `file:line:column: message (how to mend) [pointer]`, the form editors jump to."""
        fix = f" ({self.fix})" if self.fix else ""
        pointer = f" [{_printable(self.pointer)}]" if self.pointer else ""
        return f"{file}:{self.line}:{self.column}: {self.message}{fix}{pointer}"


def _printable(pointer: str) -> str:
    """Return a pointer that no terminal obeys: it may hold the name of any field that somebody wrote."""
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


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a suggestion for a misspelt word, or `otherwise`."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else otherwise
