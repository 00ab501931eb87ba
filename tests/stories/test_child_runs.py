"""A step that is a run of another goal: with its own folder, plan, gates and commits."""

import json
import os
import shutil
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer, replay
from tests.clocks import WallClock, needs_faketime
from tests.daemons import Watching
from tests.terminals import OnTerminal
from tests.workspaces import Place, end, wait_for

ALLOWED = '[tools]\nsandbox = "off"\nallow = ["shell", "note", "ask", "run"]\n'
RELEASE = """### build
Build the app.
```run
uses: runbooks/build.md
params:
  target: app
  jobs: "{{params.jobs}}"
```

### say
```sh
echo "got" {{steps.build.output}}
```
"""
JOBS = "params:\n  jobs: {type: integer, default: 2}"
BUILD = """---
params:
  target: {type: string, description: what is built}
  jobs: integer
---
# Build {{params.target}}

## Steps

### compile
```sh
%s
```
%s
"""
CHILD = "job-build"


@pytest.fixture
def shop(place: Place) -> Place:
    """A workspace that allows runs in runs, with one goal to be used."""
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(ALLOWED)
    (place.root / "runbooks").mkdir()
    build(place)
    return place


def build(place: Place, command: str = "echo built {{params.target}} with {{params.jobs}}", line: str = "") -> None:
    (place.root / "runbooks" / "build.md").write_text(BUILD % (command, line))


def begin(place: Place, steps: str = RELEASE, code: int = 0, front: str = JOBS) -> Any:
    return place.agentfs("run", place.runbook(steps, front), code=code)


def children(place: Place) -> list[str]:
    return sorted(path.parent.name for path in place.runs.glob("*/job-*/run.json"))


def result(place: Place, name: str = "build.1") -> Any:
    return place.read(f"steps/{name}.result.json")


def sound(place: Place) -> None:
    """The ledger holds both runs, and what was decided can be decided again."""
    place.agentfs("verify")
    for folder in (place.run_folder(), place.run_folder(CHILD)):
        assert replay(folder).departures == ()


def test_a_step_is_a_run_of_another_goal_with_values_for_its_parameters(shop: Place) -> None:
    done = begin(shop)
    assert done.stdout == "got built app with 2\n"
    assert "build: started\n" in done.stderr
    assert f"{CHILD}: compile: done" in done.stderr
    run = shop.read("run.json", CHILD)
    assert run["parent"] == {"run": f"{shop.run_folder().parent.name}/job", "step": "build", "attempt": 1}
    assert (run["uses"], run["params"]) == ("runbooks/build.md", {"target": "app", "jobs": 2})
    assert json.loads((shop.run_folder(CHILD) / "request.yaml").read_text()) == {
        "uses": "runbooks/build.md",
        "params": {"target": "app", "jobs": 2},
    }
    assert (shop.run_folder(CHILD) / "goal.md").read_bytes() == (shop.root / "runbooks/build.md").read_bytes()
    assert (result(shop)["child"], result(shop)["output"]) == (run["run"], "built app with 2")
    assert [line for line in shop.log() if CHILD in line] == [
        f"agentfs {CHILD}: revision 1, the first plan",
        f"agentfs {CHILD}: done, 1 of 1 steps",
    ]
    sound(shop)


def test_a_child_that_fails_is_a_step_that_failed_and_a_new_attempt_is_a_new_child(shop: Place) -> None:
    build(shop, "test -e fixed")
    done = begin(shop, code=1)
    day = shop.run_folder().parent.name
    failed = f"the run {day}/{CHILD} failed: compile failed: exit code 1; 0 of 1 steps done, 1 failed"
    assert result(shop)["error"] == {"kind": "run", "message": failed, "hint": f"agentfs show {day}/{CHILD}"}
    assert "build: FAILED" in done.stderr
    build(shop)
    shop.agentfs("retry", "job", "build")
    assert shop.agentfs("resume", "job").stdout == "got built app with 2\n"
    assert children(shop) == [CHILD, f"{CHILD}-2"]
    assert result(shop, "build.2")["child"] == f"{day}/{CHILD}-2"
    sound(shop)


