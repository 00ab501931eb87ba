"""Which checks that a model writes prove something: seen from outside, before and after the work."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

GOAL = "Write the names in data.csv, sorted, to names.txt\n"
COMPARES = 'test "$(cat names.txt)" = "$(sort data.csv)"'


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    del place.env["AGENTFS_PROOF_ACCEPTANCE"]
    (place.root / "shop").mkdir()
    (place.root / "shop/data.csv").write_text("cid\nann\n", encoding="utf-8")
    return place


def checks(*commands: str) -> dict[str, Any]:
    return {"checks": [{"kind": "command", "run": command} for command in commands]}


@pytest.mark.parametrize(
    ("vacuous", "detail"),
    [
        ("sort -c names.txt", "it holds as soon as names.txt is there, whatever is in it"),
        ("test -s names.txt", "it holds as soon as names.txt is there, whatever is in it"),
        (
            """test "$(cat names.txt)" = "$(awk '{n += $2} END {print n + 0}' data.csv)\"""",
            "it holds as soon as names.txt is there, with nothing but 0 in it",
        ),
        ("touch names.txt && test -e names.txt", "exit code 0"),
    ],
)
def test_a_check_that_proves_nothing_is_sent_back_and_marked(
    place: Place, server: ScriptedServer, vacuous: str, detail: str
) -> None:
    server.plan(checks(vacuous))
    server.plan(checks(COMPARES))
    server.calls(("shell", {"command": "sort data.csv > names.txt"}))
    server.calls(("finish", {"ok": True, "output": "written"}))
    place.agentfs("run", place.goal(GOAL), "--workdir", "shop")
    server.done()
    before = [(one["ok"], one["detail"]) for one in place.read("planning/1.result.json")["before"]]
    assert before[0] == (True, detail)
    assert f"it proves nothing. Tried before any work: {detail}" in str(server.requests[1]["messages"])
    assert before[1][0] is False
    assert place.read("plan.json")["checks"] == checks(COMPARES)["checks"]
    proof = place.read("outcome.json")["proof"]
    assert (proof["level"], proof["by"]["planner"], proof["held_before"]) == ("checked", 1, 0)


def test_a_check_that_is_no_shell_text_is_sent_back(place: Place, server: ScriptedServer) -> None:
    server.plan(checks('test "$(cat names.txt" = "$(sort data.csv)"'))
    server.plan(checks(COMPARES))
    server.calls(("shell", {"command": "sort data.csv > names.txt"}))
    server.calls(("finish", {"ok": True, "output": "written"}))
    place.agentfs("run", place.goal(GOAL), "--workdir", "shop")
    assert place.read("plan.json")["checks"] == checks(COMPARES)["checks"]
    assert [one["ok"] for one in place.read("planning/1.result.json")["before"]] == [False]


def test_a_check_that_does_the_work_becomes_one_that_compares(place: Place, server: ScriptedServer) -> None:
    """A weak model writes the work down instead of a check: what it would make must be what is there."""
    server.says("```sh\nsort data.csv > names.txt\n```")
    server.calls(("shell", {"command": "printf 'ann\\n' > names.txt"}))
    server.calls(("finish", {"ok": True, "output": "written"}))
    server.calls(("shell", {"command": "sort data.csv > names.txt"}))
    server.calls(("finish", {"ok": True, "output": "written"}))
    place.agentfs("run", place.goal(GOAL), "--workdir", "shop")
    server.done()
    (check,) = place.read("plan.json")["checks"]
    assert check["run"].startswith("""test "$(tr -d '\\r' < names.txt)" = '""")
    assert [one["ok"] for one in place.read("planning/1.result.json")["before"]] == [False, False, True]
    assert place.read("outcome.json")["proof"]["level"] == "checked"
    place.agentfs("replay", "job")


PROGRAM = """```python
lines = open("data.csv").read().split()
{act}
```"""
COMPARED = [
    ("open('names.txt', 'w').write('\\n'.join(sorted(lines)))", "sort data.csv > names.txt", "written"),
    ("open('names.txt', 'w').write('\\r\\n'.join(sorted(lines)))", "sort data.csv > names.txt", "written"),
    ("print(len(lines))", "true", "It has 2 rows."),
    ("import json; json.dump({'n': 2}, open('n.json', 'w'))", "printf '{ \"n\":2 }' > n.json", "written"),
    ("open('n.txt', 'w').write('2.0')", "echo 2 > n.txt", "written"),
    ("import os; os.remove('data.csv')", "rm data.csv", "removed"),
]


