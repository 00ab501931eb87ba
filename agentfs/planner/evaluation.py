"""A reply evaluated: the answer it amounts to, and everything that is wrong with it. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from agentfs.core.documents import Document
from agentfs.core.hashing import canonical
from agentfs.core.plan_changes import changes
from agentfs.core.plan_check import check_plan, strict
from agentfs.core.problems import Problem, Rejected, in_words, show_value
from agentfs.core.records import JsonObject, Plan
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.answer import (
    Said,
    SaidVerdict,
    Standing,
    StepValue,
    kept_plan,
    loosened,
    merged,
    plan_of,
    read_answer,
)
from agentfs.planner.answer_form import LONGEST_STEP_S
from agentfs.planner.lint import Surroundings, lint

UNSHOWN = (
    "impossible: nothing shows what stands in the way -> quote the words of the goal or of a result that say so, or "
    "answer with steps that try another way"
)
_ENDS_THE_RUN = {
    "step_unreachable": "the step that cannot be reached would end the run",
    "goal_checks_failed": "the goal's checks still do not hold, and the run would end",
}


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a reply amounts to. It can be used if nothing in it is hard."""

    verdict: SaidVerdict = "plan"
    plan: JsonObject | None = None
    answer: JsonValue = None
    hard: tuple[str, ...] = ()  # has to be put right, in words
    soft: tuple[str, ...] = ()  # may be meant
    checks: tuple[Any, ...] = ()  # acceptance checks, as they were answered

    @property
    def usable(self) -> bool:
        return not self.hard


def weigh(
    text: str,
    standing: Standing,
    catalogue: Catalogue,
    around: Surroundings,
    check_stop: Callable[[], None] = lambda: None,
) -> Weighed:
    """Return what a reply amounts to as the answer to a call. `check_stop` is called often, and raises to end it."""
    try:
        said = read_answer(text, catalogue)
    except Rejected as rejected:
        return Weighed(hard=_told(rejected.problems))
    hard = _told(verdict_problems(said, standing))
    match said.verdict:
        case "keep" if standing.plan is not None and _has_other_checks(standing):
            return Weighed("plan", plan_of(standing.steps, standing), hard=hard)
        case "keep":
            return Weighed("keep", hard=hard)
        case "finished":
            return Weighed("finished", kept_plan(standing), said.answer, hard)
        case "impossible":
            doubts = () if is_shown(said.why, standing.evidence) else (UNSHOWN,)
            return Weighed("impossible", None, said.why, hard, doubts)
        case _:
            check_stop()
            return _weighed_plan(said, standing, catalogue, around, hard, check_stop)


def _weighed_plan(
    said: Said,
    standing: Standing,
    catalogue: Catalogue,
    around: Surroundings,
    hard: tuple[str, ...],
    check_stop: Callable[[], None],
) -> Weighed:
    listed = loosened(said.steps, standing, catalogue)
    plan = merged(listed, standing)
    trespasses = plan_problems(listed, plan, standing, catalogue)
    hard += _told(trespasses, plan)
    check_stop()
    try:
        checked = check_plan(Document(plan), catalogue)
    except Rejected as rejected:
        known = {problem.pointer for problem in trespasses}
        others = (problem for problem in rejected.problems if problem.pointer not in known)
        return Weighed("plan", plan, hard=(*hard, *_told(others, plan)))
    found = lint(
        checked, standing.kept, catalogue, around, stepwise=standing.mode == "stepwise", check_stop=check_stop
    )
    weighed = Weighed(
        "plan",
        plan,
        checks=tuple(said.checks),
        hard=(*hard, *_told((one.problem for one in found if one.hard), plan)),
        soft=_told((one.problem for one in found if not one.hard), plan),
    )
    return _unchanged(weighed, standing) if weighed.usable and _is_same(checked, standing) else weighed


def _has_other_checks(standing: Standing) -> bool:
    """Whether the goal was edited so that its checks are others: then even a plan that is kept gets them."""
    present: Any = (standing.plan or {}).get("checks") or []
    return standing.wants_checks or list(standing.checks) != present


def _is_same(plan: Plan, standing: Standing) -> bool:
    present = strict(standing.plan, Plan)[0] if standing.plan is not None else None
    return present is not None and not changes(present, plan)


