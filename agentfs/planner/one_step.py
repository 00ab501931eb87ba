"""The plan that code writes: one step, `do`, in which one model does the whole goal. It is asked for checks only."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfs.core.facts import Facts
from agentfs.core.goal_file import ParsedGoal
from agentfs.core.hashing import PLAN_SCHEMA, check_value, in_order, overrides_of
from agentfs.core.planner_calls import DO
from agentfs.core.proof import wants_acceptance
from agentfs.core.records import Answer, Author, Call, FolderShown, JsonObject, Run
from agentfs.core.run_state import RunState
from agentfs.core.tool_spec import Catalogue
from agentfs.models.base import Model, ModelError, ModelSession
from agentfs.planner.acceptance import Acceptance, Look, Writer
from agentfs.planner.model import failed_call
from agentfs.planner.surroundings import HEAD, LookAround, look_around

_REFERENCE = re.compile(r"\{\{|\{step_")


@dataclass(frozen=True, slots=True)
class OneStep:
    """Answers with a plan of one step that has every tool the run may use, and with the goal's checks."""

    parsed: Callable[[str], ParsedGoal]
    catalogue: Catalogue
    workspace: Path
    model: Callable[[Run], Model | None]  # the executor's: it writes the acceptance checks
    look_around: LookAround = look_around

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002 - nobody but the code
        return Author(role="agentfs", name="agentfs")

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002
        return wants_acceptance(facts)

    def answer(self, call: Call, state: RunState, folder: Path, session: ModelSession, look: Look) -> Answer:
        goal, catalogue = self.parsed(call.goal_sha256), self.catalogue.under(state.facts.own_tools)
        try:
            accepted, shown = self._accept(state.facts, catalogue, folder, session, look)
        except ModelError as error:
            return _failed_answer(call, error, session)
        plan = loop_plan(goal, state.facts, catalogue, accepted, heads_in(shown.entries if shown else ()))
        return Answer(
            call=call.call,
            verdict="plan",
            plan=plan,
            answer="one model does it in one go",
            before=accepted.before,
            folder=shown,
            usage=session.usage,
            duration_s=0.0,
        )

    def _accept(
        self, facts: Facts, catalogue: Catalogue, folder: Path, session: ModelSession, look: Look
    ) -> tuple[Acceptance, FolderShown | None]:
        """Return the goal's checks, and the listing that the model saw which wrote them."""
        if not wants_acceptance(facts):
            own = facts.goal.checks if facts.run.proof is not None else ()
            return Acceptance(tuple(map(check_value, own)), ()), None
        material, _ = self.look_around(folder, facts.settings, self.workspace, None, facts.goal.text)
        writer = Writer(
            goal=facts.goal.text,
            listing=material.listing,
            catalogue=catalogue,
            model=self.model(facts.run),
            role="executor",
            session=session,
            look=look,
            workspace=self.workspace,
        )
        return writer.write_checks(), FolderShown(entries=material.listing, complete=material.complete)


def _failed_answer(call: Call, error: ModelError, session: ModelSession) -> Answer:
    """Return that there are no checks: the work does not begin without them."""
    verdict, failure = failed_call(error)
    return Answer(call=call.call, verdict=verdict, error=failure, usage=session.usage, duration_s=0.0)


def heads_in(listing: Sequence[str]) -> dict[str, str]:
    """Return how the files begin that a listing shows; not where one holds what would be taken for a reference."""
    heads: dict[str, str] = {}
    name = ""
    for line in listing:
        if line.startswith(HEAD):
            heads[name] = f"{heads.get(name, '')}{line.removeprefix(HEAD)}\n"
        else:
            name = line.rsplit("  ", 1)[0]
    return {name: text for name, text in heads.items() if "{" not in name and not _REFERENCE.search(text)}


def loop_plan(
    goal: ParsedGoal, facts: Facts, catalogue: Catalogue, accepted: Acceptance, heads: Mapping[str, str]
) -> JsonObject:
    """Return a plan of the one step `do`."""
    present = facts.plan.model_dump(mode="json", exclude_none=True) if facts.plan else {}
    step = {
        "id": DO,
        "description": goal.title,
        "input": {"goal": "{{goal}}", **({"files": dict(heads)} if heads else {})},
        "depends_on": [],
        "max_attempts": 1,
        "tools": [name for name in facts.settings.tools if name in catalogue.for_loops()],
    }
    if facts.run.proof is None and goal.fields.checks:  # a run of the first release: the step has them
        step["checks"] = [check_value(check) for check in goal.fields.checks]
    return {
        "$schema": PLAN_SCHEMA,
        "goal": goal.title,
        "status": present.get("status") or ("approved" if facts.run.approve == "never" else "draft"),
        **overrides_of(present),
        **({"checks": [*accepted.checks]} if accepted.checks else {}),
        "steps": [in_order(step)],
    }
