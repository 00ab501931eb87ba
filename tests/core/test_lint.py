"""Mistakes that planners make in plans that pass the check; and what looks like one and is none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.documents import Document
from agentfs.core.goal_file import lenient_steps
from agentfs.core.plan_check import check_plan
from agentfs.core.references import Params
from agentfs.planner.lint import lint
from agentfs.planner.lint_texts import always_true, proves_nothing, wrong_references
from agentfs.planner.prompt import Surroundings
from tests.core.planning_samples import AROUND, CATALOGUE, a_plan_value, by_model, read, shell, step, write

LIST = step("list", tool="list_files", input={"path": "src"})
READ = read("read", "a.txt")
USE = step("use", input={"text": "{{steps.list.output}} {{steps.read.output}}"})
HARD, SOFT = "hard", "soft"


def found(*steps: dict[str, Any], around: Surroundings = AROUND, **more: Any) -> list[tuple[str, str, str]]:
    """Return what lint finds, as (hard or soft, where, what)."""
    value = a_plan_value(*lenient_steps(list(steps), CATALOGUE))
    plan = check_plan(Document(value), CATALOGUE)
    findings = lint(plan, more.pop("finished", ()), CATALOGUE, around, **more)
    return [(HARD if one.hard else SOFT, one.problem.pointer, one.problem.message) for one in findings]


def no_reference(written: str) -> str:
    return f"{written} would reach the tool as it is: it is not a reference"


# ── success ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "words",
    ["success", "Done.", "The step completes successfully.", "it works", "No errors", "OK", "The output is correct",
     "the command was executed without any error", "Task completed as expected!", "The tool returns a valid result", "-"],
)  # fmt: skip
def test_words_that_prove_nothing(words: str) -> None:
    assert proves_nothing(words)
    message = f"the success_condition {words!r} is true of any step: it proves nothing"
    assert found(step("a", success_condition=words)) == [(SOFT, "/steps/0/success_condition", message)]
    assert found(by_model("a", success_condition=words)) == [(HARD, "/steps/0/success_condition", message)]
    assert found(by_model("a", success_condition=words, checks=["test -s a"]))[0][0] == SOFT


@pytest.mark.parametrize(
    "words",
    ["users_new has as many rows as users", "todo.txt holds a number", "pytest exits with 0", "exit code 0",
     "all tests pass", "The output lists at least one file", "48"],
)  # fmt: skip
def test_words_that_prove_something(words: str) -> None:
    assert not proves_nothing(words)
    assert found(by_model("a", success_condition=words)) == []


@pytest.mark.parametrize("words", [..., "", "  "])
def test_a_condition_is_required(words: Any) -> None:
    message = "the step 'a' has no success_condition"
    assert found(step("a", success_condition=words)) == [(HARD, "/steps/0/success_condition", message)]


@pytest.mark.parametrize("command", ["true", ":", " exit 0 ", "echo all is well", "printf ok", "test 1"])
def test_checks_that_prove_nothing(command: str) -> None:
    assert always_true(command)
    message = f"the check {command!r} always holds: it proves nothing"
    checks = [{"kind": "file", "path": "a.txt"}, command]
    assert found(step("a", checks=checks)) == [(HARD, "/steps/0/checks/1/run", message)]


@pytest.mark.parametrize(
    "command", ["test -s a.txt", "echo a | grep b", "truecrypt", "echo $(cat a)", "grep -q true a.txt"]
)
def test_checks_that_prove_something(command: str) -> None:
    assert not always_true(command)


def test_a_step_for_a_model_names_its_tools() -> None:
    message = "the step 'a' has no tool, and names no 'tools' for the model that does it"
    assert found(by_model("a", tools=...)) == [(HARD, "/steps/0/tools", message)]
    assert found(by_model("a", tools=[])) == []


# ── references ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "written",
    ["{{list}}", "{{ list }}", "{{list.output}}", "{{list.result}}", "{{list_output}}", "{{step list}}", "{{step1.output}}",
     "{{steps_list_output}}", "{{previous_step.output}}", "{{previous}}", "{{last step output}}", "{{output of list}}",
     "{{outputs.list}}", "${steps.list.output}", "${steps.list}", "$steps.list.output", "${list.output}", "$list.output",
     "{steps.list.output}", "<output of list>", "<the result of step 1>", "<list output>", "<list_result>",
     "<contents from the previous step>", "<insert the list here>", "[output of list]", "[result of step 2]",
     "[insert summary]", "$STEP_1", "$STEP_1_OUTPUT", "${STEP_LIST_OUTPUT}", "$LIST_OUTPUT", "${OUTPUT_OF_LIST}",
     "$PREVIOUS_OUTPUT", "${{ steps.list.output }}", "{list.output}", "{output of list}"],
)  # fmt: skip
def test_wrong_forms_of_a_reference(written: str) -> None:
    assert list(wrong_references(f"Files: {written}, and so on", ["list"], code=False)) == [written]


@pytest.mark.parametrize(
    "text",
    ["list.output", "steps.list.output", "{list}", "<list>", "$list", "@list", "${list}", "output of list",
     "the results of step 'list'.", "<summary goes here>", "[content here]", "(to be filled in)", " {{list}} "],
)  # fmt: skip
def test_texts_that_are_wrong_as_a_whole(text: str) -> None:
    assert list(wrong_references(text, ["list"], code=False)) == [text.strip()]


@pytest.mark.parametrize(
    "text",
    ["", "plain", "{{name}}", "{{ user.email }}", "{name}", "<html>", "<a href='list'>", "[list](list.md)", "a list of things",
     "$HOME/list", "${HOME}", "$PATH", "the list (here)", "<b>output</b>", "[1] list", "{{steps.list.output}}",
     "{step_list_result}", "# the list.output file", "$stepping", "$steps", "<your name>", "$(list)", "[a-z]list",
     "for x in list: print(x)", "{{goal}}", "$previously", "see the output of list"],
)  # fmt: skip
def test_what_looks_like_one_and_is_none(text: str) -> None:
    assert list(wrong_references(text, ["list"], code=False)) == []


@pytest.mark.parametrize(
    "code",
    ["STEP_1=x; echo $STEP_1", "for step_2 in a b; do echo ${step_2}; done", "read -r list_output; echo $list_output",
     "print(f'{list.output}')", "list", "$list", "echo {list}", "awk '{print $1}' a.txt"],
)  # fmt: skip
def test_code_has_braces_and_dollars_of_its_own(code: str) -> None:
    assert list(wrong_references(code, ["list"], code=True)) == []


def test_no_other_steps_no_wrong_references() -> None:
    assert list(wrong_references("{{list}}", [], code=False)) == []


def test_wrong_forms_are_reported_where_they_are() -> None:
    steps = [
        LIST,
        READ,
        USE,
        shell("s", "cat ${STEP_1_OUTPUT}", checks=["test -s {{read}}"]),
        write("w", "{{list}}", "<output of read>\n" + "x" * 90),
        write("long", "b.txt", "<output of " + "y" * 79 + ">"),
    ]
    assert found(*steps) == [
        (HARD, "/steps/3/input/command", no_reference("${STEP_1_OUTPUT}")),
        (HARD, "/steps/3/checks/0/run", no_reference("{{read}}")),
        (HARD, "/steps/4/input/content", no_reference("<output of read>")),
        (HARD, "/steps/4/input/path", no_reference("{{list}}")),
        (HARD, "/steps/5/input/content", no_reference("<output of " + "y" * 66 + "…")),
    ]


def test_a_model_reads_its_description_as_written() -> None:
    wrong = by_model(
        "m",
        description="Sum up {{steps.list.output}} and <output of read>",
        success_condition="{{steps.read.output}} is met",
    )
    filled = "is not filled in here: only 'input', 'when', 'needs' and 'checks' are"
    assert found(LIST, READ, USE, wrong) == [
        (HARD, "/steps/3/description", f"{{{{steps.list.output}}}} {filled}"),
        (HARD, "/steps/3/description", f"<output of read> {filled}"),
        (HARD, "/steps/3/success_condition", f"{{{{steps.read.output}}}} {filled}"),
    ]
    assert found(LIST, READ, USE, step("n", description="{{steps.list.output}}")) == []
    assert found(LIST, READ, USE, by_model("m", description="Reach {{goal}}", tools=[])) == []


@pytest.mark.parametrize(
    ("source", "path", "described"),
    [
        (READ, "name", "text"),
        (LIST, "name", "a list, counted from 0"),
        (LIST, "0.name", "text"),
        (write("read", "b.txt"), "size", "an object with path, bytes"),
        (step("read", tool="search_files", input={"pattern": "x"}), "0.file", "an object with path, line, text"),
    ],
)
def test_paths_that_lead_nowhere(source: dict[str, Any], path: str, described: str) -> None:
    written = f"{{{{steps.{source['id']}.output.{path}}}}}"
    message = f"{written} leads nowhere: the output of {source['tool']} is {described}"
    assert found(source, step("n", input={"text": f"see {written}"})) == [(HARD, "/steps/1/input/text", message)]


@pytest.mark.parametrize(
    "text",
    ["{{steps.list.output.0}}", "found {{steps.list.output}}", "{{steps.sh.output.a.b}}", "{{steps.write.output.path}}",
     "{{steps.search.output.0.line}}", "{{steps.list.file}}", "{{goal}}"],
)  # fmt: skip
def test_paths_that_may_lead_somewhere(text: str) -> None:
    steps = [
        LIST,
        shell("sh", "cat a.txt"),
        write("write", "b.txt"),
        step("search", tool="search_files", input={"pattern": "x"}),
    ]
    use = step("use", input={"text": "{{steps.list.output}} {{steps.search.output}}"})
    assert found(*steps, use, step("n", input={"text": text})) == []


def test_a_list_is_no_text() -> None:
    message = "{{steps.list.output}} is a list, counted from 0, and text is wanted here"
    assert found(LIST, write("w", "b.txt", "{{steps.list.output}}")) == [(HARD, "/steps/1/input/content", message)]
    assert found(LIST, step("p", tool="python", input={"code": "{{steps.list.output}}"})) == []
    assert found(LIST, by_model("m", input={"material": "{{steps.list.output}}"})) == []
    assert found(LIST, step("s", tool="add", input={"a": 1, "b": 2, "tags": "{{steps.list.output}}"})) == []


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("tool", "path", "message"),
    [
        ("read_file", "src", "'src' is a folder, and read_file takes a file"),
        ("read_file", "./src/", "'./src/' is a folder, and read_file takes a file"),
        ("read_file", ".", "'.' is a folder, and read_file takes a file"),
        ("read_file", "/w/src", "'/w/src' is a folder, and read_file takes a file"),
        ("write_file", "empty", "'empty' is a folder, and write_file takes a file"),
        ("read_file", "/etc/passwd", "'/etc/passwd' lies outside the working folder"),
        ("read_file", "../other/a.txt", "'../other/a.txt' lies outside the working folder"),
        ("write_file", "/srv/shared/x", "'/srv/shared/x' lies outside the working folder"),
        ("read_file", "~/notes", "'~/notes': ~ means nothing here"),
        ("list_files", "a.txt", "'a.txt' is a file, and list_files takes a folder"),
    ],
)
def test_paths_that_cannot_be(tool: str, path: str, message: str) -> None:
    more = {"content": "x"} if tool == "write_file" else {}
    assert found(step("a", tool=tool, input={"path": path} | more)) == [(HARD, "/steps/0/input/path", message)]


def test_paths_of_checks_count_too() -> None:
    checks = [
        {"kind": "file", "path": "/etc/x"},
        {"kind": "file", "path": "src/"},
        {"kind": "file", "path": "/srv/shared/y"},
    ]
    message = "'/etc/x' lies outside the working folder"
    assert found(step("a", checks=checks)) == [(HARD, "/steps/0/checks/0/path", message)]
    assert found(step("a"), step("b", checks=[{"kind": "file", "path": "{{steps.a.output}}"}])) == []


@pytest.mark.parametrize(
    "before",
    [[], [step("n")], [write("w", "other.txt")]],
)
def test_a_file_that_nobody_makes(before: list[dict[str, Any]]) -> None:
    message = "there is no 'report.txt' in the working folder, and no earlier step makes it"
    place = f"/steps/{len(before)}/input/path"
    assert found(*before, read("r", "report.txt")) == [(SOFT, place, message)]


@pytest.mark.parametrize(
    "before",
    [shell("s", "make"), by_model("m", tools=["write_file"]), write("w", "./report.txt"), write("w", "{{goal}}")],
)
def test_a_file_that_a_step_may_make(before: dict[str, Any]) -> None:
    assert found(before, read("r", "report.txt")) == []


def test_a_condition_on_a_file_that_cannot_be_there() -> None:
    """Where no step is left that would run it is wrong for certain; beside others it may be meant."""
    when = {"kind": "file", "path": "flag.txt"}
    message = "its `when` looks at 'flag.txt', which is not there before 'b': it would be skipped"
    assert found(step("b", when=when)) == [(HARD, "/steps/0/when", message)]
    assert found(step("a"), step("b", when=when)) == [(SOFT, "/steps/1/when", message)]
    assert found(shell("a", "make"), step("b", when=when)) == []
    assert found(step("b", when=when | {"path": "a.txt"})) == []
    assert found(step("b", when=when), around=replace(AROUND, complete=False)) == []


def test_a_file_may_be_there_where_not_all_are_known() -> None:
    assert found(read("r", "report.txt"), around=replace(AROUND, complete=False)) == []
    assert found(read("r", "/srv/shared/report.txt")) == []
    assert found(step("l", tool="list_files", input={})) == []
    assert found(read("r", "anything"), around=Surroundings("/", complete=False)) == []


def test_two_at_once_write_one_file() -> None:
    message = "'a' and 'b' may run at the same time, and both write 'out.txt'"
    at_once = [write("a", "out.txt"), write("b", "./out.txt", depends_on=[])]
    assert found(*at_once) == [(HARD, "/steps/1/input", message)]
    assert found(write("a", "out.txt"), shell("b", "date >> out.txt", depends_on=[])) == [
        (SOFT, "/steps/1/input", message)
    ]
    assert found(write("a", "out.txt"), write("b", "b.txt", depends_on=[])) == []
    assert found(write("a", "{{goal}}"), write("b", "{{goal}}", depends_on=[])) == []
    assert found(shell("a", "ls 2>&1 | cat >/dev/null"), shell("b", "ls 2> err", depends_on=[])) == []


def test_the_second_writes_over_the_first() -> None:
    message = "'b' writes 'out.txt' whole: what 'a' wrote there is lost"
    assert found(write("a", "out.txt"), write("b", "out.txt")) == [(SOFT, "/steps/1/input", message)]
    assert found(write("a", "out.txt"), read("r", "out.txt"), write("b", "out.txt", "{{steps.r.output}}!")) == []
    assert found(write("a", "out.txt"), shell("s", "sort out.txt"), write("b", "out.txt")) == []
    edit = step("b", tool="edit_file", input={"path": "out.txt", "old": "x", "new": "y"})
    assert found(write("a", "out.txt"), edit) == []


# ── what comes of it ──────────────────────────────────────────────────────────────────────────────────────


def test_a_result_nobody_uses() -> None:
    message = "nobody uses the output of 'read': no later step refers to it"
    assert found(READ, write("w", "b.txt", "Summary of a.txt")) == [(SOFT, "/steps/0", message)]
    assert found(READ, write("w", "b.txt", "x", depends_on=[])) == [(SOFT, "/steps/0", message)]


def test_a_result_that_is_of_use() -> None:
    assert found(READ, step("n", input={"text": "{{steps.read.output}}"})) == []
    assert found(step("n"), READ) == []  # it is the answer of the run
    assert found(READ | {"expects": {"type": "string"}}, step("n")) == []
    assert found(READ | {"checks": ["test -s a.txt"]}, step("n", depends_on=[])) == []  # a last look
    assert found(READ, step("n"), stepwise=True) == []
    assert found(shell("s", "make"), step("n")) == []


@pytest.mark.parametrize(
    ("given", "schema", "gives"),
    [
        (shell("s", "ls | wc -l"), "number", "string or array or object"),
        (step("p", tool="python", input={"code": "print(1)"}), "integer", "string or array or object"),
        (READ, "object", "string"),
        (LIST, "string", "array"),
        (write("w", "b.txt"), "array", "object"),
    ],
)
def test_outputs_that_can_never_be(given: dict[str, Any], schema: str, gives: str) -> None:
    message = f"the output of {given['tool']} is {gives}, never {schema!r}: this cannot hold"
    checked = given | {"checks": ["test -s a.txt", {"kind": "output", "schema": {"type": schema}}]}
    assert found(checked) == [(HARD, "/steps/0/checks/1/schema/type", message)]
    assert found(given | {"expects": {"type": schema}}) == [(HARD, "/steps/0/expects/type", message)]


def test_outputs_that_may_be() -> None:
    for tool in (shell("s", "date"), by_model("m"), step("a", tool="add", input={"a": 1, "b": 2})):
        for schema in (True, {}, {"type": "string"}, {"type": ["number", "string"]}):
            assert found(tool | {"expects": schema}) == []
    assert found(by_model("m", expects={"type": "number"})) == []


def test_code_that_prints_nothing() -> None:
    def places(code: str) -> list[tuple[str, str]]:
        use = step("use", input={"text": "{{steps.p.output}}"})
        return [one[:2] for one in found(step("p", tool="python", input={"code": code}), use)]

    assert places("sum(int(line) for line in open('a.txt'))") == [(HARD, "/steps/0/input/code")]
    assert places("import shop\nshop.total()") == [(SOFT, "/steps/0/input/code")]
    assert places("print(1)") == places("import sys; sys.stdout.buffer.flush()") == []
    assert found(step("p", tool="python", input={"code": "x = 1"}), step("n")) == []


@pytest.mark.parametrize(
    ("command", "is_found"),
    [
        ("sort a.txt > sorted.txt", True),
        ("cat a.txt | sort >> sorted.txt", True),
        ("sort a.txt > sorted.txt; cat sorted.txt", False),
        ("sort a.txt > sorted.txt && echo sorted", False),
        ("sort a.txt | tee sorted.txt", False),
        ("make 2> log.txt", False),
        ("make 2>&1", False),
        ("expr 5 \\> 3", False),
        ("make > /dev/stdout", False),
        ("sort a.txt", False),
    ],
)
def test_a_command_that_prints_into_a_file(command: str, is_found: bool) -> None:
    use = step("use", input={"text": "{{steps.p.output}}"})
    expected = [(HARD, "/steps/0/input/command")] if is_found else []
    assert [one[:2] for one in found(shell("p", command), use)] == expected


def test_what_is_finished_is_not_looked_at() -> None:
    odd = [READ | {"success_condition": "done"}, write("a", "out.txt"), write("b", "out.txt", depends_on=[])]
    assert found(*odd, step("n"), finished=("read", "a", "b")) == []
    assert found(*odd, step("n"), finished=("read", "a"))[0][:2] == (HARD, "/steps/2/input")


REALISTIC = {
    # a result never used, a wrong placeholder
    "summary": [
        read("read", "a.txt", success_condition="The text of a.txt"),
        write("write", "summary.md", "Summary: {{read.output}}", success_condition="summary.md exists"),
    ],
    # two steps writing one file, a path read as a folder
    "report": [
        read("scan", "src", success_condition="The sources are known"),
        write(
            "one", "report.md", "{{steps.scan.output}}", depends_on=["scan"], success_condition="report.md has part 1"
        ),
        write("two", "report.md", "Part 2", depends_on=["scan"], success_condition="report.md has part 2"),
    ],
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "summary",
            [
                (SOFT, "/steps/0", "nobody uses the output of 'read': no later step refers to it"),
                (HARD, "/steps/1/input/content", no_reference("{{read.output}}")),
            ],
        ),
        (
            "report",
            [
                (HARD, "/steps/0/input/path", "'src' is a folder, and read_file takes a file"),
                (HARD, "/steps/2/input", "'one' and 'two' may run at the same time, and both write 'report.md'"),
            ],
        ),
    ],
)
def test_realistic_plans_of_a_small_model(name: str, expected: list[tuple[str, str, str]]) -> None:
    assert found(*json.loads(json.dumps(REALISTIC[name]))) == expected


# ── parameters ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "is_found"),
    [
        ("deploy --to staging", True),
        ("deploy --to 'staging'", True),
        ("deploy --to {{params.env}}", False),
        ("deploy --to staging-old", False),
        ("echo eu", False),
    ],
)
def test_the_value_of_a_parameter_is_not_written_out(command: str, is_found: bool) -> None:
    values: dict[str, Any] = {"env": "staging", "region": "eu", "count": 3}
    catalogue = replace(CATALOGUE, params=Params(tuple(values), values))
    plan = check_plan(Document(a_plan_value(*lenient_steps([shell("a", command)], catalogue))), catalogue)
    findings = [one for one in lint(plan, (), catalogue, AROUND) if "parameter" in one.problem.message]
    message = "'staging' is the value of the parameter 'env', written out"
    assert [(one.hard, one.problem.message) for one in findings] == ([(False, message)] if is_found else [])
