"""A reply evaluated: the answer it amounts to, and everything that is wrong with it. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from agentfs.core.documents import Document
from agentfs.core.hashing import canonical
from agentfs.core.plan_changes import changes
from agentfs.core.plan_check import check_plan, to_record
from agentfs.core.problems import Problem, Rejected, in_words, show_value
from agentfs.core.records import JsonObject, Plan
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.answer import (
    PlanContext,
    Reply,
    ReplyVerdict,
    StepValue,
    build_plan,
    kept_plan,
    merge_steps,
    read_answer,
    spell_out_steps,
)
from agentfs.planner.answer_form import LONGEST_STEP_S
from agentfs.planner.prompt import Surroundings

UNSHOWN = (
    "impossible: nothing shows what prevents it -> quote the words of the goal or of a result that say so, or "
    "answer with steps that try another way"
)
_ENDS_THE_RUN = {
    "step_unreachable": "the step that cannot be reached would end the run",
    "goal_checks_failed": "the goal's checks still do not hold, and the run would end",
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a reply amounts to. It can be used if nothing in it is hard."""

    verdict: ReplyVerdict = "plan"
    plan: JsonObject | None = None
    answer: JsonValue = None
    hard: tuple[str, ...] = ()  # has to be put right, in words
    soft: tuple[str, ...] = ()  # may be meant
    checks: tuple[Any, ...] = ()  # acceptance checks, as they were answered

    @property
    def usable(self) -> bool:
        return not self.hard


def evaluate_answer(
    text: str,
    context: PlanContext,
    catalogue: Catalogue,
    around: Surroundings,
    check_stop: Callable[[], None] = lambda: None,
    *,
    lints: bool = True,
) -> Evaluation:
    """Return what a reply amounts to as the answer to a call. `check_stop` is called often, and raises to end it.

    `lints`: also what planners get wrong in plans that look right; not where a person looks at it anyway.
    """
    try:
        reply = read_answer(text, catalogue)
    except Rejected as rejected:
        return Evaluation(hard=_in_words(rejected.problems))
    hard = _in_words(verdict_problems(reply, context))
    match reply.verdict:
        case "keep" if context.plan is not None and _has_other_checks(context):
            return Evaluation("plan", build_plan(context.steps, context), hard=hard)
        case "keep":
            return Evaluation("keep", hard=hard)
        case "finished":
            return Evaluation("finished", kept_plan(context), reply.answer, hard)
        case "impossible":
            doubts = () if quotes_evidence(reply.why, context.evidence) else (UNSHOWN,)
            return Evaluation("impossible", None, reply.why, hard, doubts)
        case _:
            check_stop()
            return _evaluate_plan(reply, context, catalogue, around, hard, check_stop, lints=lints)


def _evaluate_plan(
    reply: Reply,
    context: PlanContext,
    catalogue: Catalogue,
    around: Surroundings,
    hard: tuple[str, ...],
    check_stop: Callable[[], None],
    *,
    lints: bool,
) -> Evaluation:
    from agentfs.planner.lint import lint  # it compiles many patterns, and only what a model writes needs them

    listed = spell_out_steps(reply.steps, context, catalogue)
    plan = merge_steps(listed, context)
    trespasses = plan_problems(listed, plan, context, catalogue)
    hard += _in_words(trespasses, plan)
    check_stop()
    try:
        checked = check_plan(Document(plan), catalogue)
    except Rejected as rejected:
        known = {problem.pointer for problem in trespasses}
        others = (problem for problem in rejected.problems if problem.pointer not in known)
        return Evaluation("plan", plan, hard=(*hard, *_in_words(others, plan)))
    stepwise = context.mode == "stepwise"
    found = lint(checked, context.kept, catalogue, around, stepwise=stepwise, check_stop=check_stop) if lints else []
    evaluation = Evaluation(
        "plan",
        plan,
        checks=tuple(reply.checks),
        hard=(*hard, *_in_words((one.problem for one in found if one.hard), plan)),
        soft=_in_words((one.problem for one in found if not one.hard), plan),
    )
    return _refuse_unchanged(evaluation, context) if evaluation.usable and _is_same(checked, context) else evaluation


