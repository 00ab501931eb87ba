"""Who answers a call: the goal's own steps, code, or a model. A planner calls no tool and writes no file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentfs.core.facts import Facts
from agentfs.core.planner_calls import is_forks_own, loops, starts_as_loop
from agentfs.core.records import Answer, Author, Call, Failure
from agentfs.core.run_state import RunState
from agentfs.models.base import ModelSession
from agentfs.planner.acceptance import Look


class Planner(Protocol):
    """Something that may change a plan."""

    def author(self, call: Call, facts: Facts) -> Author:
        """Return whose revision the answer to a call becomes."""
        ...

    def takes_time(self, call: Call, facts: Facts) -> bool:
        """Whether the answer takes time: then nothing else should wait for it."""
        ...

    def answer(self, call: Call, state: RunState, folder: Path, session: ModelSession, look: Look) -> Answer:
        """Return the answer, whatever happens: what goes wrong is an answer that failed. Writes no file.

        `look`: runs acceptance checks before the work. How long it took is for the caller to note.
        """
        ...


NO_PLANNER = Failure(
    kind="unreachable",
    message="no model is configured to plan with",
    hint="set OPENAI_API_KEY, or base_url under [planner] in agentfs.toml; then resume the run",
)

NEVER_A_PLANNER = Failure(
    kind="unreachable",
    message="this run began without a model to plan with",
    hint="set OPENAI_API_KEY, or base_url under [planner] in agentfs.toml; then fork the run",
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of several planners, by what the goal is and what the run has become."""

    own: Planner  # a goal that brings its own steps answers for itself
    loop: Planner  # code: one step for the whole goal
    model: Planner
    proposed: Planner  # what a client of `agentfs mcp` brings along
    repair: Planner  # the executor's model: it may change the input of one step
    executor: bool  # there is a model to do steps with

    def author(self, call: Call, facts: Facts) -> Author:
        if is_forks_own(call, facts.run):
            return Author(role="agentfs", name="agentfs")
        return self._who(call, facts).author(call, facts)

    def takes_time(self, call: Call, facts: Facts) -> bool:
        return self._who(call, facts).takes_time(call, facts)

    def answer(self, call: Call, state: RunState, folder: Path, session: ModelSession, look: Look) -> Answer:
        return self._who(call, state.facts).answer(call, state, folder, session, look)

    def _who(self, call: Call, facts: Facts) -> Planner:
        if call.edit_by is not None:
            return self.proposed
        if facts.goal.has_steps:
            return self.own
        if call.role == "executor":
            return self.repair
        begins = call.trigger == "first" and starts_as_loop(facts.run, executor=self.executor)
        if begins or (call.trigger == "goal_changed" and loops(facts)):
            return self.loop
        return self.model


@dataclass(frozen=True, slots=True)
class Nobody:
    """The planner where no model is configured: every call fails, and says what to set."""

    why: Failure = NO_PLANNER

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002
        """Return who answered a call before, where its plan is still to be recorded."""
        return Author(role="planner", name="planner", model=facts.run.models.planner)

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002
        return False

    def answer(self, call: Call, state: RunState, folder: Path, session: ModelSession, look: Look) -> Answer:  # noqa: ARG002
        return Answer(call=call.call, verdict="failed", error=self.why, duration_s=0.0)
