"""Parameters: what a goal declares, the values it is given, and words with those filled in."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

from agentfs.core.goal_file import examine_goal
from agentfs.core.params import (
    declaration_problems,
    example_arguments,
    fill,
    frozen_problems,
    parameters_in,
    parse_assignments,
    parse_typed,
    values_for,
)
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Step
from agentfs.core.references import Params, problems_in_step
from agentfs.core.resolve import Resolved, Unresolved, resolve_step
from agentfs.core.steps import key_of
from tests.core.goal_samples import CATALOGUE

VALUES: dict[str, JsonValue] = {"env": "prod", "n": 3, "hosts": ["a", "b"], "db": {"port": 5432}}
KNOWN = Params(tuple(VALUES), VALUES)
DEPLOY = parameters_in(
    {
        "env": {"enum": ["staging", "prod"], "description": "Where to"},
        "n": {"type": "integer", "minimum": 1, "default": 2},
        "note": "string",
    }
)


def shell(command: str, **fields: Any) -> Step:
    return Step.model_validate({"id": "me", "tool": "shell", "input": {"command": command}, **fields})


def resolved(step: Step) -> Any:
    found = resolve_step(step, {}, "the goal", 100_000, VALUES)
    return found.input if isinstance(found, Resolved) else found


# ── references ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_parameter_in_shell_text_is_the_value_of_a_variable() -> None:
    step = shell('deploy {{params.env}} --to "{{params.hosts.1}}" {{ params.n }} {{params.env}}')
    assert resolved(step) == {
        "command": 'deploy "${REF_0}" --to "${REF_1}" "${REF_2}" "${REF_0}"',
        "env": {"REF_0": "prod", "REF_1": "b", "REF_2": "3"},
    }


def test_a_parameter_in_python_is_a_literal_and_alone_it_keeps_its_type() -> None:
    code = Step.model_validate({"id": "me", "tool": "python", "input": {"code": "f({{params.db}}, {{params.env}})"}})
    assert resolved(code) == {"code": "f({'port': 5432}, 'prod')"}
    whole = Step.model_validate({"id": "me", "tool": "x", "input": {"a": "{{params.hosts}}", "b": "n={{params.n}}"}})
    assert resolved(whole) == {"a": ["a", "b"], "b": "n=3"}


def test_a_value_that_looks_like_a_reference_is_not_looked_at_again() -> None:
    step = Step.model_validate({"id": "me", "tool": "note", "input": {"text": "{{params.a}}"}})
    found = resolve_step(step, {}, "", 1000, {"a": "{{params.b}}", "b": "no"})
    assert isinstance(found, Resolved)
    assert found.input == {"text": "{{params.b}}"}
    assert fill("{{params.a}}", {"a": "{{params.b}}", "b": "no"}) == "{{params.b}}"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo {{params.envv}}", "{{params.envv}}: there is no parameter 'envv' (did you mean 'env'?)"),
        ("echo {{params.x}}", "{{params.x}}: there is no parameter 'x' (the parameters are env, n, hosts, db)"),
        (
            "echo {{params.db.prot}}",
            (
                "{{params.db.prot}}: the parameter 'db' has no 'prot': it is an object with the keys port"
                " (correct the path, or the value)"
            ),
        ),
        (
            "echo {{params.Env}}",
            (
                "{{params.Env}} names no parameter: 'Env' is not a name"
                " (a parameter's name is lower case letters, digits and _)"
            ),
        ),
        (
            "echo {{params.db..port}}",
            "{{params.db..port}} has an empty part between its dots (write {{params.db.KEY}})",
        ),
    ],
)
def test_references_to_what_is_not_there(command: str, message: str) -> None:
    (found,) = problems_in_step(shell(command), (), params=KNOWN)
    assert f"{found.message} ({found.fix})" == message


def test_a_parameter_in_single_quotes_is_refused_like_any_reference() -> None:
    (found,) = problems_in_step(shell("echo '{{params.env}}'"), (), params=KNOWN)
    assert found.message.startswith("{{params.env}} ")
    assert found.pointer == "/input/command"


def test_words_of_a_step_are_looked_at_too() -> None:
    step = shell("true", description="To {{params.evn}}", success_condition="{{steps.x.output}} is {{params.n}}")
    assert [(one.pointer, one.message) for one in problems_in_step(step, (), params=KNOWN)] == [
        ("/description", "{{params.evn}}: there is no parameter 'evn'")
    ]


def test_a_run_that_has_no_such_value_says_so() -> None:
    found = resolve_step(shell("echo {{params.gone}}"), {}, "", 1000, {})
    assert found == Unresolved("me", "the parameter 'gone' cannot be referred to: this run has no such parameter")


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────


def _key(step: Step, values: dict[str, Any]) -> str:
    found = resolve_step(step, {}, "", 1000, values)
    assert isinstance(found, Resolved)
    return key_of(step, found, values)


def test_a_value_changes_the_key_of_what_it_reaches_and_of_nothing_else() -> None:
    one, other = {"env": "prod", "n": 1}, {"env": "staging", "n": 1}
    reached, words = shell("echo {{params.env}}"), shell("echo", description="to {{params.env}}")
    model = Step.model_validate({"id": "me", "description": "write to {{params.env}}", "tools": ()})
    assert _key(reached, one) != _key(reached, other)
    assert _key(words, one) == _key(words, other)  # a tool reads no words
    assert _key(model, one) != _key(model, other)  # a model does
    assert _key(shell("echo"), one) == _key(shell("echo"), {})


# ── what is declared ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"a": "strng"}, "the parameter 'a': \"strng\" is neither a type nor a schema (did you mean 'string'?)"),
        (
            {"a": 3},
            (
                "the parameter 'a': 3 is neither a type nor a schema"
                " (write a type (string, integer, number, boolean, array, object) or a JSON Schema)"
            ),
        ),
        (
            {"a": {"type": "integer", "default": "x"}},
            (
                "the default of the parameter 'a' breaks its own schema: 'x' is not of type 'integer'"
                " (change the default or the schema)"
            ),
        ),
    ],
)
def test_what_is_no_declaration(declared: dict[str, Any], message: str) -> None:
    (found,) = declaration_problems(declared)
    assert f"{found.message} ({found.fix})" == message


def test_a_schema_that_is_none() -> None:
    found = list(declaration_problems({"a": {"type": "integr"}, "b": {"required": True}}))
    assert [one.pointer for one in found] == ["/params/a/type", "/params/b/required"]
    assert all(one.message.startswith("not a JSON Schema: ") for one in found)


def _problems(goal: str, name: str = "goal.md") -> list[str]:
    return [one.shown(name) for one in examine_goal(goal.encode(), name, CATALOGUE)[1]]


def test_a_hundred_parameters_are_taken_and_no_more() -> None:
    front = "".join(f"  p{n}: string\n" for n in range(100))
    book = "# Do\n\n## Steps\n\n### a\n```sh\ntrue\n```\n"
    assert _problems(f"---\nparams:\n{front}---\n{book}") == []
    (found,) = _problems(f"---\nparams:\n{front}  p100: string\n---\n{book}")
    assert found == "goal.md:3:3: 'params' has 101 entries, more than 100 (keep 100 at most) [/params]"


@pytest.mark.parametrize("name", ["Env", "1st", "a-b", "x" * 33, "é"])
def test_a_name_is_lower_case_letters_digits_and_underscores(name: str) -> None:
    (found,) = _problems(f'---\nparams: {{"{name}": string}}\n---\n# Do\n\n## Steps\n\n### a\n```sh\ntrue\n```\n')
    words = f"'params': {json.dumps(name, ensure_ascii=False)} is not a parameter's name"
    fix = "use lower case letters, digits and _, at most 32"
    assert found == f"goal.md:2:10: {words} ({fix}) [/params/{name}]"


def test_each_wrong_name_is_reported() -> None:
    book = "# Do\n\n## Steps\n\n### a\n```sh\ntrue\n```\n"
    found = _problems(f"---\nparams:\n  A: string\n  B: string\n---\n{book}")
    assert [one.partition(": ")[0] for one in found] == ["goal.md:3:3", "goal.md:4:3"]


def test_every_wrong_reference_is_reported_once_where_it_is() -> None:
    goal = (
        "---\nparams:\n  env: string\n---\n# To {{params.evn}}\n\n## Steps\n\n### a\nTo {{params.x}}\n"
        "```sh\necho ok\necho {{params.evn}}\n```\n"
    )
    assert _problems(goal) == [
        "goal.md:5:6: {{params.evn}}: there is no parameter 'evn' (did you mean 'env'?)",
        "goal.md:10:4: {{params.x}}: there is no parameter 'x' (the parameters are env) [/steps/0/description]",
        "goal.md:13:6: {{params.evn}}: there is no parameter 'evn' (did you mean 'env'?) [/steps/0/input/command]",
    ]


def test_a_goal_without_parameters_says_where_to_declare_them() -> None:
    assert _problems("goal: Say {{params.x}}\nsteps: [{id: a, tool: note, input: hi}]\n", "g.yaml") == [
        "g.yaml:1:11: {{params.x}}: there is no parameter 'x' (declare it under params)"
    ]


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("3", {"type": "integer"}, 3),
        ("3", {"type": "string"}, "3"),
        ("3", {"type": ["string", "integer"]}, "3"),
        ("3", {"type": ["integer", "string"]}, 3),
        ("x", {"type": ["integer", "string"]}, "x"),
        ("2.5", {"type": "number"}, 2.5),
        ("true", {"type": "boolean"}, True),
        ("yes", {"type": "boolean"}, "yes"),
        ("[a, b]", {"type": "array"}, ["a", "b"]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("null", {"type": ["null", "string"]}, None),
        ("3", {"enum": [1, 2, 3]}, 3),
        ("NaN", {"type": "number"}, "NaN"),
        ("0", {"type": "integer", "minimum": 1}, 0),  # it does not fit, and is reported as what it is
        ("[" * 200, {"type": "array"}, "[" * 200),
    ],
)
def test_text_is_taken_as_the_type_of_the_schema(text: str, schema: dict[str, Any], value: Any) -> None:
    assert parse_typed(text, schema) == value
    assert type(parse_typed(text, schema)) is type(value)


def test_values_are_what_is_given_and_defaults() -> None:
    found = values_for(DEPLOY, {"env": "prod", "note": "a=b"})
    assert (found.values, found.problems) == ({"env": "prod", "n": 2, "note": "a=b"}, ())


def test_all_that_is_wrong_is_reported_at_once() -> None:
    found = values_for(DEPLOY, {"evn": "prod", "n": "0"})
    assert [(one.pointer, f"{one.message} ({one.fix})") for one in found.problems] == [
        ("/params/evn", "there is no parameter 'evn' (did you mean 'env'?)"),
        ("/params/env", "the parameter 'env' (one of staging, prod) has no value: Where to (for example staging)"),
        (
            "/params/n",
            "the parameter 'n' (a whole number) cannot be 0: 0 is less than the minimum of 1 (it takes a whole number)",
        ),
        ("/params/note", "the parameter 'note' (text) has no value (for example VALUE)"),
    ]


def test_a_command_that_would_do_keeps_what_was_right() -> None:
    assert example_arguments(DEPLOY, {"note": "it's", "n": "0"}) == """-p env=staging -p n=2 -p 'note=it'"'"'s'"""
    fixed = values_for(DEPLOY, parse_assignments(["env=staging", "n=2", "note=it's"]))
    assert fixed.problems == ()


def test_what_was_typed_is_name_and_value() -> None:
    assert parse_assignments(["a=1", "b=x=y", "a="]) == {"a": "", "b": "x=y"}
    with pytest.raises(Rejected) as wrong:
        parse_assignments(["a", "=b"])
    assert [one.message for one in wrong.value.problems] == [
        "-p a: a parameter is NAME=VALUE",
        "-p =b: a parameter is NAME=VALUE",
    ]


def test_an_edited_goal_cannot_ask_for_what_its_run_was_not_given() -> None:
    found = frozen_problems(parameters_in({"new": "string", "n": "string", "env": "string"}), VALUES)
    fix = "a run keeps the values it began with: agentfs fork RUN -p NAME=VALUE begins one with others"
    assert found == [
        Problem("this run has no value for the parameter 'new'", fix, "/params/new"),
        Problem("the value 3 of the parameter 'n' does not fit: 3 is not of type 'string'", fix, "/params/n"),
    ]


def test_words_take_the_text_of_values_and_leave_everything_else() -> None:
    words = (
        "{{params.env}}: {{params.hosts}} {{params.db.port}} {{params.db.x}} {{steps.a.output}} {{params.no}} {{x}}"
    )
    assert fill(words, VALUES) == ('prod: ["a","b"] 5432 {{params.db.x}} {{steps.a.output}} {{params.no}} {{x}}')
