"""The answer that a client of `agentfs mcp` brings along: checked as a planner's is. No model, no tool."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfs.core.facts import Facts
from agentfs.core.planner_calls import ProposedEdit, proposed_edit
from agentfs.core.records import Answer, Author, Call, Failure, JsonObject
from agentfs.core.run_state import RunState
from agentfs.core.tool_spec import Catalogue
from agentfs.models.base import ModelSession
from agentfs.planner.acceptance import Look
from agentfs.planner.answer import plan_context
from agentfs.planner.evaluation import Evaluation, evaluate_answer
from agentfs.planner.model import present_plan, revision_plan
from agentfs.planner.prompt import Surroundings
from agentfs.storage.safe_open import read_text


@dataclass(frozen=True, slots=True)
class Proposed:
    """Answers a call with the edit that asked for it."""

    catalogue: Catalogue

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002
        return Author(role="planner", name=call.edit_by or "a client")

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002 - it is all in the wish
        return False

    def answer(self, call: Call, state: RunState, folder: Path, session: ModelSession, look: Look) -> Answer:  # noqa: ARG002
        edit = _edit_of(call, folder)
        fields = self._evaluate(edit, call, state, folder) if edit else _keep_plan("there is no edit in it")
        return Answer(call=call.call, duration_s=0.0, **fields)

    def _evaluate(self, edit: ProposedEdit, call: Call, state: RunState, folder: Path) -> dict[str, Any]:
        found = evaluate_edit(edit, call, state, folder, self.catalogue)
        if found.plan is None or not found.usable:
            return _keep_plan("; ".join(found.hard) or "it changes nothing")
        return {"verdict": "plan", "plan": found.plan, "answer": edit.detail}


def _edit_of(call: Call, folder: Path) -> ProposedEdit | None:
    """Return the edit that a call was made for, as the call has kept it."""
    for path in call.evidence:
        with suppress(OSError, ValueError):
            if edit := proposed_edit(read_text(folder / path)):
                return edit
    return None


def evaluate_edit(edit: ProposedEdit, call: Call, state: RunState, folder: Path, catalogue: Catalogue) -> Evaluation:
    """Return what an edit amounts to by a planner's rules; without a plan it changes nothing."""
    present = present_plan(folder, state.facts)
    if edit.base_sha256 != call.base_sha256 and _work_in(present) != _work_in(_plan_read(edit, state.facts, folder)):
        return Evaluation(hard=("the plan has changed since it was read: read it again, then propose the edit",))
    context = plan_context(call, state, present)
    allowed = catalogue.under(state.facts.own_tools)
    return evaluate_answer(json.dumps({"steps": edit.steps}), context, allowed, Surroundings(), lints=False)


def _plan_read(edit: ProposedEdit, facts: Facts, folder: Path) -> JsonObject | None:
    """Return the plan that a client read; None if it was no revision of this run."""
    read = next((one for one in facts.revisions if one.plan_sha256 == edit.base_sha256), None)
    return revision_plan(folder, read) if read else None


def _work_in(plan: JsonObject | None) -> JsonObject | None:
    """Return what a plan has to be done, without a person's switch and limits: an approval changes no step."""
    return plan and {name: value for name, value in plan.items() if name not in ("status", "limits")}


def _keep_plan(why: str) -> dict[str, Any]:
    """Return that the plan stays as it is, and why."""
    words = f"the proposed edit is not used: {why}"
    return {"verdict": "keep", "answer": words, "error": Failure(kind="input", message=why)}
