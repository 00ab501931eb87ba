"""The planner of a goal that brings its own steps: a runbook, or a plan in JSON or YAML. No model, no tool."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentfs.core import paths
from agentfs.core.facts import Facts
from agentfs.core.goal_file import ParsedGoal
from agentfs.core.records import Answer, Author, Call, PlanStatus
from agentfs.core.run_state import RunState
from agentfs.models.base import ModelSession
from agentfs.planner.acceptance import Look
from agentfs.planner.runbook import Situation, answer
from agentfs.storage.clock import Clock
from agentfs.storage.files import read_whole


@dataclass(frozen=True, slots=True)
class OwnSteps:
    """Answers from the goal file alone."""

    parsed: Callable[[str], ParsedGoal]  # the goal with this sha256, as it was read
    clock: Clock

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002 - whatever it was called for
        return Author(role="runbook", name=facts.goal.title)

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002 - it is all in the goal
        return False

    def answer(self, call: Call, state: RunState, folder: Path, line: ModelSession, look: Look) -> Answer:  # noqa: ARG002 - asks nobody
        """Return what the goal's own steps say to a trigger."""
        began = self.clock.monotonic()
        goal = self.parsed(call.goal_sha256)
        said = answer(goal, call.trigger, situation(goal, state, folder))
        return Answer(
            call=call.call,
            verdict=said.verdict,
            plan=said.plan,
            answer=said.question or said.answer,
            duration_s=round(self.clock.monotonic() - began, 6),
        )


def situation(goal: ParsedGoal, state: RunState, folder: Path) -> Situation:
    """Return what has happened, as far as a runbook's answer depends on it."""
    plan = None
    if state.facts.revisions:
        number = state.facts.revisions[-1].revision
        plan = json.loads(read_whole(folder / paths.REVISIONS / paths.revision_plan_file(number)))
    views = state.steps.values()
    pending = [view for view in views if view.move == "call"]
    return Situation(
        status=first_status(goal, state.facts),
        plan=plan,
        done=frozenset(view.id for view in views if view.status == "done"),
        used=frozenset(state.facts.attempts),
        failed=tuple(view.id for view in pending if view.status != "done"),
        rejected=frozenset(view.id for view in pending if view.status == "rejected"),
        surprises={
            view.id: view.result.surprise or ""
            for view in pending
            if view.status == "done" and view.result is not None
        },
    )


def first_status(goal: ParsedGoal, facts: Facts) -> PlanStatus:
    """A person's own plan starts approved, unless it or the settings say otherwise: no goal approves itself."""
    said = goal.fields.status or "approved"
    return "draft" if said == "approved" and facts.run.approve != "never" else said