def _has_other_checks(context: PlanContext) -> bool:
    """Whether the goal was edited so that its checks are others: then even a plan that is kept gets them."""
    present: Any = (context.plan or {}).get("checks") or []
    return context.wants_checks or list(context.checks) != present


def _is_same(plan: Plan, context: PlanContext) -> bool:
    present = to_record(context.plan, Plan)[0] if context.plan is not None else None
    return present is not None and not changes(present, plan)


def _refuse_unchanged(evaluation: Evaluation, context: PlanContext) -> Evaluation:
    """A plan that changes nothing keeps the present one, where that is an answer."""
    ends = [_ENDS_THE_RUN[one] for one in sorted(context.triggers) if one in _ENDS_THE_RUN]
    if context.may_keep and not ends:
        return Evaluation("keep")
    because = ends[0] if ends else "there is nothing to go on with"
    problem = Problem(f"this is the present plan: {because}", "change what has to change", "/steps")
    return replace(evaluation, hard=_in_words([problem]))


# ── in words ──────────────────────────────────────────────────────────────────────────────────────────────


def _in_words(problems: Iterable[Problem], plan: JsonObject | None = None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(in_words(problem, plan) for problem in problems))


# ── what a planner may not do, however well formed its plan ──────────────────────────────────────────────


QUOTED_WORDS, SHORTEST_QUOTE = 3, 12  # words in a row, and their characters
_DOES = ("tool", "input", "checks", "success_condition")  # what makes a result count, beside what a model reads
_DOES_WITHOUT_TOOL = (*_DOES, "description", "model", "tools", "agent")


def verdict_problems(reply: Reply, context: PlanContext) -> list[Problem]:
    """Return why a verdict is no answer to this call."""
    found = [Problem(f"'{name}' is a person's to set", "leave it out", f"/{name}") for name in reply.beside]
    if reply.verdict == "keep" and not context.may_keep:
        found.append(
            Problem("'keep' is no answer here: there is nothing to go on with", "answer with steps", "/keep")
        )
    if reply.verdict == "finished" and not context.may_finish:
        fix = "answer with the steps that reach the goal, if only one"
        found.append(Problem("'finished', but nothing has been done yet", fix, "/finished"))
    return found


def quotes_evidence(why: str, evidence: str) -> bool:
    """Whether a reason for giving up quotes something: a few words of it are in the goal or in a result."""
    reply, known = _words_of(why), f" {' '.join(_words_of(evidence))} "
    runs = (" ".join(reply[at : at + QUOTED_WORDS]) for at in range(max(1, len(reply) - QUOTED_WORDS + 1)))
    return any(len(run) >= SHORTEST_QUOTE and f" {run} " in known for run in runs)


def _words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def plan_problems(
    listed: Sequence[StepValue], plan: JsonObject, context: PlanContext, catalogue: Catalogue
) -> list[Problem]:
    """Return what an answer's steps may not do. `listed`: as they were answered; `plan`: as they were merged."""
    steps: Any = plan["steps"]
    places = {step["id"]: place for place, step in reversed([*enumerate(steps)]) if _has_id(step)}
    new = [step for step in steps if _has_id(step) and step["id"] not in context.kept]
    return [
        *_too_few_or_many(steps, context),
        *_find_rewritten(listed, context, places),
        *_own_words(new, context, places, catalogue),
        *_gates(new, context, places),
        *_schemas(new, places),
    ]


def _too_few_or_many(steps: Sequence[Any], context: PlanContext) -> Iterator[Problem]:
    new = len(steps) - len(context.kept)
    if new == 0:
        fix = 'add what is still to be done under new ids, or answer {"finished": true, "answer": …}'
        yield Problem("every step of this plan is finished: nothing would happen", fix, "/steps")
    if context.mode == "stepwise" and new > 1:
        fix = "answer with the next one only; you are asked again when it is done"
        yield Problem(f"{new} steps, but this run takes one step at a time", fix, "/steps")


