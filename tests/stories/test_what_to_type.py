"""What a command suggests can be typed as it is, and its consequences are shown first."""

import shlex
import signal

from tests.workspaces import Place, end, wait_for

WAITS = "### slow\nnot repeatable\n```sh\ntouch begun; while ! test -e go; do sleep 0.05; done\n```\n"
TWO = "### a\n```sh\necho a\n```\n\n### b\n```sh\necho b\n```\n"


def test_each_choice_after_a_cut_is_a_command_of_its_own(place: Place) -> None:
    process = place.begin("run", place.runbook(WAITS))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the slow step to begin")
    end(process, signal.SIGKILL)
    rests = place.agentfs("run", "--resume", "job", code=3).stderr.splitlines()
    typed = [line.partition("or type: ")[2] for line in rests if "or type: " in line]
    run = place.read("run.json")["run"]
    choices = [f"agentfs reply {run} slow {word}" for word in ("again", "done", "failed")]
    assert typed == choices
    listed = [line.strip() for line in place.agentfs("status").stdout.splitlines()[2:]]
    assert listed == choices
    assert place.agentfs("approve", "job", code=2).stderr.splitlines()[1:] == [f"  {one}" for one in choices]
    place.agentfs(*shlex.split(choices[1])[1:])  # as it was pasted
    assert place.agentfs("run", "--resume", "job").returncode == 0


def test_done_is_printed_once(place: Place) -> None:
    run = place.agentfs("run", place.runbook(TWO)).stderr.splitlines()[-1]
    assert run.endswith("/job: done, 2 of 2 steps (claimed, not checked)")
    for words in (("show", "job"), ("status", "job")):
        first = place.agentfs(*words).stdout.splitlines()[0]
        assert first.startswith(run.removesuffix(" (claimed, not checked)")), first
    assert "outcome: done, 2 of 2 steps\n" in place.agentfs("log", "job").stdout
    assert place.read("outcome.json")["summary"].startswith("2 of 2 steps done")  # the record is as it was


def test_a_skip_that_would_undo_what_is_done_is_refused_first(place: Place) -> None:
    place.agentfs("run", place.runbook(TWO))
    before = (place.run_folder() / "plan.json").read_bytes()
    refused = place.agentfs("skip", "job", "b", code=2).stderr
    assert "is done, and without b it would end failed: none of the plan's last steps was done" in refused
    assert "--force" in refused
    assert (place.run_folder() / "plan.json").read_bytes() == before
    assert place.read("outcome.json")["status"] == "done"
    place.agentfs("skip", "job", "b", "--force")
    place.agentfs("resume", "job", code=1)
    place.agentfs("skip", "job", "b", "--undo")
    place.agentfs("resume", "job")
    place.agentfs("skip", "job", "a")  # b is still done: nothing is lost by that
