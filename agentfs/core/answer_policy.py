"""What a planner may not do, however well formed its plan: every trespass as a problem to put right. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentfs.core.hashing import canonical
from agentfs.core.problems import Problem, show_value
from agentfs.core.records import JsonObject
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.answer import PlanContext, Reply, StepValue
from agentfs.planner.answer_form import LONGEST_STEP_S

QUOTED_WORDS, SHORTEST_QUOTE = 3, 12  # words in a row, and their characters
_DOES = ("tool", "input", "checks", "success_condition")  # what makes a result count, beside what a model reads
_DOES_WITHOUT_TOOL = (*_DOES, "description", "model", "tools")


def verdict_problems(said: Reply, standing: PlanContext) -> list[Problem]:
    """Return why a verdict is no answer to this call."""
    found = [Problem(f"'{name}' is a person's to set", "leave it out", f"/{name}") for name in said.beside]
    if said.verdict == "keep" and not standing.may_keep:
        found.append(
            Problem("'keep' is no answer here: there is nothing to go on with", "answer with steps", "/keep")
        )
    if said.verdict == "finished" and not standing.may_finish:
        fix = "answer with the steps that reach the goal, if only one"
        found.append(Problem("'finished', but nothing has been done yet", fix, "/finished"))
    return found


def is_shown(why: str, evidence: str) -> bool:
    """Whether a reason for giving up quotes something: a few words of it stand in the goal or in a result."""
    said, known = _words_of(why), f" {' '.join(_words_of(evidence))} "
    runs = (" ".join(said[at : at + QUOTED_WORDS]) for at in range(max(1, len(said) - QUOTED_WORDS + 1)))
    return any(len(run) >= SHORTEST_QUOTE and f" {run} " in known for run in runs)


def _words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def plan_problems(
    listed: Sequence[StepValue], plan: JsonObject, standing: PlanContext, catalogue: Catalogue
) -> list[Problem]:
    """Return what an answer's steps may not do. `listed`: as they were answered; `plan`: as they were merged."""
    steps: Any = plan["steps"]
    places = {step["id"]: place for place, step in reversed([*enumerate(steps)]) if _has_id(step)}
    new = [step for step in steps if _has_id(step) and step["id"] not in standing.kept]
    return [
        *_too_few_or_many(steps, standing),
        *_rewritten(listed, standing, places),
        *_own_words(new, standing, places, catalogue),
        *_gates(new, standing, places),
        *_schemas(new, places),
    ]


def _too_few_or_many(steps: Sequence[Any], standing: PlanContext) -> Iterator[Problem]:
    new = len(steps) - len(standing.kept)
    if new == 0:
        fix = 'add what is still to be done under new ids, or answer {"finished": true, "answer": …}'
        yield Problem("every step of this plan is finished: nothing would happen", fix, "/steps")
    if standing.mode == "stepwise" and new > 1:
        fix = "answer with the next one only; you are asked again when it is done"
        yield Problem(f"{new} steps, but this run takes one step at a time", fix, "/steps")


def _rewritten(listed: Sequence[Any], standing: PlanContext, places: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each finished step that the answer makes into another one."""
    for given in listed:
        kept = standing.kept.get(given["id"]) if _has_id(given) else None
        if kept is None:
            continue
        fields = _DOES if kept.get("tool") else _DOES_WITHOUT_TOOL
        for name in fields:
            if name in given and canonical(given[name]) != canonical(kept.get(name)):
                fix = "leave it out, or as it is; what is to be done anew gets a new id"
                message = f"the step {kept['id']!r} is finished: its {name!r} cannot change any more"
                yield Problem(message, fix, f"/steps/{places[kept['id']]}/{name}")


def _own_words(
    new: Sequence[StepValue], standing: PlanContext, places: Mapping[str, int], catalogue: Catalogue
) -> Iterator[Problem]:
    """Yield what only a person may say of a step, unless it says so already."""
    for step in new:
        before, pointer = standing.open.get(step["id"], {}), f"/steps/{places[step['id']]}"
        if "skip" in step:
            message = f"'skip' of {step['id']!r} is a person's to set"
            yield Problem(message, "leave the step out instead", f"{pointer}/skip")
        if step.get("repeatable") is True and before.get("repeatable") is not True and not _harmless(step, catalogue):
            message = f"{step['id']!r} cannot be made repeatable: its tool may do something twice"
            yield Problem(message, "leave 'repeatable' out", f"{pointer}/repeatable")
        yield from _bounds(step, before, pointer, catalogue)


def _bounds(step: StepValue, before: StepValue, pointer: str, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield a model that a planner may not name, and a time that is too long, unless a person set it."""
    model, timeout = step.get("model"), step.get("timeout_s")
    if isinstance(model, str) and model not in (*catalogue.models, before.get("model")):
        message = f"{step['id']!r} names the model {show_value(model)}, which is not in [executor] models"
        others = f"leave 'model' out, or name {' or '.join(catalogue.models)}" if catalogue.models else "leave it out"
        yield Problem(message, others, f"{pointer}/model")
    if _is_longer(timeout, LONGEST_STEP_S) and timeout != before.get("timeout_s"):
        message = f"timeout_s of {step['id']!r} is more than {LONGEST_STEP_S} seconds"
        yield Problem(message, f"write at most {LONGEST_STEP_S}", f"{pointer}/timeout_s")


def _is_longer(seconds: Any, most: float) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > most


def _harmless(step: StepValue, catalogue: Catalogue) -> bool:
    tools = [step["tool"]] if "tool" in step else step.get("tools")
    if not isinstance(tools, list):
        return False
    return all(isinstance(one, str) and one in catalogue.tools and catalogue.tools[one].repeatable for one in tools)


def _gates(new: Sequence[StepValue], standing: PlanContext, places: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each gate that the answer drops, under the same id or another."""
    gated = {name: step for name, step in standing.open.items() if step.get("gate") is True}
    gone = {_deed(step): name for name, step in gated.items() if name not in places}
    for step in new:
        was = step["id"] if step["id"] in gated else gone.get(_deed(step))
        if was is not None and step.get("gate") is not True:
            message = f"the step {was!r} has a gate, which only a person may remove"
            yield Problem(message, 'add "gate": true', f"/steps/{places[step['id']]}/gate")


def _schemas(new: Sequence[StepValue], places: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each schema that is text and no JSON: the check would say nothing of text."""
    fix = 'write a JSON Schema, as text where the form wants text: "{\\"type\\": \\"array\\"}"'
    for step in new:
        checks = [*_numbered(step, "needs"), *_numbered(step, "checks")]
        for pointer, given in [("/expects", step.get("expects")), *checks]:
            if isinstance(given, str):
                message = f"{show_value(given)} is no JSON Schema"
                yield Problem(message, fix, f"/steps/{places[step['id']]}{pointer}")


def _numbered(step: StepValue, name: str) -> Iterator[tuple[str, Any]]:
    checks = step.get(name)
    for place, check in enumerate(checks if isinstance(checks, list) else ()):
        if isinstance(check, dict):
            yield f"/{name}/{place}/schema", check.get("schema")


def _deed(step: StepValue) -> bytes:
    return canonical([step.get("tool") or step.get("description"), step.get("input")])


def _has_id(step: Any) -> bool:
    return isinstance(step, dict) and isinstance(step.get("id"), str)
