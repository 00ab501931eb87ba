"""A runbook in, a run out: what `agentfs run` leaves behind, and what it says."""

import json
from pathlib import Path

import pytest

from tests.workspaces import Place

THREE = """\
### make
Write a file.
```sh
echo one two three > words.txt
```

### count
Count the words.
```sh
wc -w < words.txt
```
check: `test -s words.txt`

### tell
```write_file
path: report.txt
content: there are {{steps.count.output}} words
```
"""


def test_three_steps_become_a_plan_results_and_a_history(place: Place) -> None:
    done = place.agentfs("run", place.runbook(THREE))
    assert json.loads(done.stdout) == {"path": "report.txt", "bytes": 17}
    assert place.tree() == [
        "STATUS.md",
        "goal.md",
        "outcome.json",
        "plan.json",
        "planning/1.json",
        "planning/1.plan.1.json",
        "planning/1.result.json",
        "revisions/1.json",
        "revisions/1.plan.json",
        "run.json",
        "steps/count.1.json",
        "steps/count.1.log.jsonl",
        "steps/count.1.result.json",
        "steps/make.1.json",
        "steps/make.1.log.jsonl",
        "steps/make.1.result.json",
        "steps/tell.1.json",
        "steps/tell.1.log.jsonl",
        "steps/tell.1.result.json",
    ]
    assert (place.run_folder() / "files" / "report.txt").read_text() == "there are 3 words"
    assert done.stderr.splitlines()[-1] == f"its files: {place.run_folder() / 'files'}"
    assert place.log() == ["agentfs job: revision 1, the first plan", "agentfs job: done, 3 of 3 steps"]
    place.ledger_is_sound()


def test_the_answer_is_all_that_stdout_holds(place: Place) -> None:
    done = place.agentfs("run", place.runbook("### say\n```sh\necho hello; echo aside >&2\n```\n"))
    assert done.stdout == "hello\n"
    assert "no workspace here yet: made one in" in done.stderr
    assert "working in" in done.stderr


def test_the_plan_is_made_to_be_edited(place: Place) -> None:
    place.agentfs("run", place.runbook("### say\nSay it.\n```sh\necho hello\n```\ntimeout: 90s\nretries: 1\n"))
    assert (
        (place.run_folder() / "plan.json").read_text()
        == """\
{
  "$schema": "../../../schemas/plan.schema.json",
  "goal": "Job",
  "status": "approved",
  "steps": [
    {
      "id": "say",
      "description": "Say it.",
      "tool": "shell",
      "input": {
        "command": "echo hello"
      },
      "depends_on": [],
      "timeout_s": 90,
      "max_attempts": 2
    }
  ]
}
"""
    )
    assert (place.run_folder() / "../../../schemas/plan.schema.json").resolve().is_file()


@pytest.mark.parametrize(
    ("line", "tries"), [("", 1), ("not repeatable", 1), ("repeatable", 2), ("not repeatable\nretries: 2", 3)]
)
def test_a_failed_step_is_tried_as_often_as_does_no_harm_and_then_ends_the_run(
    place: Place, line: str, tries: int
) -> None:
    bad = f"### bad\n```sh\necho tried >> tries; echo no >&2; exit 3\n```\n{line}\n"
    book = f"### ok\n```sh\necho fine\n```\n{bad}### never\n```sh\ntrue\n```\n"
    done = place.agentfs("run", place.runbook(book), code=1)
    assert done.stdout == ""
    assert (place.run_folder() / "files" / "tries").read_text() == "tried\n" * tries
    assert [name for name in place.tree() if name.startswith("steps/bad.") and name.endswith("result.json")] == [
        f"steps/bad.{number}.result.json" for number in range(1, tries + 1)
    ]
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"], outcome["answer"]) == ("failed", "step_failed", None)
    assert outcome["steps"] == {"done": ["ok"], "failed": ["bad"], "skipped": [], "not_reached": ["never"]}
    assert "exit code 3" in outcome["summary"]
    assert place.log()[-1] == "agentfs job: failed, 1 of 3 steps"


