"""`each`: one attempt per item of a list that is known only at run time."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer, replay
from tests.workspaces import Place, end, wait_for

STEPS = """### list
```sh
cat names
```

### convert
Convert {{item}}.
each: {{steps.list.output}}
```sh
test {{item}} != bad || test -f fixed; echo {{item}} >> log; echo "{{index}} {{item}}"
```

### report
```sh
echo {{steps.convert.output}}
```
"""


@pytest.fixture
def shop(place: Place) -> Path:
    """A working folder with a list in it."""
    folder = place.root / "shop"
    folder.mkdir()
    (folder / "names").write_text("north\nbad\nsouth\n")
    return folder


def names(place: Place, pattern: str) -> list[str]:
    return sorted(path.name for path in (place.run_folder() / "steps").glob(pattern))


def result(place: Place, name: str) -> Any:
    return json.loads((place.run_folder() / "steps" / f"{name}.result.json").read_text())


def begin(place: Place, steps: str = STEPS, code: int = 1, *more: str) -> Any:
    return place.agentfs("run", place.runbook(steps), "--workdir", "shop", *more, code=code)


def test_just_the_items_that_failed_are_tried_again(place: Place, shop: Path) -> None:
    done = begin(place)
    assert "convert~bad: FAILED" in done.stderr
    assert sorted((shop / "log").read_text().split()) == ["north", "south"]
    failed = result(place, "convert.1")
    assert (failed["status"], failed["items"]) == ("failed", {"north": 1, "bad": 1, "south": 1})
    span = datetime.fromisoformat(failed["ended_at"]) - datetime.fromisoformat(failed["started_at"])
    assert failed["duration_s"] <= span.total_seconds(), "what runs at the same time counts once"
    assert failed["error"]["message"] == "2/3, 1 failed: convert~bad: exit code 1"
    assert "convert  failed   2/3, 1 failed: convert~bad: exit code 1" in place.looks("status", "job")[1]
    _, shown, _ = place.looks("show", "job", "convert")
    assert "items (3)\n  ✗ convert~bad: failed, exit code 1\n  ✓ convert~north: done\n" in shown
    _, shown, _ = place.looks("show", "job", "convert~bad")
    assert "convert~bad: failed" in shown
    assert "REF_0" in shown
    assert json.loads(place.looks("show", "job", "--json")[1])["steps"][1]["items"][1]["state"] == "failed"
    (shop / "fixed").touch()
    place.agentfs("retry", "job", "convert")
    assert names(place, "*.again.md") == ["convert~bad.1.again.md"]
    place.agentfs("resume", "job")
    assert sorted((shop / "log").read_text().split()) == ["bad", "north", "south"]
    assert result(place, "convert.2")["output"] == ["0 north", "1 bad", "2 south"]
    assert "convert  done  3/3" in place.looks("status", "job")[1]
    assert result(place, "report.1")["output"] == ["0 north", "1 bad", "2 south"]
    assert replay(place.run_folder()).departures == ()
    place.agentfs("verify", "job")


CUT = """### work
each: a, b, c
```sh
echo {{item}} >> log; touch begun-{{item}}; test -e go || sleep 600
```
"""


def test_items_that_were_cut_off_are_answered_together(place: Place, shop: Path) -> None:
    process = place.begin("run", place.runbook(CUT), "--workdir", "shop")
    wait_for(lambda: len([*shop.glob("begun-*")]) == 3, "three items")
    end(process)
    waiting = place.agentfs("resume", "job", code=3)
    run = place.read("run.json")["run"]
    output = waiting.stderr.splitlines()
    assert [line for line in output if "reply" in line and "answer in" not in line] == [
        f"  or type: agentfs reply {run} work~a again",
        f"  or type: agentfs reply {run} work~a done",
        f"  or type: agentfs reply {run} work~a failed",
        f"  or type, for all of them: agentfs reply {run} work again",
    ]
    assert f"  2 more of work ask too (agentfs show {run} work lists its items)" in output
    refused = place.agentfs("retry", "job", "work", code=2).stderr
    assert f"items of it that were cut off: agentfs reply {run} work again" in refused
    assert "begin with exactly one of" in place.agentfs("reply", "job", "work", "perhaps", code=2).stderr
    assert names(place, "*.reply.md") == []
    (shop / "go").touch()
    place.agentfs("reply", "job", "work~b", "failed")
    place.agentfs("reply", "job", "work", "again")
    assert {name: (place.run_folder() / "steps" / name).read_text() for name in names(place, "*.reply.md")} == {
        "work~a.1.reply.md": "again\n",
        "work~b.1.reply.md": "failed\n",
        "work~c.1.reply.md": "again\n",
    }
    place.agentfs("resume", "job", code=1)
    assert sorted((shop / "log").read_text().split()) == ["a", "a", "b", "c", "c"]


def test_a_longer_list_runs_what_is_new_and_one_item_can_be_done_again(place: Place, shop: Path) -> None:
    (shop / "names").write_text("north\nsouth\n")
    begin(place, code=0)
    (shop / "names").write_text("north\nsouth\nwest\n")
    place.agentfs("retry", "job", "list")
    place.agentfs("resume", "job")
    assert sorted((shop / "log").read_text().split()) == ["north", "south", "west"]
    assert result(place, "convert.2")["items"] == {"north": 1, "south": 1, "west": 1}
    place.agentfs("retry", "job", "convert~north")
    place.agentfs("resume", "job")
    assert sorted((shop / "log").read_text().split()) == ["north", "north", "south", "west"]
    refused = place.agentfs("retry", "job", "convert", code=2)
    assert "no item of convert has failed" in refused.stderr
    assert "agentfs retry 2026" in refused.stderr
    unknown = place.agentfs("retry", "job", "convert~nroth", code=2)
    assert "convert~north" in unknown.stderr
    skipped = place.agentfs("skip", "job", "convert~north", code=2)
    assert "an item cannot be skipped: take it out of the list, or skip convert" in skipped.stderr


def test_a_gate_is_asked_once_and_shows_every_order(place: Place, shop: Path) -> None:
    (shop / "names").write_text("north\nsouth\n")
    begin(place, STEPS.replace("Convert {{item}}.", "Convert {{item}}.\ngate"), 3)
    assert names(place, "*.question.md") == ["convert.1.question.md"]
    question = (place.run_folder() / "steps" / "convert.1.question.md").read_text()
    assert "convert~north would run" in question
    assert "convert~south would run" in question
    assert '"step": "convert~south"' in question
    place.agentfs("approve", "job")
    place.agentfs("resume", "job")
    assert sorted((shop / "log").read_text().split()) == ["north", "south"]
    assert replay(place.run_folder()).departures == ()


def test_a_no_to_the_gate_ends_it(place: Place, shop: Path) -> None:
    begin(place, STEPS.replace("Convert {{item}}.", "Convert {{item}}.\ngate"), 3)
    place.agentfs("reject", "job", code=None)
    place.agentfs("resume", "job", code=1)
    outcome = json.loads((place.run_folder() / "outcome.json").read_text())
    assert (outcome["status"], outcome["reason"]) == ("failed", "rejected")
    assert not (shop / "log").exists()


def test_going_on_with_what_failed_leaves_null_in_its_place(place: Place, shop: Path) -> None:
    begin(place, STEPS.replace("Convert {{item}}.", "on failure: continue"), 0)
    assert result(place, "convert.1")["output"] == ["0 north", None, "2 south"]
    assert (shop / "log").exists()


def test_a_condition_is_the_steps_and_is_looked_at_once(place: Place, shop: Path) -> None:
    (shop / "names").write_text("north\nsouth\n")
    steps = STEPS.replace("Convert {{item}}.", "when: `echo looked >> looks; test -f go`")
    begin(place, steps, 0)
    assert result(place, "convert.1")["status"] == "skipped"
    (shop / "go").touch()
    place.agentfs("retry", "job", "convert")
    place.agentfs("resume", "job")
    assert (shop / "looks").read_text() == "looked\nlooked\n"
    assert sorted((shop / "log").read_text().split()) == ["north", "south"]


def test_the_whole_list_is_taken_though_the_output_was_cut(place: Place, shop: Path) -> None:
    wanted = [f"file-{number:04}" for number in range(400)]
    (shop / "names").write_text("\n".join(wanted) + "\n")
    steps = "### list\n```sh\ncat names\n```\n\n### note-it\neach: {{steps.list.output}}\n```note\n{{item}}\n```\n"
    (place.root / "agentfs.toml").write_text("[limits]\noutput_bytes = 1024\n")
    place.agentfs("init")
    begin(place, steps, 0)
    assert result(place, "list.1")["cut"] is True
    found = result(place, "note-it.1")
    assert (len(found["items"]), found["cut"]) == (400, True)
    assert json.loads((place.run_folder() / "steps" / "note-it.1.output.txt").read_text()) == wanted


def test_an_edit_of_a_list_and_a_condition_is_blamed_and_restored(place: Place, shop: Path) -> None:
    steps = "### greet\neach: ada, grace\nwhen: `test -f names`\n```sh\necho {{item}} >> log\n```\n"
    begin(place, steps, 0)
    path = place.run_folder() / "plan.json"
    plan = json.loads(path.read_text())
    first = plan["steps"][0]
    plan["steps"] = [first | {"each": ["ada", "grace", "alan"], "when": {**first["when"], "run": "test -s names"}}]
    path.write_text(json.dumps(plan))
    place.agentfs("resume", "job")
    assert sorted((shop / "log").read_text().split()) == ["ada", "alan", "grace"]
    fields = json.loads(place.agentfs("blame", "job", "greet", "--json").stdout)["fields"]
    changed = {one["field"]: one["revision"] for one in fields if one["by"]["role"] == "person"}
    assert changed == {"each": 2, "when": 2}
    assert "each" in place.agentfs("diff", "job", "1..2").stdout
    place.agentfs("restore", "job@1")
    place.agentfs("resume", "job")
    restored = json.loads(path.read_text())["steps"][0]
    assert (restored["each"], restored["when"]) == (first["each"], first["when"])
    assert sorted((shop / "log").read_text().split()) == ["ada", "alan", "grace"]
    assert replay(place.run_folder()).departures == ()


def test_a_list_may_be_written_down(place: Place, shop: Path) -> None:
    steps = "### greet\neach: ada, grace\n```sh\necho hello {{item}} >> log\n```\n"
    begin(place, steps, 0)
    assert sorted((shop / "log").read_text().splitlines()) == ["hello ada", "hello grace"]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("### a\n```sh\necho {{item}}\n```\n", "{{item}} is in a step without 'each'"),
        ("### a\neach: x {{steps.b.output}}\n```sh\necho\n```\n\n### b\nafter: nothing\n```sh\necho\n```\n", "'each' wants a list"),
        ("### a\neach: {{item}}\n```sh\necho\n```\n", "{{item}} is in the list itself"),
        ("### a\neach: x, y\nwhen: `test {{item}}`\n```sh\necho\n```\n", "in the condition of the whole step"),
        ("### a\neach: x, y\n```sh\necho '{{item}}'\n```\n", "is inside single quotes"),
        ("### a\nfor each: x, y\n```sh\necho\n```\n", "write each: x, y"),
        ("### a\neach: {{steps.nosuch.output}}\n```sh\necho\n```\n", "refers to a step that is not in the plan"),
    ],
)  # fmt: skip
def test_what_can_be_wrong(place: Place, steps: str, message: str) -> None:
    done = place.agentfs("run", place.runbook(steps), code=2)
    assert message in done.stderr
    assert "job.md:" in done.stderr


def test_what_is_not_a_list_is_reported(place: Place, shop: Path) -> None:
    (shop / "names").write_text('{"a": 1}\n')
    done = begin(place)
    assert "convert cannot start: each takes a list or text, not an object" in done.stderr


def test_a_value_is_never_code(place: Place, shop: Path) -> None:
    (shop / "names").write_text("$(touch hacked)\n; touch hacked\n")
    begin(place, code=0)
    assert not (shop / "hacked").exists()
    assert sorted((shop / "log").read_text().splitlines()) == ["$(touch hacked)", "; touch hacked"]


def test_a_fork_takes_done_items_along(place: Place, shop: Path) -> None:
    begin(place)
    (shop / "fixed").touch()
    place.agentfs("fork", "job")
    place.agentfs("resume", "job-2")
    assert sorted((shop / "log").read_text().split()) == ["bad", "north", "south"]


def test_checks_of_a_planners_items_are_looked_at_again_at_the_end(tmp_path: Path) -> None:
    words = {"description": "d", "success_condition": "the file is there"}
    make: dict[str, Any] = {"id": "make", **words, "tool": "write_file", "each": ["north", "south"], "depends_on": []}
    make |= {"input": {"path": "{{item}}.txt", "content": "x"}, "checks": [{"kind": "file", "path": "{{item}}.txt"}]}
    spoil = {"id": "spoil", **words, "tool": "shell", "input": {"command": "rm south.txt"}, "depends_on": ["make"]}
    with ScriptedServer() as server:
        place = Place(tmp_path)
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        place.agentfs("init")
        (place.root / "agentfs.toml").write_text('mode = "split"\napprove = "never"\n[tools]\nsandbox = "off"\n')
        server.says(json.dumps({"steps": [make, spoil]}))
        server.says(json.dumps({"keep": True}))
        place.agentfs("run", "Make the files", code=None)
        (found,) = place.runs.glob("*/make-the-files/planning/*.checks.json")
    steps = {one["step"]: [check["ok"] for check in one["checks"]] for one in json.loads(found.read_text())["steps"]}
    assert steps == {"make~north": [True], "make~south": [False]}
