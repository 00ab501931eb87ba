"""A document -> a record, or every problem at once with line:column and how to fix it. Pure.

Two readers must agree: the strict record is the gate; what it rejects goes to jsonschema, for its messages, which
takes much longer. Then, for plans, what no schema can say: ids, dependencies, tools and their inputs, checks,
references. What `Rejected` carries is sorted as it is in the file.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from pydantic import ValidationError

from agentfs.core import references
from agentfs.core.config import Settings
from agentfs.core.documents import Document
from agentfs.core.facts import RUN
from agentfs.core.hashing import canonical
from agentfs.core.json_schema import MOST, describe_errors, record_problems, validator_for
from agentfs.core.plan_graph import dependencies
from agentfs.core.plan_schemas import Schemas, regex_problem
from agentfs.core.problems import Hints, Problem, Rejected, did_you_mean, pointer_to
from agentfs.core.records import Check, FileCheck, Goal, HttpCheck, JudgeCheck, OutputCheck, Plan, Record, Step, Tools
from agentfs.core.references import find_circle
from agentfs.core.tool_spec import Catalogue, runs_here, split_name, tool_name

R = TypeVar("R", bound=Record)


Numbered = Sequence[tuple[int, Step]]  # a step and its place in the plan


def check_plan(document: Document, catalogue: Catalogue) -> Plan:
    """Return the plan, fit to run with these tools; or raise `Rejected` with all that is wrong."""
    plan, problems = _read(document, Plan, "plan")
    catalogue = catalogue.under(plan.tools if plan else _own_tools(document.value))
    steps = list(enumerate(plan.steps)) if plan else _good_steps(document.value)
    problems += step_problems(steps, _ids(document.value), catalogue)
    if plan:
        problems += acceptance_problems(plan.checks or (), _ids(document.value), catalogue)
        problems += cycles(plan)
    return _accept(document, plan, problems)


def surely_fits(plan: Plan, catalogue: Catalogue) -> bool:
    """Whether a plan that was accepted before still is, beyond doubt: the tools it names are there as they were."""
    catalogue = catalogue.under(plan.tools)
    usable = catalogue.usable()
    if any(isinstance(one, HttpCheck | JudgeCheck) for one in plan.checks or ()):
        return False
    return all(step.skip is not None or _surely_runs(step, usable, catalogue) for step in plan.steps)


def _surely_runs(step: Step, usable: frozenset[str], catalogue: Catalogue) -> bool:
    if step.tool not in usable or any(isinstance(one, HttpCheck | JudgeCheck) for one in step.checks or ()):
        return False
    return not step.needs and step.place is None and catalogue.tools[step.tool].surely_takes(step.input or {})


def check_goal(document: Document) -> Goal:
    """Return the fields of a goal; or raise `Rejected`. Steps it holds are checked as a plan, by `check_plan`."""
    goal, problems = _read(document, Goal, "goal")
    if goal:
        schemas = Schemas()
        for n, check in enumerate(goal.checks or ()):
            problems += check_problems(check, f"/checks/{n}", schemas)
        if goal.status is not None and goal.steps is None:
            message, fix = "'status' means nothing without 'steps'", "remove it, or write the steps"
            problems.append(Problem(message, fix, "/status", in_name=True))
    goal = _accept(document, goal, problems)
    return goal.model_copy(update={"params": document.value["params"]}) if goal.params else goal  # in its order


def check_settings(document: Document) -> Settings:
    """Return the settings of a workspace; or raise `Rejected`."""
    return _accept(document, *_read(document, Settings, "settings"))


def to_record(value: Any, record_type: type[R]) -> tuple[R | None, list[Problem]]:
    """Return the record that a value is, or why it is none, as pydantic says it."""
    try:
        return record_type.model_validate_json(canonical(value)), []
    except ValidationError as error:
        return None, [_strict_problem(value, one["loc"], one["msg"]) for one in error.errors(include_url=False)]
    except (TypeError, ValueError):
        return None, [Problem("holds a value that JSON does not know, such as a date", "put it in quotes")]


def _read(document: Document, record_type: type[R], schema: str) -> tuple[R | None, list[Problem]]:
    record, problems = to_record(document.value, record_type)
    return record, [] if record else record_problems(document.value, schema) or problems


def _strict_problem(value: Any, loc: Iterable[int | str], message: str) -> Problem:
    """Return pydantic's error at the pointer it means; its path also names branches, which no file has."""
    pointer = ""
    for part in loc:
        known = range(len(value)) if isinstance(value, list) else value
        if isinstance(known, dict | range) and part in known:
            value, pointer = value[part], pointer + pointer_to(part)
    return Problem(message[:200], "look at the schema of this field", pointer)


