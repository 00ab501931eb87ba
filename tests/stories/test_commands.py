"""What a person does to a run by command: each edits files, as an editor could, and says what it changed."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.daemons import Watching
from tests.warm import Command
from tests.workspaces import Place, end, wait_for

ADA = {"GIT_AUTHOR_NAME": "Ada"}
CHAIN = """\
### first
```sh
echo first >> effects; echo one
```

### second
```sh
echo second >> effects; echo "after {{steps.first.output}}"
```

### aside
after: nothing
```sh
echo aside >> effects; echo aside
```
"""
WAITS = """\
### slow
```sh
echo begun > begun; while ! test -e go; do sleep 0.05; done; echo slow
```
repeatable

### last
```sh
echo last
```
"""


def files_of(place: Place, name: str = "job") -> Path:
    return place.run_folder(name) / "files"


def begin_waiting(place: Place) -> "subprocess.Popen[str] | Command":
    """Begin a run and wait until its slow step is under way."""
    process = place.begin("run", place.runbook(WAITS), env=ADA)
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the slow step to begin")
    return process


def attempts(place: Place) -> list[str]:
    """Return the attempts that got an order."""
    orders = (place.run_folder() / "steps").glob("*.json")
    return sorted(path.stem for path in orders if not path.name.endswith(".result.json"))


# ── a draft ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_draft_is_approved_by_command(place: Place) -> None:
    place.agentfs("plan", place.runbook("### say\n```sh\necho hello\n```\n"))
    before = (place.run_folder() / "plan.json").read_bytes()
    done = place.agentfs("approve", "job@1", env=ADA)
    run = place.run_folder().parent.name + "/job"
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f'runs/{run}/plan.json: "status" is now "approved" (it was "draft")',
        f"nothing drives it; go on with: agentfs resume {run}",
    ]
    assert (place.run_folder() / "plan.json").read_bytes() == before.replace(b'"draft"', b'"approved"')
    assert place.agentfs("run", "--resume", "job", env=ADA).stdout == "hello\n"
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "Ada job: revision 2, edited by Ada",
        "agentfs job: done, 1 of 1 steps",
    ]
    place.ledger_is_sound()


def test_approving_a_revision_is_refused_once_the_plan_has_changed(place: Place) -> None:
    place.agentfs("plan", place.runbook("### say\n```sh\necho hello\n```\n"))
    plan = place.run_folder() / "plan.json"
    edited = plan.read_text().replace("echo hello", "echo bye")
    plan.write_text(edited)
    refused = place.agentfs("approve", "job@1", code=2)
    assert "has changed since revision 1" in refused.stderr
    assert "agentfs diff" in refused.stderr
    assert plan.read_text() == edited
    assert "has no revision 7 (it has 1 to 1)" in place.agentfs("approve", "job@7", code=2).stderr
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "bye\n"


def test_a_draft_is_not_rejected_but_changed(place: Place) -> None:
    place.agentfs("plan", place.runbook("### say\n```sh\necho hello\n```\n"))
    refused = place.agentfs("reject", "job", "--because", "no", code=2).stderr
    assert "is not rejected but changed: edit runs/" in refused
    assert "agentfs cancel" in refused
    assert "is a draft" in place.agentfs("pause", "job", code=2).stderr
    assert "agentfs approve" in place.agentfs("resume", "job", code=3).stderr
    place.agentfs("cancel", "job")
    assert place.read("outcome.json")["status"] == "cancelled"


@pytest.mark.parametrize(
    ("odd", "changed"),
    [
        ('{"status":"draft","steps":[{"id":"say","tool":"note","input":{"text":"é"}}]}', ("draft", "approved")),
        (
            '{\r\n\t"steps" : [{"id": "say", "tool": "note", "input": {"text": "\\u00e9"}}],\r\n\t"status" :\t"draft"\r\n}\r\n',
            ("draft", "approved"),
        ),
    ],
    ids=["one line", "tabs and CRLF"],
)
def test_only_the_bytes_of_the_value_change(place: Place, odd: str, changed: tuple[str, str]) -> None:
    place.agentfs("plan", place.runbook("### say\n```sh\necho hello\n```\n"))
    plan = place.run_folder() / "plan.json"
    plan.write_bytes(odd.encode())
    place.agentfs("approve", "job")
    assert plan.read_bytes() == odd.replace(*changed).encode()
    assert place.agentfs("run", "--resume", "job").stdout == "é\n"
    assert (place.run_folder() / "revisions" / "2.plan.json").read_bytes() == plan.read_bytes()


def test_an_invalid_plan_is_not_changed(place: Place) -> None:
    place.agentfs("plan", place.runbook("### say\n```sh\necho hello\n```\n"))
    plan = place.run_folder() / "plan.json"
    plan.write_text('{"status": "draft", "steps": [}')
    place.agentfs("run", "--resume", "job", code=3)
    refused = place.agentfs("cancel", "job", code=2).stderr
    assert "plan.json:1:31: " in refused
    assert "plan.error.md beside it says the same" in refused
    assert plan.read_text() == '{"status": "draft", "steps": [}'


# ── the switch ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pause_lets_what_runs_finish_and_nothing_new_start(place: Place) -> None:
    process = begin_waiting(place)
    done = place.agentfs("pause", "job")
    assert '"status" is now "paused" (it was "approved")' in done.stderr
    assert "nothing drives it" not in done.stderr
    wait_for((place.run_folder() / "revisions/2.json").exists, "the driver to take the edit")
    (files_of(place) / "go").touch()
    code, out, _ = end(process, signal.SIGCONT)
    assert (code, out) == (3, "")
    assert attempts(place) == ["slow.1"]
    assert "already" in place.agentfs("pause", "job").stderr
    assert place.agentfs("resume", "job", env=ADA).stdout == "last\n"
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "Ada job: revision 2, edited by Ada",
        "Ada job: revision 3, edited by Ada",
        "agentfs job: done, 2 of 2 steps",
    ]


def test_run_resume_takes_up_a_paused_run(place: Place) -> None:
    process = begin_waiting(place)
    place.agentfs("pause", "job")
    wait_for((place.run_folder() / "revisions/2.json").exists, "the driver to take the edit")
    (files_of(place) / "go").touch()
    end(process, signal.SIGCONT)
    resumed = place.agentfs("run", "--resume", "job")
    assert resumed.stdout == "last\n"
    assert '"status" is now "approved" (it was "paused")' in resumed.stderr


def test_cancel_ends_what_runs_within_seconds(place: Place) -> None:
    process = begin_waiting(place)
    place.agentfs("cancel", "job")
    try:
        process.wait(timeout=30)  # seconds, on a busy machine; the step would go on for ever
    finally:
        code, _, _ = end(process)
    assert code == 1
    assert place.read("steps/slow.1.result.json")["status"] == "interrupted"
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("cancelled", "cancelled")
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _works_in(pid, files_of(place))]
    assert "has ended" in place.agentfs("cancel", "job", code=2).stderr
    (files_of(place) / "go").touch()
    assert place.agentfs("resume", "job", env=ADA).stdout == "last\n"
    assert place.log()[1:] == [
        "Ada job: revision 2, edited by Ada",
        "agentfs job: cancelled, 0 of 2 steps",
        "Ada job: revision 3, edited by Ada",
        "agentfs job: done, 2 of 2 steps",
    ]


def _works_in(pid: str, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:
        return False


# ── once more ─────────────────────────────────────────────────────────────────────────────────────────────


def test_retry_does_a_step_and_what_depends_on_it_again(place: Place) -> None:
    place.agentfs("run", place.runbook(CHAIN))
    done = place.agentfs("retry", "job", "first", env=ADA)
    assert "first.1.again.md: will be retried" in done.stderr
    assert "outcome.json: removed, the run goes on" in done.stderr
    assert (place.run_folder() / "steps/first.1.again.md").read_text().startswith("Ada set this aside with")
    place.agentfs("run", "--resume", "job")
    assert attempts(place) == ["aside.1", "first.1", "first.2", "second.1", "second.2"]
    assert sorted((files_of(place) / "effects").read_text().split()) == [
        "aside",
        "first",
        "first",
        "second",
        "second",
    ]
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "agentfs job: done, 3 of 3 steps",
        "agentfs job: done, 3 of 3 steps",
    ]
    place.ledger_is_sound()


def test_retry_in_words_where_it_cannot_be(place: Place) -> None:
    process = begin_waiting(place)
    assert "slow is under way" in place.agentfs("retry", "job", "slow", code=2).stderr
    assert "last has not been tried yet" in place.agentfs("retry", "job", "last", code=2).stderr
    assert "did you mean 'slow'?" in place.agentfs("retry", "job", "slwo", code=2).stderr
    (files_of(place) / "go").touch()
    assert end(process, signal.SIGCONT)[0] == 0


def test_retry_says_that_a_cancelled_run_stays_cancelled(place: Place) -> None:
    place.agentfs("run", place.runbook(CHAIN))
    place.agentfs("retry", "job", "first")
    place.agentfs("cancel", "job")
    assert "job stays cancelled" in place.agentfs("retry", "job", "second").stderr


FAILS = "### ok\n```sh\necho ok\n```\n### bad\n```sh\ntest -e fixed; cat fixed\n```\nretries: 0\n"


def test_a_failed_run_is_taken_up_again(place: Place) -> None:
    place.agentfs("run", place.runbook(FAILS), code=1)
    (files_of(place) / "fixed").write_text("fixed\n")
    done = place.agentfs("resume", "job")
    assert "bad.1.again.md: will be retried" in done.stderr
    assert done.stdout == "fixed\n"
    assert attempts(place) == ["bad.1", "bad.2", "ok.1"]
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "agentfs job: failed, 1 of 2 steps",
        "agentfs job: done, 2 of 2 steps",
    ]
    place.ledger_is_sound()
    refused = place.agentfs("resume", "job", "--add-minutes", "1", code=2).stderr
    assert "is done: nothing to resume" in refused


@pytest.mark.parametrize("command", ["resume", "run --resume"])
def test_a_run_whose_plan_was_edited_after_it_was_done_goes_on_with_it(place: Place, command: str) -> None:
    place.agentfs("run", place.runbook("### one\n```sh\necho 1\n```\n\n### two\n```sh\necho two\n```\n"))
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace("echo two", "echo 2"))
    resumed = place.agentfs(*command.split(), "job", env=ADA)
    assert resumed.stdout == "2\n"
    assert "outcome.json: removed" in resumed.stderr
    assert attempts(place) == ["one.1", "two.1", "two.2"]
    assert place.log()[2:] == ["Ada job: revision 2, edited by Ada", "agentfs job: done, 2 of 2 steps"]


def test_run_resume_takes_up_a_failed_run(place: Place) -> None:
    place.agentfs("run", place.runbook(FAILS), code=1)
    assert place.agentfs("run", "--resume", "job", code=1).stdout == ""
    (files_of(place) / "fixed").write_text("fixed\n")
    assert place.agentfs("run", "--resume", "job").stdout == "fixed\n"
    assert attempts(place) == ["bad.1", "bad.2", "bad.3", "ok.1"]


def test_the_goals_own_checks_run_again(place: Place) -> None:
    front = "checks:\n  - test -e proof"
    place.agentfs("run", place.runbook("### go\n```sh\necho x\n```\n", front), code=1)
    (files_of(place) / "proof").touch()
    done = place.agentfs("resume", "job")
    assert "planning/2.again.md: will be retried" in done.stderr
    assert done.stdout == "x\n"
    assert attempts(place) == ["go.1"]
    assert place.read("planning/3.checks.json")["checks"][0]["ok"] is True


def test_a_run_that_only_cleaned_up_needs_another_plan_first(place: Place) -> None:
    book = "### fill\n```sh\nexit 1\n```\nretries: 0\n### drop\non failure of: fill\n```sh\necho dropped\n```\n"
    place.agentfs("run", place.runbook(book), code=1)
    before = place.tree()
    refused = place.agentfs("resume", "job", code=2).stderr
    assert "would end the same way at once: fill failed: exit code 1; the clean-up is done" in refused
    assert place.tree() == before


def test_a_top_up_is_an_edit_of_the_limits(place: Place) -> None:
    place.agentfs("run", place.runbook(FAILS, "limits:\n  minutes: 30"), code=1)
    (files_of(place) / "fixed").write_text("fixed\n")
    done = place.agentfs("resume", "job", "--add-minutes", "15", "--add-replans", "2", "--add-cost", "0.5", env=ADA)
    assert '"minutes" of "limits" is now 45 (it was 30)' in done.stderr
    assert place.read("plan.json")["limits"] == {"minutes": 45, "replans": 5, "cost_usd": 5.5}
    assert done.stdout == "fixed\n"
    assert place.log()[2] == "Ada job: revision 2, edited by Ada"
    for wrong in ("0", "-3", "x", "nan", "inf"):
        assert "above 0" in place.agentfs("resume", "job", f"--add-minutes={wrong}", code=2).stderr


def test_a_run_that_waits_for_more_time_goes_on_after_a_top_up(place: Place) -> None:
    book = "### a\n```sh\necho a\n```\n### b\n```sh\necho b\n```\n"
    waiting = place.agentfs("run", place.runbook(book, "limits:\n  minutes: 0"), code=3)
    assert "the limit of 0 minutes is reached" in waiting.stderr
    assert "the limit of 0 minutes is reached" in place.agentfs("resume", "job", code=3).stderr
    assert place.agentfs("resume", "job", "--add-minutes", "1.5").stdout == "b\n"
    assert place.read("plan.json")["limits"] == {"minutes": 1.5}


# ── left out ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_is_left_out_and_taken_in_again(place: Place) -> None:
    book = FAILS + "### after\n```sh\necho end\n```\n"
    place.agentfs("run", place.runbook(book), code=1)
    done = place.agentfs("skip", "job", "bad", "--because", "not today", env=ADA)
    assert '"skip" of bad is now "not today"' in done.stderr
    assert "outcome.json: removed" in done.stderr
    assert place.read("plan.json")["steps"][1]["skip"] == "not today"
    assert place.agentfs("run", "--resume", "job", env=ADA).stdout == "end\n"
    assert place.read("outcome.json")["steps"] == {"done": ["ok", "after"], "failed": [], "skipped": ["bad"], "not_reached": []}  # fmt: skip
    assert "agentfs skip --undo" in place.agentfs("retry", "job", "bad", code=2).stderr
    (files_of(place) / "fixed").touch()
    plan = (place.run_folder() / "revisions" / "1.plan.json").read_bytes()
    place.agentfs("skip", "--undo", "job", "bad")
    assert (place.run_folder() / "plan.json").read_bytes() == plan


def test_a_step_is_left_out_by_a_person(place: Place) -> None:
    place.agentfs("plan", place.runbook(FAILS))
    place.agentfs("skip", "job", "bad", env=ADA)
    assert place.read("plan.json")["steps"][1]["skip"] == "skipped by Ada"


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────

GATE = "### send\nafter: nothing\n```sh\necho sent\n```\ngate\n"


def test_a_gate_is_approved_by_command(place: Place) -> None:
    place.agentfs("run", place.runbook(GATE), code=3)
    done = place.agentfs("approve", "job")
    assert "steps/send.1.reply.md: approve" in done.stderr
    assert place.agentfs("run", "--resume", "job").stdout == "sent\n"
    assert [name for name in place.tree() if "send" in name] == [
        "steps/send.1.json",
        "steps/send.1.log.jsonl",
        "steps/send.1.question.md",
        "steps/send.1.reply.md",
        "steps/send.1.result.json",
    ]
    assert "has ended" in place.agentfs("approve", "job", code=2).stderr


def test_a_gate_is_rejected_by_command(place: Place) -> None:
    place.agentfs("run", place.runbook(GATE), code=3)
    place.agentfs("reject", "job", "send", "--because", "far too early")
    place.agentfs("run", "--resume", "job", code=1)
    result = place.read("steps/send.1.result.json")
    assert (result["status"], result["error"]["message"]) == ("rejected", "far too early")
    assert attempts(place) == []


def test_a_gate_is_answered_while_the_run_is_driven(place: Place) -> None:
    process = place.begin("run", place.runbook(GATE + WAITS.replace("### slow", "### slow\nafter: nothing")))
    wait_for(lambda: any(place.runs.glob("*/job/steps/send.1.question.md")), "the gate's question")
    place.agentfs("approve", "job", "send")
    wait_for((place.run_folder() / "steps/send.1.result.json").exists, "the gated step")
    assert "send asks nothing: it is done" in place.agentfs("reject", "job", "send", code=2).stderr
    (files_of(place) / "go").touch()
    assert end(process, signal.SIGCONT)[0] == 0


def test_several_open_things_are_listed(place: Place) -> None:
    place.agentfs("run", place.runbook(GATE + GATE.replace("send", "sign")), code=3)
    run = place.run_folder().parent.name + "/job"
    refused = place.agentfs("approve", "job", code=2)
    assert refused.stderr.splitlines() == [
        f"{run} waits for 2 answers; say which:",
        f"  agentfs approve {run} send",
        f"  agentfs approve {run} sign",
    ]
    place.agentfs("approve", "job", "sign")
    place.agentfs("approve", "job")
    place.agentfs("run", "--resume", "job")
    assert attempts(place) == ["send.1", "sign.1"]


def test_a_surprise_is_approved_by_command(place: Place) -> None:
    book = '### fill\n```sh\necho 5\n```\n```json expects\n{"const": "6"}\n```\n'
    place.agentfs("run", place.runbook(book), code=3)
    assert "planning/2.reply.md: approve" in place.agentfs("approve", "job", "planning/2").stderr
    assert place.agentfs("run", "--resume", "job").stdout == "5\n"


def test_a_rejected_surprise_is_asked_about_again(place: Place) -> None:
    book = '### fill\n```sh\necho 5\n```\n```json expects\n{"const": "6"}\n```\n'
    place.agentfs("run", place.runbook(book), code=3)
    place.agentfs("reject", "job")
    place.agentfs("run", "--resume", "job", code=1)
    place.agentfs("run", "--resume", "job", code=3)
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "5\n"


def test_a_reply_says_what_became_of_an_attempt_that_was_cut_off(place: Place) -> None:
    process = place.begin("run", place.runbook(WAITS.replace("repeatable", "not repeatable")))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the slow step to begin")
    end(process, signal.SIGKILL)
    place.agentfs("run", "--resume", "job", code=3)
    assert place.agentfs("approve", "job", code=2).stderr.endswith(
        f" slow done\n  agentfs reply {place.read('run.json')['run']} slow failed\n"
    )
    refused = place.agentfs("reply", "job", "slow", "approve", code=2)
    assert "begin with exactly one of: again, done, failed" in refused.stderr
    assert "steps/slow.1.reply.md" not in place.tree()
    (place.run_folder() / "steps" / "slow.1.reply.md").write_text("perhaps\n")
    place.agentfs("reply", "job", "slow", "-", input="done\nall of it\n")
    assert place.agentfs("run", "--resume", "job").stdout == "last\n"
    assert place.read("steps/slow.2.result.json")["output"] == "all of it"


def test_a_reply_may_be_taken_back_while_nobody_has_acted_upon_it(place: Place) -> None:
    place.agentfs("run", place.runbook(GATE), code=3)
    place.agentfs("reply", "job", "send", "approve")
    place.agentfs("reject", "job", "send")
    place.agentfs("run", "--resume", "job", code=1)
    assert place.read("steps/send.1.result.json")["status"] == "rejected"


def test_nothing_is_open(place: Place) -> None:
    process = begin_waiting(place)
    assert "asks nothing: slow is running" in place.agentfs("approve", "job", code=2).stderr
    assert "last asks nothing: it is waiting" in place.agentfs("reply", "job", "last", "yes", code=2).stderr
    assert "did you mean 'last'?" in place.agentfs("approve", "job", "lasst", code=2).stderr
    (files_of(place) / "go").touch()
    assert end(process, signal.SIGCONT)[0] == 0


def test_a_run_that_was_edited_and_cancelled_goes_on_when_it_is_resumed(place: Place) -> None:
    """The save that resumes it is looked at only once it has held still: until then no end is certain."""
    place.agentfs("run", place.runbook("### a\n```sh\necho a\n```\ngate\n"), code=3)
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace("echo a", "echo another"))
    edited = json.loads(plan.read_text())
    plan.write_text(json.dumps({**edited, "status": "cancelled"}))
    with Watching(place) as daemon:
        daemon.wait_for_output("job: cancelled")
    place.agentfs("resume", "job", code=3)
    with Watching(place) as daemon:
        daemon.wait_for_output("job: waits: ")
        assert not (place.run_folder() / "outcome.json").exists()
        place.agentfs("approve", "job")
        assert daemon.outcome("job")["answer"] == "another"
