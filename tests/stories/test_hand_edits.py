"""A person edits a run while it is driven: every save is a revision of theirs, and takes effect at once."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clocks import WallClock, needs_faketime
from tests.workspaces import Place, end, wait_for

ADA = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
WAITS = "while ! test -e {name}; do sleep 0.02; done"
BOOK = f"""\
### first
```sh
echo first >> effects
```

### hold
```sh
echo hold >> effects; {WAITS.format(name="go")}
```
repeatable

### last
```sh
echo last >> effects; cat effects
```
"""


def _begun(place: Place, book: str = BOOK) -> tuple[Any, Path]:
    """Begin a run and wait until its second step holds; return the process and the run's folder."""
    process = place.begin("run", place.runbook(book), env=ADA)
    wait_for(lambda: any(place.runs.glob("*/job/steps/hold.1.log.jsonl")), "the step to hold")
    return process, place.run_folder()


def _edit(folder: Path, change: Callable[[str], str], *, in_place: bool = True) -> str:
    """Save plan.json as an editor does, and return the bytes that were saved."""
    plan = folder / "plan.json"
    text = change(plan.read_text())
    if in_place:
        plan.write_bytes(text.encode())
    else:
        beside = folder / ".plan.json.swp"
        beside.write_text(text)
        beside.rename(plan)
    return text


def _revisions(folder: Path) -> int:
    return len([path for path in (folder / "revisions").iterdir() if not path.name.endswith("plan.json")])


@pytest.mark.parametrize("in_place", [True, False])
def test_an_edit_becomes_a_revision_under_its_authors_name_and_takes_effect(place: Place, in_place: bool) -> None:
    process, folder = _begun(place)
    text = _edit(folder, lambda plan: plan.replace("echo last >>", "echo LAST >>"), in_place=in_place)
    wait_for(lambda: _revisions(folder) == 2, "the revision")
    (folder / "files" / "go").touch()
    code, out, err = end(process, signal.SIGCONT)
    assert (code, out) == (0, "first\nhold\nLAST\n"), err
    assert (folder / "revisions" / "2.plan.json").read_text() == text
    assert (folder / "plan.json").read_text() == text
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "Ada job: revision 2, edited by Ada",
        "agentfs job: done, 3 of 3 steps",
    ]
    assert place.read("revisions/2.json")["changes"] == [{"step": "last", "what": "input changed"}]
    place.ledger_is_sound()


def test_what_runs_and_no_longer_counts_is_stopped_and_run_again(place: Place) -> None:
    process, folder = _begun(place)
    _edit(folder, lambda plan: plan.replace("echo hold >>", "echo held >>"))
    wait_for((folder / "steps" / "hold.2.log.jsonl").exists, "the second attempt")
    (folder / "files" / "go").touch()
    code, out, _ = end(process, signal.SIGCONT)
    assert (code, out) == (0, "first\nhold\nheld\nlast\n")
    stopped = place.read("steps/hold.1.result.json")
    assert (stopped["status"], stopped["error"]["kind"]) == ("interrupted", "superseded")
    assert "steps/first.2.json" not in place.tree()


