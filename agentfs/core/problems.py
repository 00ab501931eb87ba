"""What is wrong with a file, where, and how to mend it. Pure."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: what, where, and what to do about it."""

    message: str
    mend: str = ""
    pointer: str = ""
    line: int = 1
    column: int = 1

    def at(self, line: int, column: int) -> "Problem":
        return replace(self, line=line, column=column)

    def shown(self, file: str) -> str:
        """Return `file:line:column: message (how to mend)`, the form editors jump to."""
        mend = f" ({self.mend})" if self.mend else ""
        return f"{file}:{self.line}:{self.column}: {self.message}{mend}"


class Rejected(Exception):
    """A document that cannot be taken, with every problem found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(p.message for p in problems))
        self.problems = tuple(problems)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a suggestion for a misspelt word, or `otherwise`."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else otherwise
