"""What makes steps a plan: ids, dependencies, tools and their inputs, checks, references. Pure.

Each function takes steps that are well formed one by one and returns every problem of its kind, with pointers from
the root of the plan.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentfs.core import references
from agentfs.core.json_schema import MOST, SchemaFinding, describe_errors, validator_for
from agentfs.core.plan_graph import dependencies, topological
from agentfs.core.plan_schemas import Schemas, regex_problem
from agentfs.core.problems import Hints, Problem, did_you_mean, pointer_to
from agentfs.core.records import Check, FileCheck, HttpCheck, JudgeCheck, OutputCheck, Plan, Step
from agentfs.core.tool_spec import Catalogue

Numbered = Sequence[tuple[int, Step]]  # a step and its place in the plan

_MOST_BROKEN = 3
_MOST_CIRCLES = 20  # each is looked for in all that is left


def step_problems(steps: Numbered, known: Collection[str], catalogue: Catalogue) -> list[SchemaFinding]:
    """Return all that is wrong with steps, given the ids of the plan and the tools of the run."""
    inputs, schemas, hints = _Inputs(catalogue), Schemas(), Hints()
    found = [
        SchemaFinding(problem) for problem in (*duplicate_ids(steps), *unknown_dependencies(steps, known, hints))
    ]
    for place, step in steps:
        if len(found) >= MOST:
            break
        own = [
            *_null_characters(step),
            *references.problems_in_step(step, known, hints),
            *_checks(step, catalogue, schemas),
        ]
        if step.expects is not None:
            own += schemas.problems(step.expects, "/expects")
        findings = [SchemaFinding(problem) for problem in own]
        if step.skip is None:  # what a person left out needs no tool, and no model
            findings += [*map(SchemaFinding, _tools(step, catalogue)), *inputs.findings(step)]
        found += [_below(f"/steps/{place}", finding) for finding in findings]
    return found


def _below(prefix: str, finding: SchemaFinding) -> SchemaFinding:
    problem, in_name = finding
    return SchemaFinding(replace(problem, pointer=prefix + problem.pointer), in_name)


# ── ids and dependencies ──────────────────────────────────────────────────────────────────────────────────


def duplicate_ids(steps: Numbered) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for place, step in steps:
        if step.id in first:
            message = f"the id {step.id!r} is taken by step {first[step.id] + 1} of the list"
            yield Problem(message, "give it another id", f"/steps/{place}/id")
        first.setdefault(step.id, place)


def unknown_dependencies(steps: Numbered, known: Collection[str], hints: Hints) -> Iterator[Problem]:
    for place, step in steps:
        for n, dependency in enumerate(step.depends_on or ()):
            pointer = f"/steps/{place}/depends_on/{n}"
            if dependency == step.id:
                yield Problem(f"the step {step.id!r} depends on itself", "remove it from depends_on", pointer)
            elif dependency not in known:
                fix = hints(dependency, known, "write the id of a step, or remove it")
                yield Problem(f"there is no step {dependency!r}", fix, pointer)


def cycles(plan: Plan) -> Iterator[Problem]:
    """Yield one problem per circle of steps that wait for each other, of the first; references are dependencies."""
    places = {step.id: place for place, step in enumerate(plan.steps)}
    needs = {
        step: tuple(one for one in before if one in places and one != step)
        for step, before in dependencies(plan).items()
    }
    for _ in range(_MOST_CIRCLES):
        if not (left := _blocked(needs)):
            break
        circle = _circle(left)
        message = f"these steps wait for each other: {' -> '.join([*circle, circle[0]])}"
        fix = "take one out of depends_on, or refer to earlier steps only"
        first = places[circle[0]]
        yield _below(
            f"/steps/{first}", SchemaFinding(_where_it_waits(plan.steps[first], circle[1], message, fix))
        ).problem
        broken = frozenset(circle)
        needs = {step: () if step in broken else before for step, before in left.items()}


def _where_it_waits(step: Step, other: str, message: str, fix: str) -> Problem:
    """Return a problem at the place where a step says that it waits for another, or uses its result."""
    if other in (step.depends_on or ()):
        return Problem(message, fix, f"/depends_on/{(step.depends_on or ()).index(other)}")
    for pointer, text in references.texts_of(step):
        for reference in references.find(text):
            if reference.step == other:
                return references.problem_with(reference, text, message, fix, pointer)
    return Problem(message, fix)  # it follows the step above


def _blocked(needs: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the steps that can never begin, each with what it waits for among them."""
    free = frozenset(topological(needs))
    return {
        step: tuple(one for one in before if one not in free) for step, before in needs.items() if step not in free
    }


