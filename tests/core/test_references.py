"""References: found, checked, renamed and resolved."""

from typing import Any

import pytest
from pydantic import JsonValue

from agentfs.core.problems import Problem
from agentfs.core.records import (
    CommandCheck,
    FileCheck,
    HttpCheck,
    JudgeCheck,
    OutputCheck,
    ResolvedCommandCheck,
    Step,
)
from agentfs.core.references import Reference, find, in_step, is_whole, problems_in_step, rename
from agentfs.core.resolve import Output, Resolved, Unresolved, reference_limit, resolve_step

ROOM = 1024 * 1024


def a_step(**fields: Any) -> Step:
    return Step.model_validate({"id": "me", **fields})


def shell(command: str, **fields: Any) -> Step:
    return a_step(tool="shell", input={"command": command, **fields})


def output(value: JsonValue, *, cut: bool = False) -> Output:
    return Output(value, cut, "/runs/a.1.output.txt")


def resolved(step: Step, **values: JsonValue) -> Resolved | Unresolved:
    outputs = {name.replace("_", "-"): output(value) for name, value in values.items()}
    return resolve_step(step, outputs, "the goal", ROOM)


def the_input(step: Step, **values: JsonValue) -> Any:
    answer = resolved(step, **values)
    assert isinstance(answer, Resolved), answer
    return answer.input


def why(step: Step, **values: JsonValue) -> str:
    answer = resolved(step, **values)
    assert isinstance(answer, Unresolved), answer
    return answer.why


# ── find ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{steps.a.output}}", ("a", "output", ())),
        ("{{ steps.a.output }}", ("a", "output", ())),
        ("{{steps.a-1.output.rows.0.full name}}", ("a-1", "output", ("rows", "0", "full name"))),
        ("{{steps.a.file}}", ("a", "file", ())),
        ("{{goal}}", (None, "goal", ())),
        ("{{ goal }}", (None, "goal", ())),
        ("{step_a_result}", ("a", "output", ())),
        ("{step_a-b_result}", ("a-b", "output", ())),
        ("{step_a_b_result}", ("a-b", "output", ())),
        ("{step_1_result}", ("1", "output", ())),
    ],
)
def test_forms(text: str, expected: tuple[Any, ...]) -> None:
    step, kind, path = expected
    assert find(text) == (Reference(step, kind, path, 0, len(text)),)
    assert is_whole(text)
    assert find(f"x{text}}} y") == (Reference(step, kind, path, 1, 1 + len(text)),)
    assert not is_whole(f" {text}")
    assert not is_whole(text * 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{{}}",
        "{{x}}",
        "{{goals}}",
        "{{step.a.output}}",
        "{a}",
        "{{steps\n.a.output}}",
        "{step_result}",
        "${x}",
        "{{goal.x}}",
        "{step_a b_result}",
        "{{steps}}",
        "{{ . }}",
        "{step_a_results}",
    ],
)
def test_anything_else_in_braces_is_left_alone(text: str) -> None:
    step = a_step(tool="note", input={"text": text})
    assert find(text) == ()
    assert problems_in_step(step, []) == []
    assert the_input(step) == {"text": text}


def test_in_step_walks_values_with_pointers() -> None:
    ref = "{{steps.a.output}}"
    step = a_step(
        tool="x",
        input={"a/b": {"~": ["", ref], ref: 1}, "n": None},
        needs=(FileCheck(kind="file", path=ref),),
        checks=(JudgeCheck(kind="judge", condition="x"), OutputCheck(kind="output", schema={"const": f" {ref}"})),
    )
    reference = Reference("a", "output", (), 0, 18)
    assert list(in_step(step)) == [
        ("/input/a~1b/~0/1", reference),
        ("/needs/0/path", reference),
        ("/checks/1/schema/const", Reference("a", "output", (), 1, 19)),
    ]
    assert list(in_step(a_step())) == []