def test_a_gate_of_the_child_is_answered_in_the_child(shop: Place) -> None:
    build(shop, line="gate")
    done = begin(shop, code=3)
    day = shop.run_folder().parent.name
    assert f"{day}/{CHILD} waits: compile: needs approval" in done.stderr
    assert f"agentfs approve {day}/{CHILD}" in done.stderr
    assert f"then: agentfs resume {day}/job" in done.stderr
    assert shop.agentfs("resume", "job", code=3).stdout == ""  # nothing is begun twice
    there = f"what a run in it asks is answered there:\n  agentfs approve {day}/{CHILD}\n"
    assert shop.agentfs("approve", "job", code=2).stderr.endswith(there)
    assert "agentfs resume" in shop.agentfs("approve", CHILD).stderr
    assert shop.agentfs("resume", "job").stdout == "got built app with 2\n"
    assert children(shop) == [CHILD]
    sound(shop)


@needs_faketime
def test_a_child_may_wait_for_a_person_for_a_week(shop: Place) -> None:
    build(shop, line="gate")
    clock = WallClock.of(shop, "-7d")
    later = {**clock.environment, "AGENTFS_LIMITS_MINUTES": "5"}
    shop.agentfs(
        "run", shop.runbook(RELEASE.replace("### build\n", "### build\ntimeout: 1s\n"), JOBS), code=3, env=later
    )
    shop.agentfs("approve", CHILD)
    assert shop.agentfs("resume", "job").stdout == "got built app with 2\n"
    began, settled = (datetime.fromisoformat(result(shop)[name]) for name in ("started_at", "ended_at"))
    assert settled - began > timedelta(days=6)
    assert result(shop)["duration_s"] < 60, "waiting for a person is free"
    assert children(shop) == [CHILD]
    sound(shop)


def test_cancelling_the_parent_ends_the_child_first(shop: Place) -> None:
    build(shop, line="gate")
    begin(shop, code=3)
    shop.agentfs("cancel", "job")
    assert shop.read("outcome.json", CHILD)["status"] == "cancelled"
    assert shop.read("outcome.json")["status"] == "cancelled"
    assert (result(shop)["status"], result(shop)["error"]["kind"]) == ("failed", "cancelled")
    assert shop.read("outcome.json", CHILD)["ended_at"] < result(shop)["ended_at"]
    sound(shop)


def test_cancelled_while_both_are_driven(shop: Place) -> None:
    build(shop, "echo begun > here; sleep 600")
    process = shop.begin("run", shop.runbook(RELEASE, JOBS))
    wait_for(lambda: any(shop.runs.glob(f"*/{CHILD}/files/here")), "the child's step")
    shop.agentfs("cancel", "job")
    code, _, _ = end(process, signal.SIGCONT)
    assert code == 1
    assert shop.read("outcome.json", CHILD)["status"] == "cancelled"
    assert shop.read("outcome.json")["status"] == "cancelled"


def test_under_a_paused_parent_a_child_starts_nothing(shop: Place) -> None:
    build(shop, line="gate")
    begin(shop, code=3)
    shop.agentfs("approve", CHILD)
    shop.agentfs("pause", "job")
    with Watching(shop):
        wait_for(lambda: len(list(shop.run_folder().glob("revisions/2.json"))) == 1, "the pause")
        wait_for(lambda: "which began it, is held" in shop.looks("status")[1], "the child to say so")
        assert not (shop.run_folder(CHILD) / "steps" / "compile.1.json").exists()
        shop.agentfs("resume", "job")
        wait_for((shop.run_folder() / "outcome.json").exists, "the end")
    assert shop.read("outcome.json")["answer"] == "got built app with 2"


