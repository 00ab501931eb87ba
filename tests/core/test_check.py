"""Every document of the corpus gets its verdict, and the two readers agree on each."""

import json
import random
import time
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from agentfs.core.config import Settings
from agentfs.core.documents import Document, read_json, read_toml, read_yaml
from agentfs.core.json_schema import record_problems
from agentfs.core.plan_check import check_goal, check_plan, check_settings, to_record
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Author, Goal, ModelChoice, Plan
from agentfs.core.tool_spec import Catalogue
from tests.core.corpus.case import BARE, FULL, TOOLS, Case, a_plan, a_step, a_tool, written
from tests.core.corpus.table import CASES


def by_name(case: Case) -> str:
    return case.name


def problems_of(value: Any, world: Catalogue = BARE) -> list[Problem]:
    source = value if isinstance(value, bytes) else written(value)
    try:
        check_plan(read_json(source), world)
    except Rejected as rejected:
        return list(rejected.problems)
    return []


def test_the_corpus_is_large_and_each_document_is_its_own_kind() -> None:
    assert len(CASES) >= 200
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case.source for case in CASES}) >= len(CASES) - 10  # some differ in what the run may do


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_verdict(case: Case) -> None:
    problems = problems_of(case.source, case.world)
    if case.says is None:
        assert problems == []
    else:
        assert case.says in "\n".join(problem.message for problem in problems)


@pytest.mark.parametrize("case", [case for case in CASES if case.says], ids=by_name)
def test_every_problem_says_where_and_how_to_fix_it(case: Case) -> None:
    lines = case.source.decode("utf-8", "replace").split("\n")
    for problem in problems_of(case.source, case.world):
        assert problem.fix, problem
        assert 1 <= problem.line <= len(lines), problem
        assert 1 <= problem.column <= max(len(lines[problem.line - 1]), 1), problem


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_both_readers_agree(case: Case) -> None:
    try:
        document = read_json(case.source)
    except Rejected:
        return
    _, refused = to_record(document.value, Plan)
    assert bool(record_problems(document.value, "plan")) == bool(refused)


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    source = b"""{
  "status": "aproved",
  "steps": [
    {"id": "a", "tool": "noet", "input": {}, "depnds_on": []},
    {"id": "b", "tool": "note", "input": {"txt": "x"}, "depends_on": ["aa"]}
  ]
}"""
    choices = "draft, paused, approved or cancelled"
    assert problems_of(source) == [
        Problem(f"'status' must be {choices}, not \"aproved\"", "did you mean 'approved'?", "/status", 2, 13),
        Problem("unknown field 'depnds_on'", "did you mean 'depends_on'?", "/steps/0/depnds_on", 4, 46),
        Problem("the field 'text' is missing", 'add "text": …', "/steps/1/input", 5, 42),
        Problem("unknown field 'txt'", "did you mean 'text'?", "/steps/1/input/txt", 5, 43),
        Problem("there is no step 'aa'", "did you mean 'a'?", "/steps/1/depends_on/0", 5, 71),
    ]


@pytest.mark.parametrize(
    ("fields", "fix"),
    [
        ({"description": 5}, 'put it in quotes: "5"'),
        ({"gate": "True"}, "write true without quotes"),
        ({"gate": 1}, "write true or false"),
        ({"timeout_s": "90"}, "write 90 without quotes"),
        ({"max_attempts": 2.0}, "write 2"),
        ({"depends_on": "b"}, 'put it in a list: ["b"]'),
        ({"checks": {"kind": "file"}}, 'put it in a list: [{"kind": "file"}]'),
        ({"checks": [{"kind": "fiel"}]}, "did you mean 'file'?"),
        ({"checks": [{}]}, 'add "kind": command, file, output, http or judge'),
        ({"on_failure": 3}, "write replan, stop or continue"),
        ({"tool": "noet"}, "did you mean 'note'?"),
        ({"id": "Copy Rows"}, "use lower case letters, digits and -, at most 63: for example 'copy-rows'"),
        ({"description": {"x": "y" * 99}}, "write text"),
    ],
)
def test_fixes(fields: dict[str, Any], fix: str) -> None:
    assert fix in [problem.fix for problem in problems_of(a_plan({**a_step(), **fields}))]


def test_a_step_without_tool_and_model_is_reported_with_both_ways_out() -> None:
    (problem,) = problems_of(a_plan({"id": "a"}))
    assert problem.pointer == "/steps/0"
    assert problem.fix == "name a tool, or set OPENAI_API_KEY (or base_url under [executor] in agentfs.toml)"


