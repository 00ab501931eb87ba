"""Those who answer a call. A planner calls no tool and writes no file: it is asked, and it answers."""

from pathlib import Path
from typing import Protocol

from agentfs.core.facts import Facts
from agentfs.core.records import Answer, Author, Call
from agentfs.core.state import RunState


class Planner(Protocol):
    """Whoever may change a plan."""

    def author(self, facts: Facts) -> Author: ...

    def answer(self, call: Call, state: RunState, folder: Path) -> Answer: ...

    def plan_bytes(self, answer: Answer) -> bytes: ...
