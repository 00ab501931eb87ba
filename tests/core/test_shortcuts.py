"""Shortcuts say yes only where the long way does: `surely_takes` and `surely_fits` beside jsonschema and the check."""

from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentfs.core.documents import read_json
from agentfs.core.plan_check import check_plan, surely_fits
from agentfs.core.records import Plan
from agentfs.core.tool_spec import Catalogue, ToolSpec
from agentfs.tools.registry import specs
from tests.core.corpus.case import BARE, Case
from tests.core.corpus.table import CASES

TEXT: dict[str, Any] = {"type": "string"}
ONE_TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": TEXT, "more": {"type": "string", "description": "any"}},
    "required": ["text"],
    "additionalProperties": False,
}


BOUNDED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 4},
        "choice": {"enum": ["sh", "bash"], "description": "one of them"},
    },
    "required": ["text"],
    "additionalProperties": False,
}


def a_tool(schema: dict[str, Any] = ONE_TEXT, name: str = "say") -> ToolSpec:
    return ToolSpec(name, "says something", schema, effects="none", repeatable=True)


@pytest.mark.parametrize(
    ("given", "surely"),
    [
        ({"text": "a"}, True),
        ({"text": "", "more": "b"}, True),
        ({"more": "b"}, False),  # one is missing
        ({}, False),
        ({"text": 1}, False),
        ({"text": None}, False),
        ({"text": "a", "other": "b"}, False),  # unknown
    ],
)
def test_texts_in_fields_for_any_text(given: dict[str, Any], surely: bool) -> None:
    assert a_tool().surely_takes(given) is surely
    assert Draft202012Validator(ONE_TEXT).is_valid(given) is surely


@pytest.mark.parametrize(
    ("given", "surely"),
    [
        ({"text": "a"}, True),
        ({"text": "abcd", "choice": "bash"}, True),
        ({"text": ""}, False),  # too short
        ({"text": "abcde"}, False),  # too long
        ({"text": "a", "choice": "zsh"}, False),
        ({"text": "a", "choice": None}, False),
    ],
)
def test_texts_of_a_length_or_a_choice(given: dict[str, Any], surely: bool) -> None:
    assert a_tool(BOUNDED).surely_takes(given) is surely
    assert Draft202012Validator(BOUNDED).is_valid(given) is surely


@pytest.mark.parametrize("name", ["shell", "python", "read_file", "write_file", "http_get", "ask", "note"])
def test_what_a_built_in_tool_is_usually_given_needs_no_validator(name: str) -> None:
    """Importing jsonschema takes longer than a small step."""
    spec = specs()[name]
    assert spec.surely_takes(dict.fromkeys(spec.input_schema["required"], "x"))


@pytest.mark.parametrize(
    "changed",
    [
        {"properties": {"text": {"type": "string", "pattern": "l"}}},
        {"properties": {"text": {"type": "string", "enum": ["long"]}}},
        {"properties": {"text": {"type": "integer"}}},
        {"properties": {"text": {}}},
        {"minProperties": 2},
        {"not": {}},
        {"type": "array"},
    ],
)
def test_whatever_else_a_schema_says_needs_the_validator(changed: dict[str, Any]) -> None:
    assert a_tool(ONE_TEXT | changed).surely_takes({"text": "long"}) is False


def accepted(case: Case) -> Plan | None:
    """Return the plan of a document as the records alone take it."""
    try:
        return Plan.model_validate_json(case.source)
    except ValueError:
        return None


def test_what_surely_fits_passes_the_check() -> None:
    fitting = [
        case for case in CASES if (plan := accepted(case)) and case.says is None and surely_fits(plan, case.world)
    ]
    assert len(fitting) > 20
    for case in fitting:
        assert check_plan(read_json(case.source), case.world) == accepted(case)


def a_plan(**step: Any) -> Plan:
    return Plan.model_validate({"status": "approved", "steps": ({"id": "a", **step},)}, strict=False)


WORLD = Catalogue({"say": a_tool()}, frozenset({"say"}))


@pytest.mark.parametrize(
    ("plan", "surely"),
    [
        (a_plan(tool="say", input={"text": "x"}), True),
        (a_plan(tool="say", input={"text": "x"}, checks=({"kind": "command", "run": "true"},)), True),
        (a_plan(tool="gone", input={"text": "x"}, skip="left out"), True),
        (a_plan(tool="gone", input={"text": "x"}), False),
        (a_plan(tool="say", input={"text": "x"}, place="elsewhere"), False),
        (a_plan(tool="say", input={"text": 1}), False),
        (a_plan(tool="say"), False),
        (a_plan(description="for a model", tools=("say",)), False),
        (a_plan(tool="say", input={"text": "x"}, needs=({"kind": "command", "run": "true"},)), False),
        (a_plan(tool="say", input={"text": "x"}, checks=({"kind": "judge", "condition": "c"},)), False),
        (a_plan(tool="say", input={"text": "x"}, checks=({"kind": "http", "url": "http://h"},)), False),
    ],
)
def test_a_plan_fits_as_long_as_its_tools_are_there(plan: Plan, surely: bool) -> None:
    assert surely_fits(plan, WORLD) is surely


def test_a_tool_that_is_no_longer_allowed_or_reachable_does_not_fit() -> None:
    plan = a_plan(tool="say", input={"text": "x"})
    assert not surely_fits(plan, replace(WORLD, allowed=frozenset()))
    assert not surely_fits(plan, replace(WORLD, tools={"say": replace(a_tool(), effects="network")}))
    assert not surely_fits(plan, replace(WORLD, tools={"say": replace(a_tool(), needs_model=True)}))


def test_no_plan_of_the_corpus_fits_where_there_are_no_tools() -> None:
    empty = Catalogue({}, frozenset())
    plan = Plan.model_validate_json(next(case.source for case in CASES if case.says is None and case.world is BARE))
    assert not surely_fits(plan, empty)
