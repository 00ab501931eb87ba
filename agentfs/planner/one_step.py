"""The plan that code writes: one step, `do`, in which one model does the whole goal. No model is asked for it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentfs.clock import Clock
from agentfs.core.canonical import overrides_of
from agentfs.core.catalogue import Catalogue
from agentfs.core.facts import Facts
from agentfs.core.goals import ParsedGoal
from agentfs.core.lenient import in_order
from agentfs.core.modes import DO
from agentfs.core.records import Answer, Author, Call, JsonObject
from agentfs.core.state import RunState
from agentfs.models.line import Line

SCHEMA = "../../../schemas/plan.schema.json"


@dataclass(frozen=True, slots=True)
class OneStep:
    """Answers with a plan of one step that has every tool the run may use, and the goal's checks as its own."""

    parsed: Callable[[str], ParsedGoal]
    catalogue: Catalogue
    clock: Clock

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002 - nobody but the code
        return Author(role="agentfs", name="agentfs")

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002
        return False

    def answer(self, call: Call, state: RunState, folder: Path, line: Line) -> Answer:  # noqa: ARG002
        began = self.clock.monotonic()
        catalogue = self.catalogue.under(state.facts.own_tools)
        plan = loop_plan(self.parsed(call.goal_sha256), state.facts, catalogue)
        took = round(self.clock.monotonic() - began, 6)
        return Answer(
            call=call.call, verdict="plan", plan=plan, answer="one model does it in one go", duration_s=took
        )


def loop_plan(goal: ParsedGoal, facts: Facts, catalogue: Catalogue) -> JsonObject:
    """Return a plan of the one step `do`."""
    present = facts.plan.model_dump(mode="json", exclude_none=True) if facts.plan else {}
    step = {
        "id": DO,
        "description": goal.title,
        "input": {"goal": "{{goal}}"},
        "depends_on": [],
        "max_attempts": 1,
        "tools": [name for name in facts.settings.tools if name in catalogue.usable()],
    }
    if checks := goal.fields.checks:
        step["checks"] = [check.model_dump(mode="json", by_alias=True, exclude_none=True) for check in checks]
    return {
        "$schema": SCHEMA,
        "goal": goal.title,
        "status": present.get("status") or ("approved" if facts.run.approve == "never" else "draft"),
        **overrides_of(present),
        "steps": [in_order(step)],
    }