def _circle(left: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return one circle, the step that stands first in the plan first; any blocked step leads into one."""
    walked: dict[str, int] = {}
    step = next(iter(left))
    while step not in walked:
        walked[step] = len(walked)
        step = left[step][0]
    circle = [one for one, place in walked.items() if place >= walked[step]]
    order = {one: place for place, one in enumerate(left)}
    start = circle.index(min(circle, key=order.__getitem__))
    return circle[start:] + circle[:start]


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────


def _tools(step: Step, catalogue: Catalogue) -> Iterator[Problem]:
    if step.tool is None:
        if not catalogue.model:
            yield Problem(
                f"the step {step.id!r} names no tool, and there is no model to do it",
                f"name a tool, or {catalogue.gain_model()}",
            )
        for n, name in enumerate(step.tools or ()):
            yield from _tool(name, f"/tools/{n}", catalogue)
        return
    yield from _tool(step.tool, "/tool", catalogue)
    for field in ("model", "tools"):
        if getattr(step, field) is not None:
            message = f"{field!r} means nothing beside 'tool'"
            yield Problem(message, f"remove {field!r}, or remove 'tool' so that a model does the step", f"/{field}")


def _tool(name: str, pointer: str, catalogue: Catalogue) -> Iterator[Problem]:
    if name not in catalogue.tools:
        fix = did_you_mean(name, catalogue.tools, f"the tools are {', '.join(sorted(catalogue.tools))}")
        fix = "; ".join(catalogue.broken[:_MOST_BROKEN]) or fix
        yield Problem(f"there is no tool {name!r}", fix, pointer)
    elif refusal := catalogue.refusal(name):
        yield Problem(*refusal, pointer)


class _Inputs:
    """Checks inputs against the tools' own schemas; each validator is made once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._validators: dict[str, Any] = {}

    def findings(self, step: Step) -> list[SchemaFinding]:
        if step.tool is None or step.tool not in self._catalogue.tools:
            return []
        if self._catalogue.tools[step.tool].surely_takes(step.input or {}):
            return []
        if step.tool not in self._validators:
            self._validators[step.tool] = validator_for(self._catalogue.tools[step.tool].input_schema)
        errors = self._validators[step.tool].iter_errors(step.input or {})
        return [_below("/input", finding) for finding in describe_errors(one for one in errors if not _is_open(one))]


def _is_open(error: Any) -> bool:
    """Tell whether the value is not known yet: it is a reference, or a text that holds one."""
    text = error.instance
    if not isinstance(text, str) or not references.find(text):
        return False
    return references.is_whole(text) or error.validator != "type"


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────


def _checks(step: Step, catalogue: Catalogue, schemas: Schemas) -> Iterator[Problem]:
    for field in ("needs", "checks"):
        checks: tuple[Check, ...] = getattr(step, field) or ()
        for n, check in enumerate(checks):
            yield from check_problems(check, f"/{field}/{n}", schemas)
            if field == "needs" and isinstance(check, OutputCheck | JudgeCheck):
                fix = "use a command, file or http check, or let a step before it look"
                yield Problem("there is nothing to look at before the step has run", fix, f"/{field}/{n}")
            if step.skip is None:
                yield from _refused_check(check, f"/{field}/{n}", catalogue)


def acceptance_problems(checks: Sequence[Check], known: Collection[str], catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what is wrong with a plan's own checks; they may use the output of any step."""
    schemas, bearer = Schemas(), Step.model_construct(id="", checks=tuple(checks))
    yield from _null_characters(bearer)
    yield from references.problems_in_step(bearer, known)
    for n, check in enumerate(checks):
        yield from check_problems(check, f"/checks/{n}", schemas)
        yield from _refused_check(check, f"/checks/{n}", catalogue)


def check_problems(check: Check, pointer: str, schemas: Schemas) -> Iterable[Problem]:
    """Return what is wrong with a check whatever the run may do."""
    match check:
        case FileCheck(matches=str() as pattern):
            problem = regex_problem(pattern, pointer + "/matches")
            return [problem] if problem else []
        case OutputCheck():
            return schemas.problems(check.schema_, pointer + "/schema")
        case _:
            return []


def _refused_check(check: Check, pointer: str, catalogue: Catalogue) -> Iterator[Problem]:
    if isinstance(check, HttpCheck) and not catalogue.network:
        fix = f"use another check, or {catalogue.change('set network = true')}"
        yield Problem("an http check needs the network", fix, pointer)
    if isinstance(check, JudgeCheck) and not catalogue.model:
        fix = f"use a check that a program can run, or {catalogue.gain_model()}"
        yield Problem("a judge check needs a model", fix, pointer)


def _null_characters(step: Step) -> Iterator[Problem]:
    """Yield texts that no program, file name or environment can take."""
    pending: list[tuple[str, Any]] = [("/input", step.input)]
    for field in ("needs", "checks"):
        pending += [(f"/{field}/{n}", check.model_dump()) for n, check in enumerate(getattr(step, field) or ())]
    while pending:
        pointer, value = pending.pop()
        if isinstance(value, dict):
            pending += [(pointer + pointer_to(name.removesuffix("_")), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            pending += [(f"{pointer}/{n}", inner) for n, inner in enumerate(value)]
        elif isinstance(value, str) and "\0" in value:
            yield Problem("the character U+0000 cannot be handed to a tool", "remove \\u0000", pointer)
