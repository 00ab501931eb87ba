"""A document -> a record, or every problem at once with line:column and how to mend it. Pure.

Two readers must agree: the strict record is the gate; what it turns away goes to jsonschema, for its messages, which
takes much longer. Then, for plans, what no schema can say (`check_steps`). What `Rejected` carries is sorted as it
stands in the file.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

from pydantic import ValidationError

from agentfs.core.config import Settings
from agentfs.core.documents import Document
from agentfs.core.hashing import canonical
from agentfs.core.json_schema import MOST, SchemaFinding, record_problems
from agentfs.core.plan_check import Numbered, acceptance_problems, check_problems, cycles, step_problems
from agentfs.core.plan_schemas import Schemas
from agentfs.core.problems import Problem, Rejected, pointer_to
from agentfs.core.records import Goal, HttpCheck, JudgeCheck, Plan, Record, Step, Tools
from agentfs.core.tool_spec import Catalogue

R = TypeVar("R", bound=Record)


def check_plan(document: Document, catalogue: Catalogue) -> Plan:
    """Return the plan, fit to run with these tools; or raise `Rejected` with all that is wrong."""
    plan, findings = _read(document, Plan, "plan")
    catalogue = catalogue.under(plan.tools if plan else _own_tools(document.value))
    steps = list(enumerate(plan.steps)) if plan else _good_steps(document.value)
    findings += step_problems(steps, _ids(document.value), catalogue)
    if plan:
        findings += map(SchemaFinding, acceptance_problems(plan.checks or (), _ids(document.value), catalogue))
        findings += map(SchemaFinding, cycles(plan))
    _raise(document, findings)
    return _present(plan)


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
    return not step.needs and catalogue.tools[step.tool].surely_takes(step.input or {})


def check_goal(document: Document) -> Goal:
    """Return the fields of a goal; or raise `Rejected`. Steps it holds are checked as a plan, by `check_plan`."""
    goal, findings = _read(document, Goal, "goal")
    if goal:
        checks, schemas = enumerate(goal.checks or ()), Schemas()
        findings += [
            SchemaFinding(one) for n, check in checks for one in check_problems(check, f"/checks/{n}", schemas)
        ]
        if goal.status is not None and goal.steps is None:
            problem = Problem("'status' means nothing without 'steps'", "remove it, or write the steps", "/status")
            findings.append(SchemaFinding(problem, in_name=True))
    _raise(document, findings)
    return _present(goal)


def check_settings(document: Document) -> Settings:
    """Return the settings of a workspace; or raise `Rejected`."""
    return check_record(document, Settings, "settings")


def check_record(document: Document, record_type: type[R], schema: str) -> R:
    """Return a record of one of the schemas; or raise `Rejected`."""
    record, findings = _read(document, record_type, schema)
    _raise(document, findings)
    return _present(record)


def strict(value: Any, record_type: type[R]) -> tuple[R | None, list[Problem]]:
    """Return the record that a value is, or what the strict reader has against it."""
    try:
        return record_type.model_validate_json(canonical(value)), []
    except ValidationError as error:
        return None, [_strict_problem(value, one["loc"], one["msg"]) for one in error.errors(include_url=False)]
    except (TypeError, ValueError):
        return None, [Problem("holds a value that JSON does not know, such as a date", "put it in quotes")]


def _read(document: Document, record_type: type[R], schema: str) -> tuple[R | None, list[SchemaFinding]]:
    record, problems = strict(document.value, record_type)
    if record:
        return record, []
    return None, record_problems(document.value, schema) or [SchemaFinding(problem) for problem in problems]


def _strict_problem(value: Any, loc: Iterable[int | str], message: str) -> Problem:
    """Return pydantic's error at the pointer it means; its path also names branches, which no file has."""
    pointer = ""
    for part in loc:
        known = range(len(value)) if isinstance(value, list) else value
        if isinstance(known, dict | range) and part in known:
            value, pointer = value[part], pointer + pointer_to(part)
    return Problem(message[:200], "look at the schema of this field", pointer)


def _good_steps(value: Any) -> Numbered:
    """Return the steps that are well formed in a plan that is not, so that their own problems are told too."""
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list):
        return []
    read = ((place, strict(step, Step)[0]) for place, step in enumerate(steps))
    return [(place, step) for place, step in read if step]


def _own_tools(value: Any) -> Tools | None:
    """Return what a plan that is not well formed says of the run's tools, if that much is."""
    own = value.get("tools") if isinstance(value, dict) else None
    return strict(own, Tools)[0] if isinstance(own, dict) else None


def _ids(value: Any) -> frozenset[str]:
    steps = value.get("steps") if isinstance(value, dict) else None
    found = (step.get("id") for step in steps if isinstance(step, dict)) if isinstance(steps, list) else ()
    return frozenset(one for one in found if isinstance(one, str))


def _raise(document: Document, findings: Iterable[SchemaFinding]) -> None:
    """Raise `Rejected` with each problem at its place, in the order of the file; do nothing if there is none."""
    placed = [
        problem.at(*document.locate(problem.pointer, key=in_name)) for problem, in_name in islice(findings, MOST)
    ]
    if placed:
        lines = document.text.split("\n")
        placed = [problem.at_quote(lines) for problem in placed]
        raise Rejected(sorted(dict.fromkeys(placed), key=lambda problem: (problem.line, problem.column)))


def _present(record: R | None) -> R:
    assert record is not None, "a document without problems is a record"  # noqa: S101
    return record