# ── problems ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("{{steps.x}}", "{{steps.x}} does not say what of the step is meant", "did you mean '{{steps.x.output}}'?"),
        (
            "{{steps.x.outptu}}",
            "{{steps.x.outptu}} asks for 'outptu', which steps do not have",
            "did you mean 'output'?",
        ),
        (
            "{{steps.x.zzz}}",
            "{{steps.x.zzz}} asks for 'zzz', which steps do not have",
            "write {{steps.x.output}}, or .file for its path",
        ),
        ("{{steps.}}", "{{steps.}} names no step: '' is not an id", "an id is lower case letters, digits and -"),
        (
            "{{steps.X.output}}",
            "{{steps.X.output}} names no step: 'X' is not an id",
            "an id is lower case letters, digits and -",
        ),
        ("{{steps.x.file.y}}", "{{steps.x.file.y}}: .file is a path, with nothing inside", "write {{steps.x.file}}"),
        (
            "{{steps.x.output.}}",
            "{{steps.x.output.}} has an empty part between its dots",
            "write {{steps.x.output.KEY}}",
        ),
        ("{step_X_result}", "{step_X_result} names no step: 'X' is not an id", "write {{steps.ID.output}}"),
        (
            "{{step_x_result}}",
            "{{step_x_result}} mixes two forms",
            "write {{steps.x.output}} or {step_x_result}",
        ),
        (
            "{{steps.copy-row.output}}",
            "{{steps.copy-row.output}} refers to a step that is not in the plan",
            "did you mean 'copy-rows'?",
        ),
        (
            "{step_zz_result}",
            "{step_zz_result} refers to a step that is not in the plan",
            "the other steps are copy-rows, x",
        ),
        ("{{steps.me.output}}", "{{steps.me.output}} refers to the step it is in", "refer to an earlier step"),
    ],
)
def test_problems(text: str, message: str, fix: str) -> None:
    step = a_step(tool="note", input={"text": f"see {text}"})
    assert problems_in_step(step, ["copy-rows", "x", "me"]) == [Problem(message, fix, "/input/text")]


def test_all_problems_at_once() -> None:
    step = a_step(
        tool="shell",
        input={"command": "echo '{{steps.a.output}}' {{steps.b.output}}"},
        needs=(CommandCheck(kind="command", run="{{goal}}"),),
        checks=(CommandCheck(kind="command", run="true {{steps.a}}"),),
    )
    assert problems_in_step(step, {"me", "a"}) == [
        Problem(
            "{{steps.b.output}} refers to a step that is not in the plan", "the other steps are a", "/input/command"
        ),
        Problem(
            "{{steps.a.output}} is inside single quotes, where the shell puts in no values",
            "write it bare or in double quotes: {{steps.a.output}}",
            "/input/command",
        ),
        Problem(
            "{{goal}} is part of the program's name: the value would choose what runs",
            "write the program's name in the plan and give the value as an argument: ./program {{goal}}",
            "/needs/0/run",
        ),
        Problem(
            "{{steps.a}} does not say what of the step is meant",
            "did you mean '{{steps.a.output}}'?",
            "/checks/0/run",
        ),
    ]


def test_a_lone_step_has_no_other_to_refer_to() -> None:
    (problem,) = problems_in_step(shell("echo {{steps.a.output}}"), {"me"})
    assert problem.fix == "there is no other step"


def test_the_fix_shows_the_reference_itself() -> None:
    (problem,) = problems_in_step(shell("echo $(wc {{steps.a.file}})"), {"a"})
    assert problem == Problem(
        "{{steps.a.file}} is inside $( )",
        "put it in double quotes outside $( ), or assign it to a variable first: n={{steps.a.file}}",
        "/input/command",
    )


def test_only_shell_text_is_read_as_shell_text() -> None:
    quoted = "'{{steps.a.output}}'"
    assert problems_in_step(a_step(tool="note", input={"command": quoted}), {"a"}) == []
    assert problems_in_step(a_step(tool="shell", input={"env": {"command": quoted}}), {"a"}) == []
    assert problems_in_step(a_step(checks=(JudgeCheck(kind="judge", condition=quoted),)), {"a"}) == []


def test_the_interpreter_is_written_and_known() -> None:
    by_reference = shell("true", interpreter="{{steps.a.output}}")
    assert problems_in_step(by_reference, {"a"}) == [
        Problem("the interpreter cannot come from a reference", "write its name: sh or bash", "/input/interpreter")
    ]
    fish = shell("echo {{steps.a.output}}", interpreter="fish")
    assert problems_in_step(fish, {"a"}) == [
        Problem("references can be in the text of sh, bash and dash only", "use one of these", "/input/command")
    ]
    assert why(fish, a="x") == (
        "step 'a' cannot be referred to: it is in the text of a shell other than sh, bash and dash"
    )
    assert problems_in_step(shell("echo {{steps.a.output}}", interpreter="/bin/bash"), {"a"}) == []


