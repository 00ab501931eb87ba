"""Goal files: each format, what each may hold, what is refused and in which words."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfs.core.goal_file import lenient, parse_goal
from agentfs.core.problems import Rejected
from agentfs.core.records import CommandCheck, Goal
from tests.core.goal_samples import CATALOGUE, parsed, refused, runbook, sh, steps_of
from tests.sweeps import size

NOTE = {"id": "a", "tool": "note", "input": {"text": "x"}, "depends_on": []}


@pytest.mark.parametrize(
    ("text", "filename", "words", "title", "fields"),
    [
        ("Tidy up.\n", "goal.md", "Tidy up.", "Tidy up.", Goal()),
        ("Tidy up.", "goal.txt", "Tidy up.", "Tidy up.", Goal()),
        ("\n\nSome words\n# Tidy   up #\n", "g.md", "Some words\n# Tidy   up #", "Tidy up", Goal()),
        ("# not a heading\nhere", "g.txt", "# not a heading\nhere", "# not a heading", Goal()),
        ("## Steps\n### a\n", "g.txt", "## Steps\n### a", "## Steps", Goal()),
        ("---\nname: x\n---\nTidy up.", "g.md", "Tidy up.", "Tidy up.", Goal(name="x")),
        ("---\nname: x\n---\nTidy up.", "g.txt", "Tidy up.", "Tidy up.", Goal(name="x")),
        ("---\n\n---\nTidy up.", "g.md", "Tidy up.", "Tidy up.", Goal()),
        ("---\n# only a comment\n---\nTidy up.", "g.md", "Tidy up.", "Tidy up.", Goal()),
        ("\ufeff---\r\nname: x\r\n---\r\nTidy\r\nup.\r\n", "g.MD", "Tidy\nup.", "Tidy", Goal(name="x")),
        ("Words\n---\nname: x\n---\n", "g.md", "Words\n---\nname: x\n---", "Words", Goal()),
        ("goal: Tidy up.\nname: x\n", "g.yaml", "Tidy up.", "Tidy up.", Goal(name="x", goal="Tidy up.")),
        ("goal: |\n  # Tidy up\n  all\n", "g.yml", "# Tidy up\nall", "Tidy up", Goal(goal="# Tidy up\nall\n")),
        ('\ufeff{"goal": "Tidy up."}', "g.json", "Tidy up.", "Tidy up.", Goal(goal="Tidy up.")),
        ('{"goal": "Tidy up.", "name": null}', "g.json", "Tidy up.", "Tidy up.", Goal(goal="Tidy up.")),
        ("Tidy up.", "goal", "Tidy up.", "Tidy up.", Goal()),
    ],
)
def test_a_goal_in_words(text: str, filename: str, words: str, title: str, fields: Goal) -> None:
    goal = parsed(text, filename)
    assert (goal.kind, goal.text, goal.title, goal.fields) == ("words", words, title, fields)
    assert (goal.steps, goal.full_document(), goal.fallbacks) == (None, None, ())


def test_a_title_is_one_bounded_line() -> None:
    assert parsed("x" * 500).title == "x" * 119 + "…"


def test_front_matter_may_set_every_field_of_the_contract() -> None:
    text = (
        "---\nname: n\nmode: split\napprove: always\nworkdir: w\ncontext: [a.md]\nchecks:\n- test -f x\n"
        "tools: [shell]\nlimits: {replans: 1}\nplanner: {model: m, temperature: 0.5}\nexecutor: {model: e}\n---\nGo."
    )
    fields = parsed(text).fields
    assert fields.checks == (CommandCheck(kind="command", run="test -f x"),)
    assert fields.model_dump(exclude_none=True, exclude={"checks"}) == {
        "name": "n",
        "mode": "split",
        "approve": "always",
        "workdir": "w",
        "context": ("a.md",),
        "tools": ("shell",),
        "limits": {"replans": 1},
        "planner": {"model": "m", "temperature": 0.5},
        "executor": {"model": "e"},
    }


# ── plans of a person's own ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "filename"),
    [
        ('{"goal": "Note it", "steps": [{"id": "a", "tool": "note", "input": {"text": "x"}}]}', "g.json"),
        ('{"$schema": "s", "goal": "Note it", "steps": [{"id": "a", "tool": "note", "input": "x"}]}', "g.json"),
        ("goal: Note it\nsteps:\n- id: a\n  tool: note\n  input: x\n", "g.yaml"),
    ],
)
def test_a_goal_with_steps_is_a_plan(text: str, filename: str) -> None:
    goal = parsed(text, filename)
    assert (goal.kind, goal.text, goal.title) == ("plan", "Note it", "Note it")
    assert goal.steps is not None
    assert goal.steps.value == {
        "$schema": "../../../schemas/plan.schema.json",
        "goal": "Note it",
        "status": "approved",
        "steps": [NOTE],
    }


@pytest.mark.parametrize(
    ("text", "filename"),
    [
        ('[{"id": "a", "tool": "note", "input": "x"}]', "dir/my-plan.json"),
        ("- {id: a, tool: note, input: x}", "my-plan.yml"),
    ],
)
def test_a_bare_list_is_the_steps_and_the_file_names_it(text: str, filename: str) -> None:
    goal = parsed(text, filename)
    assert (goal.kind, goal.title, goal.text, steps_of(goal)) == ("plan", "my-plan", "my-plan", [NOTE])


def test_a_plan_may_say_its_status() -> None:
    goal = parsed('{"status": "draft", "steps": [{"id": "a", "tool": "note", "input": "x"}]}', "g.json")
    assert goal.fields.status == "draft"
    assert goal.steps is not None
    assert goal.steps.value["status"] == "draft"


def test_a_runbook_may_say_its_status() -> None:
    goal = parsed("---\nstatus: draft\n---\n" + runbook(sh("a", "1")))
    assert goal.steps is not None
    assert goal.steps.value["status"] == "draft"


# ── leniency ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("loose", "strict"),
    [
        ({"id": 1}, {"id": "1", "depends_on": []}),
        ({"id": True}, {"id": True, "depends_on": []}),
        ({"id": "a", "depends_on": [1, "b"]}, {"id": "a", "depends_on": ["1", "b"]}),
        ({"id": "a", "depends_on": None}, {"id": "a", "depends_on": []}),
        (
            {"id": "a", "tool": "none", "input": "x"},
            {"id": "a", "tool": "note", "input": {"text": "x"}, "depends_on": []},
        ),
        (
            {"id": "a", "description": "d", "tool": "none"},
            {"id": "a", "description": "d", "tool": "note", "input": {"text": "d"}, "depends_on": []},
        ),
        ({"tool": "shell", "input": "ls"}, {"tool": "shell", "input": {"command": "ls"}, "depends_on": []}),
        ({"tool": "write_file", "input": "x"}, {"tool": "write_file", "input": "x", "depends_on": []}),
        ({"tool": "unknown", "input": "x"}, {"tool": "unknown", "input": {"text": "x"}, "depends_on": []}),
        ({"tool": "note", "input": {"text": None}}, {"tool": "note", "input": {"text": None}, "depends_on": []}),
        ({"checks": ["c"]}, {"depends_on": [], "checks": [{"kind": "command", "run": "c"}]}),
        ({"needs": ["c"]}, {"depends_on": [], "needs": [{"kind": "command", "run": "c"}]}),
        (
            {"checks": [{"kind": "file", "path": "p", "contains": None}]},
            {"depends_on": [], "checks": [{"kind": "file", "path": "p"}]},
        ),
        ({"checks": "c", "needs": [3]}, {"depends_on": [], "needs": [3], "checks": "c"}),
        ({"why": None, "mood": None, "x": 1}, {"depends_on": [], "x": 1}),
    ],
)
def test_a_step_may_be_written_loosely(loose: dict[str, Any], strict: dict[str, Any]) -> None:
    before = json.dumps(loose)
    assert lenient([loose], CATALOGUE) == [strict]
    assert json.dumps(loose) == before


def test_steps_follow_each_other_and_their_keys_follow_the_contract() -> None:
    steps = lenient([{"tool": "note", "id": 1}, {"id": 2}, "no step", {"id": 4}], CATALOGUE)
    assert steps == [
        {"id": "1", "tool": "note", "depends_on": []},
        {"id": "2", "depends_on": ["1"]},
        "no step",
        {"id": "4", "depends_on": []},
    ]
    assert list(steps[0]) == ["id", "tool", "depends_on"]


@pytest.mark.parametrize("value", [None, 1, "x", {"steps": "x"}, {"steps": 3, "checks": 4}])
def test_what_is_neither_right_nor_loose_is_left_to_the_check(value: Any) -> None:
    assert lenient(value, CATALOGUE) == value


def test_a_number_that_is_too_long_for_an_id_stays_a_number() -> None:
    assert lenient([{"id": 10**5000}], CATALOGUE)[0]["id"] == 10**5000


# ── refused ───────────────────────────────────────────────────────────────────────────────────────────────

EMPTY = "the goal is empty (say in words what is to be done)"


@pytest.mark.parametrize(
    ("source", "filename", "problems"),
    [
        ("", "g.md", [f"g.md:1:1: {EMPTY}"]),
        (" \n\t", "g.txt", [f"g.txt:1:1: {EMPTY}"]),
        ("", "g.json", [f"g.json:1:1: {EMPTY}"]),
        ("\ufeff", "g.yaml", [f"g.yaml:1:1: {EMPTY}"]),
        ("---\nname: x\n---\n\n", "g.md", [f"g.md:4:1: {EMPTY}"]),
        ("---\nname: x\n", "g.md", ["g.md:1:1: the front matter never ends (end it with a line ---)"]),
        ("---\n- a\n---\nx", "g.md", ["g.md:2:1: front matter is fields (write each as name: value)"]),
        (
            "---\nname: x\nsteps: []\ngoal: y\n---\nx",
            "g.md",
            [
                "g.md:3:1: front matter has no field 'steps' (write them under '## Steps') [/steps]",
                "g.md:4:1: front matter has no field 'goal' (write it below the front matter) [/goal]",
            ],
        ),
        (b"ab\nc\xc3\xa9\xff", "g.md", ["g.md:2:3: byte 0xff is not UTF-8 (save the file as UTF-8 text)"]),
        (b"\xff\xfeg\0", "g.md", ["g.md:1:1: byte 0xff is not UTF-8 (save the file as UTF-8 text)"]),
        (b"a\r\nb\0", "g.md", ["g.md:2:2: a NUL byte: this is not text (save the file as UTF-8 text)"]),
        (
            b"x" * (1024 * 1024 + 1),
            "g.md",
            ["g.md:1:1: the goal is larger than 1 MiB (keep large texts in files and name their paths)"],
        ),
        (
            '"just words"',
            "g.json",
            ["g.json:1:1: the goal is neither fields nor a list of steps (write goal: and what is to be done)"],
        ),
        (
            "name: x",
            "g.yaml",
            [
                (
                    "g.yaml:1:1: the goal says neither what is asked nor its steps "
                    "(write goal: and what is to be done, or steps: and the plan)"
                )
            ],
        ),
        (
            "goal: x\nsteps: []",
            "g.yaml",
            ["g.yaml:2:8: 'steps' must be a list of steps (list at least one) [/steps]"],
        ),
        (
            "goal: x\nsteps: none",
            "g.yaml",
            ["g.yaml:2:8: 'steps' must be a list of steps (list at least one) [/steps]"],
        ),
        ("[]", "g.json", ["g.json:1:1: 'steps' must be a list of steps (list at least one) [/steps]"]),
    ],
)
def test_a_goal_that_cannot_be_taken(source: str | bytes, filename: str, problems: list[str]) -> None:
    assert refused(source, filename) == problems


@pytest.mark.parametrize(
    ("text", "filename", "places"),
    [
        ("---\nnmae: x\nmode: fast\n---\nGo.", "g.md", ["2:1", "3:7"]),
        ("---\nname: [\n---\nGo.", "g.md", ["2:8"]),
        ("---\nname: x\nname: y\n---\nGo.", "g.md", ["3:1"]),
        ("---\nplanner:\n  base_url: http://x\n---\nGo.", "g.md", ["3:3"]),
        ("---\nchecks:\n- 3\n---\nGo.", "g.md", ["3:3"]),
        ('{"goal": "x",\n "mood": 1}', "g.json", ["2:2"]),
        ('{"goal": "x"', "g.json", ["1:12"]),
        ("goal: x\nsteps:\n- id: a\n  tool: nte\n  input: x\n  depends_on: [b]\n", "g.yaml", ["4:9", "6:16"]),
        ("- 3\n- {id: a, tool: note, input: x}\n", "g.yaml", ["1:3"]),
        (
            "goal: x\nsteps:\n- id: a\n  tool: shell\n  input: |\n    one\n    two {{steps.b.output}}\n",
            "g.yaml",
            ["7:9"],
        ),
        (
            runbook("### a\n```sh\necho 1\n  echo {{steps.b.output}}\n```\ncheck: `echo '{{steps.b.output}}'`"),
            "g.md",
            ["6:8", "8:15", "8:15"],
        ),
        ('[{"id": "a", "tool": "note",\n "input": "{{steps.b.output}}"}]', "g.json", ["2:12"]),
        ("---\ntools: [note]\n---\n" + runbook(sh("a", "1")), "g.md", ["7:4"]),
    ],
)
def test_the_check_tells_places_of_the_goal_file(text: str, filename: str, places: list[str]) -> None:
    found = [problem.removeprefix(f"{filename}:").split(": ")[0] for problem in refused(text, filename)]
    assert found == places


def test_an_unknown_field_gets_a_suggestion() -> None:
    (problem,) = refused("---\nworkdri: x\n---\nGo.")
    assert problem.startswith("goal.md:2:1: ")
    assert problem.endswith("(did you mean 'workdir'?) [/workdri]")


@settings(max_examples=size(50, 1000), deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["id", "steps", "goal", "tool", "input", "checks", "depends_on"]), inner
                )
            ),
            max_leaves=8,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_bytes_are_a_goal_or_are_refused(source: bytes) -> None:
    for name in ("g.md", "g.json", "g.yaml"):
        try:
            goal = parse_goal(source, name, CATALOGUE)
        except Rejected as rejected:
            shown = [problem.shown(name) for problem in rejected.problems]
        else:
            shown = [goal.title]
        assert all(shown)