def test_a_child_that_a_person_cancels_is_a_step_that_failed(shop: Place) -> None:
    build(shop, line="gate")
    begin(shop, code=3)
    shop.agentfs("cancel", CHILD)
    shop.agentfs("resume", "job", code=1)
    assert "was cancelled" in result(shop)["error"]["message"]


def test_a_child_that_was_deleted_is_missed_and_not_begun_again(shop: Place) -> None:
    build(shop, line="gate")
    begin(shop, code=3)
    shutil.rmtree(shop.run_folder(CHILD))
    shop.agentfs("resume", "job", code=1)
    assert (result(shop)["status"], result(shop)["error"]["kind"]) == ("failed", "lost")
    assert children(shop) == []


def test_watch_drives_parent_and_child(shop: Place) -> None:
    with Watching(shop):
        (shop.root / "goals" / "job.md").write_text(f"---\n{JOBS}\n---\n# Job\n\n## Steps\n\n{RELEASE}")
        wait_for(lambda: any(shop.runs.glob("*/job/outcome.json")), "the end")
    assert shop.read("outcome.json")["answer"] == "got built app with 2"
    sound(shop)


def test_killed_in_the_middle_the_child_is_found_again(shop: Place) -> None:
    build(shop, "echo begun >> effects; while ! test -e go; do sleep 0.02; done; cat effects", "repeatable")
    process = shop.begin("run", shop.runbook(RELEASE, JOBS))
    wait_for(lambda: any(shop.runs.glob(f"*/{CHILD}/files/effects")), "the child's step")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    (shop.run_folder(CHILD) / "files" / "go").touch()
    assert shop.agentfs("resume", "job").stdout == "got begun\nbegun\n"
    assert children(shop) == [CHILD]
    assert [path.name for path in sorted((shop.run_folder() / "steps").glob("build.*.json"))] == [
        "build.1.json",
        "build.1.result.json",
    ]
    sound(shop)


@pytest.mark.parametrize("left", ["claim", "folder", "run"])
def test_killed_while_the_child_was_being_made(shop: Place, left: str) -> None:
    """What a kill leaves at each moment is made again by hand: no second child comes of it."""
    build(shop, line="gate")
    begin(shop, code=3)
    log, child = shop.run_folder() / "steps" / "build.1.log.jsonl", shop.run_folder(CHILD)
    log.write_text(log.read_text().splitlines()[0] + "\n")
    if left == "claim":
        shutil.rmtree(child)
    elif left == "folder":
        for path in child.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shop.agentfs("resume", "job", code=3)
    shop.agentfs("approve", CHILD)
    assert shop.agentfs("resume", "job").stdout == "got built app with 2\n"
    assert children(shop) == [CHILD]


def test_a_log_that_was_lost_costs_no_second_child(shop: Place) -> None:
    build(shop, line="gate")
    begin(shop, code=3)
    (shop.run_folder() / "steps" / "build.1.log.jsonl").unlink()
    shop.agentfs("resume", "job", code=3)
    assert children(shop) == [CHILD]
    shop.agentfs("approve", CHILD)
    assert shop.agentfs("resume", "job").stdout == "got built app with 2\n"


def test_a_name_that_another_run_got_meanwhile_is_given_up(shop: Place) -> None:
    build(shop, line="gate")
    begin(shop, code=3)
    log, child = shop.run_folder() / "steps" / "build.1.log.jsonl", shop.run_folder(CHILD)
    log.write_text(log.read_text().splitlines()[0] + "\n")
    record = shop.read("run.json", CHILD)
    (child / "run.json").write_text(json.dumps({**record, "parent": None}))
    shop.agentfs("resume", "job", code=3)
    assert children(shop) == [CHILD, f"{CHILD}-2"]


def test_each_item_may_be_a_run(shop: Place) -> None:
    steps = """### all
each: north, south
```run
uses: runbooks/build.md
params: {target: "{{item}}", jobs: "{{index}}"}
```
"""
    assert json.loads(begin(shop, steps).stdout) == ["built north with 0", "built south with 1"]
    assert children(shop) == ["job-all-north", "job-all-south"]


