"""A gate is a person's word: a no is never replaced, and what a person is asked says all they have to know."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place, end, wait_for

PUBLISH = """### build
```sh
echo built
```

### publish
gate
{line}
```sh
echo fast >> published
```

### publish-slowly
instead of: publish
```sh
echo slow >> published
```

### tell
```sh
echo hello
```

### withdraw
on failure of: publish
```sh
echo withdrawn
```

### sorry
on failure of: publish-slowly
```sh
echo sorry
```
"""
GAVE_UP = "A person rejected 'publish': nothing takes its place. Clean-up: 'withdraw'."


def test_a_gate_says_why_its_step_is_there(place: Place) -> None:
    steps = "### send\nSend the totals.\nwhy: The book-keeper waits\ngate\n```sh\necho sent\n```\n"
    place.agentfs("run", place.runbook(steps), code=3)
    question = (place.run_folder() / "steps" / "send.1.question.md").read_text()
    assert "\n\nSend the totals.\n\nWhy: The book-keeper waits\n\nIt would run (`sh`):\n" in question


@pytest.mark.parametrize("line", ["", "on failure: continue"])
def test_a_no_is_never_replaced_and_only_its_clean_up_runs(place: Place, line: str) -> None:
    place.agentfs("run", place.runbook(PUBLISH.format(line=line)), code=3)
    foreseen = place.agentfs("reject", "job", "--dry-run", "--because", "not today").stderr
    assert foreseen.splitlines()[1:] == [
        f"runs/{place.run_folder().parent.name}/job/steps/publish.1.reply.md: reject",
        f"it would then clean up, and end failed: {GAVE_UP}",
    ]
    assert not (place.run_folder() / "steps" / "publish.1.reply.md").exists()
    place.agentfs("reject", "job", "--because", "not today")
    ended = place.agentfs("run", "--resume", "job", code=1)
    assert ended.stdout == ""
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("failed", "rejected")
    assert outcome["summary"].startswith("publish was rejected: not today; the clean-up is done")
    assert outcome["steps"]["done"] == ["build", "withdraw"]
    assert not (place.run_folder() / "files" / "published").exists()
    assert place.log()[1:] == [
        "agentfs job: revision 2, after a person rejected publish",
        "agentfs job: failed, 2 of 4 steps",
    ]


def test_a_no_without_a_clean_up_ends_the_run(place: Place) -> None:
    book = PUBLISH.format(line="").split("### withdraw", maxsplit=1)[0]
    place.agentfs("run", place.runbook(book), code=3)
    foreseen = place.agentfs("reject", "job", "--dry-run").stderr
    assert foreseen.splitlines()[-1] == "it would then be failed: publish was rejected"
    place.agentfs("reject", "job")
    place.agentfs("run", "--resume", "job", code=1)
    outcome = place.read("outcome.json")
    assert (outcome["reason"], outcome["summary"]) == ("rejected", "publish was rejected; 1 of 3 steps done")
    assert outcome["calls"] == 1


def test_a_no_is_cleaned_up_after_though_no_replans_are_left(place: Place) -> None:
    place.agentfs("run", place.runbook(PUBLISH.format(line=""), "limits: {replans: 0}"), code=3)
    foreseen = place.agentfs("reject", "job", "--dry-run").stderr
    assert foreseen.splitlines()[-1] == f"it would then clean up, and end failed: {GAVE_UP}"
    place.agentfs("reject", "job")
    place.agentfs("resume", "job", code=1)
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("failed", "rejected")
    assert outcome["summary"].startswith("publish was rejected; the clean-up is done")
    assert outcome["steps"]["done"] == ["build", "withdraw"]
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same ")


# ── where a model plans ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def asking(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    return place


def shell(name: str, command: str, *after: str, **fields: Any) -> dict[str, Any]:
    """A step as a planner writes one."""
    words = f"the command of {name} prints its file"
    does: dict[str, Any] = {"id": name, "description": f"do {name}", "tool": "shell", "input": {"command": command}}
    return {**does, "success_condition": words, "depends_on": list(after), **fields}


def test_a_no_ends_the_run_where_a_planner_has_no_replans_left(asking: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("publish", "touch published", gate=True)]})
    goal = asking.goal("---\nlimits: {replans: 0}\n---\nPublish it\n")
    asking.agentfs("run", goal, "--mode", "split", code=3)
    asking.agentfs("reject", "job", "--because", "not today")
    asking.agentfs("resume", "job", code=1)
    outcome = asking.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("failed", "rejected")
    assert outcome["summary"].startswith("publish was rejected: not today")
    server.done()


def test_the_planners_next_answer_to_a_no_needs_a_yes(asking: Place, server: ScriptedServer) -> None:
    place = asking
    server.plan({"steps": [shell("send", "echo sent >> effects", gate=True)]})
    place.agentfs("run", place.goal("Send it\n"), "--mode", "split", "--approve", "never", code=3)
    foreseen = place.agentfs("reject", "job", "--dry-run").stderr.splitlines()[-1]
    assert foreseen == "it would then ask the planner for another plan, and do nothing of it before you approve it"
    place.agentfs("reject", "job", "--because", "not like this")
    server.plan({"steps": [shell("post", "echo posted >> effects")]})
    waits = place.agentfs("run", "--resume", "job", code=3)
    assert "planning/2.question.md" in waits.stderr
    question = (place.run_folder() / "planning" / "2.question.md").read_text()
    assert "- you rejected send: look at what is planned instead\n" in question
    assert not (place.run_folder() / "files" / "effects").exists()
    place.agentfs("approve", "job")
    place.agentfs("run", "--resume", "job")
    assert (place.run_folder() / "files" / "effects").read_text() == "posted\n"


# ── what a person is asked ────────────────────────────────────────────────────────────────────────────────

FAILS = """### version
```sh
printf '1.4 "beta" $HOME'
```

