"""What lint looks at: a plan laid out, the folder around it, and what tools give back. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentfs.core.plan_graph import PlanGraph
from agentfs.core.problems import Problem
from agentfs.core.tool_spec import Catalogue

TEXT, NUMBER = "text", "a number"
SHAPES: dict[str, Any] = {  # what the outputs of the tools are made of, where that is fixed
    "read_file": TEXT,
    "note": TEXT,
    "ask": TEXT,
    "summarize": TEXT,
    "write_file": {"path": TEXT, "bytes": NUMBER},
    "edit_file": {"path": TEXT},
    "list_files": [TEXT],
    "search_files": [{"path": TEXT, "line": NUMBER, "text": TEXT}],
    "web_search": [{"title": TEXT, "url": TEXT, "snippet": TEXT}],
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The working folder as the planner was shown it."""

    workdir: str = "/"  # its real path
    readable: tuple[str, ...] = ()  # other folders that tools may read
    files: frozenset[str] = frozenset()  # relative to it
    folders: frozenset[str] = frozenset()
    complete: bool = False  # there is nothing else


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and whether it has to be put right."""

    problem: Problem
    hard: bool = True


@dataclass(frozen=True, slots=True)
class Linted:
    """A plan that has passed the check, and all there is to know about it."""

    scheme: PlanGraph
    new: tuple[str, ...]  # the steps to look at
    catalogue: Catalogue
    around: Surroundings
    _before: dict[str, int] = field(default_factory=dict)

    def at(self, step: str, pointer: str = "") -> str:
        return f"/steps/{self.scheme.place[step]}{pointer}"

    def before(self, step: str) -> int:
        """Return every step that this one comes after, as a set of bits: of thousands nothing else is small."""
        if not self._before:
            for one in self.scheme.order:
                needs = self.scheme.needs[one]
                self._before[one] = _joined((self.bits(needs), *(self._before[need] for need in needs)))
        return self._before[step]

    def bits(self, steps: Iterable[str]) -> int:
        """Return steps as a set of bits."""
        return _joined(1 << self.scheme.rank[step] for step in steps)


def _joined(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found