def test_a_save_in_any_shape_is_kept_to_the_letter(place: Place) -> None:
    process, folder = _begun(place)
    text = _edit(folder, lambda plan: json.dumps(json.loads(plan) | {"goal": "Mine"}, indent="\t") + "\r\n\r\n")
    wait_for(lambda: _revisions(folder) == 2, "the revision")
    (folder / "files" / "go").touch()
    assert end(process, signal.SIGCONT)[0] == 0
    assert (folder / "plan.json").read_bytes() == text.encode()
    assert (folder / "revisions" / "2.plan.json").read_bytes() == text.encode()
    assert "steps/hold.2.json" not in place.tree()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda plan: plan.write_text(plan.read_text().replace('"tool"', '"tol"', 1)), "plan.json:8:7: "),
        (lambda plan: plan.write_text(""), "plan.json:1:1: "),
        (lambda plan: plan.write_text('{"status": '), "plan.json:1:"),
        (lambda plan: plan.unlink(), "plan.json is missing"),
        (lambda plan: (plan.unlink(), plan.mkdir()), "not a regular file"),
        (lambda plan: (plan.rename(plan.parent / "moved.json"), plan.symlink_to("moved.json")), "not a regular file"),
    ],
    ids=["bad field", "emptied", "cut short", "deleted", "a folder", "a symlink"],
)
def test_an_invalid_plan_is_explained_and_the_run_goes_on_when_it_is_fixed(
    place: Place, spoil: Callable[[Path], object], words: str
) -> None:
    process, folder = _begun(place)
    plan, good = folder / "plan.json", (folder / "plan.json").read_bytes()
    spoil(plan)
    error = folder / "plan.error.md"
    wait_for(lambda: error.exists() and words in error.read_text(), f"plan.error.md to say {words!r}")
    (folder / "files" / "go").touch()  # what runs goes on
    code, _, err = end(process, signal.SIGCONT)
    assert code == 3, err
    assert place.read("steps/hold.1.result.json")["status"] == "done"
    assert "steps/last.1.json" not in place.tree()  # nothing new starts
    assert f"  fix {plan}: plan.error.md beside it says how\n" in err
    again = place.agentfs("resume", "job", code=3).stderr
    assert "is fixed" not in again
    assert words in error.read_text()
    if plan.is_dir():
        plan.rmdir()
    plan.unlink(missing_ok=True)
    plan.write_bytes(good)
    assert place.agentfs("run", "--resume", "job").stdout == "first\nhold\nlast\n"
    assert not error.exists()
    assert _revisions(folder) == 1


def test_status_switches_in_the_file(place: Place) -> None:
    process, folder = _begun(place)
    _edit(folder, lambda plan: plan.replace('"approved"', '"paused"'))
    wait_for(lambda: _revisions(folder) == 2, "the revision")
    (folder / "files" / "go").touch()
    code, _, err = end(process, signal.SIGCONT)
    assert code == 3
    assert "paused" in err
    status = (folder / "STATUS.md").read_text()
    assert "**paused**" in status
    assert 'set "status" to "approved"' in status
    _edit(folder, lambda plan: plan.replace('"paused"', '"approved"'))
    assert place.agentfs("run", "--resume", "job").stdout == "first\nhold\nlast\n"


def test_cancelling_in_the_file_kills_what_runs(place: Place) -> None:
    process, folder = _begun(place)
    claim = json.loads((folder / "steps" / "hold.1.log.jsonl").read_text().splitlines()[0])
    _edit(folder, lambda plan: plan.replace('"approved"', '"cancelled"'))
    code, out, _ = end(process, signal.SIGCONT)
    assert (code, out) == (1, "")
    assert not os.path.exists(f"/proc/{claim['pid']}")
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("cancelled", "cancelled")
    stopped = place.read("steps/hold.1.result.json")
    assert (stopped["status"], stopped["error"]["kind"]) == ("interrupted", "cancelled")


def test_a_top_up_is_an_edit_of_limits(place: Place) -> None:
    name = place.runbook("### a\n```sh\nsleep 0.4\n```\n### b\n```sh\necho b\n```\n", "limits:\n  minutes: 0.005")
    assert "limits.minutes" in place.agentfs("run", name, code=3).stderr
    folder = place.run_folder()
    _edit(folder, lambda plan: plan.replace('"steps"', '"limits": {"minutes": 5},\n  "steps"', 1))
    assert place.agentfs("run", "--resume", "job").stdout == "b\n"


def test_an_attempt_set_aside_by_a_file_runs_again(place: Place) -> None:
    process, folder = _begun(place)
    (folder / "steps" / "first.1.again.md").write_text("")
    wait_for((folder / "steps" / "first.2.result.json").exists, "the second attempt of the first step")
    (folder / "files" / "go").touch()
    code, out, _ = end(process, signal.SIGCONT)
    assert code == 0
    assert out.count("first") == 2
    assert place.read("steps/hold.2.result.json")["after"] == {"first": 2}


