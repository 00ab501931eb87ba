"""`when`: a step that a condition skips, and says so everywhere a step's state is shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentfs.executor import checks
from agentfs.storage.timing import TIMING
from agentfs.testing import replay
from tests.drives import Driven
from tests.scripts import Script
from tests.workspaces import Place

STEPS = """### migrate
when: `test -f files/migrate.sql`
```sh
echo migrated >> log; cat migrate.sql
```

### report
```sh
echo reported >> log
```

### publish
after: report
```sh
echo {{steps.migrate.output}} >> log
```
"""
WHY = "its condition does not hold: `test -f migrate.sql`: exit code 1"


@pytest.fixture
def steps() -> str:
    return STEPS.replace("files/", "")


def test_a_condition_that_does_not_hold_skips_a_step_and_says_so_everywhere(place: Place, steps: str) -> None:
    done = place.agentfs("run", place.runbook(steps))
    assert f"migrate: skipped: {WHY}" in done.stderr
    assert "done, 1 of 3 steps, 2 skipped" in done.stderr
    folder = place.run_folder()
    assert (folder / "files" / "log").read_text() == "reported\n"
    assert sorted(path.name for path in (folder / "steps").glob("migrate*")) == ["migrate.1.result.json"]
    result = json.loads((folder / "steps" / "migrate.1.result.json").read_text())
    assert (result["status"], result["output"], result["error"]) == ("skipped", None, None)
    assert len(result["when_sha256"]) == 64
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["status"], outcome["steps"]["skipped"]) == ("done", ["migrate", "publish"])
    _, shown, _ = place.looks("show", "job")
    assert "skipped" in shown
    assert WHY in shown
    _, shown, _ = place.looks("show", "job", "migrate")
    assert WHY in shown
    assert "  when  test -f migrate.sql" in shown
    assert "condition (command) FAILS: test -f migrate.sql" in shown
    assert "skipped" in (folder / "STATUS.md").read_text()
    _, shown, _ = place.looks("status")
    assert "1 of 3 steps done, 2 skipped" in shown
    assert replay(folder).departures == ()
    assert place.agentfs("verify", "job")


def test_a_condition_that_holds_changes_nothing(place: Place, steps: str) -> None:
    (place.root / "shop").mkdir()
    (place.root / "shop" / "migrate.sql").write_text("alter table\n")
    place.agentfs("run", place.runbook(steps), "--workdir", "shop")
    assert (place.root / "shop" / "log").read_text() == "migrated\nreported\nalter table\n"
    assert replay(place.run_folder()).departures == ()


def test_retry_looks_again(place: Place, steps: str) -> None:
    place.agentfs("run", place.runbook(steps))
    (place.run_folder() / "files" / "migrate.sql").write_text("now\n")
    place.agentfs("retry", "job", "migrate")
    place.agentfs("resume", "job")
    assert (place.run_folder() / "files" / "log").read_text() == "reported\nmigrated\nreported\nnow\n"


def test_a_condition_comes_before_needs_and_gate(place: Place) -> None:
    steps = "### send\nwhen: `false`\nneeds: `false`\ngate\n```sh\necho sent > sent\n```\n"
    done = place.agentfs("run", place.runbook(steps))
    assert "send: looking at its condition\n" in done.stderr
    assert "approval" not in done.stderr
    folder = place.run_folder()
    assert json.loads((folder / "steps" / "send.1.result.json").read_text())["status"] == "skipped"
    assert not list((folder / "steps").glob("*.question.md"))


def test_a_condition_that_gives_no_verdict_blocks_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that times out says neither yes nor no: nothing is skipped in silence."""
    monkeypatch.setattr(checks, "TIMING", replace(TIMING, check=0.2))
    slow = {"id": "slow", "tool": "shell", "input": {"command": "echo done"}, "when": "sleep 60"}
    ended = Driven(tmp_path / "work").begin([slow], Script([]))
    result = ended.result("slow")
    message = "its condition gave no verdict: `sleep 60`: it did not end within 0.2 s and was killed"
    assert (result["status"], result["error"]["kind"], result["error"]["message"]) == ("blocked", "when", message)
    assert ended.driver.facts.outcome is not None
    assert ended.driver.facts.outcome.reason == "step_failed"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("when: test -f x", "'when:' wants a command between backticks"),
        ("when: `a`\nwhen: `b`", "'when:' occurs twice in the step 'a'"),
        ("when:", "'when:' says nothing"),
        ("when: `test '{{steps.b.output}}'`", "is inside single quotes"),
        ("only if: `test -f x`", "write when: `test -f x`"),
    ],
)
def test_what_can_be_wrong_with_the_line(place: Place, line: str, message: str) -> None:
    steps = f"### b\n```sh\necho b\n```\n\n### a\n{line}\n```sh\necho a\n```\n"
    done = place.agentfs("run", place.runbook(steps), code=2)
    assert message in done.stderr
    assert "job.md:" in done.stderr


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"kind": "judge", "condition": "it is time"}, "when"),
        ([], "when"),
        ({"kind": "file", "path": "x", "matches": "("}, "regular expression"),
        ({"kind": "command", "run": "test -n {{steps.nosuch.output}}"}, "refers to a step that is not in the plan"),
    ],
)
def test_what_can_be_wrong_in_a_plan(place: Place, when: object, message: str) -> None:
    step = {"id": "a", "tool": "note", "input": {"text": "a"}, "when": when}
    done = place.agentfs("run", place.goal(json.dumps({"goal": "g", "steps": [step]}), "job.json"), code=2)
    assert message in done.stderr
    assert "job.json:" in done.stderr


def test_a_text_is_a_command_in_a_goal(place: Place) -> None:
    step = {"id": "a", "tool": "note", "input": {"text": "a"}, "when": "false"}
    place.agentfs("run", place.goal(json.dumps({"goal": "g", "steps": [step]}), "job.json"))
    plan = json.loads((place.run_folder() / "plan.json").read_text())
    assert plan["steps"][0]["when"] == {"kind": "command", "run": "false"}


def test_a_step_that_is_skipped_never_started(place: Place) -> None:
    done = place.agentfs("run", place.runbook("### a\nwhen: `false`\n```sh\necho a\n```\n"))
    assert "a: looking at its condition\na: skipped" in done.stderr
    assert "a: started" not in done.stderr
