"""Those who answer a call. A planner calls no tool and writes no file: it is asked, and it answers."""

from pathlib import Path
from typing import Protocol

from agentfs.core.facts import Facts
from agentfs.core.records import Answer, Author, Call
from agentfs.core.run_state import RunState
from agentfs.models.line import Line
from agentfs.planner.acceptance import Look


class Planner(Protocol):
    """Whoever may change a plan."""

    def author(self, call: Call, facts: Facts) -> Author:
        """Return whose revision the answer to a call becomes."""
        ...

    def takes_time(self, call: Call, facts: Facts) -> bool:
        """Whether somebody has to wait for the answer: then nobody else should."""
        ...

    def answer(self, call: Call, state: RunState, folder: Path, line: Line, look: Look) -> Answer:
        """Return the answer, whatever happens: what goes wrong is an answer that failed. Writes no file.

        `look`: runs acceptance checks before the work.
        """
        ...
