"""What a goal that brings its own steps answers when the planner is called. No model, no tool.

    first              the plan as the goal has it
    goal_changed       the new plan; an alternative that is done keeps the place it took
    a step failed      its next alternative takes its place; where there is none: impossible, and the clean-up
    a person said no   impossible, and the clean-up: nothing takes the place of a rejected step
    a surprise         keep, if a person says so: a question
    anything else      keep: a runbook holds no other answers

An answer is a plan in full; what is done stays in it as it is, so that its results still count.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agentfs.core import paths
from agentfs.core.facts import Facts
from agentfs.core.goal_file import ParsedGoal
from agentfs.core.hashing import in_order, overrides_of, spell_out
from agentfs.core.records import Answer, Author, Call, JsonObject, PlanStatus, Trigger
from agentfs.core.references import rename
from agentfs.core.run_state import RunState
from agentfs.core.runbook import Fallback, chain, find_referred_in, originals
from agentfs.models.base import ModelSession
from agentfs.planner.acceptance import Look
from agentfs.storage.files import read_whole

_SHOWN = 4000  # characters of a schema in a question

StepValue = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Situation:
    """What has happened so far, as far as a runbook's answer depends on it."""

    status: PlanStatus = "approved"  # of a first plan
    plan: JsonObject | None = None  # plan.json as it is now
    done: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()  # steps that were ever tried
    failed: tuple[str, ...] = ()  # failed, blocked or rejected for good, not answered yet
    rejected: frozenset[str] = frozenset()  # those of them that a person said no to
    surprises: Mapping[str, str] = field(default_factory=dict)  # step -> what was surprising, not answered yet


@dataclass(frozen=True, slots=True)
class RunbookAnswer:
    """A verdict with its plan and its words; with a question it holds only once a person says yes."""

    verdict: Literal["plan", "keep", "impossible"]
    answer: str
    plan: JsonObject | None = None
    question: str | None = None


def answers(goal: ParsedGoal, used: Iterable[str]) -> frozenset[str]:
    """Return the steps whose failure the goal has an answer to; `used`: steps in the plan, or ever tried."""
    tried = frozenset(used)
    return _find_with_one_of(goal, {one.of for one in goal.fallbacks if one.id not in tried})


def cleanups(goal: ParsedGoal, used: Iterable[str]) -> frozenset[str]:
    """Return the steps that the goal has a clean-up for, which is all that it answers to a person's no."""
    tried = frozenset(used)
    return _find_with_one_of(
        goal, {one.of for one in goal.fallbacks if one.kind == "cleanup" and one.id not in tried}
    )


def _find_with_one_of(goal: ParsedGoal, fresh: set[str]) -> frozenset[str]:
    """Return the steps that have one of these fallbacks, or replace a step that has."""
    instead = originals(goal.fallbacks)
    known = [*(step.id for step in goal.placed), *instead] if goal.fallbacks else []
    return frozenset(name for name in known if not fresh.isdisjoint(chain(name, instead)))


def answer(goal: ParsedGoal, trigger: Trigger, situation: Situation) -> RunbookAnswer:
    """Return what the goal's own steps and fallbacks say to a trigger, and to all that is pending with it."""
    if trigger == "first" or situation.plan is None:
        words = f"The goal brings its own plan: {_count(goal)}."
        return RunbookAnswer("plan", words, first_plan(goal, situation.status))
    if trigger == "goal_changed":
        return RunbookAnswer("plan", "The goal was edited: its steps are the plan.", _change_plan(goal, situation))
    plan = situation.plan | {"steps": spell_out(_steps(situation.plan))}
    present = {step["id"]: step for step in plan["steps"]}
    own = _to_failures(goal, plan, [name for name in situation.failed if name in present], situation)
    question = _question(situation.surprises, present)
    return RunbookAnswer(own.verdict, own.answer, own.plan, question)


def first_plan(goal: ParsedGoal, status: PlanStatus) -> JsonObject:
    """Return the plan a goal with steps begins with."""
    document = goal.steps
    if document is None:
        raise ValueError("a goal in words brings no plan")
    value: JsonObject = document.value
    return value | {"status": status}


def _count(goal: ParsedGoal) -> str:
    return f"{len(goal.placed)} step{'' if len(goal.placed) == 1 else 's'}"