@pytest.mark.parametrize(
    "code",
    [
        "x = {{goal}}",
        "print({{goal}})",
        "f(a, {{goal}}.strip())",
        "x = [{{goal}}, 1]\n",
        "if {{goal}}:\n    pass",
        "x = _ref0 + {{goal}}",
        "x = '''\n''' + {{goal}} # fine",
    ],
)
def test_places_in_python(code: str) -> None:
    step = a_step(tool="python", input={"code": code})
    assert problems_in_step(step, ()) == []
    assert the_input(step) == {"code": code.replace("{{goal}}", "'the goal'")}


@pytest.mark.parametrize(
    "code",
    [
        "x = '{{goal}}'",
        'x = f"{{goal}}"',
        'x = f"{ {{goal}} }"',
        "x = '''\n{{goal}}\n'''",
        "# {{goal}}",
        "x = 1{{goal}}",
        "x = b{{goal}}",
        "x = y_{{goal}}",
        "x = {{goal}}y",
        "x = y.{{goal}}",
        "x = ({{goal}}",
        "if x:\n  a\n {{goal}}",
        "x = '{{goal}}",
    ],
)
def test_places_in_python_that_are_refused(code: str) -> None:
    step = a_step(tool="python", input={"code": code})
    expected = "a reference in Python is a value, not text inside quotes"
    assert problems_in_step(step, ()) == [
        Problem(f"{{{{goal}}}}: {expected}", "write name = {{goal}}", "/input/code")
    ]
    assert resolved(step) == Unresolved("me", f"the goal cannot be referred to: {expected}")


# ── rename ────────────────────────────────────────────────────────────────────────────────────────────────


def test_rename() -> None:
    value = {
        "a": ["x {{ steps.old.output.old }} {{steps.older.output}} {step_old_result}", 1, None],
        "{{steps.old.file}}": "{{steps.old.file}}{{goal}}{{steps.old}}",
    }
    assert rename(value, "old", "new-one") == {
        "a": ["x {{ steps.new-one.output.old }} {{steps.older.output}} {step_new-one_result}", 1, None],
        "{{steps.old.file}}": "{{steps.new-one.file}}{{goal}}{{steps.old}}",
    }


def test_rename_reads_underscores_as_hyphens() -> None:
    assert rename("{step_a_b_result}", "a-b", "c") == "{step_c_result}"


# ── resolve ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", ["text", 1, -1.5, True, None, [1, {"a": "b"}], {"k": []}, ""])
def test_a_string_that_is_only_a_reference_keeps_the_type(value: JsonValue) -> None:
    step = a_step(tool="note", input={"text": "{{steps.a.output}}", "deep": [{"x": "{step_a_result}"}], "n": 1})
    assert the_input(step, a=value) == {"text": value, "deep": [{"x": value}], "n": 1}


def test_other_text_is_interpolated() -> None:
    step = a_step(input={"text": "<{{steps.a.output}}|{{steps.b.output}}|{{goal}}>"})
    assert the_input(step, a="é\n", b={"é": [1, None]}) == {"text": '<é\n|{"é":[1,null]}|the goal>'}


def test_values_are_never_scanned_again() -> None:
    step = a_step(input={"text": "{{steps.a.output}}", "more": "x{{steps.a.output}}{{steps.b.output}}"})
    hostile = "{{steps.b.output}}{step_b_result}{{goal}}"
    assert the_input(step, a=hostile, b="B") == {"text": hostile, "more": f"x{hostile}B"}