def _good_steps(value: Any) -> Numbered:
    """Return the steps that are well formed in a plan that is not, so that their own problems are reported too."""
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list):
        return []
    read = ((place, to_record(step, Step)[0]) for place, step in enumerate(steps))
    return [(place, step) for place, step in read if step]


def _own_tools(value: Any) -> Tools | None:
    """Return what a plan that is not well formed says of the run's tools, if that much is."""
    own = value.get("tools") if isinstance(value, dict) else None
    return to_record(own, Tools)[0] if isinstance(own, dict) else None


def _ids(value: Any) -> frozenset[str]:
    steps = value.get("steps") if isinstance(value, dict) else None
    found = (step.get("id") for step in steps if isinstance(step, dict)) if isinstance(steps, list) else ()
    return frozenset(one for one in found if isinstance(one, str))


def _accept(document: Document, record: R | None, problems: Iterable[Problem]) -> R:
    """Return the record; raise `Rejected` with all problems, each at its place, in the order of the file, if any."""
    placed = [document.place(problem) for problem in islice(problems, MOST)]
    if placed:
        lines = document.text.split("\n")
        placed = [problem.at_quote(lines) for problem in placed]
        raise Rejected(sorted(dict.fromkeys(placed), key=lambda problem: (problem.line, problem.column)))
    assert record is not None, "a document without problems is a record"  # noqa: S101
    return record


# ── what makes steps a plan ──────────────────────────────────────────────────────────────────────────────


_MOST_BROKEN = 3
WHOLE_GOAL = "do"  # the step of agentfs's own plan, which the plan's checks are for
_MOST_CIRCLES = 20  # each is looked for in all that is left


def step_problems(steps: Numbered, known: Collection[str], catalogue: Catalogue) -> list[Problem]:
    """Return all that is wrong with steps, given the ids of the plan and the tools of the run."""
    validators: dict[str, Any] = {}
    schemas, hints = Schemas(), Hints()
    found = [*duplicate_ids(steps), *unknown_dependencies(steps, known, hints)]
    for place, step in steps:
        if len(found) >= MOST:
            break
        own = [
            *_null_characters(step),
            *references.problems_in_step(step, known, hints, catalogue.params),
            *_checks(step, catalogue, schemas),
        ]
        if step.expects is not None:
            own += schemas.problems(step.expects, "/expects")
        if step.skip is None:  # what a person left out needs no tool, and no model
            own += [*_tools(step, catalogue), *_place(step, catalogue), *_input(step, catalogue, validators)]
        found += [problem.below(f"/steps/{place}") for problem in own]
    return found


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
        if not (circle := find_circle(needs)):
            break
        start = circle.index(min(circle, key=places.__getitem__))
        circle = circle[start:] + circle[:start]
        message = f"these steps wait for each other: {' -> '.join([*circle, circle[0]])}"
        fix = "take one out of depends_on, or refer to earlier steps only"
        first = places[circle[0]]
        yield _where_it_waits(plan.steps[first], circle[1], message, fix).below(f"/steps/{first}")
        needs |= dict.fromkeys(circle, ())