def test_every_cycle_is_reported_once() -> None:
    links = {"a": "b", "b": "a", "c": "d", "d": "e", "e": "c", "f": "a"}
    problems = problems_of(a_plan(*(a_step(name, depends_on=[after]) for name, after in links.items())))
    assert [(problem.message.rpartition(": ")[2], problem.pointer) for problem in problems] == [
        ("a -> b -> a", "/steps/0/depends_on/0"),
        ("c -> d -> e -> c", "/steps/2/depends_on/0"),
    ]


def test_the_strict_reader_is_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfs.core.plan_check.record_problems", lambda _value, _name: [])
    source = written(a_plan(a_step(checks=[{"kind": "command", "run": 5}], extra=1), {"tool": "note"}, status="x"))
    pointers = {problem.pointer for problem in problems_of(source)}
    assert pointers >= {"/status", "/steps/0/checks/0/run", "/steps/0/extra", "/steps/1"}


def test_a_tool_may_describe_its_input_in_ways_we_have_no_words_for() -> None:
    tool = a_tool("odd", {"list": {"type": "array", "uniqueItems": True}, "either": {"anyOf": [{"minimum": 3}]}})
    world = replace(BARE, tools={**TOOLS, "odd": tool}, allowed=BARE.allowed | {"odd"})
    problems = problems_of(a_plan(a_step(tool="odd", input={"list": [1, 1], "either": 2})), world)
    assert [problem.message for problem in problems] == [
        "'list': [1, 1] has non-unique elements",
        "'either' must be at least 3, not 2",
    ]


def test_a_tool_without_fields_says_so() -> None:
    world = replace(BARE, tools={**TOOLS, "bare": a_tool("bare", {})}, allowed=BARE.allowed | {"bare"})
    (problem,) = problems_of(a_plan(a_step(tool="bare", input={"x": 1})), world)
    assert (problem.message, problem.fix) == ("unknown field 'x'", "remove it")


# ── goals, settings, other records ────────────────────────────────────────────────────────────────────────


def test_goal() -> None:
    document = read_yaml("name: tidy\napprove: always\ncontext: [a.md, b.md]\nplanner:\n  model: big\n")
    assert check_goal(document) == Goal(
        name="tidy", approve="always", context=("a.md", "b.md"), planner=ModelChoice(model="big")
    )
    assert check_goal(read_yaml("")) == Goal()
    assert check_goal(read_yaml("context: text")) == Goal(context="text")


def test_goal_with_every_kind_of_mistake() -> None:
    text = """aprove: always
planner:
  base_url: x
context: 5
limits: {replans: -1}
"""
    with pytest.raises(Rejected) as caught:
        check_goal(read_yaml(text, first_line=2))
    assert [(problem.line, problem.column, problem.message) for problem in caught.value.problems] == [
        (2, 1, "unknown field 'aprove'"),
        (4, 3, "unknown field 'base_url'"),
        (5, 10, "'context' must be text or a list […], not a number"),
        (6, 19, "'replans' must be at least 0, not -1"),
    ]


def test_goal_with_mistakes_no_schema_can_say() -> None:
    with pytest.raises(Rejected) as caught:
        check_goal(read_yaml("status: draft\nchecks:\n- {kind: file, path: p, matches: '('}\n"))
    assert [(problem.line, problem.pointer) for problem in caught.value.problems] == [
        (1, "/status"),
        (3, "/checks/0/matches"),
    ]


def test_settings() -> None:
    assert check_settings(read_toml(b"")) == Settings()
    changed = check_settings(read_toml(b"[limits]\ncost_usd = 3\n[tools]\nallow = ['note']\n"))
    assert (changed.limits.cost_usd, changed.tools.allow) == (3, ("note",))


def test_settings_with_mistakes() -> None:
    text = b"mode = 'splt'\n[tools]\nalow = []\nnetwork = 1\n\n[tools.web_search]\nurl = 3\n[limits]\nreplans = 1.0\n"
    with pytest.raises(Rejected) as caught:
        check_settings(read_toml(text))
    assert [(problem.line, problem.pointer) for problem in caught.value.problems] == [
        (1, "/mode"),
        (3, "/tools/alow"),
        (4, "/tools/network"),
        (7, "/tools/web_search/url"),
        (9, "/limits/replans"),
    ]