def test_on_failure_continue_goes_on_without_what_depends_on_its_output(place: Place) -> None:
    book = """\
### bad
```sh
exit 1
```
retries: 0
on failure: continue

### other
```sh
echo other
```

### uses
after: bad
```sh
echo {{steps.bad.output}}
```
"""
    done = place.agentfs("run", place.runbook(book))
    assert done.stdout == "other\n"
    steps = place.read("outcome.json")["steps"]
    assert steps == {"done": ["other"], "failed": ["bad"], "skipped": ["uses"], "not_reached": []}


def test_an_alternative_takes_over_and_git_says_why(place: Place) -> None:
    book = """\
### fetch
```sh
exit 7
```
retries: 1

### fetch-slowly
instead of: fetch
```sh
echo 42
```

### use
```sh
echo "got {{steps.fetch.output}}"
```
"""
    done = place.agentfs("run", place.runbook(book))
    assert done.stdout == "got 42\n"
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "agentfs job: revision 2, after fetch failed twice",
        "agentfs job: done, 2 of 2 steps",
    ]
    assert place.read("outcome.json")["steps"]["failed"] == ["fetch"]
    assert place.read("planning/2.json")["trigger"] == "repeated_failure"
    assert place.read("planning/2.json")["evidence"] == ["steps/fetch.1.result.json", "steps/fetch.2.result.json"]
    assert [step["id"] for step in place.read("plan.json")["steps"]] == ["fetch-slowly", "use"]
    trailers = place.git("log", "-1", "--skip=1", "--format=%(trailers:only)")
    assert "Agentfs-Trigger: repeated_failure" in trailers
    assert "Agentfs-Step: fetch" in trailers
    assert "Agentfs-Evidence: steps/fetch.2.result.json" in trailers
    place.ledger_is_sound()


def test_a_clean_up_runs_and_the_run_has_failed(place: Place) -> None:
    book = """\
### fill
```sh
echo data > table; exit 1
```
retries: 0

### use
```sh
cat table
```

### drop
on failure of: fill
```sh
rm table; echo dropped
```
"""
    place.agentfs("run", place.runbook(book), code=1)
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("failed", "step_failed")
    assert outcome["steps"] == {"done": ["drop"], "failed": ["fill"], "skipped": [], "not_reached": ["use"]}
    assert not (place.run_folder() / "files" / "table").exists()
    assert place.read("planning/2.result.json")["verdict"] == "impossible"


def test_what_a_step_needs_is_checked_before_its_order(place: Place) -> None:
    place.agentfs("run", place.runbook("### go\n```sh\necho x\n```\nneeds: `test -e ready`\n"), code=1)
    result = place.read("steps/go.1.result.json")
    assert (result["status"], result["error"]["kind"], result["started_at"]) == ("blocked", "needs", None)
    assert "steps/go.1.json" not in place.tree()
    assert place.read("outcome.json")["reason"] == "step_failed"


def test_a_goals_own_checks_decide(place: Place) -> None:
    front = "checks:\n  - kind: command\n    run: test -e proof"
    book = place.runbook("### go\n```sh\necho x\n```\n", front)
    place.agentfs("run", book, code=1)
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("failed", "goal_checks_failed")
    assert place.read("planning/2.checks.json")["checks"][0]["ok"] is False


def test_goal_checks_that_hold(place: Place) -> None:
    front = "checks:\n  - test -e proof"
    place.agentfs("run", place.runbook("### go\n```sh\ntouch proof; echo x\n```\n", front))
    assert place.read("planning/2.checks.json")["checks"][0]["ok"] is True


def test_independent_steps_run_at_the_same_time(place: Place) -> None:
    """Each waits for the other's file: one after the other they would never end."""
    meet = 'touch {me}; n=0; while ! test -e {you}; do n=$((n+1)); test "$n" -lt 600 || exit 9; sleep 0.05; done'
    book = "".join(
        f"### {me}\nafter: nothing\n```sh\n{meet.format(me=me, you=you)}\n```\n"
        for me, you in (("a", "b"), ("b", "a"))
    )
    place.agentfs("run", place.runbook(book))
    assert place.read("outcome.json")["steps"]["done"] == ["a", "b"]