def test_what_an_item_that_is_a_run_waits_for_is_shown_above(shop: Place) -> None:
    build(shop, line="gate")
    steps = RELEASE.replace("Build the app.", "each: app, web").replace("target: app", 'target: "{{item}}"')
    begin(shop, steps, code=3)
    day = shop.run_folder().parent.name
    waits = [f"{day}/{name} waits: compile: needs approval" for name in children(shop)]
    assert len(waits) == 2
    first = shop.looks("show", "job")[1].splitlines()[0]
    assert first == f"{day}/job: not driven, build~app: {waits[0]}, and 1 more"
    items = [line.strip() for line in shop.looks("show", "job", "build")[1].splitlines() if "waits:" in line]
    assert items == [f"▸ build~app: running, {waits[0]}", f"▸ build~web: running, {waits[1]}"]


def test_runs_go_four_deep_and_no_goal_runs_itself(shop: Place) -> None:
    books = shop.root / "runbooks"
    for number in range(1, 6):
        inner = f"```run\nuses: runbooks/n{number + 1}.md\n```" if number < 5 else "```sh\necho bottom\n```"
        (books / f"n{number}.md").write_text(f"# N\n\n## Steps\n\n### s\n{inner}\n")
    too_deep = begin(shop, "### s\n```run\nuses: runbooks/n1.md\n```\n", 2, "")
    assert "at most 4 deep" in too_deep.stderr
    assert begin(shop, "### s\n```run\nuses: runbooks/n2.md\n```\n", 0, "").stdout == "bottom\n"
    (books / "n5.md").write_text("# N\n\n## Steps\n\n### s\n```run\nuses: runbooks/n4.md\n```\n")
    looped = shop.agentfs("check", "runbooks/n4.md", code=2)
    through = "runbooks/n4.md -> runbooks/n5.md -> runbooks/n4.md"
    assert f"runbooks/n4.md would run itself: {through}" in looped.stderr + looped.stdout


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("uses: runbooks/bild.md", "there is no runbooks/bild.md"),
        ("uses: ../build.md", "is not a path in runbooks/"),
        ("uses: 'runbooks/{{params.jobs}}.md'", "a reference cannot be used here"),
        ("uses: runbooks/build.md", "the parameter 'target' (text) has no value: what is built"),
        ("uses: runbooks/build.md\nparams: {target: a, jobs: many}", "'jobs' (a whole number) cannot be \"many\""),
        ("uses: runbooks/build.md\nparams: {target: a, jobs: 1, tarjet: b}", "'tarjet'"),
        ("params: {}", "uses"),
    ],
)
def test_what_is_wrong_is_found_before_anything_runs(shop: Place, body: str, words: str) -> None:
    done = begin(shop, f"### s\n```run\n{body}\n```\n", 2)
    assert words in done.stderr
    assert not any(shop.runs.glob("*/job*"))


def test_a_run_is_not_allowed_unless_the_settings_say_so(shop: Place) -> None:
    (shop.root / "agentfs.toml").write_text("")
    assert "the tool 'run' is not allowed in this run" in begin(shop, code=2).stderr


def test_a_child_is_no_looser_than_its_parent(shop: Place) -> None:
    (shop.root / "agentfs.toml").write_text(ALLOWED + "[limits]\nrequests = 7\ncost_usd = 2.0\n")
    build(shop)
    begin(shop, front=f"{JOBS}\napprove: always\ntools: [run, shell]\nlimits: {{cost_usd: 1.5}}", code=3)
    shop.agentfs("approve", "job")
    shop.agentfs("resume", "job", code=3)
    run = shop.read("run.json", CHILD)
    assert (run["approve"], run["tools"], run["network"]) == ("always", ["shell", "run"], False)
    assert (run["limits"]["cost_usd"], run["limits"]["requests"]) == (1.5, 7)
    shop.agentfs("approve", CHILD)
    assert shop.agentfs("resume", "job").stdout == "got built app with 2\n"


