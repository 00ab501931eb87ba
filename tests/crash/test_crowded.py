"""When processes run out, as where a service has reached its `TasksMax=`, a daemon waits and goes on: no run is set aside,
no step fails, nothing is done twice."""

from pathlib import Path

from tests.daemons import Watching, book
from tests.workspaces import Place, wait_for

CROWDED = Path(__file__).with_name("crowded")


def test_a_daemon_waits_until_processes_can_be_started_again(tmp_path: Path) -> None:
    place, crowd = Place(tmp_path), tmp_path / "crowd"
    place.env["PYTHONPATH"] = f"{CROWDED}:{place.env['PYTHONPATH']}"
    place.agentfs("init")
    waits = "echo begun >> begun.txt; while [ ! -e go ]; do sleep 0.05; done; echo ended"
    with Watching(place, CROWDED=str(crowd)) as daemon:
        daemon.drop("before.md", book(waits, front="workdir: ."))
        wait_for((place.root / "begun.txt").exists, "the step that runs all the time")
        crowd.touch()
        for name in ("one", "two", "three"):
            goal = book(f"echo {name} >> {name}.txt", front="workdir: .", lines=f"check: `test -e {name}.txt`\n")
            daemon.drop(f"{name}.md", goal)
        daemon.wait_for_output("no process can be started now")
        (place.root / "go").touch()
        wait_for(lambda: ended(place) == ["before"], "the end of what was running")
        crowd.unlink()
        wait_for(lambda: len(ended(place)) == 4, "the end of all")
        daemon.wait_for_output("processes can be started again")
    output = daemon.output()
    assert "set aside" not in output
    assert output.count("no process can be started now") == output.count("processes can be started again") == 1
    assert [place.read("outcome.json", name)["status"] for name in ended(place)] == ["done"] * 4
    assert [(place.root / f"{name}.txt").read_text() for name in ("begun", "one", "two", "three")] == [
        *("begun\n", "one\n", "two\n", "three\n")
    ]
    assert sorted(path.name for path in place.runs.glob("*/*/steps/*.result.json")) == ["a.1.result.json"] * 4
    place.agentfs("verify")


def ended(place: Place) -> list[str]:
    return sorted(path.parent.name for path in place.runs.glob("*/*/outcome.json"))