@pytest.mark.parametrize(("act", "work", "answer"), COMPARED)
def test_a_program_that_does_the_job_is_compared_with_the_work(
    place: Place, server: ScriptedServer, act: str, work: str, answer: str
) -> None:
    """The job is done twice, and both come to the same; how numbers, JSON and lines are written does not matter."""
    server.says(PROGRAM.format(act=act))
    server.calls(("finish", {"ok": True, "output": "nothing was done"}))
    server.calls(("shell", {"command": "echo wrong > names.txt; echo 3 > n.txt; echo [] > n.json"}))
    server.calls(("finish", {"ok": True, "output": "It has 22 rows."}))
    server.calls(("shell", {"command": f"rm -f names.txt n.txt n.json; {work}"}))
    server.calls(("finish", {"ok": True, "output": answer}))
    goal = "Look at data.csv, or write names.txt, n.json or n.txt." if "print" not in act else "Count data.csv."
    place.agentfs("run", place.goal(goal), "--workdir", "shop")
    server.done()
    proof = place.read("outcome.json")["proof"]
    assert (proof["level"], proof["by"]["planner"]) == ("checked", 1)
    place.agentfs("replay", "job")


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("lines.sort(3)", "TypeError"),
        ("lines", "it writes no file and prints nothing"),
        (
            "open('other.txt', 'w').write('2')",
            "it writes other.txt, of which the job says nothing; an answer is printed",
        ),
        ("open('names.txt', 'w').write('x' * 5000)", "it leaves too much to be compared"),
        (
            "import os; open('names.txt', 'w').write(os.urandom(8).hex())",
            "run twice it comes to two different results",
        ),
        ("import os; print(os.urandom(8).hex())", "run twice it comes to two different results"),
    ],
)
def test_a_program_that_cannot_be_used_is_sent_back_with_the_reason(
    place: Place, server: ScriptedServer, act: str, why: str
) -> None:
    server.says(PROGRAM.format(act=act))
    server.plan(checks(COMPARES))
    server.calls(("shell", {"command": "sort data.csv > names.txt"}))
    server.calls(("finish", {"ok": True, "output": "written"}))
    place.agentfs("run", place.goal(GOAL), "--workdir", "shop")
    server.done()
    assert why in server.requests[1]["messages"][-1]["content"]
    assert place.read("plan.json")["checks"] == checks(COMPARES)["checks"]
    place.agentfs("replay", "job")


def test_a_claim_that_was_sent_back_says_that_no_file_changed(place: Place, server: ScriptedServer) -> None:
    server.plan(checks(COMPARES))
    server.calls(("shell", {"command": "sort data.csv"}))
    server.calls(("finish", {"ok": True, "output": "written"}))
    server.calls(("shell", {"command": "sort data.csv > names.txt"}))
    server.calls(("finish", {"ok": True, "output": "written"}))
    place.agentfs("run", place.goal(GOAL), "--workdir", "shop")
    server.done()
    log = (place.run_folder() / "steps/do.1.log.jsonl").read_text(encoding="utf-8")
    assert "no file has changed: what a command prints is not saved" in log


RUNBOOK = """---
workdir: shop
checks: ["grep -q ann data.csv", ./built]
{protect}
---
# Sell

## Steps

### build
```sh
printf '#!/bin/sh\\nexit 0\\n' > built && chmod +x built
```

### change
```sh
echo ann >> data.csv
```
"""


def test_what_a_persons_own_steps_change_is_reported_where_their_goals_checks_rest_on_it(place: Place) -> None:
    goal = place.goal(RUNBOOK.format(protect=""))
    assert "done, 2 of 2 steps (checked; changed by a step: data.csv)" in place.agentfs("run", goal).stderr
    assert place.read("outcome.json")["proof"]["touched"] == ["data.csv"]


def test_what_a_persons_goal_protects_is_kept_from_their_own_steps(place: Place) -> None:
    goal = place.goal(RUNBOOK.format(protect='protect: ["*.csv"]'))
    failed = place.agentfs("run", goal, code=1).stderr
    assert "data.csv: Read-only file system" in failed
    assert (place.root / "shop/data.csv").read_text(encoding="utf-8") == "cid\nann\n"