def test_a_goal_that_may_do_more_than_the_parent_fails_the_step(shop: Place) -> None:
    text = (shop.root / "runbooks" / "build.md").read_text()
    (shop.root / "runbooks" / "build.md").write_text(text.replace("params:", "tools: [shell, note]\nparams:", 1))
    begin(shop, front=f"{JOBS}\ntools: [run, shell]", code=1)
    assert "'note' is not in [tools] allow" in result(shop)["error"]["message"]
    assert children(shop) == []


def test_a_child_works_where_its_parent_may(shop: Place) -> None:
    text = (shop.root / "runbooks" / "build.md").read_text()
    (shop.root / "runbooks" / "build.md").write_text(text.replace("params:", "workdir: /usr/share\nparams:", 1))
    begin(shop, code=1)
    assert "/usr/share" in result(shop)["error"]["message"]
    assert children(shop) == []


def test_a_loop_never_runs_a_goal(shop: Place) -> None:
    refused = begin(shop, "### think\nRun the build.\ntools: run\n", code=2)
    assert "'run'" in refused.stderr


def test_a_secret_is_no_value(shop: Place) -> None:
    (shop.root / "agentfs.toml").write_text(ALLOWED + 'env = ["API_TOKEN"]\n')
    secret = {"API_TOKEN": "s3cr3t-t0ken-0f-mine"}
    steps = """### a
```sh
printf '%s-0f-mine' s3cr3t-t0ken
```

### build
```run
uses: runbooks/build.md
params: {target: "{{steps.a.output}}", jobs: 1}
```
"""
    shop.agentfs("run", shop.runbook(steps), env=secret)
    assert "s3cr3t" not in str(shop.read("run.json", CHILD)["params"])
    files = [path for path in shop.runs.rglob("*") if path.is_file() and ".git" not in path.parts]
    assert [path for path in files if b"s3cr3t-t0ken-0f-mine" in path.read_bytes()] == []


def test_a_step_that_left_the_plan_lets_its_child_end(shop: Place) -> None:
    build(shop, line="gate")
    begin(shop, code=3)
    plan = shop.run_folder() / "plan.json"
    value = json.loads(plan.read_text())
    value["steps"] = [{"id": "other", "tool": "note", "input": {"text": "instead"}}]
    plan.write_text(json.dumps(value, indent=2))
    shop.agentfs("approve", CHILD)
    assert shop.agentfs("resume", "job").stdout == "instead\n"
    assert result(shop)["status"] == "done"
    assert Path(shop.run_folder(CHILD) / "outcome.json").exists()


def test_status_shows_the_tree(shop: Place) -> None:
    build(shop, line="gate")
    begin(shop, code=3)
    day = shop.run_folder().parent.name
    _, listed, _ = shop.looks("status")
    rows = [line for line in listed.splitlines() if CHILD in line or "/job " in line]
    assert rows[0].startswith(f"{day}/job ")
    waits = f"{day}/{CHILD} waits: compile: needs approval"
    assert f"build: {waits}" in rows[0]
    assert any(row.startswith(f"  {day}/{CHILD} ") and "needs approval" in row for row in rows[1:])
    _, one, _ = shop.looks("status", "job")
    assert f"{day}/{CHILD}  waiting" in one
    assert f"▸  build  running  {waits}\n" in one
    shown = shop.looks("show", "job")[1]
    assert shown.startswith(f"{day}/job: not driven, build: {waits}\n")
    assert f"\n    {waits}\n" in shown
    assert shop.looks("show", "job", "build")[1].startswith(f"▸ build: running, {waits}  ({day}/job)\n")
    found = {line["run"]: line for line in json.loads(shop.looks("status", "--json")[1])}
    assert (found[f"{day}/{CHILD}"]["parent"], "parent" in found[f"{day}/job"]) == (f"{day}/job", False)
    shop.agentfs("approve", CHILD)
    shop.agentfs("resume", "job")
    assert f"run: {day}/{CHILD} (agentfs show {day}/{CHILD})" in shop.looks("show", "job", "build")[1]