def _find_rewritten(listed: Sequence[Any], context: PlanContext, places: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each finished step that the answer makes into another one."""
    for given in listed:
        kept = context.kept.get(given["id"]) if _has_id(given) else None
        if kept is None:
            continue
        fields = _DOES if kept.get("tool") else _DOES_WITHOUT_TOOL
        for name in fields:
            if name in given and canonical(given[name]) != canonical(kept.get(name)):
                fix = "leave it out, or as it is; what is to be done again gets a new id"
                message = f"the step {kept['id']!r} is finished: its {name!r} cannot change any more"
                yield Problem(message, fix, f"/steps/{places[kept['id']]}/{name}")


def _own_words(
    new: Sequence[StepValue], context: PlanContext, places: Mapping[str, int], catalogue: Catalogue
) -> Iterator[Problem]:
    """Yield what only a person may say of a step, unless it says so already."""
    for step in new:
        before, pointer = context.open.get(step["id"], {}), f"/steps/{places[step['id']]}"
        if "skip" in step:
            message = f"'skip' of {step['id']!r} is a person's to set"
            yield Problem(message, "leave the step out instead", f"{pointer}/skip")
        if step.get("repeatable") is True and before.get("repeatable") is not True and not _harmless(step, catalogue):
            message = f"{step['id']!r} cannot be made repeatable: its tool may do something twice"
            yield Problem(message, "leave 'repeatable' out", f"{pointer}/repeatable")
        yield from _bounds(step, before, pointer, catalogue)


def _bounds(step: StepValue, before: StepValue, pointer: str, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what a planner may not name or set, unless a person did: models, agents, places, long times."""
    named = (
        ("model", catalogue.models, "in [executor] models"),
        ("agent", catalogue.usable_agents(), "among those of the settings"),
        ("place", catalogue.places, "among those of the settings"),
    )
    for field, known, where in named:
        given = step.get(field)
        if isinstance(given, str) and given not in (*known, before.get(field)):
            message = f"{step['id']!r} names the {field} {show_value(given)}, which is not {where}"
            others = f"leave {field!r} out, or name {' or '.join(known)}" if known else "leave it out"
            yield Problem(message, others, f"{pointer}/{field}")
    timeout = step.get("timeout_s")
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


def _gates(new: Sequence[StepValue], context: PlanContext, places: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each gate that the answer drops, under the same id or another."""
    gated = {name: step for name, step in context.open.items() if step.get("gate") is True}
    gone = {_action_of(step): name for name, step in gated.items() if name not in places}
    for step in new:
        was = step["id"] if step["id"] in gated else gone.get(_action_of(step))
        if was is not None and step.get("gate") is not True:
            message = f"the step {was!r} has a gate, which only a person may remove"
            yield Problem(message, 'add "gate": true', f"/steps/{places[step['id']]}/gate")


def _schemas(new: Sequence[StepValue], places: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each schema that is text and no JSON: the check would say nothing of text."""
    fix = 'write a JSON Schema, as text where the form wants text: "{\\"type\\": \\"array\\"}"'
    for step in new:
        checks = [*_number(step, "needs"), *_number(step, "checks")]
        for pointer, given in [("/expects", step.get("expects")), *checks]:
            if isinstance(given, str):
                message = f"{show_value(given)} is no JSON Schema"
                yield Problem(message, fix, f"/steps/{places[step['id']]}{pointer}")


def _number(step: StepValue, name: str) -> Iterator[tuple[str, Any]]:
    checks = step.get(name)
    for place, check in enumerate(checks if isinstance(checks, list) else ()):
        if isinstance(check, dict):
            yield f"/{name}/{place}/schema", check.get("schema")


def _action_of(step: StepValue) -> bytes:
    return canonical([step.get("tool") or step.get("description"), step.get("input")])


def _has_id(step: Any) -> bool:
    return isinstance(step, dict) and isinstance(step.get("id"), str)
