"""A second pair of eyes: the executor's model may change the input of a planned tool step that failed. Calls no tool.

It is asked once per step, before the planner is. What it answers is checked like any answer; where that cannot be
used, nothing is reported, and the planner is called for the same.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfs.core.excerpts import fence_text, head_and_tail
from agentfs.core.facts import Facts
from agentfs.core.records import Answer, Author, Call, JsonObject, Result, Run
from agentfs.core.run_state import RunState
from agentfs.core.tool_spec import Catalogue
from agentfs.models.base import Form, Garbled, Model, ModelError, ModelSession, Refused, Request
from agentfs.models.text_protocol import find_json
from agentfs.planner.acceptance import Look
from agentfs.planner.answer import PlanContext, plan_context
from agentfs.planner.answer_form import input_form, tool_input
from agentfs.planner.evaluation import evaluate_answer
from agentfs.planner.model import failed_call, present_plan, reply_text
from agentfs.planner.prompt import Surroundings
from agentfs.prompts import load_prompt

_SHOWN = 4_000  # characters of an error


@dataclass(frozen=True, slots=True)
class Repair:
    """Answers a call about a failed step with another input for it, or with nothing."""

    model: Callable[[Run], Model | None]
    catalogue: Catalogue
    workspace: Path

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002
        model = self.model(facts.run)
        return Author(role="planner", name="executor", model=model.name if model else None)

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002
        return True

    def answer(self, call: Call, state: RunState, folder: Path, session: ModelSession, look: Look) -> Answer:  # noqa: ARG002
        prompt = load_prompt("repair", self.workspace)
        fields: dict[str, Any] = {"verdict": "keep"}
        try:
            if (plan := self._repair(call, state, folder, session, prompt.text)) is not None:
                fields = {"verdict": "plan", "plan": plan, "answer": f"another input for {call.step}"}
        except (Refused, Garbled) as error:
            fields |= {"error": error.failure}
        except ModelError as error:
            fields["verdict"], fields["error"] = failed_call(error)
        return Answer(call=call.call, prompt_sha256=prompt.sha256, usage=session.usage, duration_s=0.0, **fields)

    def _repair(
        self, call: Call, state: RunState, folder: Path, session: ModelSession, prompt: str
    ) -> JsonObject | None:
        """Return the plan with another input for the step; None where there is none that can be used."""
        context = plan_context(call, state, present_plan(folder, state.facts))
        step, model = context.open.get(call.step or ""), self.model(state.facts.run)
        catalogue = self.catalogue.under(state.facts.own_tools)
        if step is None or model is None or step.get("tool") not in catalogue.tools:
            return None
        spec = catalogue.tools[step["tool"]]
        view = state.steps[step["id"]]
        messages: tuple[JsonObject, ...] = (
            {"role": "system", "content": prompt},
            {"role": "user", "content": _case(step, view.result, state.facts.goal.title)},
        )
        request = Request("executor", messages, form=Form("repair", input_form(spec)))
        given = _object_in(reply_text(model.complete(request, session))).get("input")
        if not isinstance(given, dict):
            return None
        return _change_input(context, step, tool_input(given, spec), catalogue)


def _change_input(
    context: PlanContext, step: Mapping[str, Any], given: Any, catalogue: Catalogue
) -> JsonObject | None:
    steps = [{**one, "input": given} if one["id"] == step["id"] else one for one in context.open.values()]
    evaluation = evaluate_answer(json.dumps({"steps": steps}), context, catalogue, Surroundings())
    return evaluation.plan if evaluation.usable and evaluation.verdict == "plan" else None


def _case(step: Mapping[str, Any], result: Result | None, goal: str) -> str:
    shown = {name: step[name] for name in ("id", "description", "tool", "input", "success_condition") if name in step}
    error = result.error.message if result and result.error else "(nothing is known)"
    return "\n\n".join(
        (
            f"# The step\n\n{fence_text(json.dumps(shown, ensure_ascii=False, indent=2))}",
            f"# What went wrong\n\n{fence_text(head_and_tail(error, _SHOWN))}",
            f"# What it is for\n\n{goal}",
        )
    )


def _object_in(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(find_json(text) or "null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
