"""`## Steps` -> a plan: every form a line and a fence can take, every slip, and every place."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfs.core.goal_file import parse_goal
from agentfs.core.problems import Rejected
from tests.core.goal_samples import CATALOGUE, MIGRATION, parsed, refused, runbook, sh, steps_of
from tests.sweeps import size


def a_step(*lines: str) -> dict[str, Any]:
    """Return the second of two steps, without what every step here has."""
    step = steps_of(parsed(runbook(sh("first", "true"), sh("second", "true", *lines))))[1]
    usual = {"id": "second", "tool": "shell", "input": {"command": "true"}, "depends_on": ["first"]}
    return {key: value for key, value in step.items() if key not in usual or value != usual[key]}


def a_fence(*lines: str) -> dict[str, Any]:
    return steps_of(parsed(runbook("### only", *lines)))[0]


def test_the_runbook_of_the_contract_is_this_plan() -> None:
    goal = parsed(MIGRATION)
    assert goal.kind == "runbook"
    assert goal.fields.workdir == "shop"
    assert goal.steps is not None
    assert goal.steps.value == {
        "$schema": "../../../schemas/plan.schema.json",
        "goal": "Move users to the new table",
        "status": "approved",
        "steps": [
            {
                "id": "inspect",
                "description": "Find out how many rows there are.",
                "tool": "shell",
                "input": {"command": "sqlite3 app.db 'select count(*) from users'"},
                "depends_on": [],
            },
            {
                "id": "backfill",
                "description": "Copy the old rows.",
                "tool": "shell",
                "input": {"command": "sqlite3 app.db < backfill.sql"},
                "depends_on": ["inspect"],
                "checks": [
                    {
                        "kind": "command",
                        "run": "test \"$(sqlite3 app.db 'select count(*) from users_new')\" = "
                        '"{{steps.inspect.output}}"',
                    }
                ],
                "max_attempts": 2,
            },
        ],
    }
    assert [list(step) for step in goal.steps.value["steps"]][1] == [
        "id",
        "description",
        "tool",
        "input",
        "depends_on",
        "checks",
        "max_attempts",
    ]
    assert [(one.kind, one.of, one.value, one.line) for one in goal.fallbacks] == [
        (
            "cleanup",
            "backfill",
            {"id": "rollback", "tool": "shell", "input": {"command": "sqlite3 app.db 'drop table users_new'"}},
            22,
        )
    ]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("after: nothing", {"depends_on": []}),
        ("after: first", {}),
        ("check: `a`", {"checks": [{"kind": "command", "run": "a"}]}),
        ("check: `` echo `date` ``", {"checks": [{"kind": "command", "run": "echo `date`"}]}),
        ("needs: `a`", {"needs": [{"kind": "command", "run": "a"}]}),
        ("retries: 0", {"max_attempts": 1}),
        ("retries: 4", {"max_attempts": 5}),
        ("retries: 3 every 10s", {"max_attempts": 4, "retry_wait_s": 10}),
        ("Retries: 1 every 1m 30s", {"max_attempts": 2, "retry_wait_s": 90}),
        ("timeout: 90s", {"timeout_s": 90}),
        ("timeout: 90", {"timeout_s": 90}),
        ("timeout: 0.5s", {"timeout_s": 0.5}),
        ("timeout: 5m", {"timeout_s": 300}),
        ("timeout: 2h", {"timeout_s": 7200}),
        ("timeout: 1m30s", {"timeout_s": 90}),
        ("timeout: 1h 1m 1s", {"timeout_s": 3661}),
        ("gate", {"gate": True}),
        ("repeatable", {"repeatable": True}),
        ("not repeatable", {"repeatable": False}),
        ("on failure: stop", {"on_failure": "stop"}),
        ("on failure: continue", {"on_failure": "continue"}),
        ("on failure: replan", {"on_failure": "replan"}),
        ("why: the read path needs it", {"why": "the read path needs it"}),
        ("success: all rows are there", {"success_condition": "all rows are there"}),
        ("- Retries: 1", {"max_attempts": 2}),
        ("* GATE", {"gate": True}),
        ("`code` is prose", {"description": "`code` is prose"}),
        ("``` `fences` hold no backticks", {"description": "``` `fences` hold no backticks"}),
        ("Ordinary words.", {"description": "Ordinary words."}),
        ("Note: this is prose.", {"description": "Note: this is prose."}),
        ("See http://example.org/a:b", {"description": "See http://example.org/a:b"}),
        ("    indented words", {"description": "indented words"}),
        ("#### More\nabout it", {"description": "More about it"}),
        (
            "One line,\nand another.\n\nA second paragraph.",
            {"description": "One line, and another. A second paragraph."},
        ),
        ("<!-- retries: 9\n### gone -->", {}),
        ("<!-- gate -->", {}),
    ],
)
def test_a_line_of_a_step(line: str, fields: dict[str, Any]) -> None:
    assert a_step(line) == fields


def test_several_checks_and_needs_are_all_taken() -> None:
    assert a_step("check: `a`", "check: `b`", "needs: `c`", "needs: `d`") == {
        "checks": [{"kind": "command", "run": "a"}, {"kind": "command", "run": "b"}],
        "needs": [{"kind": "command", "run": "c"}, {"kind": "command", "run": "d"}],
    }


@pytest.mark.parametrize(
    ("lines", "tool", "given"),
    [
        (["```sh", "a", "b", "```"], "shell", {"command": "a\nb"}),
        (["```bash", "a", "```"], "shell", {"command": "a", "interpreter": "bash"}),
        (["```python", "print(1)", "```"], "python", {"code": "print(1)"}),
        (["```http", "http://x/", "```"], "http_get", {"url": "http://x/"}),
        (["```http", "GET http://x/", "```"], "http_get", {"url": "http://x/"}),
        (["```read_file", "notes.txt", "```"], "read_file", {"path": "notes.txt"}),
        (["```read_file", "path: notes.txt", "```"], "read_file", {"path": "notes.txt"}),
        (["```write_file", "path: a", "content: b", "```"], "write_file", {"path": "a", "content": "b"}),
        (["```write_file", '{"path": "a", "content": "b"}', "```"], "write_file", {"path": "a", "content": "b"}),
        (["```note", "Remember: the keys", "```"], "note", {"text": "Remember: the keys"}),
        (["```note", "a: b: c", "```"], "note", {"text": "a: b: c"}),
        (["```note", "{{goal}}", "```"], "note", {"text": "{{goal}}"}),
        (["~~~sh", "```", "~~~"], "shell", {"command": "```"}),
        (["````sh", "```", "````"], "shell", {"command": "```"}),
        (["````sh", "a", "```````"], "shell", {"command": "a"}),
        (["  ```sh", "    a", "  b", " c", "  ```"], "shell", {"command": "  a\nb\nc"}),
        (["``` sh  ", "### not-a-step", "## Steps", "```"], "shell", {"command": "### not-a-step\n## Steps"}),
    ],
)
def test_a_fence_names_the_tool(lines: list[str], tool: str, given: dict[str, Any]) -> None:
    assert a_fence(*lines) == {"id": "only", "tool": tool, "input": given, "depends_on": []}


def test_a_step_without_a_fence_is_for_a_model_with_the_tools_it_names() -> None:
    text = runbook("### a", "Find the culprit.", "tools: read_file,  shell")
    goal = parse_goal(text.encode(), "goal.md", replace(CATALOGUE, model=True))
    assert steps_of(goal) == [
        {"id": "a", "description": "Find the culprit.", "depends_on": [], "tools": ["read_file", "shell"]}
    ]
    assert goal.steps is not None
    assert goal.steps.locate("/steps/0/tools/1") == (5, 20)


def test_json_expects_is_what_is_not_surprising() -> None:
    step = a_fence("```sh", "echo 1", "```", "```json expects", '{"type": "string"}', "```")
    assert step["expects"] == {"type": "string"}


def test_the_order_is_that_of_the_page_unless_a_step_says_after() -> None:
    steps = [sh("a", "1"), sh("b", "1"), sh("x", "1", "instead of: b"), sh("c", "1"), sh("d", "1", "after: a,  b")]
    goal = parsed(runbook(*steps))
    assert [(step["id"], step["depends_on"]) for step in steps_of(goal)] == [
        ("a", []),
        ("b", ["a"]),
        ("c", ["b"]),
        ("d", ["a", "b"]),
    ]


def test_the_section_ends_at_the_next_heading_of_its_rank() -> None:
    text = "## Before\n### no\n## Steps ##\nWords.\n" + sh("a", "1") + "\n## After\n### no\n```sh\nno\n```\n"
    assert [step["id"] for step in steps_of(parsed(text))] == ["a"]


def test_steps_in_a_fence_are_no_section() -> None:
    assert parsed("Write a file:\n```\n## Steps\n```\n").kind == "words"


def test_windows_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    unix, other = parsed(MIGRATION), parsed("\ufeff" + MIGRATION.replace("\n", "\r\n"))
    assert unix.steps is not None
    assert other.steps is not None
    assert (unix.steps.value, unix.fallbacks, unix.text) == (other.steps.value, other.fallbacks, other.text)


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────

FENCE = "```sh\ntrue\n```"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            runbook(sh("Back up the data", "1")),
            [
                (
                    "goal.md:3:5: 'Back up the data' is not a step id (write ### back-up-the-data: lower case letters, digits and -, at most 63) [/steps/0/id]"
                )
            ],
        ),
        (
            runbook(sh("", "1")),
            [
                "goal.md:3:5: this step has no id (write ### step-1: lower case letters, digits and -, at most 63) [/steps/0/id]"
            ],
        ),
        (
            runbook(),
            [
                "goal.md:2:4: there is no step under '## Steps' (write ### and a step's id, and below it what to do) [/steps]"
            ],
        ),
        (
            runbook(sh("a", "1"), "## Steps"),
            ["goal.md:7:4: there is a second '## Steps' (put all steps under one) [/steps]"],
        ),
        (runbook(sh("a", "1"), "  <!-- b"), ["goal.md:7:3: this comment never ends (end it with -->)"]),
        (
            runbook(FENCE, sh("a", "1")),
            ["goal.md:3:4: this fence belongs to no step (put it below a ### heading with the step's id) [/steps]"],
        ),
        (
            runbook("### a", "```sh", "true"),
            ["goal.md:4:4: this fence is never closed (end it with a line of the same marks) [/steps/0/input]"],
        ),
        (
            runbook("### a", "```", "true", "```", FENCE),
            [
                "goal.md:4:4: this fence names no tool (write sh, bash, python, http or a tool's name behind it) [/steps/0/tool]"
            ],
        ),
        (
            runbook(sh("a", "1"), FENCE),
            [
                "goal.md:7:4: the step 'a' has a second fence (one step calls one tool: make two steps) [/steps/0/tool]"
            ],
        ),
        (
            runbook("### a", "```sh", "```"),
            ["goal.md:4:4: this fence is empty (write between its marks what is to be done) [/steps/0/input]"],
        ),
        (
            runbook("### a", "```json", "{}", "```", FENCE),
            [
                "goal.md:4:4: a json fence must say what it is for (write json expects, or a tool's name) [/steps/0/expects]"
            ],
        ),
        (
            runbook(sh("a", "1"), "```json expects", "{}", "```", "```json expects", "{}", "```"),
            ["goal.md:10:4: the step 'a' has 'json expects' twice (keep one of them) [/steps/0/expects]"],
        ),
        (
            runbook("### a", "```http", "POST http://x", "```"),
            [
                "goal.md:5:1: an http fence holds one address to get (write GET and the address, or only the address) [/steps/0/input/url]"
            ],
        ),
        (
            runbook("### a", "```write_file", "only text", "```"),
            [
                "goal.md:5:1: the tool 'write_file' wants fields (write them as name: value; it has path, content) [/steps/0/input]"
            ],
        ),
        (
            runbook(sh("a", "1", "afer: b")),
            [
                "goal.md:4:1: 'afer: b' is not a line a step can hold (write after: b; if it is prose, begin it with another word) [/steps/0/depends_on]"
            ],
        ),
        (
            runbook(sh("a", "1", "- retry: 2")),
            [
                "goal.md:4:3: '- retry: 2' is not a line a step can hold (write retries: 2; if it is prose, begin it with another word) [/steps/0/max_attempts]"
            ],
        ),
        (
            runbook(sh("a", "1", "timout: 3s")),
            [
                "goal.md:4:1: 'timout: 3s' is not a line a step can hold (write timeout: 3s; if it is prose, begin it with another word) [/steps/0/timeout_s]"
            ],
        ),
        (
            runbook(sh("a", "1", "depends_on: b")),
            [
                "goal.md:4:1: 'depends_on: b' is not a line a step can hold (write after: b; if it is prose, begin it with another word) [/steps/0/depends_on]"
            ],
        ),
        (
            runbook(sh("a", "1", "retries 2")),
            [
                "goal.md:4:1: 'retries 2' is not a line a step can hold (write retries: 2; if it is prose, begin it with another word) [/steps/0/max_attempts]"
            ],
        ),
        (
            runbook(sh("a", "1", "gated")),
            [
                "goal.md:4:1: 'gated' is not a line a step can hold (write gate on a line of its own; if it is prose, begin it with another word) [/steps/0/gate]"
            ],
        ),
        (
            runbook(sh("a", "1", "gate: yes")),
            ["goal.md:4:1: 'gate' takes no value (write gate on a line of its own) [/steps/0/gate]"],
        ),
        (
            runbook(sh("a", "1", "repeatable", "not repeatable")),
            ["goal.md:5:1: the step 'a' says 'repeatable' twice (keep one line) [/steps/0/repeatable]"],
        ),
        (
            runbook(sh("a", "1", "after:")),
            [
                "goal.md:4:1: 'after:' says nothing (name steps by their ids: after: a, b; or write after: nothing) [/steps/0/depends_on]"
            ],
        ),
        (
            runbook(sh("a", "1", "after: First Step")),
            [
                "goal.md:4:8: 'First Step' is not a step id (name steps by their ids: after: a, b; or write after: nothing) [/steps/0/depends_on/0]"
            ],
        ),
        (
            runbook(sh("a", "1", "check: all is well")),
            [
                (
                    "goal.md:4:8: 'check:' wants a command between backticks (write check: `command`; two backticks on each side hold a command that has one inside) [/steps/0/checks/0]"
                )
            ],
        ),
        (
            runbook(sh("a", "1", "check: `a` and `b`")),
            [
                (
                    "goal.md:4:8: 'check:' wants a command between backticks (write check: `command`; two backticks on each side hold a command that has one inside) [/steps/0/checks/0]"
                )
            ],
        ),
        (
            runbook(sh("a", "1", "needs: ` `")),
            [
                (
                    "goal.md:4:8: 'needs:' wants a command between backticks (write needs: `command`; two backticks on each side hold a command that has one inside) [/steps/0/needs/0]"
                )
            ],
        ),
        (
            runbook(sh("a", "1"), sh("a", "1")),
            ["goal.md:7:5: the id 'a' is taken by step 1 of the list (give it another id) [/steps/1/id]"],
        ),
        (
            runbook("### a", "Only words."),
            [
                (
                    "goal.md:3:5: the step 'a' names no tool, and there is no model to do it (name a tool, or set OPENAI_API_KEY (or base_url under [executor] in agentfs.toml)) [/steps/0]"
                )
            ],
        ),
        (
            runbook("### a", "```nte", "a: [", "```"),
            ["goal.md:4:4: there is no tool 'nte' (did you mean 'note'?) [/steps/0/tool]"],
        ),
        (
            runbook("### a", "```nte", "words", "```"),
            ["goal.md:4:4: there is no tool 'nte' (did you mean 'note'?) [/steps/0/tool]"],
        ),
        (
            runbook(sh("a", "1", "retries: many")),
            [
                (
                    "goal.md:4:10: 'many' is not a number of retries "
                    "(write a whole number: retries: 2, or retries: 3 every 10s) [/steps/0/max_attempts]"
                )
            ],
        ),
        (
            runbook(sh("a", "1", "timeout: soon")),
            [
                "goal.md:4:10: 'soon' is not a length of time (write timeout: 90s, 5m, 1h or 1m30s) [/steps/0/timeout_s]"
            ],
        ),
        (
            runbook(sh("a", "1", "timeout: 0s")),
            ["goal.md:4:10: '0s' is not a length of time (write timeout: 90s, 5m, 1h or 1m30s) [/steps/0/timeout_s]"],
        ),
        (
            runbook(sh("a", "1", "timeout: 1s", "timeout: 2s")),
            ["goal.md:5:1: 'timeout:' occurs twice in the step 'a' (keep one of them) [/steps/0/timeout_s]"],
        ),
        (
            runbook(sh("a", "1", "on failure: retry")),
            [
                "goal.md:4:13: 'retry' is not stop, continue or replan (write on failure: stop, continue or replan) [/steps/0/on_failure]"
            ],
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_its_fix(text: str, problems: list[str]) -> None:
    assert refused(text) == problems


A = sh("a", "1")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            runbook(A, sh("x", "1", "instead of: aa")),
            ["goal.md:8:13: no step 'aa' (did you mean 'a'?) [/steps/1]"],
        ),
        (
            runbook(A, sh("x", "1", "on failure of: nowhere")),
            ["goal.md:8:16: no step 'nowhere' (the steps are a) [/steps/1]"],
        ),
        (
            runbook(A, sh("x", "1", "instead of: a", "on failure of: a")),
            [
                "goal.md:9:16: the step 'x' cannot be both an alternative and a clean-up (make two steps of it) [/steps/1]"
            ],
        ),
        (
            runbook(A, sh("x", "1", "instead of: a", "after: a")),
            [
                "goal.md:9:8: 'x' runs only when 'a' has failed, and cannot say 'after:' (leave the line out) [/steps/1/depends_on]"
            ],
        ),
        (
            runbook(A, sh("x", "1", "instead of: The first")),
            ["goal.md:8:13: 'The first' is not a step id (name one step by its id: instead of: a) [/steps/1]"],
        ),
        (
            runbook(A, sh("x", "1", "on failure of: a"), sh("y", "1", "instead of: x")),
            [
                "goal.md:13:13: 'x' is a clean-up: nothing follows it (name a step of the plan, or an alternative) [/steps/2]"
            ],
        ),
        (
            runbook(A, sh("x", "1", "instead of: y"), sh("y", "1", "instead of: x")),
            [
                "goal.md:8:13: 'x' and 'y' replace no step of the plan (let one replace a step of the plan; the steps are a) [/steps/1]",
                "goal.md:13:13: 'y' and 'x' replace no step of the plan (let one replace a step of the plan; the steps are a) [/steps/2]",
            ],
        ),
        (
            runbook(sh("x", "1", "instead of: x")),
            [
                "goal.md:2:4: every step is a fallback of another (write ### and a step's id, and below it what to do) [/steps]",
                "goal.md:4:13: 'x' and 'x' replace no step of the plan (let one replace a step of the plan; there is no step in the plan) [/steps/0]",
            ],
        ),
        (
            runbook(A, sh("x", "1", "instead of: a"), sh("b", "1", "after: x")),
            [
                "goal.md:13:8: 'x' is not in the plan unless 'a' fails (name 'a': what takes its place is used in its stead) [/steps/1/depends_on/0]"
            ],
        ),
        (
            runbook(A, sh("x", "1", "instead of: a"), sh("b", "echo {{steps.x.output}}")),
            [
                "goal.md:14:6: 'x' is not in the plan unless 'a' fails (name 'a': what takes its place is used in its stead) [/steps/1/input/command]"
            ],
        ),
        (
            runbook(A, sh("b", "1"), sh("x", "echo {{steps.b.output}}", "instead of: a")),
            [
                "goal.md:14:6: 'x' runs only when 'a' has failed: there is no result of 'b' then (use the results of steps before it) [/steps/2/input/command]"
            ],
        ),
        (
            runbook(A, sh("x", "echo {{steps.a.output}}", "on failure of: a")),
            [
                "goal.md:10:6: 'x' runs only when 'a' has failed: there is no result of 'a' then (use the results of steps before it) [/steps/1/input/command]"
            ],
        ),
    ],
)
def test_a_fallback_that_cannot_be_is_refused(text: str, problems: list[str]) -> None:
    assert refused(text) == problems


def test_all_problems_come_at_once_in_the_order_of_the_page() -> None:
    text = "---\nmood: good\n---\n" + runbook(sh("A", "1", "timout: 1"), "### b\n```nonsense\n```")
    places = [problem.rpartition(" (")[0].split(":")[1] for problem in refused(text)]
    assert places == ["2", "6", "7", "12"]


def test_what_the_plan_check_finds_is_reported_in_lines_of_the_goal() -> None:
    text = runbook(
        sh("a", "echo {{steps.nowhere.output}}"),
        "### b\nafter: a, c\n```write_file\npath: x\nfolder: y\n```",
        sh("x", "1", "instead of: a", "check: `echo {{steps.never.output}}`"),
    )
    assert [problem.split(":")[1] for problem in refused(text)] == ["5", "8", "10", "11", "15"]


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["```sh", "1", "```", "```json expects", "{", '  "type": }', "```"], "goal.md:9:11"),
        ([" ```write_file", " path: [", " ```"], "goal.md:5:9"),
        (["```note", "{", "```"], "goal.md:5:1"),
    ],
)
def test_what_is_wrong_inside_a_fence_is_reported_in_lines_of_the_goal(lines: list[str], place: str) -> None:
    assert [problem.split(": ")[0] for problem in refused(runbook("### a", *lines))] == [place]


# ── places ────────────────────────────────────────────────────────────────────────────────────────────────

PLACED = runbook(
    "### a",  # 3
    "Words here.",  # 4
    " ```sh",  # 5
    " true",  # 6
    " ```",  # 7
    "### b",  # 8
    "- after: a",  # 9
    "  ```write_file",  # 10
    "  path: x",  # 11
    "  content: y",  # 12
    "  ```",  # 13
    "check: `one`",  # 14
    "check: `` two ``",  # 15
    "needs: `three`",  # 16
    "retries: 1",  # 17
    "timeout: 5s",  # 18
    "gate",  # 19
    "```json expects",  # 20
    "{",  # 21
    '  "type": "object"',  # 22
    "}",  # 23
    "```",  # 24
    "### c",  # 25
    "instead of: b",  # 26
    "```note",  # 27
    "x",  # 28
    "```",  # 29
)


@pytest.mark.parametrize(
    ("pointer", "place"),
    [
        ("/steps", (1, 1)),
        ("/steps/0", (3, 5)),
        ("/steps/0/id", (3, 5)),
        ("/steps/0/description", (4, 1)),
        ("/steps/0/tool", (5, 5)),
        ("/steps/0/input", (6, 2)),
        ("/steps/0/input/command", (6, 2)),
        ("/steps/0/depends_on", (3, 5)),
        ("/steps/1/id", (8, 5)),
        ("/steps/1/depends_on/0", (9, 10)),
        ("/steps/1/tool", (10, 6)),
        ("/steps/1/input/content", (12, 12)),
        ("/steps/1/checks/0/run", (14, 9)),
        ("/steps/1/checks/1/run", (15, 11)),
        ("/steps/1/checks/1/kind", (15, 11)),
        ("/steps/1/needs/0", (16, 9)),
        ("/steps/1/max_attempts", (17, 10)),
        ("/steps/1/timeout_s", (18, 10)),
        ("/steps/1/gate", (19, 1)),
        ("/steps/1/expects", (21, 1)),
        ("/steps/1/expects/type", (22, 11)),
        ("/steps/2/id", (25, 5)),
        ("/steps/2/input/text", (28, 1)),
        ("/steps/7", (1, 1)),
        ("", (1, 1)),
    ],
)
def test_every_part_of_a_step_knows_its_place(pointer: str, place: tuple[int, int]) -> None:
    document = parsed(PLACED).full_document()
    assert document is not None
    assert document.locate(pointer) == place


def test_a_fallback_is_checked_as_if_it_were_in_the_plan() -> None:
    steps = [sh("a", "1"), sh("b", "1"), sh("c", "1", "instead of: b"), sh("d", "1", "instead of: c")]
    document = parsed(runbook(*steps, sh("e", "1", "on failure of: c"))).full_document()
    assert document is not None
    assert [(step["id"], step["depends_on"]) for step in document.value["steps"]] == [
        ("a", []),
        ("b", ["a"]),
        ("c", ["a"]),
        ("d", ["a"]),
        ("e", []),
    ]


# ── any text ──────────────────────────────────────────────────────────────────────────────────────────────

_LINES = st.sampled_from(
    [
        *("## Steps", "### a", "### b", "### A b", "```sh", "```", "~~~", "  ```json expects", "```note", "---"),
        *(
            "check: `x`",
            "check:",
            "after: a, b",
            "after: nothing",
            "instead of: a",
            "on failure of: b",
            "instead of: b",
        ),
        *(
            "retries: 1",
            "timeout: 1m",
            "gate",
            "<!--",
            "-->",
            "{",
            "a: [",
            "{{steps.a.output}}",
            "",
            "\t",
            "é",
            "a: 1",
        ),
    ]
)


@settings(max_examples=size(75, 1500), deadline=None)
@given(st.one_of(st.text(), st.lists(_LINES | st.text(max_size=20), max_size=30).map("\n".join)))
def test_any_text_is_a_goal_or_is_refused(text: str) -> None:
    for name in ("goal.md", "goal.txt"):
        try:
            parse_goal(text.encode("utf-8", "surrogatepass"), name, CATALOGUE)
        except Rejected as rejected:
            problems = rejected.problems
        else:
            problems = ()
        last = len(text.splitlines()) + 2
        assert all(1 <= problem.line <= last and problem.column >= 1 for problem in problems)


def test_a_large_runbook_is_read_in_one_pass() -> None:
    steps = [sh(f"s{n}", "true", "check: `true`") for n in range(1000)]
    assert len(steps_of(parsed(runbook(*steps)))) == 1000