### publish
Put it out.
gate
retries: 2 every 1h
```sh
echo "connecting" >&2
echo "no route to {{steps.version.output}}" >&2
exit 3
```
"""


def test_a_gated_step_that_failed_says_so_first_wherever_a_person_is_asked_again(place: Place) -> None:
    place.agentfs("run", place.runbook(FAILS), code=3)
    first = (place.run_folder() / "steps" / "publish.1.question.md").read_text()
    assert first.startswith("# May publish run?\n\nPut it out.\n\nIt would run (`sh`):\n\n~~~\n")
    place.agentfs("approve", "job")
    asks = place.agentfs("run", "--resume", "job", code=3).stderr
    happened = "attempt 1 failed: exit code 3: "
    assert f"job waits: publish: {happened}" in asks
    assert "; needs approval\n" in asks
    assert "tried again" not in asks, "that is for the person to say"
    question = (place.run_folder() / "steps" / "publish.2.question.md").read_text()
    assert question.startswith("# publish failed: exit code 3: ")
    assert "\nThat was attempt 1. May it run again, as attempt 2?\n" in question
    page = (place.run_folder() / "STATUS.md").read_text()
    assert page.splitlines()[2].startswith(f"**waiting**: publish: {happened}")
    assert f"publish  gated  {happened}" in place.agentfs("status", "job").stdout


def test_a_gate_shows_the_command_as_it_reads_before_the_order(place: Place) -> None:
    place.agentfs("run", place.runbook(FAILS), code=3)
    question = (place.run_folder() / "steps" / "publish.1.question.md").read_text()
    shown, order = question.split("The order in full:", maxsplit=1)
    assert 'echo "no route to 1.4 \\"beta\\" \\$HOME" >&2\nexit 3\n~~~\n' in shown
    assert "REF_0" not in shown
    assert '"REF_0": "1.4 \\"beta\\" $HOME"' in order


NEEDY = """### send
gate
needs: `test -e letter`
```sh
cat letter
```
"""


def test_what_a_gated_step_needs_is_looked_at_before_a_person_is_asked(place: Place) -> None:
    place.agentfs("run", place.runbook(NEEDY), code=1)
    assert [name for name in place.tree() if name.startswith("steps/")] == ["steps/send.1.result.json"]
    assert place.read("steps/send.1.result.json")["status"] == "blocked"
    (place.run_folder() / "files" / "letter").write_text("Dear Ada\n")
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job")
    (place.run_folder() / "files" / "letter").rename(place.run_folder() / "files" / "gone")
    place.agentfs("run", "--resume", "job", code=1)
    assert place.read("steps/send.2.result.json")["status"] == "blocked", "they are looked at again before it runs"
    assert "steps/send.2.json" not in place.tree()
    (place.run_folder() / "files" / "gone").rename(place.run_folder() / "files" / "letter")
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "Dear Ada\n"
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same ")


@pytest.mark.parametrize("gate", ["gate\n", ""])
@pytest.mark.parametrize("how", ["cancelled", "stopped"])
def test_needs_that_are_being_looked_at_when_a_run_ends_or_stops_lead_to_nothing(
    place: Place, gate: str, how: str
) -> None:
    book = f"### send\n{gate}needs: `touch looking; sleep 60`\n```sh\ntouch sent\n```\n"
    process = place.begin("run", place.runbook(book))
    wait_for(lambda: any(place.runs.glob("*/job/files/looking")), "the needs")
    if how == "cancelled":
        place.agentfs("cancel", "job")
    code, _, output = end(process, signal.SIGCONT if how == "cancelled" else signal.SIGTERM)
    assert code == (1 if how == "cancelled" else 130), output
    assert [name for name in place.tree() if name.startswith("steps/")] == []
    assert (place.run_folder() / "outcome.json").exists() == (how == "cancelled")
    assert not (place.run_folder() / "files" / "sent").exists()
