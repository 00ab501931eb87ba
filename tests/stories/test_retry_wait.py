"""A step that waits before it is tried again: twice as long each time, visibly, and no longer than it has to."""

import re
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.daemons import Watching
from tests.workspaces import Place, end, wait_for

THIRD_TIME = "### fetch\n```sh\necho x >> tries\ntest $(wc -l < tries) -ge 3\n```\nretries: 3 every {pause}\n"
NEVER = "### fetch\n```sh\necho no route >&2\nexit 7\n```\nretries: 3 every 1h\n### tell\n```sh\necho hello\n```\n"


def seconds(one: str, other: str) -> float:
    return (datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds()


def check_pauses(place: Place, name: str, pause: float) -> None:
    """Every try began when it was due, and not much later."""
    results: list[Any] = [place.read(f"steps/fetch.{number}.result.json", name) for number in (1, 2, 3)]
    assert [result["status"] for result in results] == ["failed", "failed", "done"]
    waits = [seconds(one["ended_at"], one["retry_at"]) for one in results[:2]]
    assert waits == [pause, 2 * pause]
    assert results[2]["retry_at"] is None
    for number, result in enumerate(results[:2], start=2):
        began = place.read(f"steps/fetch.{number}.json", name)["issued_at"]
        assert 0 <= seconds(result["retry_at"], began) < 9, "sooner than the next look that comes anyway"


def test_a_run_waits_before_each_try_and_wakes_in_time(place: Place) -> None:
    done = place.agentfs("run", place.runbook(THIRD_TIME.format(pause="0.3s")))
    check_pauses(place, "job", 0.3)
    waits = re.findall(r"fetch: FAILED .*; (retrying in .*)", done.stderr)
    assert waits == ["retrying in 0.3 s", "retrying in 0.6 s"]
    assert place.read("plan.json")["steps"][0] | {"input": {}} == {
        "id": "fetch",
        "tool": "shell",
        "input": {},
        "depends_on": [],
        "max_attempts": 4,
        "retry_wait_s": 0.3,
    }
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same 1 call")


def test_a_daemon_does_too_and_others_go_on_meanwhile(tmp_path: Path) -> None:
    with Watching(Place(tmp_path)) as daemon:
        daemon.drop("waits.md", f"# Wait\n\n## Steps\n\n{NEVER}")
        daemon.drop("slow.md", f"# Slow\n\n## Steps\n\n{THIRD_TIME.format(pause='0.5s')}")
        assert daemon.outcome("slow")["status"] == "done"
        check_pauses(daemon.place, "slow", 0.5)
        daemon.wait_for_output("fetch: FAILED")
        daemon.place.agentfs("retry", "waits", "fetch")
        folder = daemon.place.run_folder("waits")
        wait_for((folder / "steps" / "fetch.2.result.json").exists, "a person's retry, which waits for nothing")
        assert not (folder / "outcome.json").exists()


def test_it_says_when_the_next_try_is_and_a_person_need_not_wait(place: Place) -> None:
    process = place.begin("run", place.runbook(NEVER))
    wait_for((lambda: any(place.runs.glob("*/job/steps/fetch.1.result.json"))), "the first try")
    due = place.read("steps/fetch.1.result.json")["retry_at"]
    at = f"at {due[:10]} {due[11:19]} UTC"
    why = f"fetch: attempt 1 failed: exit code 7: no route; attempt 2 of 4 follows {at}"
    page = place.run_folder() / "STATUS.md"
    wait_for(lambda: page.exists() and f"**running**: {why}" in page.read_text(), "STATUS.md that says so")
    assert why in place.agentfs("status").stdout
    assert place.agentfs("status", "--json", "job").stdout.count("follows at") >= 1
    code, _, output = end(process, signal.SIGINT)
    assert (code, output.count("retrying in 1 h 0 min")) == (130, 1), output
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace('"retry_wait_s": 3600', '"retry_wait_s": 0'))
    place.agentfs("run", "--resume", "job", code=1)
    results = [place.read(f"steps/fetch.{number}.result.json") for number in (2, 3, 4)]
    assert [result["retry_at"] for result in results] == [None, None, None]