def test_a_question_is_asked_and_answered_while_others_go_on(place: Place) -> None:
    book = """\
### colour
after: nothing
```ask
Which colour?
```

### other
after: nothing
```sh
echo other
```

### paint
after: colour
```sh
echo "painted {{steps.colour.output}}"
```
"""
    waiting = place.agentfs("run", place.runbook(book), code=3)
    folder = place.run_folder() / "steps"
    assert "Which colour?" in (folder / "colour.1.question.md").read_text()
    assert "colour.1.reply.md" in waiting.stderr
    assert place.read("steps/other.1.result.json")["output"] == "other"
    assert "colour.1.result.json" not in place.tree()
    assert place.agentfs("run", "--resume", "job", code=3).stdout == ""
    (folder / "colour.1.reply.md").write_text("dark blue\n")
    assert place.agentfs("run", "--resume", "job").stdout == "painted dark blue\n"
    assert place.read("steps/colour.1.result.json")["output"] == "dark blue"


def test_an_answer_while_it_runs_goes_on_at_once(place: Place) -> None:
    book = (
        BOOK
        + "\n### name\nafter: nothing\n```ask\nWho?\n```\n### greet\nafter: name\n```sh\ntouch go; echo hi {{steps.name.output}}\n```\n"
    )
    process = place.begin("run", place.runbook(book))
    wait_for(lambda: any(place.runs.glob("*/job/steps/name.1.question.md")), "the question")
    (place.run_folder() / "steps" / "name.1.reply.md").write_text("Ada")
    code, _, err = end(process, signal.SIGCONT)
    assert code == 0, err
    assert place.read("steps/greet.1.result.json")["output"] == "hi Ada"


def test_cancelling_settles_an_open_question(place: Place) -> None:
    place.agentfs("run", place.runbook("### who\n```ask\nWho?\n```\n"), code=3)
    _edit(place.run_folder(), lambda plan: plan.replace('"approved"', '"cancelled"'))
    place.agentfs("run", "--resume", "job", code=1)
    assert place.read("steps/who.1.result.json")["status"] == "interrupted"


def test_an_edited_goal_is_read_again_and_finished_steps_are_kept(place: Place) -> None:
    process, folder = _begun(place)
    goal = folder / "goal.md"
    good = goal.read_text().replace("echo last >>", "echo LAST >>")
    goal.write_text(good + "\n### more\nafer: last\n```sh\ntrue\n```\n")
    note = folder / "goal.error.md"
    wait_for(note.exists, "goal.error.md")
    assert "the goal:" in note.read_text()
    assert "after" in note.read_text()
    goal.write_text(good)
    wait_for(lambda: _revisions(folder) == 2, "the revision")
    (folder / "files" / "go").touch()
    code, out, err = end(process, signal.SIGCONT)
    assert (code, out) == (0, "first\nhold\nLAST\n"), err
    assert not note.exists()
    assert place.log()[1] == "agentfs job: revision 2, after the goal changed"
    assert "steps/hold.2.json" not in place.tree()


@pytest.mark.parametrize("how", ["renamed", "deleted"])
@pytest.mark.tampers
def test_a_run_folder_that_vanishes_ends_the_drive_in_words(place: Place, how: str) -> None:
    process, folder = _begun(place)
    claim = json.loads((folder / "steps" / "hold.1.log.jsonl").read_text().splitlines()[0])
    if how == "renamed":
        folder.rename(folder.parent / "elsewhere")
    else:
        while folder.exists():  # the driver may still be writing into it
            shutil.rmtree(folder, ignore_errors=True)
    code, out, err = end(process, signal.SIGCONT)
    assert (code, out) == (2, ""), err
    assert "is gone: it was moved or deleted" in err
    assert "Traceback" not in err
    assert not os.path.exists(f"/proc/{claim['pid']}")


WRONG_REPLIES = [
    b"", b"\n", b" ", b"no", b"yes", b"y", b"n", b"ok", b"sure", b"novel", b"approved", b"approve!", b"approve?", b"approve.",
    b"approve it", b"please approve", b"\napprove", b"\n\napprove\n", b"# approve", b"- approve", b"> approve", b"`approve`",
    b'"approve"', b"**approve**", b"approve,reject", b"approve reject", b"app rove", b"approv", b"aprove", b"disapprove",
    b"not approve", b"APPROVE IT", b"rejected", b"reject?", b"again", b"done", b"failed", b"\xff\xfe", b"\x00approve",
    b"approve\x00", "\u0430pprove".encode(), "approve\u200b".encode(), b"\x1b[0mapprove", b"true", b"1", b"{}",
]  # fmt: skip


