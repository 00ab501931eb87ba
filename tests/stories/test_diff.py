"""`diff` and `log -f` from outside: what changed, what that means, and what happens as it happens."""

import json
import os
import signal

from tests.workspaces import Place, end, wait_for

BOOK = "### a\n```sh\necho a\n```\n### b\n```sh\necho b\n```\n### c\nafter: a\n```sh\necho c\n```\n"


def test_a_difference_by_meaning(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK))
    run = place.run_folder().parent.name + "/job"
    plan = place.run_folder() / "plan.json"
    value = json.loads(plan.read_text())
    value["status"] = "paused"
    value["steps"][1] |= {"input": {"command": "echo \x1b[31mB"}, "timeout_s": 5}
    value["steps"][2]["depends_on"] = ["a", "b"]
    value["steps"].append({"id": "d", "tool": "note", "input": {"text": "line\n" * 50}, "depends_on": []})
    plan.write_text(json.dumps(value, indent=1))
    assert place.agentfs("diff", "job", "1").stdout.splitlines()[:14] == [
        f"{run}: revision 1 -> plan.json",
        "  status: approved -> paused",
        "",
        "~ b  changed",
        '    input.command: echo b -> "echo \\u001b[31mB"',
        "    timeout_s: nothing -> 5.0",
        "",
        "~ c  changed",
        "    after a, b (it came after a)",
        "",
        "+ d  added",
        "    after nothing",
        "    tool: note",
        "    input.text:",
    ]
    output = place.agentfs("diff", "job", "1..").stdout
    assert output.count("      +line\n") == 50
    assert output.splitlines()[-5:] == [
        "runs again:",
        "  b: the step, or one before it, has changed",
        "  c: waits for b",
        "still to run: d",
        "kept: a",
    ]
    stat = place.agentfs("diff", "job", "1", "--stat").stdout
    assert stat == (
        f"{run}: revision 1 -> plan.json: 1 added, 2 changed, the plan's status changed; 2 steps again, 1 kept\n"
    )
    page = json.loads(place.agentfs("diff", "job", "1", "--json").stdout)
    assert page["plan"] == [{"field": "status", "old": "approved", "new": "paused"}]
    assert [(step["step"], step["kind"]) for step in page["steps"]] == [
        ("b", "changed"),
        ("c", "changed"),
        ("d", "added"),
    ]
    assert page["steps"][1]["after"] == {"old": ["a"], "new": ["a", "b"]}


def test_the_first_revision_adds_everything_and_mistakes_are_reported(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK))
    assert place.agentfs("diff", "job", "--stat").stdout.endswith(
        "nothing -> revision 1: 3 added; 0 steps again, 3 kept\n"
    )
    assert "write A or A..B" in place.agentfs("diff", "job", "one", code=2).stderr
    assert "has no revision 4 (it has 1 to 1)" in place.agentfs("diff", "job", "1..4", code=2).stderr
    (place.run_folder() / "plan.json").write_text("{")
    assert "plan.json:1:1: the file ends in the middle" in place.agentfs("diff", "job", "1", code=2).stderr
    assert "\x1b" not in place.agentfs("diff", "job", env={"TERM": "xterm"}).stdout


def test_a_log_is_followed_until_the_run_ends(place: Place) -> None:
    book = "### a\n```sh\necho begun > begun; while ! test -e go; do sleep 0.05; done; echo ended\n```\n### b\n```sh\necho b\n```\n"
    process = place.begin("run", place.runbook(book))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the first step to begin")
    follower = place.begin("log", "job", "-f")
    assert follower.stdout is not None
    assert "revision 1: the first plan" in follower.stdout.readline()
    assert " a.1 claim " in follower.stdout.readline()
    (place.run_folder() / "files" / "go").touch()
    code, _, err = end(process, signal.SIGCONT)
    assert code == 0, err
    code, out, err = end(follower, signal.SIGCONT)
    assert (code, err) == (0, "")
    lines = [line.split(" ", 1)[1] for line in out.splitlines()]
    assert lines[0] == "a.1 output stdout: ended"
    assert [line.split()[:2] for line in lines[1:4]] == [["a.1", "end"], ["b.1", "claim"], ["b.1", "output"]]
    assert lines[-1] == "outcome: done, 2 of 2 steps (claimed, not checked)"


def test_following_is_left_by_ctrl_c_and_an_ended_run_is_not_waited_for(place: Place) -> None:
    place.agentfs("plan", place.runbook(BOOK))
    follower = place.begin("log", "job", "-f", "--json")
    assert follower.stdout is not None
    assert json.loads(follower.stdout.readline())["kind"] == "revision"
    os.kill(follower.pid, signal.SIGINT)
    assert end(follower, signal.SIGCONT)[0] == 130
    place.agentfs("cancel", "job")
    last = place.agentfs("log", "job", "-f").stdout.splitlines()[-1]
    assert last.split(" ", 1)[1] == "outcome: cancelled, 0 of 3 steps"
