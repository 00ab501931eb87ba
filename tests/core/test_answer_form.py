"""The form a model answers in: what strict endpoints accept, and what comes back from it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentfs.core.tool_spec import Catalogue, ToolSpec
from agentfs.planner.answer_form import answer_form, json_value, tool_input
from tests.core.planning_samples import ADD, CATALOGUE, NO_MODEL, TOOLS

FORMS: list[Any] = [
    answer_form(catalogue, keep=keep, finished=finished)
    for catalogue in (CATALOGUE, NO_MODEL)
    for keep in (True, False)
    for finished in (True, False)
]


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and every schema within it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    for one in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from schemas_in(one)


@pytest.mark.parametrize("form", FORMS)
def test_it_is_what_strict_endpoints_accept(form: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(form)
    assert form["type"] == "object"
    for schema in schemas_in(form):
        assert schema.keys() & {"oneOf", "allOf", "not", "if", "patternProperties", "const"} == set()
        assert schema.keys() & {"type", "anyOf", "$ref"}, f"{schema} takes anything"
        kinds = schema.get("type", [])
        if "object" in kinds:
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
        if "string" in kinds:
            assert {"maxLength", "enum", "pattern"} & schema.keys() or kinds != "string"
        if "array" in kinds:
            assert "items" in schema


def test_only_the_verdicts_that_are_allowed_are_there() -> None:
    assert [list(form["properties"]) for form in FORMS[:4]] == [
        ["steps", "verdict", "answer", "impossible"],
        ["steps", "verdict", "impossible"],
        ["steps", "verdict", "answer", "impossible"],
        ["steps", "impossible"],
    ]
    verdicts = [form["properties"]["verdict"]["enum"] for form in FORMS[:3]]
    assert verdicts == [["plan", "keep", "finished", "impossible"], ["plan", "keep", "impossible"], ["plan", "finished", "impossible"]]  # fmt: skip


def test_only_the_tools_that_may_be_used_are_there() -> None:
    few = Catalogue(CATALOGUE.tools, frozenset(("note", "http_get", "gone")), network=False, model=False)
    form: Any = answer_form(few, keep=False, finished=False)
    step, few_more = form["$defs"]["step"]["properties"], _more(form)
    assert step["tool"] == {"type": "string", "enum": ["note"]}
    assert step["input"]["anyOf"] == [
        {
            "type": "object",
            "properties": {"text": {"type": "string", "maxLength": 20000}},
            "required": ["text"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
    assert "tools" not in few_more
    assert None in FORMS[0]["$defs"]["step"]["properties"]["tool"]["enum"]
    assert "tools" in _more(FORMS[0])


def _more(form: dict[str, Any]) -> set[str]:
    """Return the fields of a step that are set only where they are needed."""
    listed = form["$defs"]["step"]["properties"]["more"]["items"]["anyOf"]
    return {name for one in listed for name in one["properties"]}


def test_a_step_must_set_little() -> None:
    fields = FORMS[0]["$defs"]["step"]["required"]
    assert fields == ["id", "description", "tool", "input", "depends_on", "success_condition", "more"]
    assert {"checks", "when", "gate"} < _more(FORMS[0])


def test_the_kinds_of_checks_that_can_be_run_are_there() -> None:
    kinds = [
        [branch["properties"]["kind"]["enum"][0] for branch in form["$defs"][name]["anyOf"]]
        for form in (FORMS[0], FORMS[4])
        for name in ("check", "need")
    ]
    assert kinds == [
        ["command", "file", "output", "judge"],
        ["command", "file"],
        ["command", "file", "output", "http"],
        ["command", "file", "http"],
    ]


def test_a_tools_input_is_closed_and_takes_references() -> None:
    branches: Any = FORMS[0]["$defs"]["step"]["properties"]["input"]["anyOf"]
    add = next(one for one in branches if "a" in one.get("properties", {}))
    text = {"type": "string", "maxLength": 20000}
    as_json = text | {"description": "JSON, written as text"}
    deepest = {
        "type": "object",
        "properties": {"x": {"type": ["integer", "string"]}, "deeper": {"anyOf": [..., {"type": "null"}]}},
        "required": ["x", "deeper"],
        "additionalProperties": False,
    }
    place = add["properties"].pop("place")
    assert add["properties"] == {
        "a": {"type": ["number", "string"], "description": "the first"},
        "b": {"type": ["number", "string"]},
        "exact": {"type": ["boolean", "string", "null"]},
        "tags": {"anyOf": [{"type": "array", "items": text}, text, {"type": "null"}]},
        "table": as_json | {"type": ["string", "null"]},
        "unit": text | {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": ["integer", "string"]}, text, {"type": "null"}]},
        "choice": {"type": ["string", "null"], "enum": ["x", "y", None]},
    }
    for _ in range(5):
        assert place["anyOf"][0].keys() == deepest.keys()
        place = place["anyOf"][0]["properties"]["deeper"]
    assert place == as_json | {"type": ["string", "null"]}


@pytest.mark.parametrize(
    "schema", [True, {}, {"$ref": "#/$defs/no"}, {"type": "array"}, {"type": "object"}, {"enum": [1]}]
)
def test_what_cannot_be_closed_is_json_as_text(schema: Any) -> None:
    spec = ToolSpec(
        "odd", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]}, effects="none", repeatable=True
    )
    form: Any = answer_form(Catalogue({"odd": spec}, frozenset(("odd",))), keep=False, finished=False)
    branch = form["$defs"]["step"]["properties"]["input"]["anyOf"][0]
    assert branch["properties"] == {
        "x": {"type": "string", "maxLength": 20000, "description": "JSON, written as text"}
    }


@pytest.mark.parametrize(
    ("given", "back"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}),
        ({"a": "1", "b": "1.5", "exact": "true"}, {"a": 1, "b": 1.5, "exact": True}),
        ({"a": "{{steps.x.output}}", "b": "two"}, {"a": "{{steps.x.output}}", "b": "two"}),
        ({"a": None, "exact": None, "unit": None, "else": None}, {"a": None, "unit": None, "else": None}),
        ({"tags": ["1", "2"], "either": "3"}, {"tags": ["1", "2"], "either": "3"}),
        ({"tags": '["x"]', "table": '{"k": 1}'}, {"tags": ["x"], "table": {"k": 1}}),
        ({"place": {"x": "1", "deeper": None}}, {"place": {"x": 1}}),
        ({"place": '{"x": 1}', "choice": "x"}, {"place": {"x": 1}, "choice": "x"}),
        ({"choice": None}, {}),
        ("text", "text"),
        (7, 7),
    ],
)
def test_the_way_back(given: Any, back: Any) -> None:
    assert tool_input(given, ADD) == back


def test_nulls_that_a_schema_lists_are_values() -> None:
    fields = {"x": {"enum": ["a", None]}, "y": {"type": ["string", "null"]}, "z": {}}
    spec = ToolSpec("odd", "", {"type": "object", "properties": fields}, effects="none", repeatable=True)
    assert tool_input({"x": None, "y": None, "z": None}, spec) == {"x": None, "y": None, "z": None}


def test_only_text_is_read_as_json() -> None:
    assert [json_value(one) for one in (3, '{"a": 1}', "{", "\ud800")] == [3, {"a": 1}, "{", "\ud800"]


def test_tools_that_take_the_same_share_a_branch_and_endless_references_end() -> None:
    twin = replace(CATALOGUE.tools["note"], name="twin")
    fields = {"x": {"$ref": "#/$defs/x"}}
    loop = ToolSpec(
        "loop", "", {"properties": fields, "$defs": {"x": {"$ref": "#/$defs/x"}}}, "none", repeatable=True
    )
    tools = {"note": CATALOGUE.tools["note"], "twin": twin, "loop": loop}
    form: Any = answer_form(Catalogue(tools, frozenset(tools)), keep=False, finished=False)
    branches = form["$defs"]["step"]["properties"]["input"]["anyOf"]
    assert [list(one.get("properties", {})) for one in branches] == [["x"], ["text"], []]
    assert tool_input({"x": "1"}, loop) == {"x": "1"}


def test_an_empty_text_leaves_out_what_may_be_left_out_and_may_not_be_empty() -> None:
    listing = TOOLS["list_files"]
    assert tool_input({"path": "", "pattern": None}, listing) == {}
    assert tool_input({"path": "", "content": ""}, TOOLS["write_file"]) == {"path": "", "content": ""}
    assert tool_input({"a": 1, "b": 2, "unit": ""}, ADD) == {"a": 1, "b": 2, "unit": ""}


def test_places_are_offered_where_there_are_any() -> None:
    forms: list[Any] = [
        answer_form(replace(CATALOGUE, places=places), keep=False, finished=False)
        for places in ((), ("box", "cluster"))
    ]
    seldom = [form["$defs"]["step"]["properties"]["more"]["items"]["anyOf"] for form in forms]
    offered = [[one["properties"]["place"] for one in fields if "place" in one["properties"]] for fields in seldom]
    assert offered == [[], [{"type": "string", "enum": ["box", "cluster"]}]]
