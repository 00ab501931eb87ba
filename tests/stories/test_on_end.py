"""`on_end`: a person's own command, run at most once for each end of a run."""

import json

from tests.daemons import Watching, book
from tests.workspaces import Place, wait_for

TELL = """on_end = 'echo "$AGENTFS_RUN|$AGENTFS_STATUS|$AGENTFS_REASON|$AGENTFS_SUMMARY" >> notices'\n"""


def notices(place: Place) -> list[str]:
    path = place.root / "notices"
    return path.read_text().splitlines() if path.exists() else []


def events(place: Place) -> list[str]:
    lines = (place.run_folder() / "on_end.log.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


def begin(place: Place, settings: str = TELL) -> str:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(settings)
    place.runbook("### a\n```sh\ntest -e go && echo ok\n```\n")
    place.agentfs("run", "job.md", code=1)
    return f"{place.run_folder().parent.name}/job"


def test_each_outcome_is_reported_once(place: Place) -> None:
    run = begin(place)
    assert [line.split("|")[:3] for line in notices(place)] == [[run, "failed", "step_failed"]]
    assert events(place) == ["ending", "begins", "ended"]
    (place.run_folder() / "files" / "go").touch()
    place.agentfs("resume", "job")
    assert [line.split("|")[:3] for line in notices(place)] == [
        [run, "failed", "step_failed"],
        [run, "done", "steps_done"],
    ]
    with Watching(place) as daemon:
        daemon.drop("other.md", book("echo x"))
        wait_for(lambda: len(notices(place)) == 3, "the other run to be reported")
    assert len([line for line in notices(place) if line.startswith(f"{run}|")]) == 2
    place.ledger_is_sound()


def test_a_crash_before_the_command_began_is_made_up_for_and_one_after_is_not(place: Place) -> None:
    run = begin(place)
    log = place.run_folder() / "on_end.log.jsonl"
    (place.root / "notices").unlink()
    announced = log.read_text().splitlines(keepends=True)[0]
    log.write_text(announced)  # as a kill between the outcome and the command leaves it
    with Watching(place):
        wait_for(lambda: len(notices(place)) == 1, "the end to be reported")
    assert [line.split("|")[:2] for line in notices(place)] == [[run, "failed"]]
    assert events(place) == ["ending", "begins", "ended"]
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))  # killed while it ran
    with Watching(place) as daemon:
        daemon.drop("other.md", book("echo x"))
        wait_for(lambda: len(notices(place)) == 2, "another run to be reported")
    assert len([line for line in notices(place) if line.startswith(f"{run}|")]) == 1


def test_what_ended_before_there_was_a_command_is_not_reported(place: Place) -> None:
    begin(place, "")
    (place.root / "agentfs.toml").write_text(TELL)
    with Watching(place) as daemon:
        daemon.drop("other.md", book("echo x"))
        wait_for(lambda: len(notices(place)) == 1, "the new run to be reported")
    assert notices(place)[0].split("|")[0].endswith("/other")


def test_a_command_that_fails_is_reported_and_holds_nothing_up(place: Place) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text("on_end = 'echo no such bell; exit 7'\n")
    done = place.agentfs("run", place.runbook("### a\n```sh\necho ok\n```\n"))
    assert done.stdout == "ok\n"
    run = f"{place.run_folder().parent.name}/job"
    assert f"on_end exited with 7: no such bell ({run} has ended)" in done.stderr


def test_a_run_that_nobody_drives_is_reported_when_it_is_cancelled(place: Place) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(TELL)
    place.agentfs("run", place.runbook("### a\ngate\n```sh\necho ok\n```\n"), code=3)
    assert notices(place) == []
    place.agentfs("cancel", "job")
    assert [line.split("|")[1:3] for line in notices(place)] == [["cancelled", "cancelled"]]