def _where_it_waits(step: Step, other: str, message: str, fix: str) -> Problem:
    """Return a problem at the place where a step says that it waits for another, or uses its result."""
    if other in (step.depends_on or ()):
        return Problem(message, fix, f"/depends_on/{(step.depends_on or ()).index(other)}")
    for pointer, text in references.texts_of(step):
        for reference in references.find(text):
            if reference.step == other:
                return references.problem_with(reference, text, message, fix, pointer)
    return Problem(message, fix)  # it follows the step above


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────


def _tools(step: Step, catalogue: Catalogue) -> Iterator[Problem]:
    if step.agent is not None or (step.tool is None and catalogue.agent is not None):
        yield from _agent(step, step.agent or str(catalogue.agent), catalogue)
        return
    if step.tool is None:
        if not catalogue.model:
            yield Problem(
                f"the step {step.id!r} names no tool, and there is no model to do it",
                f"name a tool, or {catalogue.gain_model()}",
            )
        for n, name in enumerate(step.tools or ()):
            yield from _tool(name, f"/tools/{n}", catalogue)
            spec = catalogue.tools.get(name)
            if spec and (spec.gated or spec.step_only):
                why = "needs a person's yes each time" if spec.gated else "is for steps"
                fix = f'make it a step of its own, with "tool": "{name}"'
                yield Problem(f"the tool {name!r} {why}, so no model may be given it", fix, f"/tools/{n}")
        return
    yield from _tool(step.tool, "/tool", catalogue)
    if step.tool == RUN:
        yield from (one.below("/input") for one in catalogue.uses(step.input or {}))
    for field in ("model", "tools"):
        if getattr(step, field) is not None:
            message = f"{field!r} means nothing beside 'tool'"
            yield Problem(message, f"remove {field!r}, or remove 'tool' so that a model does the step", f"/{field}")