def test_a_gate_fails_closed_whatever_else_the_reply_says(place: Place) -> None:
    place.agentfs("run", place.runbook("### send\n```sh\ntouch sent\n```\ngate\n"), code=3)
    folder = place.run_folder()
    assert len(WRONG_REPLIES) >= 40
    from agentfs.core.facts import Facts
    from agentfs.core.run_state import Means, derive
    from agentfs.core.tool_spec import Catalogue
    from agentfs.engine.means import FileJudge
    from agentfs.engine.run_reader import RunReader
    from agentfs.tools.registry import specs

    for wrong in WRONG_REPLIES:
        (folder / "steps" / "send.1.reply.md").write_bytes(wrong)
        facts: Facts = RunReader(folder, FileJudge(Catalogue(specs(), frozenset({"shell"}))), patient=False).read()
        assert derive(facts, Means()).steps["send"].move == "person", wrong
    place.agentfs("run", "--resume", "job", code=3)
    assert "not with approve or reject" in (folder / "STATUS.md").read_text()
    assert not (folder / "files" / "sent").exists()


def test_the_words_that_a_call_has_taken_are_read_at_once(place: Place) -> None:
    """To move replan.md makes it a new file again: to wait for its writer would be to pass over who asked."""
    from agentfs.core.planner_calls import render_wish
    from agentfs.core.tool_spec import Catalogue
    from agentfs.engine.means import FileJudge
    from agentfs.engine.run_reader import RunReader
    from agentfs.tools.registry import specs

    place.agentfs("run", place.runbook("### a\n```sh\necho a\n```\n"))
    reader = RunReader(place.run_folder(), FileJudge(Catalogue(specs(), frozenset({"shell"}))), patient=True)
    (place.run_folder() / "planning/2.asked.md").write_text(render_wish("more"))
    assert [call.words for call in reader.read().calls] == [None, render_wish("more")]


@needs_faketime
def test_a_clock_set_back_by_a_day_changes_nothing(place: Place) -> None:
    book = "### a\n```sh\necho a\n```\n### b\n```sh\nsleep 0.2; echo b\n```\ntimeout: 30s\n### c\ngate\n```sh\necho c\n```\n"
    place.agentfs("run", place.runbook(book), code=3)
    (place.run_folder() / "steps" / "c.1.reply.md").write_text("approve\n")
    done = place.agentfs("run", "--resume", "job", env=WallClock.of(place, "-1d").environment)
    assert (done.returncode, done.stdout) == (0, "c\n"), done.stderr
    assert "steps/b.2.json" not in place.tree()
    assert place.read("outcome.json")["ended_at"] < place.read("outcome.json")["started_at"]
    place.ledger_is_sound()


def test_an_invalid_goal_after_a_restart_is_no_edit(place: Place) -> None:
    """A process that has seen no valid goal takes from the ledger the last one that was planned for."""
    front = 'checks: [{kind: command, run: "test -e made"}]'
    steps = "### a\n```sh\necho one\n```\ngate\n\n### b\n```sh\ntouch made\n```\ngate\n"
    place.agentfs("run", place.runbook(steps, front), code=3)
    folder = place.run_folder()
    (folder / "goal.md").write_text("---\nunknown: 1\n---\nx\n")
    for step in "ab":
        place.agentfs("approve", "job")
        resumed = place.agentfs("run", "--resume", "job", code=3 if step == "a" else 0)
        assert ("the goal is not valid: see goal.error.md" in resumed.stderr) == (step == "a"), "it is reported once"
        assert "the goal was edited" not in resumed.stderr
    assert not (folder / "planning" / "2.json").exists()
    assert place.read("outcome.json")["proof"]["by"]["person"] == 1, "the goal's own check"
