"""Those who answer a call. A planner calls no tool and writes no file: it is asked, and it answers."""

from pathlib import Path
from typing import Protocol

from agentfs.core.facts import Facts
from agentfs.core.records import Answer, Author, Call
from agentfs.core.run_state import RunState
from agentfs.models.base import ModelSession
from agentfs.planner.acceptance import Look


class Planner(Protocol):
    """Whoever may change a plan."""

    def author(self, call: Call, facts: Facts) -> Author:
        """Return whose revision the answer to a call becomes."""
        ...

    def takes_time(self, call: Call, facts: Facts) -> bool:
        """Whether the answer takes time: then nothing else should wait for it."""
        ...

    def answer(self, call: Call, state: RunState, folder: Path, line: ModelSession, look: Look) -> Answer:
        """Return the answer, whatever happens: what goes wrong is an answer that failed. Writes no file.

        `look`: runs acceptance checks before the work.
        """
        ...