def test_every_place_is_used(place: Place) -> None:
    """Four steps, four places: each waits until all four have begun."""
    wait = 'touch {me}; n=0; while ! test -e a -a -e b -a -e c -a -e d; do n=$((n+1)); test "$n" -lt 600 || exit 9; sleep 0.05; done'
    book = "".join(f"### {me}\nafter: nothing\n```sh\n{wait.format(me=me)}\n```\n" for me in "abcd")
    place.agentfs("run", place.runbook(book, "limits:\n  parallel: 4"))
    assert [place.read(f"steps/{name}.1.result.json")["status"] for name in "abcd"] == ["done"] * 4


def test_parallel_one_runs_one_after_the_other(place: Place) -> None:
    alone = "mkdir lock || exit 1; sleep 0.1; rmdir lock"
    book = "".join(f"### {name}\nafter: nothing\n```sh\n{alone}\n```\n" for name in "abcd")
    place.agentfs("run", place.runbook(book, "limits:\n  parallel: 1"))
    assert place.read("outcome.json")["status"] == "done"


def test_plan_form_goals(place: Place) -> None:
    steps = [{"id": 1, "tool": "shell", "input": "echo 5"}, {"id": 2, "tool": "none", "input": "{step_1_result}"}]
    done = place.agentfs("run", place.goal(json.dumps(steps), "list.json"))
    assert done.stdout == "5\n"
    yaml = "goal: Say five\nsteps:\n  - id: say\n    tool: shell\n    input: {command: echo five}\n"
    assert place.agentfs("run", place.goal(yaml, "five.yaml")).stdout == "five\n"
    assert place.read("revisions/1.json", "five")["by"]["role"] == "runbook"


def test_a_surprise_waits_for_a_person(place: Place) -> None:
    book = """\
### fill
```sh
echo '{"rows": 50}'
```
```json expects
{"properties": {"rows": {"maximum": 10}}}
```

### use
```sh
echo done
```
"""
    waiting = place.agentfs("run", place.runbook(book), code=3)
    question = place.run_folder() / "planning" / "2.question.md"
    assert str(question) in waiting.stderr
    assert "steps/fill.1.result.json" in question.read_text()
    assert place.agentfs("run", "--resume", "job", code=3).stdout == ""
    (question.parent / "2.reply.md").write_text("Approve\n")
    assert place.agentfs("run", "--resume", "job").stdout == "done\n"


def test_rejecting_a_surprise_ends_the_run(place: Place) -> None:
    book = '### fill\n```sh\necho 5\n```\n```json expects\n{"const": "6"}\n```\n'
    place.agentfs("run", place.runbook(book), code=3)
    (place.run_folder() / "planning" / "2.reply.md").write_text("reject\nfar too many\n")
    place.agentfs("run", "--resume", "job", code=1)
    assert place.read("outcome.json")["reason"] == "step_failed"


def test_a_gate_asks_before_the_order_exists(place: Place) -> None:
    place.agentfs("run", place.runbook("### send\n```sh\necho sent\n```\ngate\n"), code=3)
    assert "steps/send.1.question.md" in place.tree()
    assert "steps/send.1.json" not in place.tree()
    assert "echo sent" in (place.run_folder() / "steps/send.1.question.md").read_text()
    reply = place.run_folder() / "steps" / "send.1.reply.md"
    reply.write_text("novel\n")
    place.agentfs("run", "--resume", "job", code=3)
    reply.write_text("approve\n")
    assert place.agentfs("run", "--resume", "job").stdout == "sent\n"