def test_a_fork_begins_a_child_of_its_own_only_for_what_is_done_again(shop: Place) -> None:
    begin(shop)
    shop.agentfs("fork", "job")
    shop.agentfs("resume", "job-2")
    assert children(shop) == ["job-2", CHILD], "the child's result was carried along"
    shop.agentfs("fork", "job", "-p", "jobs=3")
    assert shop.agentfs("resume", "job-3").stdout == "got built app with 3\n"
    assert children(shop) == ["job-2", "job-3", "job-3-build", CHILD]


def test_what_a_child_asks_of_models_counts_above_and_once_in_all(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        place = Place(tmp_path)
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        place.agentfs("init")
        price = "[executor]\nprice = {input = 0, output = 1000000}\n"
        settings = '[tools]\nsandbox = "off"\nallow = ["summarize", "run"]\n[limits]\ncost_usd = 3\nday_usd = 5\n'
        (place.root / "agentfs.toml").write_text(price + settings)
        (place.root / "runbooks").mkdir()
        (place.root / "runbooks" / "sum.md").write_text("# Sum\n\n## Steps\n\n### s\n```summarize\ntext: a\n```\n")
        server.says("short", tokens=(1, 0, 2, 0))
        server.says("shorter", tokens=(1, 0, 2, 0))
        steps = "### one\n```run\nuses: runbooks/sum.md\n```\n\n### two\n```run\nuses: runbooks/sum.md\n```\n"
        place.agentfs("run", place.runbook(steps))
        assert place.read("steps/one.1.result.json")["usage"]["cost_usd"] == 2
        assert place.read("run.json", "job-one")["limits"]["cost_usd"] == 3
        assert place.read("run.json", "job-two")["limits"]["cost_usd"] == 1, "what was left above"
        assert place.read("outcome.json")["usage"]["executor"]["cost_usd"] == 4
        assert json.loads(place.agentfs("cost", "job", "--json").stdout)["total"]["cost_usd"] == 4
        assert json.loads(place.agentfs("cost", "--since", "1d", "--json").stdout)["total"]["cost_usd"] == 4
        server.says("once more", tokens=(1, 0, 2, 0))  # 4 of 5 dollars are spent today, not 8
        place.agentfs("run", "runbooks/sum.md")


def test_a_step_of_a_planner_asks_before_each_run(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        place = Place(tmp_path)
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        place.agentfs("init")
        (place.root / "agentfs.toml").write_text(f'mode = "split"\napprove = "never"\n{ALLOWED}')
        (place.root / "runbooks").mkdir()
        build(place)
        step = {"id": "build", "description": "build it", "success_condition": "it is built", "tool": "run"}
        step["input"] = {"uses": "runbooks/build.md", "params": {"target": "app", "jobs": 1}}  # type: ignore[assignment]
        server.says(json.dumps({"steps": [step]}))
        done = place.agentfs("run", "Build the app, please", code=3)
        assert "build: needs approval" in done.stderr
        shown = json.dumps(server.requests[0]["messages"])
        assert (
            "runbooks/build.md: Build {{params.target}} (params: target: text, what is built; jobs: a whole" in shown
        )


def test_on_a_terminal_the_gate_of_a_child_is_asked_there(shop: Place) -> None:
    build(shop, line="gate")
    variables = {name: value for name, value in shop.env.items() if name != "COLUMNS"}
    words = ["run", shop.runbook(RELEASE, JOBS)]
    with OnTerminal(words, shop.root, variables, 100, 40, keyboard=True) as shown:
        shown.wait_to_see("compile: yes, no [why], show, edit, later", ">")
        shown.enter("yes")
        assert shown.wait() == (0, "got built app with 2\n")
    assert (shop.run_folder(CHILD) / "steps" / "compile.1.reply.md").read_text() == "approve\n"
