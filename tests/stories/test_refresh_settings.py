"""A run keeps the settings it began with, until a person gives it today's [tools]: an edit of plan.json, in the ledger."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.webs import web
from tests.workspaces import Place, end, wait_for

ADA = {"GIT_AUTHOR_NAME": "Ada"}
STOPPING = Path(__file__).parent.parent / "crash" / "stopping"


def settings(place: Place, text: str) -> None:
    (place.root / "agentfs.toml").write_text(f"[tools]\n{text}\n", encoding="utf-8")


def outside(place: Place) -> Path:
    """Make a file that no tool is shown."""
    data = place.root.parent / "data"
    data.mkdir()
    (data / "numbers").write_text("42\n")
    return data


@pytest.fixture
def failed(place: Place) -> str:
    """A run that failed because a step reads outside; return its id. The settings have changed since."""
    data = outside(place)
    place.agentfs("run", place.runbook(f"### a\n```sh\ncat {data}/numbers\n```\n"), code=1)
    settings(place, f'read = ["{data}"]')
    return f"{place.run_folder().parent.name}/job"


@pytest.mark.disk
def test_a_hint_names_what_works_and_it_does(place: Place, failed: str) -> None:
    data = place.root.parent / "data"
    error = place.read("steps/a.1.result.json")["error"]
    command = f"agentfs resume {failed} --refresh-settings"
    assert error["hint"] == (
        f"tools do not see {data}/numbers: if it is there, add its folder to read under [tools] in agentfs.toml, "
        f"then: {command}"
    )
    assert place.agentfs("run", "--resume", "job", code=1).stdout == ""  # that alone is not enough
    began = (place.run_folder() / "run.json").read_bytes()
    done = place.agentfs(*command.split()[1:], env=ADA)
    assert f'runs/{failed}/plan.json: "read" of "tools" is now ["{data}"] (it was [])' in done.stderr
    assert done.stdout == "42\n"
    assert place.read("plan.json")["tools"] == {"read": [str(data)]}
    assert (place.run_folder() / "run.json").read_bytes() == began
    assert place.read("revisions/2.json")["by"] == {"role": "person", "name": "Ada", "model": None}
    assert place.read("revisions/2.json")["changes"] == [{"step": None, "what": f"tools.read: {data}"}]
    assert "Ada job: revision 2, edited by Ada" in place.log()
    assert f"- plan: tools.read: {data}" in place.git("log", "--format=%b")
    place.agentfs("verify")
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")
    assert "tools.read" in place.agentfs("blame", "job").stdout


def test_resuming_and_refreshing_is_one_command_and_doing_it_twice_changes_nothing(place: Place, failed: str) -> None:
    done = place.agentfs("run", "--resume", "job", "--refresh-settings")
    assert (done.stdout, place.read("outcome.json")["status"]) == ("42\n", "done")
    again = place.agentfs("run", "--resume", "job", "--refresh-settings", code=2)
    assert "is done: nothing to resume" in again.stderr
    assert "goes with --resume" in place.agentfs("run", "job.md", "--refresh-settings", code=2).stderr
    assert [one.name for one in place.runs.glob("20*/*")] == ["job"]


def test_a_plan_that_needs_the_network_is_taken_once_the_run_has_it(place: Place) -> None:
    with web(page=lambda page: page.answer(b"hello")) as server:
        place.agentfs("run", place.runbook("### a\ngate\n```sh\ntrue\n```\n"), code=3)
        plan = place.run_folder() / "plan.json"
        url = {"tool": "http_get", "input": {"url": f"{server.url}/page"}, "gate": None}
        value = json.loads(plan.read_text())
        value["steps"][0] |= url
        plan.write_text(json.dumps(value))
        run = f"{plan.parent.parent.name}/job"
        place.agentfs("run", "--resume", "job", code=3)
        error = (plan.parent / "plan.error.md").read_text()
        assert (
            f"set network = true under [tools] in agentfs.toml, then: agentfs resume {run} --refresh-settings"
            in error
        )
        settings(place, f'network = true\nhosts = ["127.0.0.1:{server.port}"]')
        place.agentfs("run", "--resume", "job", code=3)
        done = place.agentfs("resume", "job", "--refresh-settings")
        assert '"network" of "tools" is now true (it was false)' in done.stderr
        assert done.stdout == "hello\n"
    assert place.read("plan.json")["tools"] == {"network": True, "hosts": [f"127.0.0.1:{server.port}"]}
    settings(place, "")
    place.agentfs("retry", "job", "a")
    refused = place.agentfs("resume", "job", "--refresh-settings", code=2).stderr  # the plan needs what is gone
    assert "the tool 'http_get' needs the network" in refused
    assert place.read("plan.json")["tools"]["network"] is True


def test_tightened_settings_reach_a_run_too_and_a_goal_may_still_only_tighten(place: Place) -> None:
    place.agentfs("init")
    settings(place, 'read = ["/srv"]\nallow = ["shell", "note", "ask"]')
    place.agentfs("run", place.runbook("### a\ngate\n```sh\ntrue\n```\n", front="tools: [shell, note]"), code=3)
    settings(place, 'allow = ["shell", "python", "ask", "note"]')
    output = place.agentfs("resume", "job", "--refresh-settings", code=3).stderr
    assert '"read" of "tools" is now [] (it was ["/srv"])' in output
    assert place.read("plan.json")["tools"] == {"read": []}
    settings(place, 'read = ["/srv"]\nallow = ["shell", "note"]')
    place.agentfs("resume", "job", "--refresh-settings", code=3)
    assert "tools" not in place.read("plan.json")  # it is what the run began with
    again = place.agentfs("resume", "job", "--refresh-settings", code=3).stderr
    assert f"[tools] in agentfs.toml is what {place.run_folder().parent.name}/job has already" in again


def test_a_fork_begins_with_the_settings_of_today(place: Place, failed: str) -> None:
    data = place.root.parent / "data"
    output = place.agentfs("fork", "job", "--name", "again").stderr
    assert f'as agentfs.toml has it today: "read" of "tools" is now ["{data}"] (it was [])' in output
    assert place.agentfs("run", "--resume", "again").stdout == "42\n"
    assert place.read("run.json", "again")["read"] == [str(data)]
    assert "tools" not in place.read("plan.json", "again")


def test_under_watch_the_next_attempt_has_them_and_what_it_is_given_is_masked(place: Place) -> None:
    place.agentfs("init")
    watching = place.begin("watch", env={"GIVEN": "hush-hush-7"})
    try:
        place.runbook('### first\n```sh\ntrue\n```\n### a\ngate\n```sh\necho "$GIVEN"\n```\n', name="goals/job.md")
        wait_for(lambda: any(place.runs.glob("*/job/steps/a.1.question.md")), "the gate, behind a step without it")
        settings(place, 'env = ["GIVEN"]')
        place.agentfs("resume", "job", "--refresh-settings")
        wait_for((place.run_folder() / "revisions" / "2.json").exists, "the edit to be in force")
        place.agentfs("approve", "job")
        wait_for(lambda: _status(place) == "done", "the run to be done")
    finally:
        end(watching, signal.SIGTERM)
    assert place.read("outcome.json")["answer"] == "[secret GIVEN]"
    files = [path.read_bytes() for path in place.run_folder().rglob("*") if path.is_file()]
    assert not any(b"hush-hush-7" in content for content in files)
    place.ledger_is_sound()


def _status(place: Place) -> str | None:
    path = place.run_folder() / "outcome.json"
    return json.loads(path.read_text())["status"] if path.exists() else None


def test_killed_anywhere_the_command_is_typed_again(place: Place, failed: str) -> None:
    """It is stopped after each thing it makes durable before the run goes on, and killed there."""
    folder, kept = place.run_folder(), place.root.parent / "kept"
    shutil.copytree(folder, kept)
    read = {"read": [str(place.root.parent / "data")]}
    found: list[object] = []
    while _killed_after(place, len(found) + 1):  # the outcome goes last
        found.append(place.read("plan.json").get("tools"))
        assert place.agentfs("resume", "job", "--refresh-settings").stdout == "42\n"
        assert place.read("plan.json")["tools"] == read
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
    edited = found.index(read)  # the plan is the old one, or the new one
    assert found == [None] * edited + [read] * (len(found) - edited)
    assert place.agentfs("resume", "job").stdout == "42\n"  # killed after that, it goes on
    assert place.read("plan.json")["tools"] == read


def _killed_after(place: Place, stops: int) -> bool | None:
    """Kill the command at its nth stop; return whether the run is still an ended one, None if it came to its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agentfs", "resume", "job", "--refresh-settings"],
        cwd=place.root,
        env={**place.env, "PYTHONPATH": f"{STOPPING}:{place.env['PYTHONPATH']}"},
        stderr=subprocess.DEVNULL,
    )
    for number in range(stops):
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            return None
        if number < stops - 1:
            process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()
    return (place.run_folder() / "outcome.json").exists()