def _place(step: Step, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield why a step cannot run where it says."""
    if step.place is None:
        return
    if catalogue.isolated:
        message = f"{step.id!r} cannot run at {step.place!r}: the run has a worktree of its own, which is here"
        yield Problem(message, "take 'place' out of the step, or 'isolate' out of the goal", "/place")
    elif step.place not in catalogue.places and catalogue.must_be_known:
        known = f"the places are {', '.join(sorted(catalogue.places))}" if catalogue.places else ""
        added = f"add [places.{step.place}] to agentfs.toml, or remove 'place'"
        fix = did_you_mean(step.place, catalogue.places, known) if catalogue.places else ""
        yield Problem(f"there is no place {step.place!r}", f"{fix}; or {added}" if fix else added, "/place")
    elif runs_here(step.tool):
        message = f"'place' means nothing beside the tool {step.tool!r}, which runs where the run is driven"
        yield Problem(message, "remove 'place'", "/place")
    elif step.place in catalogue.broken_places:
        why, fix = catalogue.broken_places[step.place]
        yield Problem(f"the place {step.place!r} cannot be used: {why}", f"in agentfs.toml: {fix}", "/place")


def _agent(step: Step, name: str, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield why no agent can do a step, or nothing could show that one did."""
    for field in ("tool", "tools"):
        if step.agent is not None and getattr(step, field) is not None:
            message = f"{field!r} means nothing beside 'agent': an agent has tools of its own"
            yield Problem(message, f"remove {field!r}, or remove 'agent'", f"/{field}")
    if name not in catalogue.agents:
        fix = did_you_mean(name, catalogue.agents, f"the agents are {', '.join(sorted(catalogue.agents))}")
        yield Problem(f"there is no agent {name!r}", f"{fix} ([agents.{name}] in agentfs.toml adds one)", "/agent")
    elif catalogue.network is False:
        fix = catalogue.change('set network = "agents"')
        yield Problem(f"the agent {name!r} needs the network", fix, "/agent")
    if not step.checks and not catalogue.model and step.id != WHOLE_GOAL:
        message = f"nothing could show that {step.id!r} is done: it has no check, and there is no model to judge it"
        yield Problem(message, f"give it a check, or {catalogue.gain_model()}", "/checks")


def _tool(name: str, pointer: str, catalogue: Catalogue) -> Iterator[Problem]:
    if name not in catalogue.tools:
        fix = "; ".join(catalogue.broken[:_MOST_BROKEN]) or _tool_fix(name, catalogue.tools)
        yield Problem(f"there is no tool {name!r}", fix, pointer)
    elif refusal := catalogue.refusal(name):
        yield Problem(*refusal, pointer)


def _tool_fix(name: str, tools: Collection[str]) -> str:
    """Return what may have been meant by a tool that is not there; those of MCP servers are too many to list."""
    if (of_server := split_name(name)) is None:
        return did_you_mean(name, tools, f"the tools are {', '.join(sorted(n for n in tools if not split_name(n)))}")
    server, tool = of_server
    known = [found[1] for one in tools if (found := split_name(one)) and found[0] == server]
    if not known:
        return f"no tool of a server {server!r} is approved: add it to [mcp] servers, then: agentfs tools --update"
    return did_you_mean(
        tool, known, f"the server {server!r} has {', '.join(sorted(known))}", prefix=tool_name(server, "")
    )


def _input(step: Step, catalogue: Catalogue, validators: dict[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with the input by the tool's own schema. `validators`: kept, as each takes long to make."""
    spec = catalogue.tools.get(step.tool or "")
    if spec is None or spec.surely_takes(step.input or {}):
        return
    if spec.name not in validators:
        validators[spec.name] = validator_for(spec.input_schema)
    errors = validators[spec.name].iter_errors(step.input or {})
    yield from (one.below("/input") for one in describe_errors(one for one in errors if not _is_open(one)))


def _is_open(error: Any) -> bool:
    """Return whether the value is not known yet: it is a reference, or a text that holds one."""
    text = error.instance
    if not isinstance(text, str) or not references.find(text):
        return False
    return references.is_whole(text) or error.validator != "type"


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────


def _checks(step: Step, catalogue: Catalogue, schemas: Schemas) -> Iterator[Problem]:
    if isinstance(step.each, str) and not references.is_whole(step.each):
        fix = "write one reference and nothing else, such as {{steps.ID.output}}, or a list"
        yield Problem("'each' wants a list, or a reference to one", fix, "/each")
    if step.when:
        yield from check_problems(step.when, "/when", schemas)
    for field in ("needs", "checks"):
        checks: tuple[Check, ...] = getattr(step, field) or ()
        for n, check in enumerate(checks):
            yield from check_problems(check, f"/{field}/{n}", schemas)
            if field == "needs" and isinstance(check, OutputCheck | JudgeCheck):
                fix = "use a command, file or http check, or let a step before it look"
                yield Problem("there is nothing to look at before the step has run", fix, f"/{field}/{n}")
            if step.skip is None:
                yield from _find_refused(check, f"/{field}/{n}", catalogue)


def acceptance_problems(checks: Sequence[Check], known: Collection[str], catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what is wrong with a plan's own checks; they may use the output of any step."""
    schemas, bearer = Schemas(), Step.model_construct(id="", checks=tuple(checks))
    yield from _null_characters(bearer)
    yield from references.problems_in_step(bearer, known, params=catalogue.params)
    for n, check in enumerate(checks):
        yield from check_problems(check, f"/checks/{n}", schemas)
        yield from _find_refused(check, f"/checks/{n}", catalogue)


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


def _find_refused(check: Check, pointer: str, catalogue: Catalogue) -> Iterator[Problem]:
    if isinstance(check, HttpCheck) and catalogue.network is not True:
        fix = f"use another check, or {catalogue.change('set network = true')}"
        yield Problem("an http check needs the network", fix, pointer)
    if isinstance(check, JudgeCheck) and not catalogue.model:
        fix = f"use a check that a program can run, or {catalogue.gain_model()}"
        yield Problem("a judge check needs a model", fix, pointer)


def _null_characters(step: Step) -> Iterator[Problem]:
    """Yield texts that no program, file name or environment can take."""
    for pointer, text in references.texts_of(step):
        if "\0" in text and not pointer.startswith("/each"):
            yield Problem("the character U+0000 cannot be handed to a tool", "remove \\u0000", pointer)