def test_a_value_that_is_not_json_is_refused() -> None:
    day = date(2026, 11, 16)
    with pytest.raises(Rejected, match="a value that JSON does not know"):
        check_settings(Document({"planner": {"extra_body": {"day": day}}}))
    with pytest.raises(Rejected, match="'network' must be true or false or text, not a date"):
        check_settings(Document({"tools": {"network": day}}))


def test_a_table_with_a_wrong_name() -> None:
    order = {"after": {"A b": 1}}
    messages = [problem.message for problem in record_problems(order, "order")]
    assert "'after': \"A b\" is not a step id" in messages


def test_a_record_is_read_as_its_schema_file_describes_it() -> None:
    change = {"role": "person", "name": "Ada"}
    assert to_record(change, Author) == (Author(role="person", name="Ada"), [])
    with pytest.raises(Rejected, match="the field 'status' is missing"):
        check_plan(read_json(b"{}"), FULL)
    assert check_plan(read_json(written(a_plan())), FULL).status == "approved"


# ── speed ─────────────────────────────────────────────────────────────────────────────────────────────────


def _long_plan(**fields: Any) -> bytes:
    steps = [a_step("s0")]
    for n in range(1, 1000):
        text = f"after {{{{steps.s{n - 1}.output}}}}"
        check = {"kind": "output", "schema": {"type": "string", "minLength": n % 10}}
        steps.append(a_step(f"s{n}", input={"text": text}, checks=[check], **fields))
    return json.dumps(a_plan(*steps)).encode()


def test_a_thousand_steps_are_checked_in_no_time() -> None:
    source = _long_plan()
    started = time.process_time()
    assert problems_of(source, FULL) == []
    assert time.process_time() - started < 5  # about 0.3 s on a quiet machine, much more under coverage


def test_a_thousand_mistakes_are_reported_in_no_time() -> None:
    for fields, fix in (
        ({"depends_on": ["s"]}, "write the id of a step, or remove it"),
        ({"gaet": 1}, "did you mean 'gate'?"),
    ):
        source = _long_plan(**fields)
        started = time.process_time()
        problems = problems_of(source, FULL)
        assert time.process_time() - started < 5
        assert (len(problems), problems[-1].fix) == (999, fix)


# ── what nobody thought of ────────────────────────────────────────────────────────────────────────────────

ODD: list[Any] = [
    *(None, True, 0, -1, 1.0, 0.5, 1e308, 10**300, "", "A", "a\n", "\0", "(", "{{steps.a.output}}", "{{goal}}"),
    *([], {}, [None], [[]], [{}], {"kind": "file"}, {"kind": "command", "run": "x"}, {"$ref": "#"}),
]


def _spots(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree: a container and a name or index in it."""
    names = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [(value, name) for name in names] + [spot for name in names for spot in _spots(value[name])]


@pytest.mark.parametrize("seed", range(300))
def test_readers_agree_and_places_exist_after_any_change(seed: int) -> None:
    chance = random.Random(seed)
    root = {"plan": json.loads(chance.choice([case.source for case in CASES if case.says is None]).decode())}
    for _ in range(3):
        container, name = chance.choice(_spots(root))
        container[name] = json.loads(json.dumps(chance.choice(ODD)))
    value, lines = root["plan"], written(root["plan"]).decode().split("\n")
    assert bool(record_problems(value, "plan")) == bool(to_record(value, Plan)[1])
    for problem in problems_of(value, FULL):
        assert problem.fix
        assert 1 <= problem.column <= len(lines[problem.line - 1])


def test_a_reference_is_reported_where_it_is() -> None:
    plan = a_plan(
        a_step("a", tool="shell", input={"command": "echo {{steps.b.output}}"}),
        a_step("b", tool="shell", input={"command": "x\n{{steps.c.output}} '{{steps.c.output}}' {{steps.d.output}}"}),
        a_step("c", tool="note", input={"text": "{{steps.a}}"}),
    )
    lines = written(plan).decode().split("\n")
    found = [(problem.pointer, lines[problem.line - 1][problem.column - 2 :]) for problem in problems_of(plan, FULL)]
    assert [(pointer, rest.partition("}}")[0]) for pointer, rest in found] == [
        ("/steps/0/input/command", " {{steps.b.output"),  # a and b wait for each other
        ("/steps/1/input/command", "n{{steps.c.output"),  # so do b and c
        ("/steps/1/input/command", "'{{steps.c.output"),
        ("/steps/1/input/command", " {{steps.d.output"),
        ("/steps/2/input/text", '"{{steps.a'),
    ]
