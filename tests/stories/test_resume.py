"""`resume` takes a run up and drives it here, unless a watch does; no message suggests to drive a run that is driven."""

import signal

import pytest

from tests.daemons import Watching, book
from tests.workspaces import Place, end, wait_for

FAILS = "### ok\n```sh\necho ok\n```\n### bad\n```sh\ncat fixed\n```\nretries: 0\n"
GATE = "### send\n```sh\necho sent\n```\ngate\n"
SLOW = "### slow\nrepeatable\n```sh\ntouch begun; while ! test -e go; do sleep 0.02; done; echo end\n```\n"
BOTH = pytest.mark.parametrize("resume", [("resume",), ("run", "--resume")], ids=["resume", "run --resume"])


@BOTH
def test_a_failed_run_is_taken_up_and_driven(place: Place, resume: tuple[str, ...]) -> None:
    place.agentfs("run", place.runbook(FAILS), code=1)
    assert place.agentfs(*resume, "job", code=1).stdout == ""
    (place.run_folder() / "files" / "fixed").write_text("fixed\n")
    done = place.agentfs(*resume, "job")
    assert done.stdout == "fixed\n"
    assert "bad.2.again.md: will be retried" in done.stderr
    assert "nothing drives it" not in done.stderr
    assert place.agentfs(*resume, "job").stdout == "fixed\n"  # it is done: there is its answer


@BOTH
def test_a_run_that_was_stopped_goes_on(place: Place, resume: tuple[str, ...]) -> None:
    process = place.begin("run", place.runbook(SLOW))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step")
    output = place.agentfs(*resume, "job", code=2).stderr
    assert "is being driven by another agentfs" in output
    end(process)
    (place.run_folder() / "files" / "go").touch()
    assert place.agentfs(*resume, "job").stdout == "end\n"


@BOTH
def test_a_run_that_waits_for_a_person_says_for_what(place: Place, resume: tuple[str, ...]) -> None:
    place.agentfs("plan", place.runbook(GATE))
    assert "or type: agentfs approve" in place.agentfs(*resume, "job", code=3).stderr
    assert "it would go on as it is" in place.agentfs("resume", "job", "--dry-run").stderr
    place.agentfs("approve", "job")
    assert "send.1.question.md" in place.agentfs(*resume, "job", code=3).stderr
    place.agentfs("approve", "job")
    assert place.agentfs(*resume, "job").stdout == "sent\n"


@BOTH
def test_under_a_watch_it_is_left_to_the_watch(place: Place, resume: tuple[str, ...]) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", book("test -e fixed", "echo b", lines="retries: 0"))
        assert daemon.outcome("job")["status"] == "failed"
        (place.run_folder() / "files" / "fixed").touch()
        taken_up = place.agentfs(*resume, "job")
        assert taken_up.stdout == ""
        assert taken_up.stderr.splitlines()[-1] == "`agentfs watch` goes on with it"
        assert daemon.outcome("job")["status"] == "done"
        daemon.drop("gated.md", f"# Job\n\n## Steps\n\n{GATE}")
        daemon.wait_for_output("gated: waits: ")
        place.agentfs("pause", "gated")
        output = place.agentfs(*resume, "gated").stderr
        assert output.splitlines()[-1] == "`agentfs watch` goes on with it"


def test_under_a_watch_no_message_suggests_resume(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", book("echo a", "echo b"))
        assert daemon.outcome("job")["status"] == "done"
        for words in (("retry", "job", "a"), ("skip", "job", "a"), ("restore", "job@1"), ("fork", "job")):
            output = place.agentfs(*words).stderr
            assert "run --resume" not in output, words
            assert "nothing drives it" not in output, words
            wait_for((place.run_folder() / "outcome.json").exists, f"the end after {words}")
        daemon.drop("waits.md", f"# Job\n\n## Steps\n\n{GATE}")
        daemon.wait_for_output("waits: waits: ")
        assert "run --resume" not in place.agentfs("cancel", "waits").stderr
        assert daemon.outcome("waits")["status"] == "cancelled"


def test_run_beside_a_watch_leaves_what_waits_to_the_watch(place: Place) -> None:
    with Watching(place) as daemon:
        output = place.agentfs("run", place.runbook(GATE), code=3).stderr
        assert output.splitlines()[-1] == "`agentfs watch` goes on with it"
        assert "run --resume" not in place.agentfs("status", "job").stdout
        place.agentfs("approve", "job")
        assert daemon.outcome("job")["status"] == "done"


def test_a_stopped_watch_drives_nothing(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", f"# Job\n\n## Steps\n\n{GATE}")
        daemon.wait_for_output("job: waits: ")
        daemon.end(signal.SIGTERM)
        assert "nothing drives it" in place.agentfs("approve", "job").stderr
        assert place.agentfs("resume", "job").stdout == "sent\n"


CHECKED = """---
checks: ["grep -q ready report.txt"]
---
# Report

## Steps

### write
```sh
echo ready > report.txt; echo written
```
"""


def test_a_done_run_is_checked_again_when_it_is_resumed(place: Place) -> None:
    place.agentfs("run", place.goal(CHECKED))
    assert place.agentfs("resume", "job").stdout == "written\n"
    assert place.read("outcome.json")["proof"]["by"]["person"] == 1
    (place.run_folder() / "files/report.txt").write_text("spoiled\n", encoding="utf-8")
    place.agentfs("resume", "job", code=1)
    outcome = place.read("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("failed", "goal_checks_failed")
    assert [path.name for path in sorted((place.run_folder() / "steps").glob("*.result.json"))] == [
        "write.1.result.json"
    ]