def test_paths() -> None:
    step = a_step(input={"x": "{{steps.a.output.rows.1.0}}", "y": "{{steps.a.output.rows}}"})
    value: JsonValue = {"rows": [{"0": "zero"}, ["first"]]}
    assert the_input(step, a=value) == {"x": "first", "y": [{"0": "zero"}, ["first"]]}
    assert the_input(a_step(input={"x": "{{steps.a.output.rows.0.0}}"}), a=value) == {"x": "zero"}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("b", {"a": 1, "c": 2}, "its output has no 'b': it is an object with the keys a, c"),
        ("b", {}, "its output has no 'b': it is an empty object"),
        ("b", dict.fromkeys("acdefghijklmno"), "an object with the keys a, c, d, e, f, g, h, i, j, k, l, m, …"),
        ("2", [1, 2], "its output has no '2': it is a list of 2, counted from 0"),
        ("-1", [1, 2], "its output has no '-1': it is a list of 2, counted from 0"),
        ("01", [1, 2], "its output has no '01': it is a list of 2, counted from 0"),
        ("9" * 5000, [1, 2], "a list of 2, counted from 0"),
        ("0", [], "its output has no '0': it is an empty list"),
        ("0", "text", "its output has no '0': it is text"),
        ("0", None, "its output has no '0': it is null"),
        ("a.b", {"a": 5}, "its output.a has no 'b': it is 5"),
    ],
)
def test_a_path_that_is_not_there(path: str, value: JsonValue, expected: str) -> None:
    step = a_step(input={"x": f"{{{{steps.a.output.{path}}}}}"})
    assert why(step, a=value).endswith(expected)


def test_a_step_without_output() -> None:
    assert resolved(a_step(input={"x": "{{steps.a.file}}"})) == Unresolved(
        "a", "step 'a' cannot be referred to: it has no output"
    )


def test_a_cut_output_names_the_file() -> None:
    outputs = {"a": output("head … tail", cut=True)}
    assert resolve_step(a_step(input={"x": "{{steps.a.output}}"}), outputs, "", ROOM) == Unresolved(
        "a", "step 'a' cannot be referred to: its output was cut; read it from its file: {{steps.a.file}}"
    )
    by_file = a_step(input={"x": "{{steps.a.file}}", "y": "{{steps.a.file}}"})
    path = "/runs/a.1.output.txt"
    assert resolve_step(by_file, outputs, "", ROOM) == Resolved({"x": path, "y": path}, (), (), ("a",))


def test_shell_text() -> None:
    step = shell('echo {{steps.a.output}} "x {{steps.b.output}}" {{ steps.a.output }} {{goal}}', interpreter="bash")
    assert the_input(step, a="A b", b=[1, "é"]) == {
        "interpreter": "bash",
        "command": 'echo "${REF_0}" "x ${REF_1}" "${REF_0}" "${REF_2}"',
        "env": {"REF_0": "A b", "REF_1": '[1,"é"]', "REF_2": "the goal"},
    }
    assert the_input(shell("echo '{{x}}'")) == {"command": "echo '{{x}}'"}
    assert the_input(shell([1])) == {"command": [1]}  # type: ignore[arg-type]  # the tool's schema refuses it


def test_variables_do_not_collide() -> None:
    step = shell("REF_0=1; echo $REF_2 {{goal}} {{steps.a.output}}", env={"REF_1": "own", "x": "{{steps.a.output}}"})
    assert the_input(step, a="A") == {
        "command": 'REF_0=1; echo $REF_2 "${REF_3}" "${REF_4}"',
        "env": {"REF_1": "own", "x": "A", "REF_3": "the goal", "REF_4": "A"},
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\0b", "its value holds a character no shell can take"),
        ("\ud800", "its value holds a character no shell can take"),
        ("é" * 60 * 1024 + "x", "its value has 122881 bytes, too many for a shell"),
    ],
)
def test_values_no_variable_can_carry(value: str, expected: str) -> None:
    assert why(shell("echo {{steps.a.output}}"), a=value) == (
        f"step 'a' cannot be referred to: {expected}; read it from its file: {{{{steps.a.file}}}}"
    )


def test_the_largest_value_fits_and_a_goal_too_large_is_named() -> None:
    assert the_input(shell("echo {{steps.a.output}}"), a="x" * 122_880)["env"] == {"REF_0": "x" * 122_880}
    answer = resolve_step(shell("echo {{goal}}"), {}, "\0", ROOM)
    assert answer == Unresolved(
        "me", "the goal cannot be referred to: its value holds a character no shell can take; read goal.md instead"
    )


