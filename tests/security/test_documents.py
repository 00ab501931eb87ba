"""Documents that are bombs: whether dropped as a goal or saved as a plan, each is refused at once, and the daemon goes on.

Letting a RecursionError out of `documents._value` makes the first of them fail (it was tried).
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from agentfs.core.goal_file import parse_goal
from agentfs.core.plan_check import check_plan

from agentfs.core.documents import read_json
from agentfs.core.problems import Rejected
from tests.builders import CATALOGUE
from tests.daemons import Watching, book
from tests.workspaces import Place, wait_for

ONE = {"id": "a", "tool": "note", "input": {"text": "x"}}


def plan(text: str) -> str:
    return f'{{"goal": "g", "status": "approved", "steps": [{{"id": "a", "tool": "note", "input": {{"text": {text}}}}}]}}'


BOMBS: dict[str, str] = {
    "deep-list.json": plan("[" * 100_000 + "]" * 100_000),
    "deep-object.json": plan('{"a":' * 100_000 + "1" + "}" * 100_000),
    "deep-open.json": plan("[" * 500_000),
    "twice.json": '{"goal": "x", "steps": [], "steps": [{"id": "a"}]}',
    "twice-inside.json": plan('{"a": 1, "a": 2}'),
    "nan.json": plan("NaN"),
    "infinity.json": plan("-Infinity"),
    "too-large-a-number.json": plan("1e999"),
    "digits.json": plan("9" * 900_000),
    "surrogate.json": plan('"\\ud800"'),
    "nul.json": plan('"\\u0000"').replace("note", "shell").replace('"text"', '"command"'),
    "bom.json": "\ufeff\ufeff" + plan('"x"'),
    "wide.json": json.dumps({"goal": "x", "steps": [{"id": f"s{n}", "depends_on": ["nope"]} for n in range(12_000)]}),
    "circle.json": json.dumps({"goal": "x", "steps": [{**ONE, "id": f"s{n}", "depends_on": [f"s{(n + 1) % 2000}"]} for n in range(2000)]}),
    "keys.json": json.dumps({f"k{n}": n for n in range(50_000)}),
    "laughs.yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)),
    "deep.yaml": "goal: " + "[" * 20_000,
    "deep-blocks.yaml": "".join(f"{' ' * n}a:\n" for n in range(2_000)),
    "tag.yaml": "goal: !!python/object/new:os.system ['true']\n",
    "headings.md": "# x\n\n## Steps\n\n" + "### A b\n" * 60_000,
    "fences.md": "# x\n\n## Steps\n\n### a\n" + "```sh\n" * 100_000,
    "comments.md": "# x\n\n## Steps\n\n" + "<!--" * 200_000,
    "front.md": "---\n" + "a: 1\n" * 100_000 + "---\nx",
    "no-end.md": "---\n" + "a" * 900_000,
    "pattern.json": json.dumps({"goal": "x", "steps": [{**ONE, "checks": [{"kind": "file", "path": "x", "matches": "(" * 400 + ")" * 399}]}]}),
    "pattern-long.json": json.dumps({"goal": "x", "steps": [{**ONE, "checks": [{"kind": "file", "path": "x", "matches": "a" * 5000}]}]}),
    "schema-self.json": json.dumps({"goal": "x", "steps": [{**ONE, "expects": {"$ref": "#"}}]}),
    "schema-away.json": json.dumps({"goal": "x", "steps": [{**ONE, "expects": {"$ref": "http://127.0.0.1:1/x"}}]}),
    "schema-large.json": json.dumps({"goal": "x", "steps": [{**ONE, "expects": {"enum": ["x" * 70_000]}}]}),
    "schema-pattern.json": json.dumps({"goal": "x", "steps": [{**ONE, "expects": {"pattern": "("}}]}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_a_second(name: str) -> None:
    source = BOMBS[name].encode("utf-8", "surrogatepass")
    began = time.process_time()
    with pytest.raises(Rejected) as refused:
        parse_goal(source, name, CATALOGUE)
    spent = time.process_time() - began
    assert all(problem.shown(name) for problem in refused.value.problems)
    assert spent < 3, f"{name} took {spent:.1f} s of the processor"  # one second where nothing else runs


def test_a_hundred_megabytes_of_plan_are_refused_unread() -> None:
    began = time.process_time()
    with pytest.raises(Rejected):
        check_plan(read_json(b'{"steps": [' + b'{"id": "a"},' * 9_000_000 + b"{}]}"), CATALOGUE)
    assert time.process_time() - began < 1


@pytest.fixture
def watching(place: Place) -> Iterator[Watching]:
    with Watching(place) as daemon:
        yield daemon


def rejected(daemon: Watching, name: str) -> bool:
    return (daemon.goals / "rejected" / f"{name}.error.md").exists()


def test_a_daemon_survives_them_all(watching: Watching) -> None:
    for name, text in BOMBS.items():
        (watching.goals / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    wait_for(lambda: all(rejected(watching, name) for name in BOMBS), "all of them to be rejected")
    watching.drop("held.md", book("sleep 0.1", "echo here", lines="gate"))
    folder = watching.folder("held")
    wait_for((folder / "plan.json").exists, "the plan")
    good = (folder / "plan.json").read_bytes()
    for name, text in BOMBS.items():
        if name.endswith(".json"):
            (folder / "plan.json").write_bytes(text.encode("utf-8", "surrogatepass"))
            wait_for((folder / "plan.error.md").exists, f"what is wrong with {name}")
            (folder / "plan.json").write_bytes(good)
            wait_for(lambda: not (folder / "plan.error.md").exists(), f"the good plan after {name}")
    with (folder / "plan.json").open("wb") as huge:
        huge.truncate(100 * 2**20)
    wait_for((folder / "plan.error.md").exists, "what is wrong with 100 MB")
    (folder / "plan.json").write_bytes(good)
    watching.drop("still.md", book("echo here"))
    assert watching.outcome("still")["answer"] == "here"


EXPLODING: dict[str, dict[str, Any]] = {
    "file": {"checks": [{"kind": "file", "path": "long.txt", "matches": "(a+)+$"}]},
    "output": {"checks": [{"kind": "output", "schema": {"type": "string", "pattern": "^(a|aa)+$"}}]},
    "expects": {"expects": {"type": "string", "pattern": "^(a+)+$"}},
    "search": {"tool": "search_files", "input": {"pattern": "(a+)+$"}},
}


def test_a_pattern_that_explodes_costs_its_step_and_no_more(watching: Watching) -> None:
    make = {"id": "make", "tool": "shell", "input": {"command": f"echo {'a' * 60}! | tee long.txt"}}
    common = {"timeout_s": 2, "max_attempts": 1, "on_failure": "continue", "depends_on": ["make"], "repeatable": True}
    show = {"tool": "shell", "input": {"command": "cat long.txt"}}
    steps = [{"id": name, **show, **common, **fields} for name, fields in EXPLODING.items()]
    watching.drop("explode.json", json.dumps({"goal": "Explode", "steps": [make, *steps]}))
    folder = watching.folder("explode") / "steps"
    wait_for(lambda: all((folder / f"{name}.1.result.json").exists() for name in EXPLODING), "all to be settled")
    results = {name: watching.place.read(f"steps/{name}.1.result.json", "explode") for name in EXPLODING}
    assert {name: one["status"] for name, one in results.items() if name != "expects"} == dict.fromkeys(
        ("file", "output", "search"), "failed"
    )
    assert (results["expects"]["status"], results["expects"]["surprising"]) == ("done", True)
    watching.drop("still.md", book("echo here"))
    assert watching.outcome("still")["answer"] == "here"
