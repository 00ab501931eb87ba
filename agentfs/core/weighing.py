"""A planner's reply, weighed: the answer it amounts to, and everything that stands in its way. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from agentfs.core.documents import Document
from agentfs.core.plan_changes import changes
from agentfs.core.plan_check import check_plan, strict
from agentfs.core.problems import Problem, Rejected, in_words
from agentfs.core.records import JsonObject, Plan
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.answer import (
    PlanContext,
    Reply,
    ReplyVerdict,
    build_plan,
    kept_plan,
    merge_steps,
    read_answer,
    spell_out_steps,
)
from agentfs.planner.evaluation import plan_problems, quotes_evidence, verdict_problems
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

    verdict: ReplyVerdict = "plan"
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
    standing: PlanContext,
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
            return Weighed("plan", build_plan(standing.steps, standing), hard=hard)
        case "keep":
            return Weighed("keep", hard=hard)
        case "finished":
            return Weighed("finished", kept_plan(standing), said.answer, hard)
        case "impossible":
            doubts = () if quotes_evidence(said.why, standing.evidence) else (UNSHOWN,)
            return Weighed("impossible", None, said.why, hard, doubts)
        case _:
            check_stop()
            return _weighed_plan(said, standing, catalogue, around, hard, check_stop)


def _weighed_plan(
    said: Reply,
    standing: PlanContext,
    catalogue: Catalogue,
    around: Surroundings,
    hard: tuple[str, ...],
    check_stop: Callable[[], None],
) -> Weighed:
    listed = spell_out_steps(said.steps, standing, catalogue)
    plan = merge_steps(listed, standing)
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


def _has_other_checks(standing: PlanContext) -> bool:
    """Whether the goal was edited so that its checks are others: then even a plan that is kept gets them."""
    present: Any = (standing.plan or {}).get("checks") or []
    return standing.wants_checks or list(standing.checks) != present


def _is_same(plan: Plan, standing: PlanContext) -> bool:
    present = strict(standing.plan, Plan)[0] if standing.plan is not None else None
    return present is not None and not changes(present, plan)


def _unchanged(weighed: Weighed, standing: PlanContext) -> Weighed:
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