def test_a_plan_is_made_and_left_as_a_draft(place: Place) -> None:
    place.agentfs("plan", place.runbook("### say\n```sh\necho hello\n```\n"))
    folder = place.run_folder()
    assert place.read("plan.json")["status"] == "draft"
    assert "steps/say.1.json" not in place.tree()
    plan = (folder / "plan.json").read_text().replace('"draft"', '"approved"').replace("echo hello", "echo bye")
    (folder / "plan.json").write_text(plan)
    assert place.agentfs("run", "--resume", "job", env={"GIT_AUTHOR_NAME": "Ada"}).stdout == "bye\n"
    assert place.log()[1] == "Ada job: revision 2, edited by Ada"
    assert (folder / "revisions" / "2.plan.json").read_text() == plan


def test_text_and_standard_input_are_goals_too(place: Place) -> None:
    book = "# From a pipe\n\n## Steps\n\n### say\n```sh\necho piped\n```\n"
    assert place.agentfs("run", "-", input=book).stdout == "piped\n"
    assert place.read("run.json", "from-a-pipe")["source"] == "stdin"
    assert place.agentfs("run", book).stdout == "piped\n"
    assert place.read("run.json", "from-a-pipe-2")["source"] == "text"


def test_the_whole_output_of_a_step_can_be_used_by_its_path(place: Place) -> None:
    book = """\
### big
```sh
i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done
```

### count
```sh
wc -l < {{steps.big.file}}
```
"""
    assert place.agentfs("run", place.runbook(book)).stdout == "20000\n"
    assert place.read("steps/big.1.result.json")["cut"] is True


def test_runs_of_the_same_name_get_numbers(place: Place) -> None:
    name = place.runbook("### say\n```sh\necho hi\n```\n")
    for _ in range(3):
        place.agentfs("run", name)
    assert sorted(path.name for path in place.run_folder().parent.iterdir()) == ["job", "job-2", "job-3"]


def test_every_record_validates_with_its_schema(place: Place) -> None:
    from jsonschema import Draft202012Validator

    place.agentfs("run", place.runbook(THREE))
    folder, schemas = place.run_folder(), place.root / "schemas"

    def check(path: Path, name: str) -> None:
        schema = json.loads((schemas / f"{name}.schema.json").read_text())
        Draft202012Validator(schema).validate(json.loads(path.read_text()))

    for name, pattern in {
        "run": "run.json",
        "plan": "plan.json",
        "call": "planning/1.json",
        "answer": "planning/1.result.json",
        "revision": "revisions/1.json",
        "order": "steps/*.1.json",
        "result": "steps/*.result.json",
        "outcome": "outcome.json",
    }.items():
        found = list(folder.glob(pattern))
        assert found, pattern
        for path in found:
            check(path, name)


def test_logs_and_working_files_are_committed_only_if_asked(place: Place) -> None:
    name = place.runbook("### a\n```sh\necho hi > made\n```\n")
    place.agentfs("run", name)
    assert not [path for path in place.git("ls-files").splitlines() if "log" in path or "files/" in path]
    place.agentfs("run", name, env={"AGENTFS_LEDGER_COMMIT_LOGS": "true"})
    listed = place.git("ls-files").splitlines()
    assert [
        path.partition("job-2/")[2] for path in listed if "job-2/" in path and ("log" in path or "files/" in path)
    ] == [
        "files/made",
        "steps/a.1.log.jsonl",
    ]
    place.ledger_is_sound()


def test_a_step_whose_needs_are_being_checked_has_one_place_and_no_more(place: Place) -> None:
    """What it needs is made by a step that gets its turn while that is being checked."""
    wait = "n=0; while ! test -e made; do n=$((n+1)); test $n -lt 600 || exit 9; sleep 0.05; done"
    book = (
        f"### first\nafter: nothing\nneeds: `{wait}`\n```sh\necho x\n```\n"
        "### other\nafter: nothing\n```sh\necho y\n```\n"
        "### maker\nafter: other\n```sh\ntouch made; echo z\n```\n"
    )
    place.agentfs("run", place.runbook(book), env={"AGENTFS_LIMITS_PARALLEL": "2"})
    assert place.read("outcome.json")["steps"]["done"] == ["first", "other", "maker"]