def test_an_unsafe_place_is_refused_again() -> None:
    assert why(shell("eval {{steps.a.output}}"), a="x") == (
        "step 'a' cannot be referred to: its place is not safe: "
        "it is given to a command that reads its arguments as code"
    )


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("it's \"\n\\", "x = " + repr("it's \"\n\\")),
        (5, "x = 5"),
        (-5, "x = (-5)"),
        (-1.5, "x = (-1.5)"),
        (True, "x = True"),
        (None, "x = None"),
        ({"a": [True, None, -1]}, "x = {'a': [True, None, -1]}"),
        (float("inf"), "x = float('inf')"),
        ([float("-inf")], "x = [float('-inf')]"),
    ],
)
def test_python_literals(value: JsonValue, code: str) -> None:
    step = a_step(tool="python", input={"code": "x = {{steps.a.output}}", "n": "{{steps.a.output}}"})
    assert the_input(step, a=value) == {"n": value, "code": code}


def test_a_number_before_a_dot_stays_one_operand() -> None:
    step = a_step(tool="python", input={"code": "x = {{steps.a.output}}.real"})
    assert the_input(step, a=5) == {"code": "x = (5).real"}


def test_checks() -> None:
    ref = "{{steps.a.output}}"
    step = a_step(
        needs=(CommandCheck(kind="command", run="true"),),
        checks=(
            CommandCheck(kind="command", run=f'test "{ref}" = 1.5'),
            FileCheck(kind="file", path=ref, matches=f"^{ref}$", contains=f"{ref}", min_bytes=1),
            OutputCheck(kind="output", schema={"const": ref, "x": None}),
            OutputCheck(kind="output", schema=True),
            HttpCheck(kind="http", url=f"http://x/{ref}", status=200),
            JudgeCheck(kind="judge", condition="it is {{goal}}"),
        ),
    )
    assert resolved(step, a=1.5) == Resolved(
        input={},
        needs=(ResolvedCommandCheck(kind="command", run="true"),),
        checks=(
            ResolvedCommandCheck(kind="command", run='test "${REF_0}" = 1.5', env={"REF_0": "1.5"}),
            FileCheck(kind="file", path="1.5", matches="^1\\.5$", contains="1.5", min_bytes=1),
            OutputCheck(kind="output", schema={"const": 1.5, "x": None}),
            OutputCheck(kind="output", schema=True),
            HttpCheck(kind="http", url="http://x/1.5", status=200),
            JudgeCheck(kind="judge", condition="it is the goal"),
        ),
        files=(),
    )


def test_a_check_cannot_be_empty() -> None:
    step = a_step(checks=(FileCheck(kind="file", path="{{steps.a.output}}"),))
    assert why(step, a="") == "step 'a' cannot be referred to: it is empty, and a check needs a path"


# ── how much ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("steps", "room"), [(1, 16_000), (256, 16_000), (257, 15_937), (4096, 1000), (8192, 500), (10**9, 0)]
)
def test_a_step_refers_to_sixteen_outputs_and_many_steps_share(steps: int, room: int) -> None:
    assert reference_limit(1000, steps) == room


@pytest.mark.parametrize(
    "step",
    [
        a_step(input={"x": "{{goal}} {{goal}}"}),
        a_step(input={"x": ["{{goal}}", {"y": "{{goal}}"}]}),
        a_step(checks=(CommandCheck(kind="command", run="echo {{goal}} {{goal}}"),)),
        a_step(needs=(FileCheck(kind="file", path="{{goal}}"),), input={"x": "{{goal}}"}),
        a_step(tool="python", input={"code": "x = {{goal}} + {{goal}}"}),
        shell("echo {{goal}} {{goal}}"),
    ],
)
def test_what_resolves_is_bounded_wherever_it_is(step: Step) -> None:
    assert isinstance(resolve_step(step, {}, "x" * 500, 1000), Resolved)
    why = "the goal cannot be referred to: all that 'me' refers to comes to more than 999 bytes; read goal.md instead"
    assert resolve_step(step, {}, "x" * 500, 999) == Unresolved("me", why)


def test_a_value_counts_in_bytes_and_a_path_does_not() -> None:
    outputs = {"a": output(["ü", 1]), "b": output("x" * 5000)}
    step = a_step(input={"x": "{{steps.a.output}}", "y": "{{steps.b.file}}"})
    assert isinstance(resolve_step(step, outputs, "", len('["ü",1]'.encode())), Resolved)
    assert isinstance(resolve_step(step, outputs, "", 7), Unresolved)