def _to_failures(goal: ParsedGoal, plan: JsonObject, failed: Sequence[str], situation: Situation) -> RunbookAnswer:
    """Give every failed step its next alternative; if one has none, or is not wanted, give up and clean up."""
    if not failed:
        return RunbookAnswer("keep", "The goal's own steps hold no answer to this: the plan stays as it is.")
    if not situation.rejected.isdisjoint(failed):
        return _impossible(goal, plan, failed, situation)
    words, used = [], set(situation.used)
    changed = plan
    for name in failed:
        used |= _ids(changed)
        if not (one := _alternative(goal, name, used)):
            return _impossible(goal, plan, failed, situation)
        changed = _replace(goal, changed, name, one)
        words.append(f"{name!r} failed: {one.id!r} takes its place.")
    return RunbookAnswer("plan", " ".join(words), changed)


def _alternative(goal: ParsedGoal, failed: str, used: set[str]) -> Fallback | None:
    """Return what to try next: the step's own alternatives first, then those of the step it replaces."""
    for name in chain(failed, originals(goal.fallbacks)):
        for one in goal.fallbacks:
            if one.kind == "instead" and one.of == name and one.id not in used:
                return one
    return None


def _ids(plan: JsonObject) -> set[str]:
    return {step["id"] for step in _steps(plan)}


def _steps(plan: JsonObject) -> list[StepValue]:
    steps: Any = plan["steps"]
    return list(steps)


# ── an alternative ────────────────────────────────────────────────────────────────────────────────────────


def _replace(goal: ParsedGoal, plan: JsonObject, failed: str, one: Fallback) -> JsonObject:
    """Return the plan with an alternative in the place of a step, and all that waited for it waiting for that."""
    value = _as_things_are(goal, one, _ids(plan))
    steps: list[Any] = [
        in_order(value | {"depends_on": step["depends_on"]})
        if step["id"] == failed
        else _rewire(step, failed, one.id)
        for step in _steps(plan)
    ]
    return _rename(plan, failed, one.id) | {"steps": steps}


def _rewire(step: StepValue, old: str, new: str) -> StepValue:
    """Return a step that waits for and refers to another in the place of one that left."""
    depends_on = [new if name == old else name for name in step["depends_on"]]
    return _rename(step, old, new) | {"depends_on": list(dict.fromkeys(depends_on))}


def _rename(step: StepValue, old: str, new: str) -> StepValue:
    """Return a step, or a plan with its own checks, that refers to another step."""
    referring = ("each", "input", "when", "needs", "checks")
    return step | {name: rename(step[name], old, new) for name in referring if name in step}


def _as_things_are(goal: ParsedGoal, one: Fallback, present: set[str]) -> StepValue:
    """Return a fallback that refers to the alternatives that took the places of what it was written against."""
    instead = originals(goal.fallbacks)
    value: StepValue = dict(one.value)
    for name in sorted(present & instead.keys()):
        for before in chain(name, instead)[1:]:
            if before not in present:
                value = _rename(value, before, name)
    return value


# ── giving up ─────────────────────────────────────────────────────────────────────────────────────────────


def _impossible(goal: ParsedGoal, plan: JsonObject, failed: Sequence[str], situation: Situation) -> RunbookAnswer:
    """Keep what is done and add the clean-up of all that failed, one after the other."""
    kept = _keep_done(_steps(plan), situation.done)
    names = {step["id"] for step in kept}
    found = [_as_things_are(goal, one, _ids(plan)) for one in _cleanups(goal, failed, situation.used | _ids(plan))]
    able = [step for step in found if find_referred_in(step) <= names]
    words = [_describe_failed(failed, situation.rejected)]
    if able:
        words.append(f"Clean-up: {_list([step['id'] for step in able])}.")
    words += [_describe_left_out(step, names) for step in found if step not in able]
    steps: list[Any] = [*kept, *_in_line(able, _ends(kept))]
    cleaning = _without_lost_checks(plan, names) | {"steps": steps}
    return RunbookAnswer("impossible", " ".join(words), cleaning if able else None)


def _without_lost_checks(plan: JsonObject, names: set[str]) -> JsonObject:
    """Return a plan without the acceptance checks that use the result of a step which is not done."""
    checks: Any = plan.get("checks")
    left = [check for check in checks or () if find_referred_in({"checks": [check]}) <= names]
    return {name: value for name, value in plan.items() if name != "checks"} | ({"checks": left} if left else {})


def _describe_failed(failed: Sequence[str], rejected: frozenset[str]) -> str:
    if no := [name for name in failed if name in rejected]:
        others = [name for name in failed if name not in rejected]
        also = f" {_list(others)} failed." if others else ""
        return f"A person rejected {_list(no)}: nothing takes {_their(no)} place.{also}"
    return f"{_list(failed)} failed, and nothing can take {_their(failed)} place."


def _their(names: Sequence[str]) -> str:
    return "its" if len(names) == 1 else "their"


