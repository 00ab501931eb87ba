"""What a planner's reply says: every form it may have, and every one that says nothing."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfs.core.problems import Rejected
from agentfs.planner.answer import Reply, read_answer, read_checks
from tests.core.planning_samples import CATALOGUE

STEPS = [{"id": "a", "tool": "note", "input": {"text": "x"}}]
PLAN = Reply("plan", STEPS)
TEXT = json.dumps({"steps": STEPS})
FORMS = 'answer with {"steps": […]}, {"keep": true}, {"finished": true, "answer": …} or {"impossible": "why"}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TEXT, PLAN),
        (json.dumps(STEPS), PLAN),
        (f"\ufeff{TEXT}", PLAN),
        (f"  \n{TEXT}\n", PLAN),
        (f"```json\n{TEXT}\n```", PLAN),
        (f"Here is the plan:\n\n```json\n{TEXT}\n```\nIt has {{one}} step.", PLAN),
        (f"~~~\n{TEXT}\n~~~", PLAN),
        (f"Sure! [1] {TEXT} I hope that [2] helps {{x}}.", PLAN),
        (f"<think>maybe {json.dumps({'keep': True})}?</think>\n{TEXT}", PLAN),
        (f'First ```json\n{{"example": 1}}\n``` and\n```json\n{TEXT}\n```', PLAN),
        (f'```json\n{{"example": 1}}\n```\n```json\n{TEXT}\n```', PLAN),
        (json.dumps({"steps": STEPS, "keep": None, "finished": False, "answer": None, "impossible": None}), PLAN),
        (json.dumps({"steps": STEPS, "keep": False, "impossible": ""}), PLAN),
        (json.dumps({"steps": STEPS, "goal": "g", "thoughts": "t"}), PLAN),
        (
            json.dumps({"steps": STEPS, "status": "approved", "limits": {}, "tools": {"network": True}}),
            Reply("plan", STEPS, beside=("status", "limits", "tools")),
        ),
        (json.dumps({"verdict": "plan", "steps": STEPS, "keep": True, "impossible": "no plan yet"}), PLAN),
        (json.dumps({"verdict": "impossible", "steps": STEPS, "impossible": "no road"}), PLAN),
        (json.dumps({"verdict": "keep", "steps": STEPS}), Reply("keep")),
        (json.dumps({"steps": None, "verdict": "finished", "answer": "4", "impossible": None}), Reply("finished", answer="4")),
        ('{"keep": true}', Reply("keep")),
        ('{"keep": true, "steps": []}', Reply("keep")),
        ('{"finished": true, "answer": {"n": 1}}', Reply("finished", answer={"n": 1})),
        ('{"finished": true}', Reply("finished")),
        ('{"impossible": " no road "}', Reply("impossible", why="no road")),
    ],
)  # fmt: skip
def test_a_reply_says(text: str, reason: Reply) -> None:
    assert read_answer(text, CATALOGUE) == reason


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ([], {}),
        (None, {}),
        ([{"gate": True}, {"timeout_s": 60}], {"gate": True, "timeout_s": 60}),
        ({"gate": True, "timeout_s": None}, {"gate": True}),  # one object with all of them
        ([{"when": {"kind": "command", "run": "test -e b"}}], {"when": {"kind": "command", "run": "test -e b"}}),
        ([{"when": {"kind": "command", "run": "test -e a"}}], {}),  # only if it is done already
    ],
)
def test_what_few_steps_need_is_laid_over_the_step(more: Any, fields: dict[str, Any]) -> None:
    step = STEPS[0] | {"checks": [{"kind": "command", "run": "test -e a"}]}
    assert read_answer(json.dumps({"steps": [step | {"more": more}]}), CATALOGUE).steps == [step | fields]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{{look.output}}", "{{steps.look.output}}"),
        ("cat {{ look.file }} x", "cat {{steps.look.file }} x"),
        ("{{look.output.0.name}}", "{{steps.look.output.0.name}}"),
        ("{{steps.look.output}}", "{{steps.look.output}}"),
        ("{{other.output}}", "{{other.output}}"),  # no step of that name
        ("{{look}}", "{{look}}"),
    ],
)
def test_a_reference_may_leave_out_that_it_is_a_step(written: str, meant: str) -> None:
    steps = [{"id": "look", "tool": "note"}, {"id": "say", "tool": "note", "input": {"text": written}}]
    assert read_answer(json.dumps({"steps": steps}), CATALOGUE).steps[1]["input"] == {"text": meant}


@pytest.mark.parametrize("step_id", [{"$ref": "#"}, ["a"], 1, None])
def test_an_id_that_is_no_text_is_left_to_the_check(step_id: Any) -> None:
    steps = [{"id": step_id, "tool": "note", "input": {"text": "{{a.output}}"}}]
    found = read_answer(json.dumps({"steps": steps}), CATALOGUE).steps[0]
    assert (found.get("id"), found["input"]) == (step_id, {"text": "{{a.output}}"})


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("", "the reply is empty", FORMS),
        ("<think>hm", "the reply is empty", FORMS),
        ("I cannot do that.", "the reply holds no JSON that can be read", "answer with one JSON object and nothing else"),
        ("so [it goes", "the reply holds no JSON that can be read", "answer with one JSON object and nothing else"),
        ('"steps"', "the answer is neither an object nor a list", FORMS),
        ("{}", "the answer holds neither steps nor a verdict", FORMS),
        ('{"answer": 4}', "the answer holds neither steps nor a verdict", FORMS),
        ('{"keep": false}', "the answer holds neither steps nor a verdict", FORMS),
        ('{"steps": []}', "the plan has no steps", "list at least one step, or answer with another verdict"),
        ("[]", "the plan has no steps", "list at least one step, or answer with another verdict"),
        ('{"steps": {"id": "a"}}', "'steps' must be a list of steps", "write [{…}, {…}]"),
        ('{"impossible": true}', "'impossible' does not say why", 'write {"impossible": "why"}'),
        ('{"impossible": "  "}', "'impossible' does not say why", 'write {"impossible": "why"}'),
        ('{"keep": true, "impossible": "x"}', "the answer says impossible and keep at once", "choose one, and set the others to null"),
        ('{"finished": true, "steps": [{"id": "a"}]}', "the answer says finished and steps at once", "choose one, and set the others to null"),
        ('{"steps": [{"id": "a"}, {"id": "b"', "the file ends in the middle", "close what is open: a } or a ] is missing"),
        ('{"keep": true, "keep": true}', "the field 'keep' is there twice", "keep one of the two"),
        ('{"finished": true, "answer": NaN}', "NaN is not JSON", "write a number, null, or put it in quotes"),
        ('{"finished": true, "answer": "\\ud800"}', "half of a character pair: a lone surrogate", "write the character itself, or both \\u halves"),
        ("[" * 5000, "nested more than 100 levels deep", "make it flatter"),
    ],
)  # fmt: skip
def test_a_reply_says_nothing_usable(text: str, message: str, fix: str) -> None:
    with pytest.raises(Rejected) as caught:
        read_answer(text, CATALOGUE)
    assert [(one.message, one.fix) for one in caught.value.problems] == [(message, fix)]


def test_json_in_text_becomes_a_value_again() -> None:
    schema = {"type": "string"}
    loose = {
        "id": 1,
        "tool": "add",
        "input": {
            "a": "{{steps.x.output}}",
            "b": "2",
            "exact": None,
            "table": '{"k": 1}',
            "unit": None,
            "tags": None,
        },
        "expects": json.dumps(schema),
        "checks": [{"kind": "output", "schema": json.dumps(schema)}, "true", {"kind": "output", "schema": schema}],
        "needs": None,
        "why": None,
    }
    assert read_answer(json.dumps({"steps": [loose, "odd"]}), CATALOGUE).steps == [
        {
            "id": 1,
            "tool": "add",
            "input": {"a": "{{steps.x.output}}", "b": 2, "table": {"k": 1}, "unit": None},
            "expects": schema,
            "checks": [{"kind": "output", "schema": schema}, "true", {"kind": "output", "schema": schema}],
        },
        "odd",
    ]


def test_the_name_of_a_type_is_a_schema() -> None:
    loose = [{"id": "a", "expects": "array", "checks": [{"kind": "output", "schema": "string"}]}]
    assert read_answer(json.dumps(loose), CATALOGUE).steps == [
        {"id": "a", "expects": {"type": "array"}, "checks": [{"kind": "output", "schema": {"type": "string"}}]}
    ]


def test_tools_beside_a_tool_are_dropped() -> None:
    tools: list[Any] = [["note"], [], ["note", "shell"]]
    steps = read_answer(json.dumps([{"id": "a", "tool": "note", "tools": one} for one in tools]), CATALOGUE).steps
    assert steps == [{"id": "a", "tool": "note"}] * 3


def test_a_list_whose_items_nothing_uses_is_dropped() -> None:
    listed: list[Any] = [
        {"id": "a", "tool": "note", "input": {"text": "x"}, "each": "{{steps.x.output}}"},
        {"id": "b", "tool": "note", "input": {"text": "{{ item.name }}"}, "each": "{{steps.x.output}}"},
        {"id": "c", "description": "Part {{index}}", "each": "{{steps.x.output}}"},
    ]
    steps = read_answer(json.dumps(listed), CATALOGUE).steps
    assert steps == [{"id": "a", "tool": "note", "input": {"text": "x"}}, *listed[1:]]


def test_what_cannot_be_read_back_stays_for_the_check_to_name() -> None:
    loose = [
        {"id": "a", "tool": "gone", "input": {"x": None}},
        {"id": "b", "tool": ["add"], "input": 1, "expects": "{", "checks": "true"},
        {"id": "c", "tool": "add", "input": {"a": "many", "b": None, "other": None, "exact": True}},
    ]
    assert read_answer(json.dumps(loose), CATALOGUE).steps == loose


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.text(alphabet='{}[]":,`~\n stepkaid01<>/', max_size=80) | JSON.map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(Rejected):
        assert read_answer(text, CATALOGUE).verdict in ("plan", "keep", "finished", "impossible")


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("```sh\ntest -e a\n\n# why\ntest -e b \\\n  -a -e c\n```", ["test -e a", "test -e b    -a -e c"]),
        ("Here:\n```\ntest -e a\n```\nDone.", ["test -e a"]),
        ("test -e a", []),
        ('{"checks": [{"kind": "command", "run": "test -e a"}]}', ["test -e a"]),
    ],
)
def test_checks_are_json_or_the_lines_of_a_shell_block(text: str, commands: list[str]) -> None:
    assert [check["run"] for check in read_checks(text)] == commands