def _unchanged(weighed: Weighed, standing: Standing) -> Weighed:
    """A plan that changes nothing keeps the present one, where that is an answer."""
    ends = [_ENDS_THE_RUN[one] for one in sorted(standing.triggers) if one in _ENDS_THE_RUN]
    if standing.may_keep and not ends:
        return Weighed("keep")
    because = ends[0] if ends else "there is nothing to go on with"
    problem = Problem(f"this is the plan as it stands: {because}", "change what has to change", "/steps")
    return replace(weighed, hard=_told([problem]))


# ── in words ──────────────────────────────────────────────────────────────────────────────────────────────


def _told(problems: Iterable[Problem], plan: JsonObject | None = None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(in_words(problem, plan) for problem in problems))


# ── what a planner may not do, however well formed its plan ──────────────────────────────────────────────


QUOTED_WORDS, SHORTEST_QUOTE = 3, 12  # words in a row, and their characters
_DOES = ("tool", "input", "checks", "success_condition")  # what makes a result count, beside what a model reads
_DOES_WITHOUT_TOOL = (*_DOES, "description", "model", "tools")


def verdict_problems(said: Said, standing: Standing) -> list[Problem]:
    """Return why a verdict is no answer to this call."""
    found = [Problem(f"'{name}' is a person's to set", "leave it out", f"/{name}") for name in said.beside]
    if said.verdict == "keep" and not standing.may_keep:
        found.append(
            Problem("'keep' is no answer here: there is nothing to go on with", "answer with steps", "/keep")
        )
    if said.verdict == "finished" and not standing.may_finish:
        mend = "answer with the steps that reach the goal, if only one"
        found.append(Problem("'finished', but nothing has been done yet", mend, "/finished"))
    return found


def is_shown(why: str, evidence: str) -> bool:
    """Whether a reason for giving up quotes something: a few words of it stand in the goal or in a result."""
    said, known = _words_of(why), f" {' '.join(_words_of(evidence))} "
    runs = (" ".join(said[at : at + QUOTED_WORDS]) for at in range(max(1, len(said) - QUOTED_WORDS + 1)))
    return any(len(run) >= SHORTEST_QUOTE and f" {run} " in known for run in runs)


def _words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def plan_problems(
    listed: Sequence[StepValue], plan: JsonObject, standing: Standing, catalogue: Catalogue
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


def _too_few_or_many(steps: Sequence[Any], standing: Standing) -> Iterator[Problem]:
    new = len(steps) - len(standing.kept)
    if new == 0:
        mend = 'add what is still to be done under new ids, or answer {"finished": true, "answer": …}'
        yield Problem("every step of this plan is finished: nothing would happen", mend, "/steps")
    if standing.mode == "stepwise" and new > 1:
        mend = "answer with the next one only; you are asked again when it is done"
        yield Problem(f"{new} steps, but this run takes one step at a time", mend, "/steps")


def _rewritten(listed: Sequence[Any], standing: Standing, places: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each finished step that the answer makes into another one."""
    for given in listed:
        kept = standing.kept.get(given["id"]) if _has_id(given) else None
        if kept is None:
            continue
        fields = _DOES if kept.get("tool") else _DOES_WITHOUT_TOOL
        for name in fields:
            if name in given and canonical(given[name]) != canonical(kept.get(name)):
                mend = "leave it out, or as it is; what is to be done anew gets a new id"
                message = f"the step {kept['id']!r} is finished: its {name!r} cannot change any more"
                yield Problem(message, mend, f"/steps/{places[kept['id']]}/{name}")


def _own_words(
    new: Sequence[StepValue], standing: Standing, places: Mapping[str, int], catalogue: Catalogue
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


def _gates(new: Sequence[StepValue], standing: Standing, places: Mapping[str, int]) -> Iterator[Problem]:
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
    mend = 'write a JSON Schema, as text where the form wants text: "{\\"type\\": \\"array\\"}"'
    for step in new:
        checks = [*_numbered(step, "needs"), *_numbered(step, "checks")]
        for pointer, given in [("/expects", step.get("expects")), *checks]:
            if isinstance(given, str):
                message = f"{show_value(given)} is no JSON Schema"
                yield Problem(message, mend, f"/steps/{places[step['id']]}{pointer}")


def _numbered(step: StepValue, name: str) -> Iterator[tuple[str, Any]]:
    checks = step.get(name)
    for place, check in enumerate(checks if isinstance(checks, list) else ()):
        if isinstance(check, dict):
            yield f"/{name}/{place}/schema", check.get("schema")


def _deed(step: StepValue) -> bytes:
    return canonical([step.get("tool") or step.get("description"), step.get("input")])


def _has_id(step: Any) -> bool:
    return isinstance(step, dict) and isinstance(step.get("id"), str)