def _cleanups(goal: ParsedGoal, failed: Sequence[str], used: Iterable[str]) -> list[Fallback]:
    """Return the clean-ups of the steps that failed and of those they stood for, each once."""
    instead, tried = originals(goal.fallbacks), frozenset(used)
    links = dict.fromkeys(link for name in failed for link in chain(name, instead))
    ready = [one for one in goal.fallbacks if one.kind == "cleanup" and one.id not in tried]
    return [one for link in links for one in ready if one.of == link]


def _keep_done(steps: Sequence[StepValue], done: frozenset[str]) -> list[StepValue]:
    """Return the done steps as they are, but for waiting for steps that leave: their results still count."""
    names = {step["id"] for step in steps} & done
    kept = [step for step in steps if step["id"] in names]
    return [step | {"depends_on": [name for name in step["depends_on"] if name in names]} for step in kept]


def _ends(steps: Sequence[StepValue]) -> list[str]:
    """Return the steps that no other waits for."""
    waited = {name for step in steps for name in step["depends_on"]}
    return [step["id"] for step in steps if step["id"] not in waited]


def _in_line(steps: Sequence[StepValue], after: list[str]) -> list[StepValue]:
    """Return steps one behind the other; a failed clean-up does not keep the next from running."""
    line = []
    for at, step in enumerate(steps):
        go_on = {} if at == len(steps) - 1 else {"on_failure": step.get("on_failure", "continue")}
        line.append(in_order(step | {"depends_on": after} | go_on))
        after = [step["id"]]
    return line


def _describe_left_out(step: StepValue, done: set[str]) -> str:
    missing = sorted(find_referred_in(step) - done)
    return f"Clean-up {step['id']!r} is left out: it uses the result of {_list(missing)}, which is not done."


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


# ── an edited goal, a surprise ────────────────────────────────────────────────────────────────────────────


def _change_plan(goal: ParsedGoal, situation: Situation) -> JsonObject:
    """Return the edited goal's plan under the present status and overrides."""
    present: Any = situation.plan
    fresh = first_plan(goal, present["status"])
    head = {name: fresh[name] for name in fresh if name != "steps"}
    plan = {**head, **overrides_of(present), "steps": fresh["steps"]}
    before = {step["id"]: step for step in spell_out(present["steps"])}
    instead = originals(goal.fallbacks)
    for one in goal.fallbacks:
        first = next((name for name in chain(one.id, instead)[1:] if name in _ids(plan)), None)
        if first and one.kind == "instead" and one.id in situation.done and _same(goal, one, before, plan):
            plan = _replace(goal, plan, first, one)
    return plan


def _same(goal: ParsedGoal, one: Fallback, before: Mapping[str, StepValue], plan: JsonObject) -> bool:
    """Return whether an alternative in the plan still is what the goal says."""
    value = _as_things_are(goal, one, _ids(plan))
    return value == {key: part for key, part in before.get(one.id, {}).items() if key != "depends_on"}


def _question(surprises: Mapping[str, str], present: Mapping[str, StepValue]) -> str | None:
    """Return what a person is asked about surprises; the first word of the reply decides."""
    shown = [_surprise(present[name], what) for name, what in surprises.items() if name in present]
    if not shown:
        return None
    end = "The runbook has no answer to this. Reply `approve` to go on as planned, `reject` to end the run as failed."
    return "\n".join([*shown, end, ""])


def _surprise(step: StepValue, what: str) -> str:
    lines = [f"Step {step['id']!r} is done, but its result is not what was expected.", ""]
    if "expects" in step:
        schema = json.dumps(step["expects"], indent=2, ensure_ascii=False)
        cut = schema if len(schema) <= _SHOWN else schema[:_SHOWN] + "\n…"
        lines += ["Expected:", "", "```json", cut, "```", ""]
    return "\n".join([*lines, f"Came: {what}", ""])


# ── the planner of a goal that brings its own steps: a runbook, or a plan in JSON or YAML ───────────────


@dataclass(frozen=True, slots=True)
class OwnSteps:
    """Answers from the goal file alone."""

    parsed: Callable[[str], ParsedGoal]  # the goal with this sha256, as it was read

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002 - whatever it was called for
        return Author(role="runbook", name=facts.goal.title)

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002 - it is all in the goal
        return False

    def answer(self, call: Call, state: RunState, folder: Path, session: ModelSession, look: Look) -> Answer:  # noqa: ARG002 - asks nobody
        """Return what the goal's own steps say to a trigger."""
        goal = self.parsed(call.goal_sha256)
        own = answer(goal, call.trigger, situation(goal, state, folder))
        return Answer(
            call=call.call,
            verdict=own.verdict,
            plan=own.plan,
            answer=own.question or own.answer,
            duration_s=0.0,
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
    status = goal.fields.status or "approved"
    return "draft" if status == "approved" and facts.run.approve != "never" else status
